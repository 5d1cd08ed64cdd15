// Circuits: the graph of a formula as a network. Move the tokens; values, errors and attention patterns follow.

import { ServerError, ask, latest } from "./api.js";
import { d3, number, table } from "./draw.js";
import { inputStrip, outputStrip } from "./strip.js";

const GIVEN = "network";
const FIRST = "softmax-mean";
const find = (id) => document.getElementById(id);

export function circuitsPage(start) {
  const form = find("circuit-form");
  const state = find("circuit-state");
  const button = find("circuit-build");
  const choice = find("cf-target");
  if (start.given !== null) choice.append(new Option(`opened: ${start.given}`, GIVEN));
  for (const { name } of start.targets) {
    const first = start.given === null && name === FIRST;
    choice.append(new Option(name, name, first, first));
  }
  const fields = () => (choice.value === GIVEN ? { target: GIVEN } : Object.fromEntries(new FormData(form)));
  const model = { settings: null, circuit: null, tokens: [], look: null, chosen: null };

  const input = inputStrip("circuit-input", (j, row, value) => {
    model.tokens = model.tokens.map((token, k) => (k === j ? token.map((old, i) => (i === row ? value : old)) : token));
    drawInput();
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

  const rowsOf = (columns) => columns[0].map((_, i) => columns.map((token) => token[i]));

  function drawInput() {
    const { low, high } = model.circuit;
    input({ rows: rowsOf(model.tokens), domains: low.map((v, i) => [v, high[i]]) });
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
    const known = start.targets.find((t) => t.name === choice.value);
    find("circuit-formula").textContent = known ? known.formula : "The network that the explorer was started with.";
    for (const box of form.querySelectorAll("[data-built-in]")) box.hidden = choice.value === GIVEN;
  }

  // Dots of the output move within a range that grows when it must, so that the picture is still under a hand that drags.
  let ranges = [];
  function showLook() {
    const { look, circuit } = model;
    ranges = look.output.map((row, i) => {
      const [low, high] = d3.extent([...row, ...look.target[i], ...(ranges[i] ?? [])]);
      return high > low ? d3.scaleLinear([low, high], [0, 1]).nice(3).domain() : [low - 0.5, high + 0.5];
    });
    output({ rows: look.output, target: look.target, domains: ranges });
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
      figure.append("canvas").attr("role", "img");
      figure.append("figcaption").append("b");
      figure.select("figcaption").append("span");
      return figure;
    });
    cards.select("b").text((p) => p.title);
    cards.select("span").text((p) => ` makes ${p.makes}; largest weight ${number(p.largest)}`);
    cards.select("canvas").attr("aria-label", (p) => `Attention weights of ${p.title}, queries down, keys across`).each(paint);
  }

  // The text colour of the page's accent, as dense as the weight is large; an even pattern is a third of full.
  function paint(p) {
    const shades = Uint8Array.from(atob(p.shades), (c) => c.charCodeAt(0));
    const [r, g, b] = getComputedStyle(this).color.match(/\d+/g).map(Number);
    this.width = this.height = p.size;
    const image = this.getContext("2d").createImageData(p.size, p.size);
    const full = Math.min(1, 1 / (3 * p.even));
    shades.forEach((shade, i) => image.data.set([r, g, b, shade * full], 4 * i));
    this.getContext("2d").putImageData(image, 0, 0);
  }

  function showNodes() {
    const { circuit, look } = model;
    const shown = model.chosen === null ? d3.range(circuit.nodes.length) : model.chosen;
    table("circuit-nodes", ["value", "what it is", "made by", "range", "error ≤", "error here", "first tokens"], shown.slice(0, 60).map((i) => {
      const node = circuit.nodes[i];
      const bad = node.bound !== null && look.errors[i] > node.bound * (1 + 1e-9) + 1e-13;
      return [
        { text: node.name, className: "name" }, { text: node.words, className: "text" }, { text: node.by, className: "text" }, node.range,
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
    Object.assign(model, { circuit, tokens: answer.tokens, look: answer.look, chosen: null });
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
    bound.textContent = circuit.bound.text;
    bound.dataset.value = circuit.bound.value;
    const small = circuit.rejected === null ? `for every input of the box, in float64; in float32 ${circuit.float32}` : `not confirmed: ${circuit.rejected}`;
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

  async function build() {
    const asked = fields();
    button.disabled = true;
    for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    say("Compiling…");
    try {
      const answer = await ask("/api/circuit", asked);
      model.settings = asked;
      const sizes = answer.circuit.sizes.slice(0, 3).map(([name, size]) => `${size} ${size === "1" ? name.replace(/s$/, "") : name}`);
      say(`Compiled: ${sizes.join(", ")}.`);
      show(answer);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      showError(error);
    } finally {
      button.disabled = false;
    }
  }

  form.addEventListener("input", () => {
    changed();
    if (model.circuit) say("Settings changed: press Compile. Below is still the circuit compiled before.");
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); build(); });
  changed();
  build();
}
