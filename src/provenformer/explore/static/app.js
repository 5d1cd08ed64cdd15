// The start: which page is shown, by the hash of the address. Each page is made when it is first visited.

import { circuitsPage } from "./circuits.js";
import { explorer } from "./explorer.js";
import { infinitePage } from "./infinite.js";
import { repeatsPage } from "./repeats.js";
import { theorem2Page } from "./theorem2.js";
import { theorem3Page } from "./theorem3.js";

const start = JSON.parse(document.getElementById("start").textContent);
const pages = {
  explorer: () => explorer(start),
  circuits: () => circuitsPage(start),
  "theorem-2": theorem2Page,
  "theorem-3": () => theorem3Page(start.targets),
  repeats: repeatsPage,
  infinite: infinitePage,
};
const open = {};
let shown = null;

function route() {
  const asked = location.hash.replace(/^#\/?/, "") || "explorer";
  if (asked === "main") return; // the skip link
  const name = asked in pages ? asked : "explorer";
  open[shown]?.leave?.();
  for (const section of document.querySelectorAll(".page")) section.hidden = section.id !== `page-${name}`;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === (name === "explorer" ? "#/" : `#/${name}`);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  open[name] ??= pages[name]() ?? {};
  const title = document.querySelector(`#page-${name} h1`).textContent;
  document.title = `${title} · provenformer`;
  if (shown !== null) {
    window.scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
  }
  shown = name;
}

window.addEventListener("hashchange", route);
route();
document.documentElement.dataset.ready = "true";
