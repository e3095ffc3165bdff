// A chart: lines over a common axis, with a cursor, and zoom by dragging or by keys.

const shared = {axis: "step", smooth: 0, log: false, view: null, hidden: new Set()};  // of all charts
const charts = [];

function zoom(view) {
  shared.view = view;
  redraw();
}
function redraw() {
  for (const chart of charts) chart.draw();
  const reset = document.getElementById("reset");
  if (reset) reset.disabled = !shared.view;
}

const HEIGHT = 220, LEFT = 56, RIGHT = 12, TOP = 8, BOTTOM = 24;

class Chart {
  // lines(axis): [{name, color, points, smooth, dots, run}]; format: of values; marks(axis); takesLog; wide
  constructor(given) {
    Object.assign(this, given);
    this.cursor = null;
    this.legend = el("span", {class: "legend"});
    this.plot = svg("svg", {class: "plot", height: HEIGHT, tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": this.title + ". Arrow keys read values, plus and minus zoom, Escape shows everything."});
    this.tip = el("div", {class: "tip hidden", role: "status"});
    this.root = el("div", {class: "chart" + (this.wide ? " wide" : ""), "data-chart": this.title},
      el("h3", null, this.title, this.legend), this.plot, this.tip);
    this.listen();
    charts.push(this);
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  listen() {
    const plot = this.plot;
    plot.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      this.from = this.xAt(event);
      this.fromPixel = event.clientX;
      plot.setPointerCapture(event.pointerId);
      this.point(this.from);
    });
    plot.addEventListener("pointermove", event => {
      if (this.from !== undefined && Math.abs(event.clientX - this.fromPixel) > 4) this.select(this.from, this.xAt(event));
      else this.point(this.xAt(event));
    });
    plot.addEventListener("pointerup", event => {
      const from = this.from, moved = Math.abs(event.clientX - this.fromPixel) > 4;
      this.from = undefined;
      this.select();
      const to = this.xAt(event);
      if (from !== undefined && moved && to !== from) zoom([Math.min(from, to), Math.max(from, to)]);
    });
    plot.addEventListener("pointercancel", () => { this.from = undefined; this.select(); this.point(null); });
    plot.addEventListener("pointerleave", event => { if (event.pointerType === "mouse" && this.from === undefined) this.point(null); });
    plot.addEventListener("dblclick", () => zoom(null));
    plot.addEventListener("blur", () => this.point(null));
    plot.addEventListener("keydown", event => { if (this.key(event)) event.preventDefault(); });
  }

  key(event) {
    const {x0, x1} = this, middle = this.cursor ?? (x0 + x1) / 2, width = x1 - x0;
    const move = (event.shiftKey ? .1 : .01) * width;
    switch (event.key) {
      case "ArrowLeft": this.step(-1, move); return true;
      case "ArrowRight": this.step(1, move); return true;
      case "Home": this.point(x0); return true;
      case "End": this.point(x1); return true;
      case "+": case "=": zoom([middle - width / 4, middle + width / 4]); this.point(middle); return true;
      case "-": this.widen(middle, width); return true;
      case "Escape": case "0": zoom(null); return true;
    }
    return false;
  }
  // To the next point, or by `move` if points are closer.
  step(direction, move) {
    const at = this.cursor ?? (direction > 0 ? this.x0 : this.x1);
    let next = at + direction * move;
    const first = (this.drawn || [])[0];
    if (first && first.points.length < 100) {
      const xs = first.points.map(p => p.x).filter(x => direction > 0 ? x > at : x < at);
      if (xs.length) next = direction > 0 ? Math.min(...xs) : Math.max(...xs);
    }
    this.point(Math.min(this.x1, Math.max(this.x0, next)));
  }
  widen(middle, width) {
    const [low, high] = this.full;
    const view = [Math.max(low, middle - width), Math.min(high, middle + width)];
    zoom(view[0] <= low && view[1] >= high ? null : view);
  }

  xAt(event) {
    const box = this.plot.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT)));
    return this.x0 + part * (this.x1 - this.x0);
  }

  // The lines as they are drawn: those that are shown, with the raw values behind smoothed ones.
  visibleLines() {
    const lines = [];
    for (const line of this.lines(shared.axis)) {
      if (shared.hidden.has(line.run) || !line.points.some(p => isNumber(p.y))) continue;
      if (line.smooth && shared.smooth > 0) {
        lines.push({...line, faint: true});
        lines.push({...line, points: smoothed(line.points, shared.smooth), isSmooth: true});
      } else {
        lines.push(line);
      }
    }
    return lines;
  }

  bounds(lines) {
    this.full = wholeRange(runs.filter((_, i) => !shared.hidden.has(i)), shared.axis);
    [this.x0, this.x1] = shared.view || this.full;
    let low = Infinity, high = -Infinity;
    const log = this.takesLog && shared.log;
    for (const line of lines) {
      for (const point of line.points) {
        if (point.x < this.x0 || point.x > this.x1) continue;
        for (const y of line.faint || !line.isSmooth ? [point.low, point.high] : [point.y]) {
          if (!isNumber(y) || (log && y <= 0)) continue;
          low = Math.min(low, y);
          high = Math.max(high, y);
        }
      }
    }
    if (low > high) [low, high] = log ? [.1, 1] : [0, 1];
    if (this.fromZero && !log) low = Math.min(low, 0);
    if (low === high) [low, high] = log ? [low / 2, high * 2] : low === 0 ? [0, 1] : [low - Math.abs(low) * .1, high + Math.abs(high) * .1];
    const room = log ? 1 : .05 * (high - low);
    this.y0 = log ? low / 1.1 : this.fromZero && low === 0 ? 0 : low - room;
    this.y1 = log ? high * 1.1 : high + room;
    this.isLog = log;
  }

  px(x) { return LEFT + (x - this.x0) / (this.x1 - this.x0) * (this.width - LEFT - RIGHT); }
  py(y) {
    const part = this.isLog ? Math.log(y / this.y0) / Math.log(this.y1 / this.y0) : (y - this.y0) / (this.y1 - this.y0);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
  }

  draw() {
    const width = Math.round(this.plot.getBoundingClientRect().width);
    if (width <= LEFT + RIGHT) return;
    this.width = width;
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawn = this.visibleLines();
    this.bounds(this.drawn);
    const clip = "clip" + charts.indexOf(this);
    const marks = (this.marks ? this.marks(shared.axis) : []).filter(mark => mark.x >= this.x0 && mark.x <= this.x1);
    this.over = svg("g");
    this.plot.replaceChildren(
      svg("clipPath", {id: clip}, svg("rect", {x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM})),
      this.frame(width),
      svg("g", {"clip-path": `url(#${clip})`},
        marks.map(mark => svg("line", {class: "mark", x1: this.px(mark.x), x2: this.px(mark.x), y1: TOP, y2: HEIGHT - BOTTOM,
          style: `stroke: var(${mark.color})`}, svg("title", null, mark.text))),
        this.drawn.map(line => this.line(line))),
      this.over);
    const named = this.drawn.filter(line => !line.faint);
    this.legend.replaceChildren(...(named.length > 1 || this.wide ? named : []).map(line => el("span", null, swatch(line.color), line.name)));
    if (!this.drawn.length) this.over.append(svg("text", {x: width / 2, y: HEIGHT / 2, "text-anchor": "middle"}, "no values yet"));
    if (this.cursor !== null) this.point(this.cursor);
  }

  frame(width) {
    const axis = AXES[shared.axis], frame = svg("g");
    const ys = this.isLog ? logTicks(this.y0, this.y1) : ticks(this.y0, this.y1, 5);
    for (const y of ys) {
      frame.append(svg("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: this.py(y), y2: this.py(y)}),
        svg("text", {x: LEFT - 6, y: this.py(y) + 4, "text-anchor": "end"}, (this.tick || brief)(y)));
    }
    for (const x of ticks(this.x0, this.x1, Math.max(2, Math.min(8, width / 95)), shared.axis)) {
      frame.append(svg("line", {class: "grid", x1: this.px(x), x2: this.px(x), y1: TOP, y2: HEIGHT - BOTTOM}),
        svg("text", {x: Math.min(this.px(x), width - RIGHT - 10), y: HEIGHT - 8, "text-anchor": "middle"}, axis.tick(x)));
    }
    frame.append(svg("line", {class: "axis", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM}));
    return frame;
  }

  line(line) {
    const color = `var(--c${line.color % 8})`, group = svg("g");
    const usable = y => isNumber(y) && (!this.isLog || y > 0);
    const seen = line.points.filter(p => p.x >= this.x0 && p.x <= this.x1 && usable(p.y));
    let path = "", pen = false, up = [], down = [], band = "";
    const close = () => { if (up.length > 1) band += "M" + up.join("L") + "L" + down.reverse().join("L") + "Z"; up = []; down = []; };
    for (const p of line.points) {
      if (!usable(p.y)) { pen = false; close(); continue; }
      const x = this.px(p.x).toFixed(1);
      path += (pen ? "L" : "M") + x + " " + this.py(p.y).toFixed(1);
      pen = true;
      if (line.isSmooth || p.low === p.high || !usable(p.low)) { close(); continue; }
      up.push(x + " " + this.py(p.high).toFixed(1));
      down.push(x + " " + this.py(p.low).toFixed(1));
    }
    close();
    if (band) group.append(svg("path", {d: band, style: `fill: ${color}; opacity: ${line.faint ? .12 : .18}`}));
    group.append(svg("path", {d: path, style: `fill: none; stroke: ${color}; stroke-width: ${line.faint ? 1 : 1.8}; ` +
      `stroke-linejoin: round; opacity: ${line.faint ? .35 : 1}` + (line.dash ? "; stroke-dasharray: 5 4" : "")}));
    if (line.dots || seen.length < 30) {
      for (const p of seen.length > 300 ? [] : seen)
        group.append(svg("circle", {cx: this.px(p.x), cy: this.py(p.y), r: line.faint ? 1.8 : 2.8, style: `fill: ${color}; opacity: ${line.faint ? .5 : 1}`}));
    }
    return group;
  }

  select(from, to) {
    if (this.selection) this.selection.remove();
    this.selection = null;
    if (from === undefined) return;
    this.tip.classList.add("hidden");
    const [a, b] = [this.px(Math.min(from, to)), this.px(Math.max(from, to))];
    this.selection = svg("rect", {class: "selection", x: a, y: TOP, width: b - a, height: HEIGHT - TOP - BOTTOM});
    this.plot.append(this.selection);
  }

  // Shows the values near x, and the place in the other charts.
  point(x) {
    for (const chart of charts) chart.showCursor(x, chart === this);
  }
  showCursor(x, withValues) {
    this.cursor = withValues ? x : null;
    if (!this.over) return;
    this.over.replaceChildren();
    this.tip.classList.add("hidden");
    if (x === null || x < this.x0 || x > this.x1 || !this.drawn.length) return;
    const near = this.drawn.filter(line => !line.faint).map(line => ({line, point: nearest(line.points, x)})).filter(n => n.point);
    if (!near.length) return;
    const at = withValues ? near.reduce((a, b) => Math.abs(a.point.x - x) <= Math.abs(b.point.x - x) ? a : b).point.x : x;
    const place = this.px(at);
    this.over.append(svg("line", {class: "cursor", x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM}));
    if (!withValues) return;
    for (const {line, point} of near) {
      if (this.isLog && point.y <= 0) continue;
      this.over.append(svg("circle", {cx: this.px(point.x), cy: this.py(point.y), r: 3.5, style: `fill: var(--c${line.color % 8})`}));
    }
    this.tip.replaceChildren(...this.words(near, at));
    this.tip.classList.remove("hidden");
    const outer = this.root.getBoundingClientRect(), inner = this.plot.getBoundingClientRect();
    const room = outer.width - this.tip.offsetWidth - 8, left = inner.left - outer.left + place + 14;
    this.tip.style.left = Math.max(4, left > room ? Math.min(room, left - this.tip.offsetWidth - 28) : left) + "px";
    this.tip.style.top = inner.top - outer.top + TOP + 4 + "px";
  }
  words(near, at) {
    const first = near.find(n => n.point.x === at).point;
    const head = "step " + whole(first.step) + (shared.axis === "step" ? "" : ", " + AXES[shared.axis].text(at));
    const gap = (this.x1 - this.x0) / (this.width - LEFT - RIGHT) * 4;
    const marks = (this.marks ? this.marks(shared.axis) : []).filter(mark => Math.abs(mark.x - at) <= gap).slice(0, 4);
    return [el("span", {class: "soft"}, head),
      ...near.map(({line, point}) => {
        const spread = !line.isSmooth && point.low !== point.high ? ` (${this.format(point.low)} – ${this.format(point.high)})` : "";
        return el("div", null, swatch(line.color), line.name, el("b", null, this.format(point.y) + spread),
          line.isSmooth && el("span", {class: "soft"}, "raw " + this.format(point.raw)));
      }),
      ...marks.map(mark => el("div", {style: `color: var(${mark.color})`}, mark.text))];
  }
}

// The point with a number that is closest to x.
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1; else high = middle;
  }
  let best = null;
  for (let i = Math.max(0, low - 3); i <= Math.min(points.length - 1, low + 3); i++) {
    if (isNumber(points[i].y) && (!best || Math.abs(points[i].x - x) < Math.abs(best.x - x))) best = points[i];
  }
  return best;
}
