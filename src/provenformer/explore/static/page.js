// What the four pages of one idea share: three tokens that can be moved, a request on every change, an error line.

import { keep, tokensAsText, tokensFromText } from "./address.js";
import { ask, latest } from "./api.js";
import { column, number, tokenName } from "./draw.js";

export const START = [[0.13], [0.47], [0.87]];

export function asking(path, prefix, show) {
  const line = document.getElementById(`${prefix}-error`);
  return latest((fields) => ask(path, fields), (answer) => { line.textContent = ""; show(answer); },
    (error) => { line.textContent = error.message; });
}

export function outputRow(j, input, target, output) {
  const off = Math.max(...target.map((v, i) => Math.abs(v - output[i])));
  return [
    { text: tokenName(j), className: `n${j + 1}` }, column(input), { text: column(target), value: target[0] },
    { text: column(output), value: output[0] }, number(off),
  ];
}

// What a page has in its address: the values of its controls by name, and its tokens. `changed` shows them.
export function inAddress(page, controls, model, changed) {
  const state = () => ({
    ...Object.fromEntries(Object.entries(controls).map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.value])),
    ...(model.tokens && { x: tokensAsText(model.tokens) }),
  });
  const usual = state();
  const remember = () => keep(page, state(), usual);
  function restore(asked) {
    for (const [name, input] of Object.entries(controls)) {
      if (!(name in asked)) continue;
      if (input.type === "checkbox") input.checked = asked[name] === "true";
      else if (!(input instanceof HTMLSelectElement) || [...input.options].some((o) => o.value === asked[name])) input.value = asked[name];
    }
    if (model.tokens) model.tokens = tokensFromText(asked.x, model.tokens);
    changed();
  }
  return { keep: remember, restore };
}
