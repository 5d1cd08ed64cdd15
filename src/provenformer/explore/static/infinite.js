// Infinite distance: the strip below x1 = 0 on which the paper's network is not 0, for every x2.

import { axis, colourScale, d3, facts, layer, legend, number, picture } from "./draw.js";
import { asking, inAddress } from "./page.js";

const SIDES = { left: 50, right: 14, top: 24, bottom: 52 };
const HEIGHT = 290;

const raised = (value) => `10${String(Math.round(Math.log10(value))).replace("-", "⁻").replace(/\d/g, (d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d])}`;

function across(svg, data, width) {
  const x = d3.scaleLinear(d3.extent(data.x1), [SIDES.left, width - SIDES.right]);
  const middle = data.center;
  const unit = 10 ** Math.floor(Math.log10((d3.max(data.x1) - d3.min(data.x1)) / 2));
  const ticks = d3.ticks((d3.min(data.x1) - middle) / unit, (d3.max(data.x1) - middle) / unit, 4).map((v) => middle + v * unit);
  axis(svg, "x", x, `translate(0,${HEIGHT - SIDES.bottom})`, { ticks, format: (v) => number(Math.round(((v - middle) / unit) * 10) / 10) });
  layer(svg, "label", "text").attr("x", width - SIDES.right).attr("y", HEIGHT - 6).attr("text-anchor", "end")
    .text(`(x₁ + ${number(-middle)}) / ${raised(unit)}`);
  return x;
}

export function infinitePage(asked) {
  const far = document.getElementById("in-far");
  const sharp = document.getElementById("in-sharp");

  const plane = picture("in-plane", "Size of the output over both tokens", (svg, data, width) => {
    const x = across(svg, data, width);
    const y = d3.scaleLog(d3.extent(data.x2), [HEIGHT - SIDES.bottom, SIDES.top]);
    axis(svg, "y", y, `translate(${SIDES.left},0)`, { ticks: [10, 1e3, 1e5, 1e7], format: raised, side: "left" });
    const cell = { w: x(data.x1[1]) - x(data.x1[0]), h: y(data.x2[0]) - y(data.x2[1]) };
    const hit = data.paper_plane.flatMap((row, b) => row.map((value, a) => ({ a, b, value })).filter((c) => c.value > 0));
    const top = d3.max(hit, (c) => c.value) ?? 1;
    layer(svg, "frame", "rect").attr("class", "frame cell").attr("x", SIDES.left).attr("y", SIDES.top)
      .attr("width", width - SIDES.left - SIDES.right).attr("height", HEIGHT - SIDES.top - SIDES.bottom).lower();
    layer(svg, "strip").selectAll("rect").data(hit).join("rect").attr("class", "s1").attr("opacity", (c) => 0.25 + (0.75 * c.value) / top)
      .attr("x", (c) => x(data.x1[c.a]) - cell.w / 2).attr("width", cell.w + 0.4)
      .attr("y", (c) => Math.max(SIDES.top, y(data.x2[c.b]) - cell.h / 2))
      .attr("height", (c) => Math.min(HEIGHT - SIDES.bottom, y(data.x2[c.b]) + cell.h / 2) - Math.max(SIDES.top, y(data.x2[c.b]) - cell.h / 2));
    layer(svg, "guide", "line").attr("x1", SIDES.left).attr("x2", width - SIDES.right).attr("y1", y(data.far)).attr("y2", y(data.far)).raise();
    layer(svg, "title", "text").attr("x", SIDES.left - 30).attr("y", 14).text("x₂");
    return HEIGHT;
  });
  const scale = colourScale("in-scale", "largest output");
  const line = picture("in-line", "Output along the line", (svg, data, width) => {
    const x = across(svg, data, width);
    const y = d3.scaleLinear([0, Math.max(0.1, d3.max(data.paper)) * 1.1], [HEIGHT - SIDES.bottom, SIDES.top]);
    axis(svg, "y", y, `translate(${SIDES.left},0)`, { ticks: 4, side: "left" });
    const path = d3.line((_, i) => x(data.x1[i]), (v) => y(v));
    layer(svg, "network", "path").attr("d", path(data.paper));
    layer(svg, "target", "path").attr("d", path(data.sum));
    legend(svg, ["target, sum", "paper"], SIDES.left);
    return HEIGHT;
  });
  const send = asking("/api/infinite", "in", (answer) => {
    plane(answer);
    const top = d3.max(answer.paper_plane.flat()) || 1;
    scale({ ends: [0, top], paint: (v) => `color-mix(in srgb, var(--accent) ${25 + (75 * v) / top}%, var(--card))` });
    line(answer);
    facts("in-facts", [
      ["largest output, paper", number(d3.max(answer.paper)), d3.max(answer.paper)],
      ["the same before the final clip", number(answer.raw), answer.raw],
      ["largest output, sum", number(answer.sum_largest), answer.sum_largest],
      ["width of the strip", number(answer.strip_width), answer.strip_width],
      ["error (d₂ squared) per unit of x₂", number(answer.per_unit), answer.per_unit],
    ]);
  });
  function change() {
    document.getElementById("in-far-value").textContent = number(10 ** Number(far.value));
    document.getElementById("in-sharp-value").textContent = number(2 ** Number(sharp.value));
    send({ far: far.value, temperature: sharp.value });
    state.keep();
  }
  far.addEventListener("input", change);
  sharp.addEventListener("input", change);
  const state = inAddress("infinite", { far, temperature: sharp }, {}, change);
  state.restore(asked);
  return state;
}
