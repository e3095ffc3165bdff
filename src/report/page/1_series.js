"use strict";
// Elements, and numbers as text. All text comes into the page by text nodes: nothing in it is taken for markup.

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;  // an attribute of this name is refused by the page of `trainer ui`
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}
const el = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const isNumber = value => typeof value === "number" && Number.isFinite(value);

// "1,234,567"
const whole = value => isNumber(value) ? Math.round(value).toLocaleString("en-US") : "–";

// Four digits: "0.01234", "1.234e-7", "12,345"
function digits(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < 1e-3 || size >= 1e9) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 1e4) return whole(value);
  return String(Number(value.toPrecision(4)));
}

// "1.5k", "2M": for axes
function brief(value) {
  const size = Math.abs(value);
  for (const [factor, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= factor) return Number((value / factor).toPrecision(4)) + unit;
  }
  return value === 0 || size >= 1e-3 ? String(Number(value.toPrecision(4))) : value.toExponential(1).replace(".0e", "e");
}

function bytes(value) {
  if (!isNumber(value)) return "–";
  for (const [factor, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (Math.abs(value) >= factor) return Number((value / factor).toPrecision(3)) + " " + unit;
  }
  return value + " B";
}

function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 10) return Number(seconds.toPrecision(3)) + " s";
  const all = Math.round(seconds), minutes = Math.floor(all / 60), hours = Math.floor(minutes / 60);
  if (all < 60) return all + " s";
  if (minutes < 60) return minutes + " min" + (all % 60 ? " " + (all % 60) + " s" : "");
  if (hours < 48) return hours + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
  return Math.floor(hours / 24) + " d" + (hours % 24 ? " " + (hours % 24) + " h" : "");
}

const percent = value => isNumber(value) ? Number((100 * value).toPrecision(4)) + " %" : "–";
const date = seconds => seconds ? new Date(1000 * seconds).toLocaleString() : "–";

// A table of rows of cells; a cell is text, an element, or {text, class}.
function table(heads, rows) {
  const cell = (tag, content) => {
    const given = content !== null && typeof content === "object" && !(content instanceof Node) && !Array.isArray(content);
    return given ? el(tag, {class: content.class, title: content.title}, content.text) : el(tag, null, content);
  };
  return el("div", {class: "scroll", tabindex: 0},
    el("table", null,
      heads && el("thead", null, el("tr", null, heads.map(head => cell("th", head)))),
      el("tbody", null, rows.map(row => el("tr", null, row.map((content, i) => cell(i === 0 && !heads ? "th" : "td", content)))))));
}
const number = text => ({text, class: "number"});

// A part that is closed at first is filled when it is opened.
function fold(title, fill, open) {
  const inside = el("div", {class: "inside"});
  let filled = false;
  const show = () => { if (!filled) { filled = true; inside.append(...[fill()].flat(Infinity)); } };
  if (open) show();
  return el("details", {open, ontoggle: show}, el("summary", null, title), inside);
}
const swatch = color => el("i", {class: "swatch", style: `background: var(--c${color % 8})`});

// From the data of a run to the points of a chart.

const AXES = {
  step: {name: "Step", key: "step", at: "step", text: whole, tick: brief},
  time: {name: "Time", key: "seconds", at: "at_seconds", text: duration, tick: duration},
  tokens: {name: "Tokens", key: "tokens", at: "at_tokens", text: whole, tick: brief},
};

// Points {x, y, low, high, step} of a training series.
function trainPoints(run, name, axis) {
  const series = run.train.series[name];
  if (!series) return [];
  const xs = run.train[AXES[axis].key];
  return series.mean.map((y, i) => ({x: xs[i], y, step: run.train.step[i],
    low: series.min ? series.min[i] : y, high: series.max ? series.max[i] : y}));
}

function evaluationPoints(run, key, axis) {
  return run.evaluations.filter(row => isNumber(row[key]))
    .map(row => ({x: row[AXES[axis].at], y: row[key], low: row[key], high: row[key], step: row.step}));
}

// The exponential mean of the points so far; `weight` of what was before. Gaps stay gaps.
function smoothed(points, weight) {
  let mean = 0, sum = 0;
  return points.map(point => {
    if (!isNumber(point.y)) return {...point, y: null};
    mean = weight * mean + (1 - weight) * point.y;
    sum = weight * sum + (1 - weight);
    return {...point, y: mean / sum, raw: point.y};
  });
}

// Of all runs that are shown, so that all charts have the same axis.
function wholeRange(shown, axis) {
  const ends = shown.flatMap(run => {
    const xs = run.train[AXES[axis].key];
    return [xs[0], xs[xs.length - 1], ...evaluationPoints(run, "eval_loss", axis).slice(-1).map(point => point.x)];
  }).filter(isNumber);
  const low = Math.min(...ends), high = Math.max(...ends);
  return !ends.length ? [0, 1] : low === high ? [low - .5, low + .5] : [low, high];
}

// Where a step is on the axis.
function placeOf(run, step, axis) {
  const steps = run.train.step;
  let i = steps.findIndex(at => at >= step);
  if (i < 0) i = steps.length - 1;
  return axis === "step" ? step : run.train[AXES[axis].key][i];
}

// What happened in a run, for its charts: {x, text, color}.
function marksOf(run, axis, kinds) {
  const marks = [];
  const mark = (kind, step, text, color) => { if (kinds.includes(kind)) marks.push({x: placeOf(run, step, axis), text, color}); };
  for (const row of run.recoveries) mark("recovery", row.step + 1, "out of memory: " + row.stage, "--warn");
  for (const step of run.skipped) mark("skipped", step, "step " + step + " was skipped", "--bad");
  for (const step of run.spikes) mark("spike", step, "the loss jumped", "--c5");
  for (const start of ((run.environment || {}).starts || []).slice(1))
    mark("start", start.after_step, "resumed after step " + start.after_step, "--soft");
  return marks.slice(0, 300);
}

// Numbers that divide an axis from `low` to `high` into about `count` parts.
function ticks(low, high, count, base) {
  const rough = (high - low) / count || 1;
  if (base === "time") {
    const step = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400]
      .find(s => s >= rough);
    if (step && rough >= .5) return range(low, high, step);
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  return range(low, high, [1, 2, 5, 10].find(s => s * power >= rough) * power);
}
function range(low, high, step) {
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}
function logTicks(low, high) {
  const out = [], from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const leads = to - from > 6 ? [1] : to - from > 2 ? [1, 3] : [1, 2, 5];
  const every = Math.max(1, Math.ceil((to - from) / 8));
  for (let power = from; power <= to; power += every)
    for (const lead of leads) if (lead * 10 ** power >= low && lead * 10 ** power <= high) out.push(lead * 10 ** power);
  return out;
}
