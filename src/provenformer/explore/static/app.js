// The start: which page is shown, by the hash of the address. Each page is made when it is first visited.

import { asked } from "./address.js";
import { ServerError, unanswered } from "./api.js";
import { circuitsPage } from "./circuits.js";

const start = JSON.parse(document.getElementById("start").textContent);
const FIRST = "circuits";
const pages = {
  circuits: async () => (fields) => circuitsPage(start, fields),
  tables: async () => (await import("./tables.js")).tablesPage.bind(null, start),
  "theorem-2": async () => (await import("./theorem2.js")).theorem2Page,
  "theorem-3": async () => (await import("./theorem3.js")).theorem3Page.bind(null, start.targets),
  repeats: async () => (await import("./repeats.js")).repeatsPage,
  infinite: async () => (await import("./infinite.js")).infinitePage,
};
// What a page can do when it is left, when it is shown again, and when a link asks for a state of it; a promise until it is made.
const open = {};
let shown = null;

async function route() {
  const { name: wanted, fields } = asked();
  if (wanted === "main") return; // the skip link
  const name = wanted in pages ? wanted : FIRST;
  const before = shown;
  shown = name;
  for (const section of document.querySelectorAll(".page")) section.hidden = section.id !== `page-${name}`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = document.querySelector(`#page-${name} h1`).textContent;
  document.title = `${title} · provenformer`;
  if (before !== null && before !== name) {
    (await open[before])?.leave?.();
    window.scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
  }
  if (!(name in open)) await (open[name] = make(name, fields));
  else if (Object.keys(fields).length) (await open[name]).restore?.(fields);
  else (await open[name]).keep?.();
}

// A page that could not be made, as the server did not answer, says so and is made at the next visit.
async function make(name, fields) {
  try {
    const page = await fetched(name);
    return await page(fields);
  } catch (error) {
    delete open[name];
    if (!(error instanceof ServerError)) throw error;
    document.querySelector(`#page-${name} .error`).textContent = error.message;
    return {};
  }
}

async function fetched(name) {
  try {
    return await pages[name]();
  } catch {
    throw unanswered();
  }
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
await route();
document.documentElement.dataset.ready = "true";
// The first page comes first, then the code of the others; if it does not come, the visit will say so.
requestIdleCallback(async () => {
  await Promise.allSettled(Object.values(pages).map((get) => get()));
  document.documentElement.dataset.fetched = "true";
});
