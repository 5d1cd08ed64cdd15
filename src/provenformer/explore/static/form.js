// The form: its fields as sent to the server, the plan for them at once, and errors beside the field they belong to.

import { ServerError, ask, latest } from "./api.js";
import { d3, typeset } from "./draw.js";

const OPENED = "network"; // the target's name for the network that the explorer was started with
const form = document.getElementById("settings");
const state = document.getElementById("compile-state");
const button = document.getElementById("compile");

export function fields() {
  const all = Object.fromEntries([...new FormData(form)].filter(([name]) => name !== "mode"));
  return all.target === OPENED ? { target: OPENED } : all;
}

export function showError(error) {
  clearErrors();
  const input = error.field && form.elements.namedItem(error.field);
  const box = input instanceof Element ? input.closest(".field") : null;
  if (!box || box.hidden) {
    state.textContent = error.message;
    state.className = "error";
    return;
  }
  input.closest("details")?.setAttribute("open", "");
  input.setAttribute("aria-invalid", "true");
  box.querySelector(".error").textContent = error.message;
}

function clearErrors() {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const line of form.querySelectorAll(".error:not(#compile-state)")) line.textContent = "";
  say("");
}

// An earlier failure that belongs to no field, once the server has answered again.
export function clearFailure() {
  if (state.className === "error") say("");
}

function say(text) {
  state.className = "hint";
  state.textContent = text;
}

// What stands below and is not of the settings above says so; no words: it is.
export function markStale(stack, note, words) {
  stack.classList.toggle("stale", words !== "");
  note.hidden = words === "";
  note.textContent = words;
}

export function showPlan(plan) {
  document.getElementById("plan").classList.remove("stale");
  document.getElementById("plan-grid").textContent = plan.predicted ? `for about N = ${plan.cells}` : `for N = ${plan.cells}`;
  const rows = [
    ["blocks", plan.blocks], ["parameters", plan.parameters], ["layers", plan.layers],
    ...plan.stages.map((s) => [s.name, s.layers, true]),
    ["contexts", plan.contexts], ["bits of an id", plan.id_bits], ["hidden units", plan.hidden_dim], ["cubes lost", plan.lost],
  ];
  const list = d3.select("#plan");
  list.selectAll("*").remove();
  for (const [name, value, part] of rows) {
    list.append("dt").attr("class", part ? "part" : null).text(name);
    list.append("dd").attr("data-name", name).text(value);
  }
}

function targetChoice({ targets, opened }) {
  const names = d3.select("#f-target");
  if (opened !== null) names.append("option").attr("value", OPENED).text(`opened: ${opened}`);
  for (const [title, equivariant] of [["Order does not matter (Theorem 2)", true], ["Order matters (Theorem 3)", false]]) {
    const group = names.append("optgroup").attr("label", title);
    group.selectAll("option").data(targets.filter((t) => t.equivariant === equivariant)).join("option")
      .attr("value", (t) => t.name).property("selected", (t) => opened === null && t.name === "softmax-mean").text((t) => t.name);
  }
}

export function settingsForm(start, title, compiled) {
  targetChoice(start);
  let built = { fields: JSON.stringify(fields()), title };
  const stale = (why) => markStale(document.getElementById("table-stack"), document.getElementById("stale"),
    why && `${why} Below is still: ${built.title}.`);

  const plan = latest((f) => ask("/api/plan", f), (answer) => {
    showPlan(answer);
    if (button.disabled) return; // compiling: the line below the button is taken
    clearErrors();
    if (answer.refused) showError({ message: answer.refused.error, field: answer.refused.field });
    else if (JSON.stringify(fields()) !== built.fields) say("Settings changed: press Compile.");
  }, (error) => {
    document.getElementById("plan").classList.add("stale");
    document.getElementById("plan-grid").textContent = "of earlier settings";
    showError(error);
  });

  function changed() {
    const now = fields();
    const known = start.targets.find((t) => t.name === now.target);
    typeset("formula", known);
    for (const box of form.querySelectorAll("[data-built-in]")) box.hidden = !known;
    for (const box of form.querySelectorAll("[data-by]")) box.hidden = !known || box.dataset.by !== now.by;
    return now;
  }
  form.addEventListener("input", () => {
    const now = changed();
    stale(JSON.stringify(now) === built.fields ? "" : "Settings changed.");
    plan(now);
  });

  async function compile(more = {}) {
    const asked = fields();
    button.disabled = true;
    clearErrors();
    say("Compiling…");
    try {
      const answer = await ask("/api/compile", asked);
      built = { fields: JSON.stringify(asked), title: answer.network.title };
      say(`Compiled: ${answer.network.built.blocks} blocks, ${answer.network.built.parameters} parameters.`);
      stale("");
      compiled(asked, answer, more);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      stale("These settings could not be compiled.");
      showError(error);
    } finally {
      button.disabled = false;
    }
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); compile(); });
  changed();

  // The fields that a link names; whether that asks for another network.
  function fill(asked) {
    for (const [name, value] of Object.entries(asked)) {
      const input = form.elements.namedItem(name);
      if (input instanceof RadioNodeList) input.value = value;
      else if (input instanceof HTMLSelectElement && ![...input.options].some((option) => option.value === value)) continue;
      else if (input) input.value = value;
    }
    changed();
    return JSON.stringify(fields()) !== built.fields;
  }
  return { fill, compile };
}
