// Theorem 3: positions put every token into an interval of its own; without them the best is an average over orders.

import { axis, calm, colour, column, d3, facts, layer, number, picture, table, tokenName, typeset } from "./draw.js";
import { START, asking, inAddress } from "./page.js";
import { tokenPicture } from "./tokens.js";

const CELLS = 4;

export function theorem3Page(targets, asked) {
  const choice = document.getElementById("t3-target");
  const positions = document.getElementById("t3-positions");
  for (const target of targets.filter((t) => !t.equivariant)) choice.append(new Option(target.name, target.name));
  const model = { tokens: START };
  let answer = null;

  const line = picture("t3-line", "Tokens as the network sees them", (svg, { places }, width) => {
    const n = places.length;
    const base = 96;
    const x = d3.scaleLinear([0, n], [16, width - 16]);
    layer(svg, "windows").selectAll("rect").data(d3.range(n)).join("rect").attr("class", "cell")
      .attr("x", (j) => x(j) + 2).attr("width", x(1) - x(0) - 4).attr("y", 24).attr("height", base - 24).attr("rx", 4);
    layer(svg, "numbers").selectAll("text").data(d3.range(n)).join("text")
      .attr("x", (j) => x(j + 0.5)).attr("y", 16).attr("text-anchor", "middle").text((j) => `position ${j + 1}`);
    axis(svg, "x", x, `translate(0,${base})`, { ticks: d3.range(n + 1) });
    const dots = layer(svg, "dots").selectAll("g.dot").data(places).join((enter) => {
      const g = enter.append("g").attr("class", "dot");
      g.append("circle").attr("r", 12).attr("class", (_, j) => colour(j));
      g.append("text").text((_, j) => tokenName(j));
      return g.attr("transform", (v, j) => `translate(${x(v)},${42 + j * 18})`);
    });
    (calm.matches ? dots : dots.transition().duration(400)).attr("transform", (v, j) => `translate(${x(v)},${42 + j * 18})`);
    return base + 30;
  });
  const picked = tokenPicture("t3-tokens", (j, token) => {
    model.tokens = model.tokens.map((old, k) => (k === j ? token : old));
    change();
  });

  function show() {
    const { tokens } = model;
    const on = positions.checked;
    const output = on ? answer.output : answer.without;
    line({ places: on ? answer.moved.map((t) => t[0]) : tokens.map((t) => t[0]) });
    typeset("t3-formula", targets.find((t) => t.name === choice.value));
    document.getElementById("t3-refusal").textContent = answer.refusal;
    table("t3-outputs", ["token", "input", "target f", on ? "network with positions" : "best without positions", "difference"],
      answer.target.map((f, j) => [
        { text: tokenName(j), className: `n${j + 1}` }, column(tokens[j]), { text: column(f), value: f[0] },
        { text: column(output[j]), value: output[j][0] }, number(Math.abs(f[0] - output[j][0])),
      ]));
    facts("t3-facts", [
      ["with positions, N = 4: certified d₂ ≤", number(answer.bound), answer.bound],
      ["without positions: d₂ at least about", number(answer.without_distance), answer.without_distance],
    ]);
  }
  const send = asking("/api/theorem-3", "t3", (fresh) => { answer = fresh; show(); });
  function change() {
    const { tokens } = model;
    picked({ tokens, cells: CELLS, room: 0, closed: true });
    send({ target: choice.value, tokens });
    state.keep();
  }
  choice.addEventListener("change", change);
  const state = inAddress("theorem-3", { target: choice, positions }, model, change);
  positions.addEventListener("change", () => { if (answer) show(); state.keep(); });
  state.restore(asked);
  return state;
}
