// The input: tokens that can be dragged or moved with the arrow keys, on lines (d = 1) or in a square (d = 2), over cells.

import { colour, d3, layer, number, picture, tokenName, write } from "./draw.js";

const RADIUS = 13;
const STEPS = { ArrowRight: [0, 0.01], ArrowLeft: [0, -0.01], ArrowUp: [1, 0.01], ArrowDown: [1, -0.01],
  PageUp: [0, 0.1], PageDown: [0, -0.1] };

const LAST = 0.9999; // of a half-open box

// `move(j, token)` is told the new place of token j. Inside, a token is where it stands in the box, from 0 to 1 per row: `low` and
// `high` are its ends; `room` is how far a token may leave it, `closed` whether its upper end belongs to it.
export function tokenPicture(host, move) {
  let now = null;

  const highest = ({ room, closed }) => (room || closed ? 1 + room : LAST);
  const inBox = ({ low, high }, token) => token.map((v, i) => (v - low[i]) / (high[i] - low[i]));

  function place(j, wanted) {
    const share = wanted.map((v) => Math.round(Math.min(highest(now), Math.max(-now.room, v)) * 1e4) / 1e4);
    const token = share.map((v, i) => Number((now.low[i] + v * (now.high[i] - now.low[i])).toPrecision(12)));
    if (token.some((v, i) => v !== now.tokens[j][i])) move(j, token);
  }

  function onKey(event, j) {
    const token = inBox(now, now.tokens[j]);
    if (event.key === "Home" || event.key === "End") token[0] = event.key === "Home" ? 0 : LAST;
    else if (event.key in STEPS) {
      const [row, step] = STEPS[event.key];
      token[Math.min(row, token.length - 1)] += step * (event.shiftKey ? 10 : 1);
    } else return;
    event.preventDefault();
    place(j, token);
  }

  function handles(svg, at, data) {
    const drag = d3.drag().container(svg.node())
      .on("drag", (event, j) => place(j, at.invert(event, j)))
      .on("start", (event) => event.sourceEvent.target.closest(".handle").focus({ preventScroll: true }));
    const all = layer(svg, "handles").selectAll("g.handle").data(d3.range(data.tokens.length)).join((enter) => {
      const g = enter.append("g").attr("class", "handle").attr("tabindex", 0).attr("role", "slider");
      g.append("circle").attr("class", "halo").attr("r", RADIUS + 8);
      g.append("circle").attr("class", (j) => colour(j)).attr("r", RADIUS);
      g.append("text").text((j) => tokenName(j));
      return g.call(drag).on("keydown", onKey);
    });
    all.on(".drag", null).call(drag);
    all.attr("transform", (j) => `translate(${at(j)})`)
      .attr("aria-label", (j) => `token ${j + 1}`)
      .attr("aria-valuemin", data.low[0] - data.room * (data.high[0] - data.low[0]))
      .attr("aria-valuemax", data.low[0] + highest(data) * (data.high[0] - data.low[0]))
      .attr("aria-valuenow", (j) => data.tokens[j][0])
      .attr("aria-valuetext", (j) => data.tokens[j].join(", "));
  }

  function lines(svg, data, width) {
    const places = data.tokens.map((token) => inBox(data, token)[0]);
    const n = places.length;
    const LANE = n > 4 ? 30 : 35;
    const top = 26;
    const height = top + n * LANE + 30;
    const x = d3.scaleLinear([-data.room, 1 + data.room], [RADIUS + 8, width - RADIUS - 8]);
    const lane = (j) => top + (j + 0.5) * LANE;
    const cell = (j) => Math.floor(places[j] * data.cells + 1e-12);
    layer(svg, "filled").selectAll("rect").data(d3.range(n)).join("rect").attr("class", "cell")
      .attr("visibility", (j) => (places[j] >= 0 && places[j] < 1 ? null : "hidden"))
      .attr("x", (j) => x(cell(j) / data.cells)).attr("width", x(1 / data.cells) - x(0))
      .attr("y", (j) => lane(j) - LANE / 2 + 3).attr("height", LANE - 6).attr("rx", 4);
    layer(svg, "lanes").selectAll("line").data(d3.range(n)).join("line").attr("class", "lane")
      .attr("x1", x(-data.room)).attr("x2", x(1 + data.room)).attr("y1", lane).attr("y2", lane);
    layer(svg, "edges").selectAll("line").data(d3.range(data.cells + 1)).join("line").attr("class", "edge")
      .attr("x1", (k) => x(k / data.cells)).attr("x2", (k) => x(k / data.cells)).attr("y1", top).attr("y2", height - 26);
    const wide = (x(1) - x(0)) / data.cells;
    layer(svg, "numbers").selectAll("text").data(d3.range(data.cells).filter((k) => wide > 22 || k % 5 === 0)).join("text")
      .attr("x", (k) => x((k + 0.5) / data.cells)).attr("y", 16).attr("text-anchor", "middle").call(write, (k) => k);
    layer(svg, "ends").selectAll("text").data([0, 1]).join("text")
      .attr("x", (v) => x(v)).attr("y", height - 6).attr("text-anchor", "middle").call(write, (v) => number(v ? data.high[0] : data.low[0]));
    const at = (j) => [x(places[j]), lane(j)];
    at.invert = (event) => [x.invert(event.x)];
    handles(svg, at, data);
    return height;
  }

  function square(svg, data, width) {
    const places = data.tokens.map((token) => inBox(data, token));
    const size = Math.min(width, 300);
    const pad = RADIUS + 10;
    const x = d3.scaleLinear([-data.room, 1 + data.room], [pad, size - pad]);
    const y = d3.scaleLinear([-data.room, 1 + data.room], [size - pad, pad]);
    const step = x(1 / data.cells) - x(0);
    const inside = (t) => t.every((v) => v >= 0 && v < 1);
    layer(svg, "filled").selectAll("rect").data(places.filter(inside)).join("rect").attr("class", "cell")
      .attr("x", (t) => x(Math.floor(t[0] * data.cells + 1e-12) / data.cells))
      .attr("y", (t) => y((Math.floor(t[1] * data.cells + 1e-12) + 1) / data.cells)).attr("width", step).attr("height", step);
    const edges = d3.range(data.cells + 1).map((k) => k / data.cells);
    layer(svg, "columns").selectAll("line").data(edges).join("line").attr("class", "edge")
      .attr("x1", (v) => x(v)).attr("x2", (v) => x(v)).attr("y1", y(0)).attr("y2", y(1));
    layer(svg, "rows").selectAll("line").data(edges).join("line").attr("class", "edge")
      .attr("x1", x(0)).attr("x2", x(1)).attr("y1", (v) => y(v)).attr("y2", (v) => y(v));
    const at = (j) => [x(places[j][0]), y(places[j][1])];
    const corner = (k) => [x((k % data.cells) / data.cells) + 5, y((Math.floor(k / data.cells) + 1) / data.cells) + 15];
    const covered = (k) => places.some((_, j) => Math.hypot(at(j)[0] - corner(k)[0] - 4, at(j)[1] - corner(k)[1] + 5) < RADIUS + 7);
    const ids = step > 34 ? d3.range(data.cells ** 2).filter((k) => !covered(k)) : [];
    layer(svg, "numbers").selectAll("text").data(ids).join("text").text((k) => k).attr("x", (k) => corner(k)[0]).attr("y", (k) => corner(k)[1]);
    at.invert = (event) => [x.invert(event.x), y.invert(event.y)];
    handles(svg, at, data);
    return size;
  }

  const draw = picture(host, "Input tokens", (svg, data, width) => {
    const shape = data.tokens[0].length === 1 ? "lines" : "square";
    if (svg.attr("data-shape") !== shape) svg.attr("data-shape", shape).selectAll("*").remove();
    return (shape === "lines" ? lines : square)(svg, data, width);
  });
  return (data) => {
    now = { low: data.tokens[0].map(() => 0), high: data.tokens[0].map(() => 1), ...data };
    draw(now);
  };
}
