// Layer by layer: where the ids are after each layer, which ids the layer reacts to, and a player.

import { axis, calm, colour, d3, layer, number, picture, tokenName, write } from "./draw.js";

const PAUSE = 750;

function powers([low, high], room) {
  const top = Math.max(1, Math.ceil(Math.log10(Math.max(1, high))));
  const bottom = low < -1 ? Math.ceil(Math.log10(-low)) : 0;
  const step = Math.max(1, Math.ceil(((top + bottom + 1) * 52) / room));
  const ticks = [0];
  for (let e = 0; e <= top; e += step) ticks.push(10 ** e);
  for (let e = step; e <= bottom; e += step) ticks.unshift(-(10 ** e));
  return ticks.filter((v) => v >= low && v <= high);
}

function tickText(value) {
  if (Math.abs(value) < 1000) return String(value);
  const raised = String(Math.round(Math.log10(Math.abs(value)))).replace(/\d/g, (d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
  return `${value < 0 ? "−" : ""}10${raised}`;
}

export function layerPlayer() {
  const find = (id) => document.getElementById(id);
  const slider = find("moment");
  const play = find("play");
  let moments = [];
  let total = 0;
  let range = null;
  let contexts = null;
  let at = 0;
  let timer = null;

  const draw = picture("ids", "Ids of the tokens", (svg, data, width) => {
    const { moment, before, domain, contexts: { low, high } } = data;
    const n = moment.ids.length;
    const LANE = n > 4 ? 24 : 30;
    const top = 24;
    const base = top + n * LANE + 4;
    const height = base + 44;
    const x = d3.scaleSymlog(domain, [30, width - 22]).constant(1);
    const clamp = (v) => Math.max(30, Math.min(width - 22, x(v)));
    const lane = (j) => top + (j + 0.5) * LANE;
    layer(svg, "range", "rect").attr("x", clamp(low)).attr("width", Math.max(3, clamp(high) - clamp(low)))
      .attr("y", top).attr("height", base - top).attr("rx", 3);
    layer(svg, "range-label", "text").attr("x", clamp(high)).attr("y", 15).attr("text-anchor", "end").call(write, "ids of contexts");
    const window = layer(svg, "window", "rect").attr("visibility", moment.window ? null : "hidden");
    if (moment.window) {
      const [from, to] = moment.window.map(clamp);
      const wide = Math.max(5, to - from);
      window.attr("x", (from + to - wide) / 2).attr("width", wide).attr("y", top).attr("height", base - top);
    }
    layer(svg, "lanes").selectAll("line").data(moment.ids).join("line").attr("class", "lane")
      .attr("x1", 30).attr("x2", width - 22).attr("y1", (_, j) => lane(j)).attr("y2", (_, j) => lane(j));
    layer(svg, "trails").selectAll("line").data(moment.ids).join("line").attr("class", (_, j) => `trail ${colour(j)}`)
      .attr("x1", (_, j) => clamp(before.ids[j])).attr("x2", (v) => clamp(v)).attr("y1", (_, j) => lane(j)).attr("y2", (_, j) => lane(j));
    const dots = layer(svg, "dots").selectAll("g.dot").data(moment.ids).join((enter) => {
      const g = enter.append("g").attr("class", "dot").attr("transform", (v, j) => `translate(${clamp(v)},${lane(j)})`);
      g.append("circle").attr("r", 12);
      g.append("text");
      return g;
    });
    dots.attr("data-value", (v) => v).select("circle").attr("class", (_, j) => colour(j));
    write(dots.select("text"), (_, j) => tokenName(j));
    const moving = data.glide && !calm.matches ? dots.transition().duration(350).ease(d3.easeCubicOut) : dots.interrupt();
    moving.attr("transform", (v, j) => `translate(${clamp(v)},${lane(j)})`);
    axis(svg, "x", x, `translate(0,${base})`, { ticks: powers(domain, width - 60), format: tickText });
    layer(svg, "label", "text").attr("x", width - 22).attr("y", height - 4).attr("text-anchor", "end").call(write, "id, in cells (logarithmic)");
    return height;
  });

  // Ids glide from layer to layer, but follow the hand at once.
  function show(index, glide = true) {
    at = Math.max(0, Math.min(moments.length - 1, index));
    const moment = moments[at];
    slider.value = at;
    slider.setAttribute("aria-valuetext", `after layer ${moment.layer} of ${total}, ${moment.stage}`);
    const ids = moment.ids.map((v, j) => `${tokenName(j)} ${number(v)}`).join(", ");
    const caption = find("moment-text");
    caption.textContent = "";
    caption.append(Object.assign(document.createElement("b"), { textContent: `Layer ${moment.layer} of ${total}, ${moment.stage}. ` }));
    caption.append(`${moment.text} Ids: ${ids}.`);
    d3.select("#stages").selectAll("button").attr("aria-pressed", (stage) => String(stage === moment.stage));
    find("back").disabled = find("first").disabled = at === 0;
    find("forward").disabled = find("last").disabled = at === moments.length - 1;
    draw({ moment, before: moments[Math.max(0, at - 1)], domain: range, contexts, glide });
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  function step() {
    if (at >= moments.length - 1) stop();
    else show(at + 1);
  }
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    if (at >= moments.length - 1) show(0);
    play.textContent = "Pause";
    timer = setInterval(step, PAUSE);
  });
  const jump = (id, to) => find(id).addEventListener("click", () => { stop(); show(to()); });
  jump("first", () => 0);
  jump("back", () => at - 1);
  jump("forward", () => at + 1);
  jump("last", () => moments.length - 1);
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });

  return {
    stop,
    // New states: stay at the same layer, or start at the end of the contextual map.
    update(look, ids, fresh) {
      const layerNow = moments[at]?.layer ?? 0;
      moments = look.moments;
      total = look.layers;
      contexts = ids;
      const all = moments.flatMap((m) => m.ids);
      range = [Math.min(0, d3.min(all)), Math.max(contexts.high, d3.max(all))];
      slider.max = moments.length - 1;
      const stages = [...new Set(moments.map((m) => m.stage))];
      d3.select("#stages").selectAll("button").data(stages).join("button").attr("type", "button").call(write, (d) => d)
        .on("click", (_, stage) => { stop(); show(moments.findIndex((m) => m.stage === stage)); });
      if (fresh) {
        stop();
        show(moments.findLastIndex((m) => m.stage === "contextual map"), false);
      } else show(d3.bisector((m) => m.layer).right(moments, layerNow) - 1, false);
    },
  };
}
