// What all pictures share: a frame that follows the width of its host, axes, numbers as text, tables.

export const d3 = window.d3;
export const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const SUB = "₀₁₂₃₄₅₆₇₈₉";

export const tokenName = (j) => "x" + SUB[j + 1];
export const colour = (j) => "c" + (j + 1);

// A picture redraws itself when its data or the width of its host changes. The width is only read when it changes:
// reading it between writes would make the browser lay out the page once per picture.
export function picture(host, label, paint) {
  const node = typeof host === "string" ? document.getElementById(host) : host;
  const svg = d3.select(node).append("svg").attr("role", "group").attr("aria-label", label);
  let data = null;
  let width = node.clientWidth;
  let size = "";
  function redraw() {
    if (data === null || width === 0) return;
    const height = paint(svg, data, width);
    if (size === `${width} ${height}`) return;
    size = `${width} ${height}`;
    svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${size}`);
  }
  new ResizeObserver(([entry]) => {
    const fresh = Math.floor(entry.contentRect.width);
    if (fresh === width) return;
    width = fresh;
    redraw();
  }).observe(node);
  return (fresh) => { data = fresh; redraw(); };
}

// One element of a kind, made when it is missing: pictures are updated, never rebuilt, so that a drag is not cut off.
export function layer(svg, name, tag = "g") {
  return svg.selectAll(`${tag}.${name}`).data([0]).join(tag).classed(name, true);
}

// Without Intl, whose tables take longer to load than all that the first page draws.
const grouped = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");

export function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value) || size >= 1e5) return grouped(Math.round(value));
  const [whole, fraction] = String(Number(value.toPrecision(4))).split(".");
  return fraction === undefined ? grouped(whole) : `${grouped(whole)}.${fraction}`;
}

// Text that is already there is not written again: the browser would lay it out again.
export function write(selection, text) {
  return selection.each(function put(...of) {
    const fresh = String((typeof text === "function" ? text.apply(this, of) : text) ?? "");
    if (this.textContent !== fresh) this.textContent = fresh;
  });
}

// The formula of a target, typeset by the browser, and what it does not say; or what stands for a function of one's own.
export function typeset(id, target) {
  const node = document.getElementById(id);
  if (!target) { node.textContent = "The network that the explorer was started with."; return; }
  if (!target.math) { node.textContent = target.words; return; }
  const math = new DOMParser().parseFromString(target.math, "text/html").querySelector("math");
  node.replaceChildren(document.adoptNode(math), Object.assign(document.createElement("span"), { textContent: target.words }));
}

// d_p(f, g) ≤ bound, or the largest difference where there is no p; typeset.
export function claim(p, bound) {
  const [digits, power] = bound.split("e");
  const size = power === undefined ? `<mn>${digits}</mn>` : `<mn>${digits}</mn><mo>×</mo><msup><mn>10</mn><mn>${String(Number(power)).replace("-", "−")}</mn></msup>`;
  const sides = "<mi>f</mi><mo>,</mo><mi>g</mi>";
  const left = p === null ? '<mi mathvariant="normal">sup</mi><mo form="prefix">|</mo><mi>f</mi><mo>−</mo><mi>g</mi><mo form="postfix">|</mo>'
    : `<msub><mi>d</mi><mn>${p}</mn></msub><mo>(</mo>${sides}<mo>)</mo>`;
  const math = new DOMParser().parseFromString(`<math>${left}<mo>≤</mo>${size}</math>`, "text/html").querySelector("math");
  return document.adoptNode(math);
}

export const column = (values) => (values.length === 1 ? number(values[0]) : `(${values.map(number).join(", ")})`);

// A table: heads, and rows of cells; a cell is text, or {text, value, className, swatch}.
export function table(id, heads, rows) {
  const node = d3.select(`#${id}`);
  if (heads) {
    node.select("thead").selectAll("tr").data([heads]).join("tr")
      .selectAll("th").data((d) => d).join("th").attr("scope", "col").call(write, (d) => d);
  }
  const cells = node.select("tbody").selectAll("tr").data(rows).join("tr")
    .selectAll("td").data((d) => d.map((cell) => (typeof cell === "object" ? cell : { text: cell }))).join("td");
  write(cells.attr("class", (d) => d.className ?? null).attr("data-value", (d) => d.value ?? null), (d) => d.text);
  cells.filter((d) => d.swatch).each(function mark(d) {
    if (this.querySelector(".swatch") === null) this.prepend(Object.assign(document.createElement("span"), { className: `swatch ${d.swatch}` }));
  });
}

export function facts(id, pairs) {
  const boxes = d3.select(`#${id}`).selectAll("div").data(pairs).join((enter) => {
    const box = enter.append("div");
    box.append("dt");
    box.append("dd");
    return box;
  });
  write(boxes.select("dt"), (d) => d[0]);
  write(boxes.select("dd"), (d) => d[1]).attr("data-value", (d) => d[2] ?? null);
}

// Drawn again only when its scale is another one.
export function axis(svg, name, scale, where, { ticks = 5, format = null, side = "bottom" } = {}) {
  const group = layer(svg, name).classed("axis", true).attr("transform", where);
  const drawn = [scale.domain(), scale.range(), ticks].join();
  if (group.attr("data-drawn") === drawn) return;
  const make = side === "bottom" ? d3.axisBottom(scale) : d3.axisLeft(scale);
  make.tickSizeOuter(0).tickPadding(6);
  if (Array.isArray(ticks)) make.tickValues(ticks);
  else make.ticks(ticks);
  if (format) make.tickFormat(format);
  group.attr("data-drawn", drawn).call(make);
}

// Target as a line, network as steps, over one input coordinate; returns the height.
export function curves(svg, data, width, { names = ["target f", "network g"], at = null, label = "", ends = [0, 1], height = 230 } = {}) {
  const margin = { left: 44, right: 12, top: 28, bottom: 40 };
  const x = d3.scaleLinear(ends, [margin.left, width - margin.right]);
  const all = [...data.target, ...data.output, 0];
  const y = d3.scaleLinear(d3.extent(all), [height - margin.bottom, margin.top]).nice(4);
  axis(svg, "x", x, `translate(0,${height - margin.bottom})`);
  axis(svg, "y", y, `translate(${margin.left},0)`, { ticks: 4, side: "left" });
  const line = d3.line((_, i) => x(data.at[i]), (v) => y(v));
  layer(svg, "target", "path").attr("d", line(data.target));
  layer(svg, "network", "path").attr("d", line(data.output));
  const guide = layer(svg, "guide", "line");
  guide.attr("visibility", at === null ? "hidden" : null);
  if (at !== null) guide.attr("x1", x(at)).attr("x2", x(at)).attr("y1", margin.top).attr("y2", height - margin.bottom);
  legend(svg, names, margin.left);
  layer(svg, "label", "text").attr("x", width - margin.right).attr("y", height - 4).attr("text-anchor", "end").call(write, label);
  return height;
}

export function legend(svg, names, left) {
  const items = layer(svg, "legend").selectAll("g").data(names).join((enter) => {
    const item = enter.append("g");
    item.append("line").attr("x2", 22).attr("y1", -4).attr("y2", -4);
    item.append("text").attr("class", "key").attr("x", 28);
    return item;
  });
  items.attr("transform", (_, i) => `translate(${left + i * 112},16)`);
  items.select("line").attr("class", (_, i) => (i === 0 ? "target" : "network"));
  write(items.select("text"), (d) => d);
}

// What colours mean: a bar from the smallest value to the largest.
export function colourScale(host, label) {
  const id = `${host}-ramp`;
  return picture(host, label, (svg, { ends: [low, high], paint }, width) => {
    const long = Math.min(width, 260);
    const stops = layer(layer(svg, "defs", "defs"), "ramp", "linearGradient").attr("id", id);
    stops.selectAll("stop").data(d3.range(9)).join("stop").attr("offset", (k) => k / 8).attr("stop-color", (k) => paint(low + (k / 8) * (high - low)));
    layer(svg, "bar", "rect").attr("width", long).attr("height", 12).attr("rx", 2).attr("fill", `url(#${id})`);
    layer(svg, "ends").selectAll("text").data([low, high]).join("text").attr("y", 28).attr("x", (_, i) => i * long)
      .attr("text-anchor", (_, i) => (i ? "end" : "start")).text(number);
    layer(svg, "what", "text").attr("y", 28).attr("x", long / 2).attr("text-anchor", "middle").text(label);
    return 34;
  });
}
