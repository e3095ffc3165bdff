// What a run was: memory, answers, data, configuration, environment.

// The parts of a plan in one bar, with marks for what was measured and for the limit.
function memoryBar(plan) {
  const all = Object.entries(plan).filter(([key, value]) => key.startsWith("planned_") && key !== "planned_peak" && value > 0);
  const sum = all.reduce((bytes, [, value]) => bytes + value, 0), parts = all.filter(([, value]) => value > sum / 1000);
  const whole = Math.max(sum, plan.peak || 0, plan.planned_peak || 0, plan.limit || 0);
  if (!parts.length || !(whole > 0)) return null;
  const share = value => `${(100 * value / whole).toFixed(2)}%`, name = key => key.slice(8).replaceAll("_", " ");
  const mark = (value, text, color) => isNumber(value) && value > 0 &&
    el("i", {class: "at", title: `${text} ${bytes(value)}`, style: `left: ${share(value)}; background: var(${color})`});
  return el("div", {class: "stack"},
    el("div", {class: "stacked", role: "img", "aria-label": "planned memory: " + parts.map(([key, value]) => `${name(key)} ${bytes(value)}`).join(", ")},
      parts.map(([key, value], i) => el("i", {title: `${name(key)} ${bytes(value)}`, style: `width: ${share(value)}; background: var(--c${i % 8})`})),
      mark(plan.peak, "measured peak", "--ink"), mark(plan.limit, "limit", "--bad")),
    el("div", {class: "legend"}, parts.map(([key, value], i) => el("span", null, swatch(i), `${name(key)} ${bytes(value)}`)),
      isNumber(plan.peak) && plan.peak > 0 && el("span", null, el("i", {class: "swatch", style: "background: var(--ink); width: 3px"}), `measured peak ${bytes(plan.peak)}`),
      isNumber(plan.limit) && plan.limit > 0 && el("span", null, el("i", {class: "swatch", style: "background: var(--bad); width: 3px"}), `limit ${bytes(plan.limit)}`)));
}

function memoryPart(run) {
  const out = [], plan = run.memory_plan;
  if (plan) {
    const parts = Object.entries(plan).filter(([key, value]) => key.startsWith("planned_") && key !== "planned_peak" && value)
      .map(([key, value]) => [key.slice(8).replaceAll("_", " "), number(bytes(value))]);
    const difference = plan.peak ? ` (${plan.planned_peak >= plan.peak ? "+" : ""}${digits(100 * (plan.planned_peak / plan.peak - 1))} %)` : "";
    out.push(el("h3", null, "Plan"), memoryBar(plan), table(["After the first step", {text: "Bytes", class: "number"}], [
      ["peak, measured", number(bytes(plan.peak))], ["peak, planned", number(bytes(plan.planned_peak) + difference)],
      ...(plan.limit ? [["limit", number(bytes(plan.limit))]] : []), ...parts,
      ["batch_size", number(whole(plan.batch_size))], ["layers with gradient checkpointing", number(whole(plan.recompute_blocks))]]));
  }
  out.push(el("h3", null, "Recoveries from running out of memory"));
  out.push(run.recoveries.length ? table([number("After step"), "Where", number("Asked"), number("Free"), "Samples", "Message"],
    run.recoveries.slice(0, 200).map(row => [number(whole(row.step)), row.stage, number(bytes(row.asked)), number(bytes(row.free)),
      `${whole(row.from_samples)} → ${whole(row.to_samples)}`, row.message || ""])) : el("p", {class: "soft"}, "None: every step fitted."));
  for (const row of run.growth)
    out.push(el("p", {class: "problem"}, `Memory of ${row.what} grew by ${bytes(row.bytes_per_step)} a step, from step ${row.first_step} to ${row.last_step}.`));
  return out;
}

// Each answer once, with the steps at which it was given.
function answersPart(run) {
  const {steps, samples} = run.predictions;
  return samples.map(sample => {
    const turns = [];
    sample.answers.forEach((answer, i) => {
      const last = turns[turns.length - 1];
      if (answer === null) return;
      if (last && last.answer === answer) last.to = steps[i];
      else turns.push({answer, from: steps[i], to: steps[i]});
    });
    return el("div", {class: "sample"},
      el("div", {class: "soft small"}, sample.origin),
      el("div", {class: "two"},
        el("div", null, el("b", {class: "small"}, "Input"), el("div", {class: "block"}, sample.input)),
        el("div", null, el("b", {class: "small"}, "Target"), el("div", {class: "block"}, sample.target))),
      table([number("Step"), "Prediction"], turns.reverse().map(turn => [
        number(turn.from === turn.to ? whole(turn.from) : `${whole(turn.from)} – ${whole(turn.to)}`),
        {text: [turn.answer === sample.target && el("span", {class: "right"}, "✓ "), turn.answer], class: "text"}])));
  });
}

function histogram(lengths, title) {
  const buckets = lengths.histogram || [], most = Math.max(1, ...buckets.map(b => b.count));
  if (!buckets.length) return null;
  const width = 300, height = 90, each = width / buckets.length;
  return el("figure", {style: "margin: 8px 0"},
    svg("svg", {class: "plot", viewBox: `0 0 ${width} ${height + 16}`, role: "img", style: "max-width: 300px; cursor: default",
      "aria-label": `${title}: mean ${digits(lengths.mean)}, longest ${lengths.max}`},
      buckets.map((b, i) => svg("rect", {x: i * each + 1, width: Math.max(1, each - 2), y: height - height * b.count / most,
        height: height * b.count / most, style: "fill: var(--c0)"}, svg("title", null, `${b.from} – ${b.to} tokens: ${whole(b.count)}`))),
      svg("text", {x: 0, y: height + 13}, String(buckets[0].from)),
      svg("text", {x: width, y: height + 13, "text-anchor": "end"}, String(buckets[buckets.length - 1].to))),
    el("figcaption", {class: "small soft"}, `${title}, in tokens: mean ${digits(lengths.mean)}, median ${lengths.p50}, 99 % at most ${lengths.p99}, longest ${lengths.max}`));
}

function dataPart(run) {
  const report = run.data, sets = [["Training", report.train], ["Evaluation", report.eval]].filter(([, set]) => set);
  const counted = entry => entry ? number(`${whole(entry.count)} (${percent(entry.share)})`) : "–";
  const pieces = list => (list || []).map(piece => piece.supervised ? el("mark", null, piece.text) : piece.text);
  const out = [];
  if ((report.samples || []).length) out.push(el("h3", null, "First samples: what is learned is marked"));
  for (const sample of report.samples || []) {
    out.push(el("div", {class: "sample"}, el("div", {class: "soft small"}, sample.origin),
      el("div", {class: "block mono"}, pieces(sample.input)), sample.target && el("div", {class: "block mono"}, pieces(sample.target))));
  }
  out.push(table(["", ...sets.map(([name]) => ({text: name, class: "number"}))], [
    ["name", ...sets.map(([, s]) => s.name)], ["kind", ...sets.map(([, s]) => s.kind)],
    ...["rows", "samples", "tokens", "supervised_tokens"].map(key => [key.replace("_", " "), ...sets.map(([, s]) => number(whole(s[key])))]),
    ...[["truncated", "truncated"], ["malformed", "skipped"], ["unknown", "with unknown characters"], ["duplicates", "repeated"],
      ["nothing_to_learn", "without trainable tokens"]].map(([key, name]) => [name, ...sets.map(([, s]) => counted(s[key]))])]));
  if (report.epoch && report.epoch.padding)
    out.push(el("p", {class: "small soft"}, `${whole(report.epoch.steps)} steps of ${whole(report.epoch.effective_batch_size)} samples in an epoch; ${percent(report.epoch.padding.share)} of what is computed is padding.`));
  for (const [name, set] of sets) {
    out.push(el("div", {class: "two"}, [["input", "inputs"], ["target", "targets"]].map(([key, words]) =>
      set[key] && set[key].lengths ? el("div", null, histogram(set[key].lengths, `${name}: lengths of ${words}`)) : null)));
  }
  return out;
}

function configPart(run) {
  const body = el("div");
  const show = all => body.replaceChildren(table(["Key", "Value"], run.config.filter(([, , changed]) => all || changed)
    .map(([key, value, changed]) => [el("code", null, key), {text: el("code", null, value), class: changed ? "" : "soft"}])));
  show(false);
  return [el("p", null, el("label", null, el("input", {type: "checkbox", onchange: event => show(event.target.checked)}), " also keys at their defaults")), body];
}

const STARTS = [["time", "started", date], ["after_step", "after step", whole], ["total_steps", "steps in all", whole], ["model", "model"],
  ["parameters", "parameters", whole], ["trained_parameters", "of them trained", whole], ["device", "device"], ["processor", "processor"],
  ["memory", "main memory"], ["host", "host"], ["system", "system"], ["trainer", "trainer"], ["libtorch", "LibTorch"]];
function environmentPart(run) {
  const starts = run.environment.starts;
  return table(["", ...starts.map((_, i) => starts.length > 1 ? "Start " + (i + 1) : "Start")],
    STARTS.filter(([key]) => starts.some(start => key in start)).map(([key, name, text]) => [name, ...starts.map(start => text ? text(start[key]) : String(start[key] ?? "–"))]));
}

function savesPart(run) {
  return table([number("Step"), "Directory", number("Weights"), number("Waited")], run.saves.slice(-50).reverse().map(row => [number(whole(row.step)),
    row.message ? el("span", {class: "problem"}, row.message) : row.path, number(bytes(row.bytes)), number(duration(row.seconds))]));
}

// How many texts with each label were taken for which class, in the last evaluation.
function confusionPart(row) {
  return table(["Label", ...row.eval_classes.map(text => ({text, class: "number"})), {text: "F1", class: "number"}],
    row.eval_classes.map((name, label) => [name, ...row.eval_confusion[label].map(count => number(whole(count))), number(digits(row.eval_class_f1[label]))]));
}

// All parts of a run that there is something to say about.
function detailsOf(run, open) {
  const parts = [];
  const confused = run.evaluations.filter(row => row.eval_confusion).slice(-1)[0];
  if (confused) parts.push(fold("Classes: labels and predictions", () => confusionPart(confused), open));
  if (run.predictions) parts.push(fold("Predictions over time", () => answersPart(run), open));
  parts.push(fold("Memory: plan and recoveries", () => memoryPart(run), open && run.recoveries.length > 0));
  if (run.data) parts.push(fold("Data report", () => dataPart(run)));
  if (run.config) parts.push(fold("Configuration", () => configPart(run)));
  if (run.environment && Array.isArray(run.environment.starts)) parts.push(fold("Environment", () => environmentPart(run)));
  if (run.saves.length) parts.push(fold(`Saves: ${run.saves.length}`, () => savesPart(run)));
  return parts;
}

// The parts of a page: what is known of the runs, the controls, the charts.

let runs = [], isComparison = false, scoreKeys = [];  // what the page shows

function takeRuns(list) {
  runs = list;
  isComparison = list.length > 1;
  scoreKeys = [...new Set(list.flatMap(run => run.evaluations.flatMap(row => Object.keys(row).filter(key =>
    key.startsWith("eval_") && !NO_SCORES.has(key) && isNumber(row[key])))))];
}

const lastNumber = (list, from) => { for (let i = (list || []).length - 1; i >= 0; i--) if (isNumber(list[i])) return list[i]; return from ?? null; };
const series = (run, name) => run.train.series[name] ? run.train.series[name].mean : [];
// The mean of the last twentieth of the steps.
function recent(list) {
  const some = list.slice(-Math.max(1, Math.round(list.length / 20))).filter(isNumber);
  return some.length ? some.reduce((a, b) => a + b) / some.length : null;
}
const smallIsGood = key => ["eval_loss", "eval_perplexity", "eval_ter", "eval_mae"].includes(key);
function bestOf(run, key) {
  const rows = run.evaluations.filter(row => isNumber(row[key]));
  if (!rows.length) return null;
  return rows.reduce((a, b) => (smallIsGood(key) ? b[key] < a[key] : b[key] > a[key]) ? b : a);
}
const totalSteps = run => {
  const starts = (run.environment || {}).starts || [];
  return starts.length ? starts[starts.length - 1].total_steps : null;
};
const scoreName = key => ({eval_loss: "Evaluation loss", eval_token_accuracy: "Token accuracy", eval_exact_match: "Exact match", eval_f1: "F1",
  eval_rouge1: "ROUGE-1", eval_rouge2: "ROUGE-2", eval_rougeL: "ROUGE-L", eval_bleu: "BLEU", eval_chrf: "chrF", eval_ter: "TER",
  eval_json_valid: "Valid JSON", eval_json_match: "Equal JSON", eval_json_fields: "Right JSON fields", eval_gen_len: "Tokens of an answer"}[key] || key.replace(/^eval_/, "").replaceAll("_", " "));
const bestName = key => "Best " + scoreName(key).replace(/^[A-Z](?=[a-z])/, first => first.toLowerCase());
const NO_SCORES = new Set(["eval_perplexity", "eval_samples", "eval_supervised_tokens", "eval_seconds", "eval_generated_samples", "eval_generation_seconds"]);

function badge(run) {
  return el("span", {class: "badge " + (["running", "starting"].includes(run.state) ? "running" : run.state === "finished" ? "finished" : ["failed", "killed"].includes(run.state) ? "failed" : "stopped")}, run.state);
}

function figure(name, value, note, part) {
  return el("div", {class: "figure"}, el("span", {class: "soft small"}, name), el("b", null, value),
    note && el("span", {class: "soft small"}, note), isNumber(part) && el("div", {class: "bar"}, el("i", {style: `width: ${Math.min(100, 100 * part)}%`})));
}
function figuresOf(run) {
  const total = totalSteps(run), last = run.last || {}, loss = series(run, "loss"), best = bestOf(run, "eval_loss");
  const peak = lastNumber(series(run, "memory_peak")), limit = lastNumber(series(run, "memory_limit"));
  const score = scoreKeys.find(key => key === "eval_rougeL" || key === "eval_exact_match"), bestScore = score && bestOf(run, score);
  return el("div", {class: "figures"},
    figure("Step", whole(run.step) + (total ? " / " + whole(total) : ""), last.epoch !== undefined ? "epoch " + digits(last.epoch) : null, total ? run.step / total : null),
    figure("Loss", digits(recent(loss)), loss.length ? "first " + digits(loss.find(isNumber)) : null),
    best && figure("Best evaluation loss", digits(best.eval_loss), "at step " + whole(best.step)),
    bestScore && figure(bestName(score), digits(bestScore[score]), "at step " + whole(bestScore.step)),
    isNumber((run.status || {}).seconds_left) && figure("Left", duration(run.status.seconds_left)),
    figure("Time", duration(last.seconds), isNumber(last.tokens) ? brief(last.tokens) + " tokens" : null),
    figure("Speed", brief(recent(series(run, "tokens_per_second")) ?? 0) + " tok/s", null),
    figure("Memory peak", bytes(peak), limit ? "of " + bytes(limit) : null, limit ? peak / limit : null));
}

// Runs next to each other: what differs comes first.
function comparisonPart() {
  const keys = [...new Set(runs.flatMap(run => (run.config || []).map(([key]) => key)))];
  const values = runs.map(run => new Map((run.config || []).map(([key, value]) => [key, value])));
  const differing = keys.filter(key => key !== "output_dir" && new Set(values.map(map => map.get(key))).size > 1);
  const heads = runs.map((run, i) => el("span", {class: "swatched"}, swatch(i), run.name));
  const shown = scoreKeys.filter(key => key !== "eval_gen_len");
  const best = Object.fromEntries(shown.map(key => {
    const found = runs.map(run => (bestOf(run, key) || {})[key]).filter(isNumber), least = Math.min(...found), most = Math.max(...found);
    return [key, least === most ? null : smallIsGood(key) ? least : most];
  }));
  return [el("h2", null, "What differs"),
    differing.length ? table(["Key", ...heads], differing.map(key => [el("code", null, key), ...values.map(map => el("code", null, map.get(key) ?? "–"))]))
      : el("p", {class: "soft"}, "No key of the configuration differs, or it could not be read."),
    el("h2", null, "Results"),
    table(["Run", "", ...["Steps", "Loss", ...shown.map(key => bestName(key)), "Time", "tok/s", "Memory peak"].map(text => ({text, class: "number"}))],
      runs.map((run, i) => [
        {class: "name", text: el("label", {class: "swatched"}, el("input", {type: "checkbox", checked: !shared.hidden.has(i), "aria-label": "show " + run.name, onchange: event => {
          event.target.checked ? shared.hidden.delete(i) : shared.hidden.add(i);
          redraw();
        }}), swatch(i), run.name)},
        badge(run), number(whole(run.step)), number(digits(recent(series(run, "loss")))),
        ...shown.map(key => {
          const row = bestOf(run, key);
          return {text: row ? digits(row[key]) : "–", class: "number" + (row && row[key] === best[key] ? " best" : ""), title: row ? "at step " + row.step : null};
        }),
        number(duration((run.last || {}).seconds)), number(brief(recent(series(run, "tokens_per_second")) ?? 0)),
        number(bytes(lastNumber(series(run, "memory_peak"))))]))];
}

const training = (name, options) => axis => runs.map((run, i) => ({name: isComparison ? run.name : (options || {}).name || name, color: i, run: i,
  points: trainPoints(run, name, axis), ...options}));
const evaluation = key => axis => runs.map((run, i) => ({name: isComparison ? run.name : scoreName(key), color: isComparison ? i : 1, run: i,
  points: evaluationPoints(run, key, axis), dots: true}));
// Several series of one run.
const several = list => axis => list.map(([name, text, options], color) => ({name: text, color, run: 0, points: trainPoints(runs[0], name, axis), ...options}));
const marks = kinds => axis => runs.flatMap((run, i) => shared.hidden.has(i) ? [] : marksOf(run, axis, kinds));

const memoryChart = () => new Chart({title: "Memory", fromZero: true, format: bytes, tick: bytes, marks: marks(["recovery"]), wide: !isComparison,
  lines: isComparison ? training("memory_peak") : several([["memory_peak", "peak"], ["memory_allocated", "tensors"], ["memory_reserved", "reserved"],
    ["memory_resident", "process"], ["memory_limit", "limit", {dash: true}]])});

function chartsPart() {
  const list = [];
  const lossLines = axis => [...training("loss", {smooth: true, ...(isComparison ? {} : {name: "training loss"})})(axis),
    ...(isComparison ? [] : evaluation("eval_loss")(axis))];
  list.push(new Chart({title: isComparison ? "Training loss" : "Loss", lines: lossLines, format: digits, takesLog: true, wide: true,
    marks: marks(["recovery", "skipped", "spike", "start"])}));
  for (const key of scoreKeys) {
    if (key === "eval_loss" && !isComparison && bestOf(runs[0], key) === null) continue;
    list.push(new Chart({title: scoreName(key), lines: evaluation(key), format: digits, takesLog: key === "eval_loss"}));
  }
  list.push(new Chart({title: "Learning rate", lines: training("learning_rate"), format: digits, fromZero: true}));
  list.push(new Chart({title: "Gradient norm", lines: training("grad_norm", {smooth: true}), format: digits, takesLog: true, marks: marks(["skipped"])}));
  list.push(new Chart({title: "Throughput, tokens per second", lines: training("tokens_per_second", {smooth: true}), format: digits, fromZero: true}));
  list.push(new Chart({title: "Seconds per step", fromZero: true, format: duration, tick: digits,
    lines: isComparison ? training("step_seconds", {smooth: true}) : several([["step_seconds", "step", {smooth: true}], ["data_wait_seconds", "waiting for data"]])}));
  list.push(memoryChart());
  return el("div", {class: "charts"}, list.map(chart => chart.root));
}

// What to do when a control was used.
let remember = () => {};

// Smooth curves of many points from the beginning.
function smoothForLength() {
  const points = Math.max(0, ...runs.map(run => run.train.step.length));
  shared.smooth = points > 200 ? .9 : points > 20 ? .6 : 0;
}
function controlsPart() {
  const changed = () => { remember(); redraw(); };
  const shown = el("output", null, String(shared.smooth));
  return el("div", {class: "controls"},
    el("label", null, "Over", el("select", {id: "axis", onchange: event => {
      shared.axis = event.target.value;
      shared.view = null;
      changed();
    }}, Object.entries(AXES).map(([key, axis]) => el("option", {value: key, selected: key === shared.axis}, axis.name)))),
    el("label", null, "Smoothing", el("input", {id: "smooth", type: "range", min: 0, max: .99, step: .01, value: shared.smooth, oninput: event => {
      shared.smooth = Number(event.target.value);
      shown.textContent = shared.smooth;
      changed();
    }}), shown),
    el("label", null, el("input", {id: "log", type: "checkbox", checked: shared.log, onchange: event => {
      shared.log = event.target.checked;
      changed();
    }}), "log scale of losses"),
    el("button", {id: "reset", type: "button", disabled: true, onclick: () => zoom(null)}, "Show all"),
    el("span", {class: "soft"}, "Drag in a chart to zoom."));
}
