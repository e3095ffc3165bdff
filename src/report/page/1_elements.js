"use strict";
// Elements, and numbers as text. All text comes into the page by text nodes: nothing in it is taken for markup.

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
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
