// The state of a page in the address: a link shows what one sees. Fields that stand where they started are left out.

const PAUSE = 250; // browsers refuse more than a few changes of the address per second
let timer = null;

export function asked() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name, fields: Object.fromEntries(new URLSearchParams(query)) };
}

export function keep(name, fields, usual = {}) {
  const known = Object.entries(fields).filter(([key, value]) => value !== undefined && value !== null && String(value) !== String(usual[key]));
  const query = new URLSearchParams(known.map(([key, value]) => [key, String(value)])).toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (asked().name && asked().name !== name) return; // another page is open by now
    history.replaceState(null, "", `#/${name}${query ? `?${query}` : ""}`);
  }, PAUSE);
}

// Tokens as text: numbers of a token with commas, tokens with semicolons.
export const tokensAsText = (tokens) => tokens.map((token) => token.join(",")).join(";");

export function tokensFromText(text, like) {
  const tokens = (text ?? "").split(";").map((token) => token.split(",").map(Number));
  const fits = tokens.length === like.length && tokens.every((t, j) => t.length === like[j].length && t.every(Number.isFinite));
  return fits ? tokens : like;
}
