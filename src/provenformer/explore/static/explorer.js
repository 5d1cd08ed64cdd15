// The first page: settings, tokens, layers, values, output and certificate of one network.

import { ask, latest } from "./api.js";
import { certificatePicture } from "./certificate.js";
import { column, curves, number, picture, table, tokenName } from "./draw.js";
import { clearFailure, fields, settingsForm, showError, showPlan } from "./form.js";
import { layerPlayer } from "./layers.js";
import { tokenPicture } from "./tokens.js";
import { valuePictures } from "./values.js";

const OUTSIDE = 0.25;
const find = (id) => document.getElementById(id);

export function explorer(start) {
  const model = { settings: fields(), network: start.network, tokens: start.tokens, look: start.look, token: 0, knobs: {} };
  const player = layerPlayer();
  const values = valuePictures();
  const certificate = certificatePicture();
  const slice = picture("slice", "Output of the moved token", (svg, { data, at, names }, width) =>
    curves(svg, data, width, { at, names, label: `${tokenName(data.token)}, first number` }));
  const tokens = tokenPicture("tokens", (j, token) => {
    model.tokens = model.tokens.map((old, k) => (k === j ? token : old));
    model.token = j;
    drawTokens();
    look();
  });
  const wide = () => model.network.has_channels;
  const soft = () => document.querySelector("input[name=mode]:checked").value === "softmax";

  const send = latest(async ({ settings, input }) => ({ settings, look: await ask("/api/look", { ...settings, ...input }) }),
    ({ settings, look: answer }) => {
      if (settings !== model.settings) return; // of a network that has been replaced meanwhile
      clearFailure();
      model.look = answer;
      show(false);
    }, showError);
  function look() {
    const mode = soft() ? "softmax" : "hardmax";
    const input = { tokens: model.tokens, token: model.token, mode, ...(soft() ? model.knobs : {}) };
    send({ settings: model.settings, input });
  }

  function drawTokens() {
    const { cells, positional } = model.network;
    tokens({ tokens: model.tokens, cells, room: positional ? 0 : OUTSIDE, closed: positional });
  }

  function show(fresh) {
    const { network, look: now } = model;
    if (fresh) drawTokens();
    showNames();
    player.update(now, network.context_ids, fresh);
    values(now, network.context_ids);
    slice({ data: now.slice, at: model.tokens[now.slice.token][0], names: ["target f", soft() ? "softmax network" : "hardmax network"] });
    find("slice-text").textContent = `The curve: the output of ${tokenName(now.slice.token)} when only ${tokenName(now.slice.token)} moves. The last token you moved is the one that varies.`;
    showOutputs();
    if (now.knobs) showVerdict();
  }

  function showNames() {
    const coded = model.network.renames_tokens;
    const heads = ["token", "value", "cell", "id of the cell", ...(coded ? ["name"] : [])];
    table("names", heads, model.tokens.map((token, j) => {
      const { id, code } = model.look.names[j];
      const where = model.look.inside[j] ? column(model.look.cells[j]) : "outside";
      const cells = [{ text: tokenName(j), className: `n${j + 1}` }, column(token), where, { text: id === null ? "none" : number(id), value: id }];
      if (coded) cells.push(code === null ? "none" : number(code));
      return cells;
    }));
  }

  function showOutputs() {
    const { target, output } = model.look;
    const rows = target.map((f, j) => {
      const off = Math.max(...f.map((v, i) => Math.abs(v - output[j][i])));
      return [{ text: tokenName(j), className: `n${j + 1}` }, { text: column(f), value: f.join(" ") }, { text: column(output[j]), value: output[j].join(" ") }, { text: number(off), value: off }];
    });
    table("outputs", ["token", "target f", "network g", "difference"], rows);
  }

  function showMode() {
    const on = soft();
    find("knobs").hidden = !on;
    const { built, knobs } = model.network;
    const attention = knobs.temperature === null ? "attention is uniform" : "attention looks only at the largest score";
    find("mode-text").textContent = on
      ? "The real network: softmax and ReLU in float64. The certificate fixes how sharp they must be. Turn the knobs to see what breaks."
        + (wide() ? ` It has ${built.blocks} blocks, each of which does many of the steps below at once; the steps shown are those of the hardmax network.` : "")
      : `The network of the proof: ${attention}, activations may jump. Evaluated exactly.`;
    const { temperature, ramp } = knobs;
    find("k-temperature").disabled = temperature === null;
    find("k-temperature").value = model.knobs.temperature ?? temperature ?? 0;
    find("k-ramp").value = model.knobs.ramp ?? ramp;
    showKnobs();
  }

  function showKnobs() {
    const { temperature, ramp } = model.network.knobs;
    const sharp = model.knobs.temperature ?? temperature;
    find("o-temperature").textContent = temperature === null ? "none: this attention is uniform" : number(2 ** sharp);
    find("o-ramp").textContent = `${number(2 ** (model.knobs.ramp ?? ramp))} of a cell`;
  }

  function showVerdict() {
    const { bumps, collisions, against_modified: off, knobs } = model.look;
    const missed = bumps.map((b, j) => (b.hit ? null : tokenName(j))).filter(Boolean);
    const steps = [
      missed.length ? [`Missed bump: ${missed.join(", ")}`, true, "missed"] : ["Every token meets its bump", false, "missed"],
      collisions.length
        ? [`Ids collide: ${collisions.map((p) => p.map(tokenName).join(" and ")).join("; ")}`, true, "collisions"]
        : ["No two ids collide", false, "collisions"],
    ];
    const lines = [
      [`Largest difference from the hardmax network here: ${number(off)}`, off > 1e-3, "off"],
      ...(wide() ? [] : steps), // the steps of a wide network are not seen one by one
      [`Wrong on ${(100 * knobs.wrong_share).toFixed(1)} % of sampled inputs`, knobs.wrong_share > 0.01, "share"],
    ];
    const list = find("verdict");
    list.replaceChildren(...lines.map(([text, bad, name]) => {
      const item = Object.assign(document.createElement("li"), { textContent: text, className: bad ? "bad" : "" });
      item.dataset.name = name;
      if (name === "off") item.dataset.value = off;
      return item;
    }));
  }

  for (const input of document.querySelectorAll("input[name=mode]")) {
    input.addEventListener("change", () => { showMode(); look(); });
  }
  for (const name of ["temperature", "ramp"]) {
    find(`k-${name}`).addEventListener("input", (event) => {
      model.knobs[name] = Number(event.target.value);
      showKnobs();
      look();
    });
  }
  find("reset-knobs").addEventListener("click", () => { model.knobs = {}; showMode(); look(); });

  function adopt(settings, answer) {
    Object.assign(model, { settings, network: answer.network, tokens: answer.tokens, look: answer.look, token: 0, knobs: {} });
    showPlan(answer.network.plan);
    certificate(answer.network.certificate);
    showMode();
    show(true);
    if (soft()) look();
  }
  settingsForm(start.targets, adopt);
  adopt(fields(), start);
  return { leave: player.stop };
}
