// One run, or several next to each other, as they go on.

const goesOn = run => run.state === "running" || run.state === "starting" || run.state === "silent";

function stopPart(run) {
  const part = el("span", {class: "stop"});
  const idle = () => part.replaceChildren(el("button", {type: "button", id: "stop", onclick: sure}, "Stop …"));
  const sure = () => {
    part.replaceChildren(el("span", null, "Save and stop this run? The same command goes on with it later."),
      el("button", {type: "button", id: "stop-now", class: "bad", onclick: now}, "Stop it"),
      el("button", {type: "button", onclick: idle}, "Let it run"));
    part.querySelector("#stop-now").focus();
  };
  const now = async () => {
    part.replaceChildren(el("span", {class: "soft", role: "status"}, "It was told to stop, and saves first."));
    try {
      await tell("stop", {run: run.id});
    } catch (problem) {
      part.replaceChildren(problemLine(problem.message));
      setTimeout(idle, 5000);
    }
  };
  idle();
  return part;
}

// What a tab shows. `of` is what it is made of: it is made again when that has changed.
const TABS = {
  curves: {name: "Curves"},
  samples: {name: "Samples", of: run => run.predictions, make: run => run.predictions ? answersPart(run) :
    el("p", {class: "soft"}, "No generated answers yet. With evaluation.generate: true each evaluation writes some, and they are shown here over time.")},
  memory: {name: "Memory", of: run => [run.memory_plan, run.recoveries, run.growth], make: run => [el("div", {class: "charts"}, memoryChart().root), memoryPart(run)]},
  data: {name: "Data", of: run => run.data, make: run => run.data ? dataPart(run) : el("p", {class: "soft"}, "No data report yet: the run writes it before its first step.")},
  log: {name: "Log"},
  chat: {name: "Chat"},
  configuration: {name: "Configuration", of: run => [run.config, run.environment, run.saves], make: run => [
    run.config && [el("h2", null, "Keys"), configPart(run)], run.environment && Array.isArray(run.environment.starts) && [el("h2", null, "Starts"), environmentPart(run)],
    run.saves.length > 0 && [el("h2", null, "Saves"), savesPart(run)]]},
};

function logPart(run, here) {
  const MOST = 5000;
  const lines = el("div", {class: "log mono", tabindex: 0, role: "log", "aria-label": "Log", "aria-live": "off"});
  const only = el("input", {type: "checkbox", id: "problems", onchange: () => lines.classList.toggle("problems-only", only.checked)});
  const follow = el("input", {type: "checkbox", id: "follow", checked: true});
  const kindOf = line => / (E|error|critical) /.test(line.slice(0, 40)) ? "bad" : / (W|warning) /.test(line.slice(0, 40)) ? "warn" : "";
  let from = -1;
  lines.addEventListener("scroll", () => { follow.checked = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40; });
  here.repeat(async () => {
    const answer = await ask("log", {id: run.id, from});
    if (answer.skipped) lines.replaceChildren(el("div", {class: "soft"}, "… earlier lines are in log.txt of the run"));
    from = answer.to;
    const added = answer.text.split("\n").slice(0, -1);
    const wasFollowing = follow.checked;
    lines.append(...added.map(line => el("div", {class: kindOf(line)}, line)));
    while (lines.childElementCount > MOST) lines.firstElementChild.remove();
    if (!lines.childElementCount) lines.append(el("div", {class: "soft"}, "The log has no lines yet."));
    if (added.length && wasFollowing) lines.scrollTop = lines.scrollHeight;
    return 2;
  });
  return [el("div", {class: "controls"}, el("label", null, follow, "follow"), el("label", null, only, "warnings and errors only")), lines];
}

// Keeps `charts` for what is on the page: those of another tab are gone.
function newCharts() {
  charts.length = 0;
  shared.view = null;
}

function runView(here, ids, tab) {
  const isOne = ids.length === 1, head = el("div"), body = el("div"), tabs = el("nav", {class: "tabs", "aria-label": "Parts of the run"});
  let stamp = "", chartsAre = "", part = null;
  if (isOne) {
    for (const [key, {name}] of Object.entries(TABS))
      tabs.append(el("a", {href: `#/run/${ids[0]}/${key}`, "aria-current": key === tab ? "page" : null}, name));
  }
  const name = el("h1"), state = el("span"), stop = el("span"), path = el("span", {class: "soft small mono"}), said = el("div"), figures = el("div");
  head.append(el("header", null, name, state, stop, path), said, figures);
  const showHead = () => {
    const run = runs[0], title = isOne ? run.name : `Comparison of ${runs.length} runs`;
    const hasEnded = run.state === "finished" || run.state === "stopped";
    const problems = runs.flatMap(r => [r.message, ...r.problems].filter(Boolean).map(text => (isOne ? "" : r.name + ": ") + text));
    name.textContent = title;
    document.title = (isOne && run.state === "running" && totalSteps(run) ? Math.floor(100 * run.step / totalSteps(run)) + " % " : "") + title + " – trainer";
    fill(said, [problems, hasEnded], () => problems.map(text => el("p", {class: isOne && hasEnded ? "soft" : "problem"}, text)));
    if (!isOne) return fill(figures, runs.map(r => [r.step, r.state, r.updated]), comparisonPart);
    path.textContent = run.path;
    fill(state, run.state, () => badge(run));
    fill(stop, run.can_stop, () => run.can_stop ? stopPart(run) : []);
    fill(figures, [run.step, run.last, run.status, run.evaluations.length], () => figuresOf(run));
  };
  const showBody = () => {
    const run = runs[0];
    if (!isOne || tab === "curves") {
      const now = JSON.stringify([scoreKeys, runs.map(r => r.id)]);
      if (now === chartsAre) return redraw();
      if (!chartsAre) smoothForLength();
      chartsAre = now;
      newCharts();
      body.replaceChildren(controlsPart(), chartsPart());
      redraw();
    } else if (tab === "log") {
      if (!part) body.replaceChildren(...(part = logPart(run, here)));
    } else if (tab === "chat") {
      if (!part) body.replaceChildren(...(part = chatWith(run)));
    } else {
      fill(body, TABS[tab].of(run), () => {
        newCharts();
        return TABS[tab].make(run);
      });
      redraw();
    }
  };
  here.show = () => { showHead(); showBody(); };
  here.onEnd(newCharts);
  shared.hidden.clear();
  here.repeat(async () => {
    const begin = performance.now();
    try {
      const query = new URLSearchParams(ids.map(id => ["id", id]));
      query.set("since", stamp);
      const answer = await (await answerOf(fetch("api/run?" + query))).json();
      if (here.isOver) return 1;
      if (!answer.same) {
        stamp = answer.stamp;
        takeRuns(answer.runs);
        here.show();
      }
    } catch (problem) {
      if (!(problem instanceof ServerError) || problem.status === 0) throw problem;
      stamp = "";
      const text = problem.message + (problem.status === 404 && runs.length ? " What is shown here is the last that was known." : "");
      fill(gone, text, () => [problemLine(text), el("p", null, el("a", {href: "#/"}, "All runs"))]);
      return 10;
    }
    fill(gone, "", () => []);
    // A tenth of the time at most, where the line is slow or the curves are long.
    const isLong = runs.some(run => run.train.step.length > 1000);
    return runs.some(goesOn) ? Math.max(isLong ? 5 : 2, (performance.now() - begin) / 100) : 10;
  });
  const gone = el("div");
  return [gone, head, tabs, body];
}
