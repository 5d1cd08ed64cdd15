// Theorem 2: a finer grid, a closer staircase; swapped tokens, swapped outputs.

import { curves, facts, number, picture, table } from "./draw.js";
import { START, asking, inAddress, outputRow } from "./page.js";
import { tokenPicture } from "./tokens.js";

export function theorem2Page(asked) {
  const slider = document.getElementById("t2-cells");
  const model = { tokens: START };
  const slice = picture("t2-slice", "Output of the first token", (svg, data, width) =>
    curves(svg, data.slice, width, { at: data.at, label: "x₁" }));
  const picked = tokenPicture("t2-tokens", (j, token) => {
    model.tokens = model.tokens.map((old, k) => (k === j ? token : old));
    change();
  });
  const send = asking("/api/theorem-2", "t2", (answer) => {
    slice({ slice: answer.slice, at: model.tokens[0][0] });
    facts("t2-facts", [
      ["certified distance, d₂ ≤", number(answer.bound), answer.bound],
      ["measured distance", number(answer.measured), answer.measured],
      ["blocks", number(answer.blocks), answer.blocks],
      ["every swap of neighbours", answer.equivariant ? "swaps outputs exactly" : "fails"],
    ]);
    table("t2-outputs", ["token", "input", "target f", "network g", "difference"],
      answer.target.map((f, j) => outputRow(j, model.tokens[j], f, answer.output[j])));
  });
  function change() {
    document.getElementById("t2-cells-value").textContent = slider.value;
    const { tokens } = model;
    picked({ tokens, cells: Number(slider.value), room: 0 });
    send({ cells: slider.value, tokens });
    state.keep();
  }
  slider.addEventListener("input", change);
  document.getElementById("t2-swap").addEventListener("click", () => {
    const [x1, x2, x3] = model.tokens;
    model.tokens = [x2, x1, x3];
    change();
  });
  const state = inAddress("theorem-2", { cells: slider }, model, change);
  state.restore(asked);
  return state;
}
