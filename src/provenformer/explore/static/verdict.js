// What one input shows, in lines that agree with the pictures: `kind` is "good", "bad" or "" for a mere fact.

import { number, tokenName } from "./draw.js";

const NOTICEABLE = 1e-3;
const named = (tokens) => tokens.map(tokenName).join(tokens.length === 2 ? " and " : ", ");

export function verdictLines(look, network, turned) {
  const soft = look.knobs !== null; // which of the two networks the look is at
  const { certificate } = network;
  const bound = `${certificate.norm_order === 2 ? "d₂" : `d (p = ${certificate.norm_order})`}(f, g) ≤ ${certificate.text}`;
  const lines = [
    turned
      ? { text: "The certificate does not cover these knobs", kind: "bad", name: "bound" }
      : { text: `Certified over the box: ${bound}`, kind: "good", name: "bound" },
    { text: `Largest difference from the target here: ${number(look.off_target)}`, kind: "", name: "target" },
    ...bumpLines(look, soft && !network.by_layer),
  ];
  if (!soft) return lines;
  const { against_modified: off, collisions, knobs } = look;
  lines.push({ text: `Softmax differs from hardmax here by ${number(off)}`, kind: off > NOTICEABLE ? "bad" : "good", name: "off", value: off });
  if (network.by_layer) {
    lines.push(collisions.length
      ? { text: `Ids collide: ${collisions.map(named).join("; ")}`, kind: "bad", name: "collisions" }
      : { text: "Tokens of different cells keep different ids", kind: "good", name: "collisions" });
  }
  const share = `${(100 * knobs.wrong_share).toFixed(1)} %`;
  lines.push({ text: `Wrong on ${share} of sampled inputs`, kind: knobs.wrong_share > 0.01 ? "bad" : "good", name: "share" });
  return lines;
}

function bumpLines({ bumps, inside, cells }, unseen) {
  const all = bumps.map((_, j) => j);
  const lines = [];
  const alone = all.filter((j) => !bumps[j].expected);
  if (alone.length) {
    const out = all.filter((j) => !inside[j]);
    const shared = all.filter((j) => all.some((k) => k !== j && String(cells[k]) === String(cells[j])));
    lines.push(out.length
      ? { text: `${named(out)} outside the box: no bump waits, and f counts as 0 there`, kind: "", name: "alone" }
      : { text: `${named(shared)} share a cell: no bump waits for this cube, the output is 0`, kind: "bad", name: "alone" });
  }
  if (unseen) return lines; // the steps of a wide network are not seen one by one
  const stray = alone.filter((j) => bumps[j].fired);
  const missed = all.filter((j) => bumps[j].expected && !bumps[j].hit);
  if (stray.length) lines.push({ text: `A bump fires that should not: ${named(stray)}`, kind: "bad", name: "missed" });
  if (missed.length) lines.push({ text: `Missed bump: ${named(missed)}`, kind: "bad", name: "missed" });
  if (!alone.length && !missed.length) lines.push({ text: "Every token meets its bump", kind: "good", name: "missed" });
  return lines;
}
