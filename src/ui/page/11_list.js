// All runs, the newest first.

const COLUMNS = [["Run"], ["State"], ["Step"], ["Loss", "number"], ["Evaluation", "number wide"], ["Speed", "number wide"],
  ["Memory peak", "number wide"], ["Left", "number"], ["Last word", "number wide"]];

function stepCell(run) {
  const total = run.total_steps;
  return el("div", {class: "steps"}, whole(run.step) + (total ? " / " + whole(total) : ""),
    total > 0 && ["running", "starting", "silent"].includes(run.state) && el("div", {class: "bar"}, el("i", {style: `width: ${Math.min(100, 100 * run.step / total)}%`})));
}

function cellsOf(run, now) {
  return [badge(run), stepCell(run), digits(run.loss), digits(run.eval_loss),
    isNumber(run.tokens_per_second) ? brief(Math.round(run.tokens_per_second)) + " tok/s" : "–",
    isNumber(run.memory_peak) ? bytes(run.memory_peak) : "–", isNumber(run.seconds_left) ? duration(run.seconds_left) : "–",
    isNumber(run.updated) ? ago(Math.max(0, now - run.updated)) : "–"];
}

function listView(here) {
  const PAGE = 50, chosen = new Set(), rows = new Map();
  let first = 0, words = "", ids = "";
  const count = el("p", {class: "soft small", role: "status"}), body = el("tbody");
  const compare = el("a", {class: "button", role: "button", "aria-disabled": "true"}, "Compare");
  const find = el("input", {type: "search", id: "find", placeholder: "Find a run by its name", "aria-label": "Find a run by its name", oninput: () => {
    words = find.value;
    first = 0;
    again();
  }});
  const pager = el("div", {class: "pager"});
  const empty = el("div");
  const list = el("div", {class: "scroll runs", tabindex: 0}, el("table", null,
    el("thead", null, el("tr", null, el("th", null, el("span", {class: "hidden-text"}, "Compare")), COLUMNS.map(([name, kind]) => el("th", {class: kind}, name)))), body));
  const choose = () => {
    const enough = chosen.size > 1 && chosen.size <= 8;
    compare.textContent = chosen.size > 8 ? "Compare (at most 8)" : chosen.size > 1 ? `Compare ${chosen.size} runs` : "Compare";
    compare.setAttribute("aria-disabled", String(!enough));
    if (enough) compare.href = "#/compare/" + [...chosen].join(","); else compare.removeAttribute("href");
  };
  const rowOf = run => {
    const cells = COLUMNS.slice(1).map(([, kind]) => el("td", {class: kind}));
    const tick = el("input", {type: "checkbox", "aria-label": "compare " + run.name, checked: chosen.has(run.id), onchange: event => {
      event.target.checked ? chosen.add(run.id) : chosen.delete(run.id);
      choose();
    }});
    return {cells, root: el("tr", {"data-run": run.name}, el("td", {class: "tick"}, tick), el("td", {class: "run"}, el("a", {href: "#/run/" + run.id}, run.name)), cells)};
  };
  const show = answer => {
    const now = answer.runs.map(run => run.id).join();
    if (now !== ids) {
      ids = now;
      rows.clear();
      for (const run of answer.runs) rows.set(run.id, rowOf(run));
      body.replaceChildren(...[...rows.values()].map(row => row.root));
    }
    for (const run of answer.runs) {
      const cells = cellsOf(run, answer.now);
      rows.get(run.id).cells.forEach((cell, i) => fill(cell, cells[i] instanceof Node ? cells[i].outerHTML : cells[i], () => cells[i]));
    }
    const last = answer.first + answer.runs.length;
    count.textContent = answer.looking ? "Looking for runs …" : answer.found === 0 ? "" :
      (answer.found > PAGE ? `${whole(answer.first + 1)} to ${whole(last)} of ` : "") + `${whole(answer.found)} ${answer.found === 1 ? "run" : "runs"}` +
      (words ? `, of ${whole(answer.total)}` : "");
    fill(pager, [answer.first, answer.found], () => answer.found <= PAGE ? [] : [
      el("button", {type: "button", disabled: answer.first === 0, onclick: () => { first = Math.max(0, first - PAGE); again(); }}, "Newer"),
      el("button", {type: "button", disabled: last >= answer.found, onclick: () => { first += PAGE; again(); }}, "Older")]);
    list.hidden = answer.found === 0;
    fill(empty, [answer.looking, answer.found, answer.total, words], () => answer.looking || answer.found ? [] : words ?
      el("p", {class: "soft"}, "No run has this in its name.") :
      [el("p", null, "There are no runs in this folder yet. This page shows one as soon as it begins:"), el("pre", {class: "block mono"}, "trainer --config FILE")]);
  };
  document.title = "Runs – trainer";
  const again = here.repeat(async () => {
    const asked = words, at = first;
    const answer = await ask("runs", {first: at, count: PAGE, find: asked});
    if (asked !== words || at !== first) return 0;
    show(answer);
    return answer.looking ? .5 : 3;
  });
  choose();
  return [el("header", null, el("h1", null, "Runs"), count), el("div", {class: "tools"}, find, compare), list, pager, empty];
}
