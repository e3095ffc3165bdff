// The page of `trainer report`: its data stand in it. It remembers its controls in its address.

const data = JSON.parse(document.getElementById("data").textContent);

function recall() {
  smoothForLength();
  const given = new URLSearchParams(location.hash.slice(1));
  if (AXES[given.get("axis")]) shared.axis = given.get("axis");
  if (given.has("smooth")) shared.smooth = Math.min(.99, Math.max(0, Number(given.get("smooth")) || 0));
  shared.log = given.get("log") === "1";
}
remember = () => history.replaceState(null, "", "#" + new URLSearchParams({axis: shared.axis, smooth: shared.smooth, log: shared.log ? 1 : 0}));

function start() {
  takeRuns(data.runs);
  recall();
  const page = document.getElementById("page"), run = runs[0];
  const isRunning = runs.some(r => r.state === "running");
  page.append(
    el("header", null, el("h1", null, isComparison ? "Comparison of " + runs.length + " runs" : run.name), !isComparison && badge(run),
      el("span", {class: "soft small"}, isComparison ? null : [el("span", {class: "mono"}, run.path), "; "], "as of " + date(Math.max(...runs.map(r => r.updated))),
        isRunning ? ". Reloads itself each minute until it is touched." : ".")),
    ...runs.filter(r => r.message).map(r => el("p", {class: "problem"}, (isComparison ? r.name + ": " : "") + r.message)),
    ...runs.flatMap(r => r.problems.map(problem => el("p", {class: "problem"}, (isComparison ? r.name + ": " : "") + problem))),
    ...[isComparison ? comparisonPart() : figuresOf(run)].flat(),
    controlsPart(), chartsPart(),
    el("h2", null, "Details"),
    ...(isComparison ? runs.map((r, i) => fold(el("span", {class: "swatched"}, swatch(i), r.name), () => detailsOf(r, false))) : detailsOf(run, true)),
    el("p", {class: "soft small"}, `trainer ${data.version}, ${date(data.written)}`));
  redraw();
  if (!isRunning) return;
  let isTouched = false;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { isTouched = true; });
  setInterval(() => { if (!isTouched) location.reload(); }, 60000);
}
start();
