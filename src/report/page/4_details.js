// What a run was: memory, answers, data, configuration, environment.

function memoryPart(run) {
  const out = [], plan = run.memory_plan;
  if (plan) {
    const parts = Object.entries(plan).filter(([key, value]) => key.startsWith("planned_") && key !== "planned_peak" && value)
      .map(([key, value]) => [key.slice(8).replaceAll("_", " "), number(bytes(value))]);
    const difference = plan.peak ? ` (${plan.planned_peak >= plan.peak ? "+" : ""}${digits(100 * (plan.planned_peak / plan.peak - 1))} %)` : "";
    out.push(el("h3", null, "Plan"), table(["After the first step", {text: "Bytes", class: "number"}], [
      ["peak, measured", number(bytes(plan.peak))], ["peak, planned", number(bytes(plan.planned_peak) + difference)],
      ...(plan.limit ? [["limit", number(bytes(plan.limit))]] : []), ...parts,
      ["batch_size", number(whole(plan.batch_size))], ["blocks recomputed", number(whole(plan.recompute_blocks))]]));
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
  const out = [table(["", ...sets.map(([name]) => ({text: name, class: "number"}))], [
    ["name", ...sets.map(([, s]) => s.name)], ["kind", ...sets.map(([, s]) => s.kind)],
    ...["rows", "samples", "tokens", "supervised_tokens"].map(key => [key.replace("_", " "), ...sets.map(([, s]) => number(whole(s[key])))]),
    ...[["truncated", "truncated"], ["malformed", "malformed"], ["unknown", "with unknown characters"], ["duplicates", "repeated"],
      ["nothing_to_learn", "that teach nothing"]].map(([key, name]) => [name, ...sets.map(([, s]) => counted(s[key]))])])];
  if (report.epoch && report.epoch.padding)
    out.push(el("p", {class: "small soft"}, `${whole(report.epoch.steps)} steps of ${whole(report.epoch.effective_batch_size)} samples in an epoch; ${percent(report.epoch.padding.share)} of what is computed is padding.`));
  for (const [name, set] of sets) {
    out.push(el("div", {class: "two"}, [["input", "inputs"], ["target", "targets"]].map(([key, words]) =>
      set[key] && set[key].lengths ? el("div", null, histogram(set[key].lengths, `${name}: lengths of ${words}`)) : null)));
  }
  const pieces = list => (list || []).map(piece => piece.supervised ? el("mark", null, piece.text) : piece.text);
  for (const sample of report.samples || []) {
    out.push(el("div", {class: "sample"}, el("div", {class: "soft small"}, sample.origin, "; what is learned is marked"),
      el("div", {class: "block mono"}, pieces(sample.input)), sample.target && el("div", {class: "block mono"}, pieces(sample.target))));
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

// All parts of a run that there is something to say about.
function detailsOf(run, open) {
  const parts = [];
  if (run.predictions) parts.push(fold("Predictions over time", () => answersPart(run), open));
  parts.push(fold("Memory: plan and recoveries", () => memoryPart(run), open && run.recoveries.length > 0));
  if (run.data) parts.push(fold("Data report", () => dataPart(run)));
  if (run.config) parts.push(fold("Configuration", () => configPart(run)));
  if (run.environment && Array.isArray(run.environment.starts)) parts.push(fold("Environment", () => environmentPart(run)));
  if (run.saves.length) parts.push(fold(`Saves: ${run.saves.length}`, () => savesPart(run)));
  return parts;
}
