// Tables: settings, tokens, output, layers, values and certificate of one network.

import { keep, tokensAsText, tokensFromText } from "./address.js";
import { ask, latest } from "./api.js";
import { certificatePicture } from "./certificate.js";
import { column, curves, number, picture, table, tokenName } from "./draw.js";
import { clearFailure, fields, settingsForm, showError, showPlan } from "./form.js";
import { layerPlayer } from "./layers.js";
import { tokenPicture } from "./tokens.js";
import { valuePictures } from "./values.js";
import { verdictLines } from "./verdict.js";

const OUTSIDE = 0.25;
const find = (id) => document.getElementById(id);

export async function tablesPage(start, asked) {
  const first = await ask("/api/first-table", {});
  const model = { settings: null, network: null, tokens: null, start: null, look: null, token: 0, knobs: {} };
  const player = layerPlayer();
  const values = valuePictures();
  const certificate = certificatePicture();
  const slice = picture("slice", "Output of the moved token", (svg, { data, ...more }, width) =>
    curves(svg, data, width, { ...more, height: 174, label: `${tokenName(data.token)} moves, the others stay` }));
  const tokens = tokenPicture("tokens", (j, token) => {
    model.tokens = model.tokens.map((old, k) => (k === j ? token : old));
    model.token = j;
    drawTokens();
    look();
  });
  const soft = () => document.querySelector("input[name=mode]:checked").value === "softmax";
  // Knobs that were moved away from where the certificate has them.
  const turned = () => soft() && Object.entries(model.knobs).some(([name, value]) => value !== model.network.knobs[name]);

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
    remember();
    send({ settings: model.settings, input });
  }

  // The address: settings as compiled, and the input where it was moved.
  const usual = { ...fields(), mode: "hardmax" };
  function remember() {
    const knobs = soft() ? model.knobs : {};
    const state = { ...model.settings, x: tokensAsText(model.tokens), mode: soft() ? "softmax" : "hardmax", ...knobs };
    keep("tables", state, { ...usual, x: tokensAsText(model.start) });
  }

  function drawTokens() {
    const { cells, positional, low, high } = model.network;
    tokens({ tokens: model.tokens, cells, room: positional ? 0 : OUTSIDE, closed: positional, low, high });
  }

  function show(fresh) {
    const { network, look: now } = model;
    if (fresh) drawTokens();
    showNames();
    player.update(now, network.context_ids, fresh);
    values(now, network.context_ids);
    slice({ data: now.slice, at: model.tokens[now.slice.token][0], names: ["target f", now.knobs ? "softmax network g" : "hardmax network g"], ends: [network.low[0], network.high[0]] });
    showOutputs();
    showVerdict();
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

  function showVerdict() {
    find("not-covered").textContent = turned() ? "The knobs are not where the certificate has them: this bound is not about the network shown." : "";
    find("certificate-card").classList.toggle("stale", turned());
    find("verdict").replaceChildren(...verdictLines(model.look, model.network, turned()).map(({ text, kind, name, value }) => {
      const item = Object.assign(document.createElement("li"), { textContent: text, className: kind });
      item.dataset.name = name;
      if (value !== undefined) item.dataset.value = value;
      return item;
    }));
  }

  function showMode() {
    const on = soft();
    find("knobs").hidden = !on;
    const { built, knobs, by_layer: byLayer } = model.network;
    const attention = knobs.temperature === null ? "attention is uniform" : "attention looks only at the largest score";
    find("mode-text").textContent = on
      ? "The real network: softmax and ReLU in float64, as sharp as the certificate needs. Turn the knobs to see what breaks."
        + (byLayer ? "" : ` It has ${built.blocks} blocks, each of which does many of the steps shown at once; those are the hardmax network's.`)
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

  function adopt(settings, answer, state = {}) {
    Object.assign(model, { settings, network: answer.network, tokens: answer.tokens, start: answer.tokens, look: answer.look, token: 0, knobs: {} });
    showPlan(answer.network.plan);
    certificate(answer.network.certificate);
    showMode();
    show(true);
    resume(state);
    if (soft() || model.tokens !== model.start) look();
    else remember();
  }

  // What a link says of input and knobs.
  function resume({ x, mode, temperature, ramp }) {
    model.tokens = tokensFromText(x, model.tokens);
    if (mode) document.querySelector(`input[name=mode][value=${mode === "softmax" ? "softmax" : "hardmax"}]`).checked = true;
    for (const [name, value] of Object.entries({ temperature, ramp })) {
      if (value !== undefined && Number.isFinite(Number(value))) model.knobs[name] = Number(value);
    }
    showMode();
    drawTokens();
  }

  const form = settingsForm(start, first.network.title, adopt);
  adopt(fields(), first);
  const restore = (state) => {
    if (form.fill(state)) form.compile(state);
    else {
      resume(state);
      look();
    }
  };
  if (Object.keys(asked).length) restore(asked);
  return { leave: player.stop, keep: remember, restore };
}
