// Numbers of a sequence as dots in columns, one strip per row of the token; dots of an input can be dragged or moved with keys.

import { d3, layer, number, picture, write } from "./draw.js";

const STEPS = { ArrowUp: 0.01, ArrowRight: 0.01, ArrowDown: -0.01, ArrowLeft: -0.01, PageUp: 0.1, PageDown: -0.1 };
const HEIGHT = 132;
const MARGIN = { left: 46, right: 12, top: 14, bottom: 22 };

function scales(width, row, data) {
  const n = data.rows[row].length;
  const top = row * (HEIGHT + 10) + MARGIN.top;
  return {
    x: d3.scalePoint(d3.range(n), [MARGIN.left + 10, width - MARGIN.right - 10]).padding(0.2),
    y: d3.scaleLinear(data.domains[row], [top + HEIGHT - MARGIN.top - MARGIN.bottom, top]),
    radius: Math.max(2.5, Math.min(9, (width - 70) / n / 2.4)),
  };
}

function frame(svg, row, data, { x, y }, width) {
  const group = layer(svg, `row-${row}`);
  const names = data.names ?? [];
  const ticks = names.length ? y.ticks(5).filter(Number.isInteger) : y.ticks(3);
  group.selectAll("line.edge").data(ticks).join("line").attr("class", "edge").attr("x1", MARGIN.left).attr("x2", width - MARGIN.right)
    .attr("y1", y).attr("y2", y);
  group.selectAll("text.tick").data(ticks).join("text").attr("class", "tick").attr("x", MARGIN.left - 6).attr("text-anchor", "end")
    .attr("y", (v) => y(v) + 4).call(write, (v) => names[v] ?? number(v));
  const n = data.rows[row].length;
  const every = Math.ceil((n * (names.length ? 7 + 7 * d3.max(names, (name) => name.length) : 26)) / (width - 70));
  group.selectAll("text.token").data(d3.range(n).filter((j) => j % every === 0)).join("text").attr("class", "token")
    .attr("x", x).attr("y", y.range()[0] + 18).attr("text-anchor", "middle").call(write, (j) => names[Math.round(data.rows[row][j])] ?? j + 1);
  return group;
}

const height = (rows) => rows * (HEIGHT + 10);
const dropRows = (svg, from) => svg.selectChildren("g").filter((_, row) => row >= from).remove();

// The input: `move(j, row, value)` is told the new place of a number.
export function inputStrip(host, move) {
  let now = null;
  const place = (row, j, value) => {
    const [low, high] = now.domains[row];
    if (now.names?.length) {
      const token = Math.min(high, Math.max(low, Math.round(value)));
      if (token !== now.rows[row][j]) move(j, row, token);
      return;
    }
    const rounded = Math.round(((value - low) / (high - low)) * 1e4) / 1e4;
    const inside = low + Math.min(1, Math.max(0, rounded)) * (high - low);
    if (inside !== now.rows[row][j]) move(j, row, inside);
  };
  const draw = picture(host, "Input tokens", (svg, data, width) => {
    dropRows(svg, data.rows.length);
    data.rows.forEach((values, row) => {
      const scale = scales(width, row, data);
      const group = frame(svg, row, data, scale, width);
      const drag = d3.drag().container(svg.node())
        .on("start", (event) => event.sourceEvent.target.closest(".number").focus({ preventScroll: true }))
        .on("drag", (event, j) => place(row, j, scale.y.invert(event.y)));
      const [low, high] = data.domains[row];
      group.selectAll("line.stem").data(values).join("line").attr("class", "stem").attr("x1", (_, j) => scale.x(j)).attr("x2", (_, j) => scale.x(j))
        .attr("y1", scale.y.range()[0]).attr("y2", (v) => scale.y(v));
      const dots = group.selectAll("g.number").data(d3.range(values.length)).join((enter) => {
        const g = enter.append("g").attr("class", "number").attr("tabindex", 0).attr("role", "slider");
        g.append("rect").attr("class", "grip");
        g.append("circle");
        return g;
      });
      dots.on(".drag", null).call(drag).on("keydown", (event, j) => {
        if (!(event.key in STEPS)) return;
        event.preventDefault();
        const step = data.names?.length ? Math.sign(STEPS[event.key]) : STEPS[event.key] * (event.shiftKey ? 10 : 1) * (high - low);
        place(row, j, now.rows[row][j] + step);
      });
      const step = Math.max(6, scale.x.step());
      dots.attr("transform", (j) => `translate(${scale.x(j)},0)`).attr("aria-label", (j) => `token ${j + 1}${data.rows.length > 1 ? `, row ${row}` : ""}`)
        .attr("aria-valuemin", low).attr("aria-valuemax", high).attr("aria-valuenow", (j) => values[j]).attr("aria-valuetext", (j) => data.names?.[values[j]] ?? String(values[j]));
      dots.select("rect").attr("x", -step / 2).attr("width", step).attr("y", scale.y.range()[1] - 8).attr("height", scale.y.range()[0] - scale.y.range()[1] + 16);
      dots.select("circle").attr("cy", (j) => scale.y(values[j])).attr("r", scale.radius);
    });
    return height(data.rows.length);
  });
  return (data) => { now = data; draw(data); };
}

// The output: rings for the target, dots for the network.
export function outputStrip(host) {
  return picture(host, "Target and network", (svg, data, width) => {
    dropRows(svg, data.rows.length);
    data.rows.forEach((values, row) => {
      const scale = scales(width, row, data);
      const group = frame(svg, row, data, scale, width);
      group.selectAll("circle.ring").data(data.target[row]).join("circle").attr("class", "ring").attr("cx", (_, j) => scale.x(j))
        .attr("cy", (v) => scale.y(v)).attr("r", scale.radius);
      group.selectAll("circle.point").data(values).join("circle").attr("class", "point").attr("cx", (_, j) => scale.x(j))
        .attr("cy", (v) => scale.y(v)).attr("r", scale.radius * 0.55);
    });
    return height(data.rows.length);
  });
}
