// What the four pages of one idea share: three tokens that can be moved, a request on every change, an error line.

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
