// The form: its fields as sent to the server, the plan for them at once, and errors beside the field they belong to.

import { ServerError, ask, latest } from "./api.js";
import { d3 } from "./draw.js";

const form = document.getElementById("settings");
const state = document.getElementById("compile-state");
const button = document.getElementById("compile");

export function fields() {
  return Object.fromEntries(new FormData(form));
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

export function showPlan(plan) {
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

export function settingsForm(targets, compiled) {
  const names = d3.select("#f-target");
  for (const [title, equivariant] of [["Order does not matter (Theorem 2)", true], ["Order matters (Theorem 3)", false]]) {
    const group = names.append("optgroup").attr("label", title);
    group.selectAll("option").data(targets.filter((t) => t.equivariant === equivariant)).join("option")
      .attr("value", (t) => t.name).property("selected", (t) => t.name === "softmax-mean").text((t) => t.name);
  }
  let built = JSON.stringify(fields());

  const plan = latest((f) => ask("/api/plan", f), (answer) => {
    showPlan(answer);
    if (button.disabled) return; // compiling: the line below the button is taken
    clearErrors();
    if (answer.refused) showError({ message: answer.refused.error, field: answer.refused.field });
    else if (JSON.stringify(fields()) !== built) say("Settings changed: press Compile.");
  }, showError);

  function changed() {
    const now = fields();
    document.getElementById("formula").textContent = targets.find((t) => t.name === now.target).formula;
    for (const box of form.querySelectorAll("[data-by]")) box.hidden = box.dataset.by !== now.by;
    plan(now);
  }
  form.addEventListener("input", changed);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = fields();
    button.disabled = true;
    clearErrors();
    say("Compiling…");
    try {
      const answer = await ask("/api/compile", asked);
      built = JSON.stringify(asked);
      say(`Compiled: ${answer.network.built.blocks} blocks, ${answer.network.built.parameters} parameters.`);
      compiled(asked, answer);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      showError(error);
    } finally {
      button.disabled = false;
    }
  });
  document.getElementById("formula").textContent = targets.find((t) => t.name === fields().target).formula;
}
