// The start: which page is shown, by the hash of the address. Each page is made when it is first visited.

import { asked } from "./address.js";
import { circuitsPage } from "./circuits.js";
import { infinitePage } from "./infinite.js";
import { repeatsPage } from "./repeats.js";
import { tablesPage } from "./tables.js";
import { theorem2Page } from "./theorem2.js";
import { theorem3Page } from "./theorem3.js";

const start = JSON.parse(document.getElementById("start").textContent);
const FIRST = "circuits";
const pages = {
  circuits: (fields) => circuitsPage(start, fields),
  tables: (fields) => tablesPage(start, fields),
  "theorem-2": theorem2Page,
  "theorem-3": (fields) => theorem3Page(start.targets, fields),
  repeats: repeatsPage,
  infinite: infinitePage,
};
// What a page can do when it is left, when it is shown again, and when a link asks for a state of it.
const open = {};
let shown = null;

function route() {
  const { name: wanted, fields } = asked();
  if (wanted === "main") return; // the skip link
  const name = wanted in pages ? wanted : FIRST;
  open[shown]?.leave?.();
  for (const section of document.querySelectorAll(".page")) section.hidden = section.id !== `page-${name}`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!(name in open)) open[name] = pages[name](fields) ?? {};
  else if (Object.keys(fields).length) open[name].restore?.(fields);
  else open[name].keep?.();
  const title = document.querySelector(`#page-${name} h1`).textContent;
  document.title = `${title} · provenformer`;
  if (shown !== null && shown !== name) {
    window.scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
  }
  shown = name;
}

const copy = document.getElementById("copy-link");
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    copy.textContent = "Copied";
  } catch {
    copy.textContent = "Copy the address";
  }
  setTimeout(() => { copy.textContent = "Copy link"; }, 1500);
});

window.addEventListener("hashchange", route);
route();
document.documentElement.dataset.ready = "true";
