// Value bumps: for each token the bump that should fire, with its id on it; and the ids of all contexts on one line.

import { axis, colour, d3, layer, number, picture, tokenName, write } from "./draw.js";

const NEAR = 70; // pixels within which marks share a label
const REACH = 1.5; // units of id around a bump that are drawn

function paintBump(svg, { bump, index }, width) {
  const height = 104;
  const base = height - 26;
  const x = d3.scaleLinear([-REACH, REACH], [10, width - 10]);
  const y = d3.scaleLinear([0, 1], [base, 20]);
  layer(svg, "area", "path").attr("d", d3.area((d) => x(d[0]), base, (d) => y(Math.max(0, Math.min(1, d[1]))))(bump.curve));
  axis(svg, "x", x, `translate(0,${base})`, { ticks: [-1, 0, 1], format: (v) => (v > 0 ? `+${v}` : v) });
  const off = bump.at === null ? 0 : bump.id - bump.at;
  const inside = Math.abs(off) <= REACH;
  const dot = layer(svg, "dot");
  if (dot.select("circle").empty()) {
    dot.append("circle").attr("r", 10);
    dot.append("text");
  }
  dot.attr("visibility", bump.at === null ? "hidden" : null)
    .attr("transform", `translate(${x(Math.max(-REACH, Math.min(REACH, off)))},${y(inside ? Math.max(0, Math.min(1, bump.share)) : 0.5)})`);
  dot.select("circle").attr("class", colour(index));
  write(dot.select("text"), inside ? tokenName(index) : off < 0 ? "←" : "→");
  return height;
}

function verdict(bump) {
  if (!bump.expected && !bump.fired) return ["No bump waits for this id: the output is 0.", false];
  if (bump.hit) return ["The bump fires.", false];
  if (!bump.expected) return ["A bump fires that should not.", true];
  if (!bump.fired) return ["Missed: no bump fires.", true];
  return [bump.share >= 0.999 ? "Another bump fires first." : "Missed: the bump does not fire fully.", true];
}

export function valuePictures() {
  const draws = [];
  let ticks = {};
  const strip = picture("context-ids", "Ids of all contexts", (svg, { contexts, bumps }, width) => {
    const x = d3.scaleLinear([contexts.low, contexts.high], [12, width - 12]);
    const y = 24;
    if (ticks.contexts !== contexts || ticks.width !== width) { // hundreds of ticks, the same for every input
      layer(svg, "id-tick", "path").attr("d", contexts.all.map((id) => `M${x(id).toFixed(1)},${y - 12}v24`).join(""));
      ticks = { contexts, width };
    }
    const inside = bumps.map((b, j) => ({ j, id: b.id })).filter((b) => b.id >= contexts.low && b.id <= contexts.high);
    const marks = layer(svg, "marks").selectAll("path").data(inside).join("path");
    marks.attr("class", (b) => colour(b.j)).attr("d", (b) => `M${x(b.id)},${y + 14}l-6,11h12z`);
    const groups = d3.groups(inside, (b) => Math.round(x(b.id) / NEAR)).map(([, near]) => near);
    layer(svg, "mark-names").selectAll("text").data(groups).join("text").attr("text-anchor", "middle").attr("y", y + 41)
      .attr("x", (near) => Math.max(36, Math.min(width - 36, x(d3.mean(near, (b) => b.id)))))
      .call(write, (near) => near.map((b) => tokenName(b.j)).join(" "));
    return y + 48;
  });
  return (look, contexts) => {
    const boxes = d3.select("#bumps").selectAll("div.bump").data(look.bumps).join((enter) => {
      const box = enter.append("div").attr("class", "bump");
      box.append("div").attr("class", "picture");
      box.append("p");
      return box;
    });
    boxes.each(function paint(bump, j) {
      draws[j] = draws[j]?.box === this ? draws[j] : { box: this, draw: picture(this.firstChild, `Bump of token ${j + 1}`, paintBump) };
      draws[j].draw({ bump, index: j });
      const [text, bad] = verdict(bump);
      const line = this.lastChild;
      line.className = bad ? "bad" : "";
      line.dataset.id = bump.id;
      line.textContent = "";
      const name = Object.assign(document.createElement("span"), { className: `n${j + 1}`, textContent: `${tokenName(j)} ` });
      line.append(name, `id ${number(bump.id)}${bump.at === null ? "" : `, bump at ${number(bump.at)}`}. ${text}`);
    });
    document.getElementById("context-text").textContent =
      `All ${number(contexts.all.length)} ids that carry a value, between ${number(contexts.low)} and ${number(contexts.high)}:`;
    strip({ contexts, bumps: look.bumps });
  };
}
