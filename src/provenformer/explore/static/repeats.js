// Repeated tokens: the plane of the first two tokens, in the paper's construction and in ours.

import { colourScale, column, d3, layer, number, picture, table, tokenName } from "./draw.js";
import { START, asking, inAddress } from "./page.js";
import { tokenPicture } from "./tokens.js";

function plane(host, label) {
  return picture(host, label, (svg, { heat, tokens, colours }, width) => {
    const size = Math.min(width, 340);
    const pad = 26;
    const cells = heat.length;
    const x = d3.scaleLinear([0, 1], [pad, size - 6]);
    const y = d3.scaleLinear([0, 1], [size - pad, 6]);
    const step = x(1 / cells) - x(0);
    const flat = heat.flatMap((row, b) => row.map((value, a) => ({ a, b, value })));
    layer(svg, "cells").selectAll("rect").data(flat).join("rect").attr("class", "edge")
      .attr("x", (c) => x(c.a / cells)).attr("y", (c) => y((c.b + 1) / cells)).attr("width", step).attr("height", step)
      .attr("data-value", (c) => c.value).attr("fill", (c) => (c.value === 0 ? "var(--card)" : colours(c.value)));
    layer(svg, "crosses").selectAll("path").data(flat.filter((c) => c.value === 0)).join("path").attr("class", "lost")
      .attr("d", (c) => {
        const [cx, cy, r] = [x((c.a + 0.5) / cells), y((c.b + 0.5) / cells), step * 0.16];
        return `M${cx - r},${cy - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`;
      });
    layer(svg, "names").selectAll("text").data(["x₁", "x₂"]).join("text")
      .attr("x", (_, i) => (i ? 12 : x(0.5))).attr("y", (_, i) => (i ? y(0.5) : size - 6)).attr("text-anchor", "middle").text((t) => t);
    const here = layer(svg, "here", "circle").attr("r", 7);
    const inside = tokens[0][0] >= 0 && tokens[0][0] < 1 && tokens[1][0] >= 0 && tokens[1][0] < 1;
    here.attr("cx", x(tokens[0][0])).attr("cy", y(tokens[1][0])).attr("visibility", inside ? null : "hidden");
    return size;
  });
}

export function repeatsPage(asked) {
  const slider = document.getElementById("rp-cells");
  const model = { tokens: START };
  const planes = { paper: plane("rp-paper", "Output of the paper's network"), sum: plane("rp-sum", "Output of the sum network") };
  const legend = colourScale("rp-scale", "output of x₁");
  const picked = tokenPicture("rp-tokens", (j, token) => {
    model.tokens = model.tokens.map((old, k) => (k === j ? token : old));
    change();
  });
  const send = asking("/api/repeats", "rp", (answer) => {
    const { tokens } = model;
    const all = Object.values(answer.constructions).flatMap((c) => c.heat.flat()).filter((v) => v !== 0);
    const paint = d3.interpolateRgb("#d5e9ea", "#0b6b74");
    const scale = d3.scaleLinear(d3.extent(all), [0, 1]);
    legend({ ends: d3.extent(all), paint: (v) => paint(scale(v)) });
    for (const [name, draw] of Object.entries(planes)) {
      draw({ heat: answer.constructions[name].heat, tokens, colours: (v) => paint(scale(v)) });
    }
    const where = answer.tokens_in.map((cell, j) => `${tokenName(j)} in ${cell}`).join(", ");
    document.getElementById("rp-state").textContent = answer.repeated
      ? `Cells: ${where}. Two tokens share a cell: the paper's network gives 0.`
      : `Cells: ${where}. All different: both networks give the value of the cube.`;
    const { paper, sum } = answer.constructions;
    const outputs = tokens.map((_, j) => [
      { text: tokenName(j), className: `n${j + 1}` }, { text: column(answer.target[j]), value: answer.target[j][0] },
      { text: column(paper.output[j]), value: paper.output[j][0], className: answer.repeated ? "bad" : null },
      { text: column(sum.output[j]), value: sum.output[j][0] },
    ]);
    const share = (c) => ({ text: `${(100 * c.lost_share).toFixed(1)} %`, value: c.lost_share });
    table("rp-table", ["output", "target f", "paper", "sum"], [
      ...outputs,
      ["cubes lost", "", share(paper), share(sum)],
      ["certified d₂ ≤", "", { text: number(paper.bound), value: paper.bound }, { text: number(sum.bound), value: sum.bound }],
      ["layers", "", number(paper.layers), number(sum.layers)],
    ]);
  });
  function change() {
    document.getElementById("rp-cells-value").textContent = slider.value;
    const { tokens } = model;
    picked({ tokens, cells: Number(slider.value), room: 0 });
    send({ cells: slider.value, tokens });
    state.keep();
  }
  slider.addEventListener("input", change);
  const state = inAddress("repeats", { cells: slider }, model, change);
  state.restore(asked);
  return state;
}
