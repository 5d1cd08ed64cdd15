// Circuits: the graph of a formula as a network. Move the tokens; values, errors and attention patterns follow.

import { keep, tokensAsText, tokensFromText } from "./address.js";
import { ServerError, ask, latest } from "./api.js";
import { claim, d3, number, table, typeset, write } from "./draw.js";
import { markStale } from "./form.js";
import { inputStrip, outputStrip } from "./strip.js";

const GIVEN = "network";
const PROGRAM = "tokens:";
const FIRST = "softmax-mean";
const MOST_NAMED = 16; // tokens whose names stand beside a pattern
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const find = (id) => document.getElementById(id);

export function circuitsPage(start, asked) {
  const form = find("circuit-form");
  const state = find("circuit-state");
  const button = find("circuit-build");
  const choice = find("cf-target");
  if (start.given !== null) choice.append(new Option(`opened: ${start.given}`, GIVEN));
  for (const { name } of start.targets) {
    const first = start.given === null && name === FIRST;
    choice.append(new Option(name, name, first, first));
  }
  const group = choice.appendChild(Object.assign(document.createElement("optgroup"), { label: "Programs on tokens" }));
  for (const { name, value } of start.programs) group.append(new Option(name, value));
  const isProgram = () => choice.value.startsWith(PROGRAM);
  const fields = () => (choice.value === GIVEN ? { target: GIVEN } : Object.fromEntries(new FormData(form)));
  const model = { settings: null, circuit: null, tokens: [], start: [], look: null, chosen: null };

  const input = inputStrip("circuit-input", (j, row, value) => {
    model.tokens = model.tokens.map((token, k) => (k === j ? token.map((old, i) => (i === row ? value : old)) : token));
    drawInput();
    remember();
    send({ settings: model.settings, tokens: model.tokens });
  });
  const output = outputStrip("circuit-output");
  const send = latest(async ({ settings, tokens }) => ({ settings, look: await ask("/api/circuit-look", { ...settings, tokens }) }),
    ({ settings, look }) => {
      if (settings !== model.settings) return; // of a circuit that has been replaced meanwhile
      if (state.className === "error") say("");
      model.look = look;
      showLook();
    }, showError);

  const usual = fields();
  const remember = () => keep("circuits", { ...model.settings, x: tokensAsText(model.tokens) }, { ...usual, x: tokensAsText(model.start) });
  const stale = (why) => markStale(find("circuit-stack"), find("circuit-stale"),
    why && model.circuit && `${why} Below is still: ${model.circuit.name}, d = ${model.circuit.token_dim}, n = ${model.circuit.seq_len}, ${model.circuit.bound.text}.`);

  const rowsOf = (columns) => columns[0].map((_, i) => columns.map((token) => token[i]));

  function drawInput() {
    const { low, high } = model.circuit;
    input({ rows: rowsOf(model.tokens), domains: low.map((v, i) => [v, high[i]]), names: model.circuit.names });
  }

  function say(text, bad = false) {
    state.className = bad ? "error" : "hint";
    state.textContent = text;
  }

  function showError(error) {
    for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    const field = error.field && form.elements.namedItem(error.field);
    if (field instanceof Element) field.setAttribute("aria-invalid", "true");
    say(error.message, true);
  }

  function changed() {
    const known = start.targets.find((t) => t.name === choice.value) ?? start.programs.find((p) => p.value === choice.value);
    typeset("circuit-formula", known);
    for (const box of form.querySelectorAll("[data-built-in]")) {
      box.hidden = choice.value === GIVEN || (box.dataset.for && box.dataset.for !== (isProgram() ? "programs" : "numbers"));
    }
  }

  // Dots of the output move within a range that grows when it must, so that the picture is still under a hand that drags.
  let ranges = [];
  function showLook() {
    const { look, circuit } = model;
    ranges = look.output.map((row, i) => {
      const [low, high] = d3.extent([...row, ...look.target[i], ...(ranges[i] ?? [])]);
      return high > low ? d3.scaleLinear([low, high], [0, 1]).nice(3).domain() : [low - 0.5, high + 0.5];
    });
    output({ rows: look.output, target: look.target, domains: ranges, names: circuit.answers ? circuit.names : [] });
    const verdict = find("circuit-verdict");
    verdict.textContent = `Largest difference here: ${number(look.off)}. Bound for every input: ${circuit.bound.text.split("≤")[1].trim()}.`;
    verdict.dataset.value = look.off;
    gauges();
    showPatterns();
    showNodes();
  }

  // In every box a bar: the error of its values here, as a share of its bound.
  function gauges() {
    const { look, circuit } = model;
    for (const box of document.querySelectorAll("#circuit-graph g.box")) {
      const nodes = box.dataset.nodes.split(" ").map(Number);
      const share = Math.max(...nodes.map((i) => (circuit.nodes[i].bound ? look.errors[i] / circuit.nodes[i].bound : 0)));
      const frame = box.querySelector("rect:not(.gauge)");
      let gauge = box.querySelector(".gauge");
      if (!gauge) {
        gauge = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        gauge.setAttribute("class", "gauge");
        gauge.setAttribute("x", Number(frame.getAttribute("x")) + 4);
        gauge.setAttribute("y", Number(frame.getAttribute("y")) + Number(frame.getAttribute("height")) - 6);
        gauge.setAttribute("height", 3);
        box.append(gauge);
      }
      gauge.setAttribute("width", Math.min(1, share) * (Number(frame.getAttribute("width")) - 8));
      gauge.dataset.value = share;
    }
  }

  function showPatterns() {
    const { patterns, heads } = model.look;
    find("circuit-heads").hidden = heads === 0;
    find("circuit-heads-text").textContent = patterns.length < heads ? `${patterns.length} of ${heads} heads; the others repeat what these do.` : "";
    const cards = d3.select("#circuit-patterns").selectAll("figure").data(patterns).join((enter) => {
      const figure = enter.append("figure");
      figure.append("div").attr("class", "queries").attr("aria-hidden", "true");
      figure.append("canvas").attr("role", "img");
      figure.append("div").attr("class", "keys").attr("aria-hidden", "true");
      const scale = figure.append("div").attr("class", "shades");
      for (const part of ["least", "bar", "most"]) scale.append("span").attr("class", part);
      figure.append("figcaption").append("b");
      figure.select("figcaption").append("span");
      return figure;
    });
    write(cards.select("b"), (p) => p.title);
    const named = (p) => p.tokens.length > 0 && p.tokens.length <= MOST_NAMED;
    cards.classed("named", named);
    for (const side of [".queries", ".keys"]) {
      cards.select(side).selectAll("i").data((p) => (named(p) ? p.tokens : [])).join("i").call(write, (name) => name.slice(0, 3));
    }
    write(cards.select(".least"), "0");
    write(cards.select(".most"), (p) => number(p.largest));
    cards.select(".bar").style("opacity", (p) => Math.min(1, 1 / (3 * p.even)));
    write(cards.select("figcaption span"), (p) => `${p.looks ? ` ${p.looks};` : ""} makes ${p.makes}`);
    cards.select("canvas").attr("aria-label", (p) => `Attention weights of ${p.title}, queries down, keys across`).each(paint);
  }

  // The text colour of the page's accent, as dense as the weight is large; an even pattern is a third of full. The colour is read once
  // per scheme: reading it makes the browser work out all styles at once.
  let ink = null;
  dark.addEventListener("change", () => { ink = null; showPatterns(); });
  function paint(p) {
    ink ??= getComputedStyle(this).color.match(/\d+/g).map(Number);
    const full = Math.min(1, 1 / (3 * p.even));
    const painted = `${ink} ${full} ${p.shades}`;
    if (this.dataset.painted === painted) return;
    this.dataset.painted = painted;
    const image = new ImageData(p.size, p.size);
    const shades = atob(p.shades);
    for (let i = 0; i < shades.length; i += 1) image.data.set([...ink, shades.charCodeAt(i) * full], 4 * i);
    this.width = this.height = p.size;
    this.getContext("2d").putImageData(image, 0, 0);
  }

  function showNodes() {
    const { circuit, look } = model;
    const shown = model.chosen === null ? d3.range(circuit.nodes.length) : model.chosen;
    table("circuit-nodes", ["value", "what it is", "made by", "channel", "range", "error ≤", "error here", "first tokens"], shown.slice(0, 60).map((i) => {
      const node = circuit.nodes[i];
      const bad = node.bound !== null && look.errors[i] > node.bound * (1 + 1e-9) + 1e-13;
      return [
        { text: node.name, className: "name" }, { text: node.words, className: "text" }, { text: node.by, className: "text" }, node.channel ?? "", node.range,
        { text: node.text, value: node.bound }, { text: number(look.errors[i]), value: look.errors[i], className: bad ? "bad" : "" },
        look.values[i].slice(0, 4).map(number).join(", "),
      ];
    }));
    const names = shown.length === circuit.nodes.length ? "All values" : `Values of the chosen box`;
    find("circuit-nodes-text").textContent = `${names}${shown.length > 60 ? `, the first 60 of ${shown.length}` : ""}. Choose a box of the graph to see its values alone.`;
  }

  function choose(box) {
    const nodes = box.dataset.nodes.split(" ").map(Number);
    const again = model.chosen !== null && String(model.chosen) === String(nodes);
    model.chosen = again ? null : nodes;
    for (const other of document.querySelectorAll("#circuit-graph g.box")) other.setAttribute("aria-pressed", String(other === box && !again));
    showNodes();
  }

  function show(answer) {
    const { circuit } = answer;
    Object.assign(model, { circuit, tokens: answer.tokens, start: answer.tokens, look: answer.look, chosen: null });
    ranges = [];
    for (const part of document.querySelectorAll("[data-needs-circuit]")) part.hidden = false;
    const graph = new DOMParser().parseFromString(circuit.svg, "image/svg+xml").documentElement;
    find("circuit-graph").replaceChildren(document.adoptNode(graph));
    for (const box of graph.querySelectorAll("g.box")) {
      box.setAttribute("tabindex", "0");
      box.setAttribute("role", "button");
      box.setAttribute("aria-pressed", "false");
      box.setAttribute("aria-label", box.querySelector("title").textContent);
      box.addEventListener("click", () => choose(box));
      box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(box); } });
    }
    graph.setAttribute("role", "group");
    const bound = find("circuit-bound");
    const [left, size] = circuit.bound.text.split("≤");
    bound.replaceChildren(claim(/p = ([^)]*)/.exec(left)?.[1] ?? null, size.trim()));
    bound.dataset.value = circuit.bound.value;
    const small = circuit.rejected === null ? `${circuit.bound.where}, in float64; in float32 ${circuit.float32}` : `not confirmed: ${circuit.rejected}`;
    bound.append(Object.assign(document.createElement("small"), { textContent: small }));
    table("circuit-terms", null, circuit.terms.map((t) => [{ text: t.name }, { text: t.meaning, className: "text" }, { text: t.text, value: t.value }]));
    const list = d3.select("#circuit-sizes");
    list.selectAll("*").remove();
    for (const [name, size] of circuit.sizes) {
      list.append("dt").text(name);
      list.append("dd").attr("data-name", name).text(size);
    }
    drawInput();
    showLook();
  }

  // What a link says of the input.
  function resume({ x }) {
    model.tokens = tokensFromText(x, model.tokens);
    drawInput();
    remember();
    if (model.tokens !== model.start) send({ settings: model.settings, tokens: model.tokens });
  }

  async function build(state = {}) {
    const asked = fields();
    button.disabled = true;
    for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    say("Compiling…");
    try {
      const answer = await ask("/api/circuit", asked);
      model.settings = asked;
      const sizes = answer.circuit.sizes.slice(0, 3).map(([name, size]) => `${size} ${size === "1" ? name.replace(/s$/, "") : name}`);
      say(`Compiled: ${sizes.join(", ")}.`);
      stale("");
      show(answer);
      resume(state);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      stale("These settings could not be compiled.");
      showError(error);
    } finally {
      button.disabled = false;
    }
  }

  form.addEventListener("input", () => {
    changed();
    const same = JSON.stringify(fields()) === JSON.stringify(model.settings);
    say(same ? "" : "Settings changed: press Compile.");
    stale(same ? "" : "Settings changed.");
  });
  choice.addEventListener("change", changed);
  form.addEventListener("submit", (event) => { event.preventDefault(); build(); });

  // A link: the fields that it names, then the input.
  function restore(state) {
    for (const [name, value] of Object.entries(state)) {
      const field = form.elements.namedItem(name);
      if (field === choice && ![...choice.options].some((option) => option.value === value)) continue;
      if (field instanceof Element) field.value = value;
    }
    changed();
    if (JSON.stringify(fields()) === JSON.stringify(model.settings)) resume(state);
    else build(state);
  }
  changed();
  model.settings = fields();
  show(start.circuit);
  restore(asked);
  return { keep: remember, restore };
}
