// The plan calculator: a model and a way of training on each size of GPU, by `trainer plan`.

const PARTS_OF_PLAN = {weights: "weights", adapters: "adapters", gradients: "gradients", optimizer_state: "optimizer's state", activations: "activations",
  recompute: "recomputed blocks", loss: "loss", input: "input", update: "update", reserve: "library reserve"};

const quoted = word => /^[\w.,:/=+-]+$/.test(word) ? word : "'" + word + "'";

function planResult(plan, card, cards) {
  const chosen = plan.gpus[cards.findIndex(c => c.size === card)] || plan.gpus[0], usable = .95 * chosen.memory;
  const rows = Object.entries(plan.bytes).filter(([, size]) => size > 0);
  const bar = memoryBar({...Object.fromEntries(rows.map(([key, size]) => ["planned_" + (PARTS_OF_PLAN[key] || key), size])), limit: usable});
  const fastest = gpu => gpu.fastest ? `batch_size ${gpu.fastest.batch_size}, ` +
    (gpu.fastest.recompute_blocks ? `${gpu.fastest.recompute_blocks} of ${plan.num_blocks} blocks recomputed` : "no block recomputed") +
    (gpu.fastest.offload.length ? `, ${gpu.fastest.offload.join(", ")} offloaded` : "") : "nothing fits";
  return [
    el("div", {class: "figures"},
      figure("Planned memory", bytes(plan.total), `of ${bytes(usable)}, 95 % of ${card}`, plan.total / usable),
      figure("On this card", chosen.fits ? "fits" : "does not fit", chosen.fits ? `${bytes(usable - plan.total)} are left` : `${bytes(plan.total - usable)} are missing`),
      figure("Fastest that fits", chosen.fastest ? bytes(chosen.fastest.total) : "–", fastest(chosen)),
      plan.offloaded && figure("In the host's memory", bytes(plan.offloaded.total), "offloaded")),
    el("h2", null, "Where it goes"), bar,
    el("h2", null, "On every card"),
    table(["Card", {text: "For example", class: "wide"}, "", {text: "Left", class: "number"}, "The fastest that fits"], plan.gpus.map((gpu, i) => [
      {text: cards[i].size === card ? el("b", null, cards[i].size) : cards[i].size, class: "name"}, {text: cards[i].examples, class: "soft wide"},
      gpu.fits ? el("span", {class: "finished"}, "fits") : el("span", {class: "stopped"}, "does not fit"),
      number(gpu.fits ? bytes(.95 * gpu.memory - gpu.total) : "–"), {text: fastest(gpu), class: "words"}])),
    el("h2", null, "The same in a terminal"), el("pre", {class: "block mono"}, ["trainer", "plan", ...plan.command.map(quoted)].join(" "))];
}

function planView(here) {
  document.title = "Memory plan – trainer";
  const form = el("form", {class: "plan", onsubmit: event => event.preventDefault()}), result = el("div", {"aria-live": "polite"});
  const labelled = (name, input, note) => el("label", null, el("span", null, name), input, note && el("span", {class: "soft small"}, note));
  const choice = (id, options, value) => el("select", {id}, options.map(([key, text]) => el("option", {value: key, selected: key === value}, text)));
  const amount = (id, value, most) => el("input", {id, type: "number", min: 1, max: most, value, inputmode: "numeric"});
  let cards = [], plan = null, asked = "", timer = 0;
  const value = id => form.querySelector("#" + id).value;
  const show = () => { if (plan) result.replaceChildren(...planResult(plan, value("card"), cards).flat(Infinity).filter(Boolean)); };
  const compute = async () => {
    const query = {model: value("model"), method: value("method"), length: value("length"), batch: value("batch"), update: value("update"),
      checkpointing: form.querySelector("#checkpointing").checked};
    const now = JSON.stringify(query);
    if (now === asked) return show();
    asked = now;
    result.classList.add("waiting");
    if (!plan) result.replaceChildren(el("p", {class: "soft"}, "Planning …"));
    let answer = null, problem = "";
    try {
      answer = await ask("plan", query);
    } catch (caught) {
      problem = caught.message;
    }
    if (here.isOver || asked !== now) return;  // another was asked for meanwhile
    result.classList.remove("waiting");
    plan = answer;
    if (plan) show(); else result.replaceChildren(problemLine(problem));
  };
  const soon = () => { clearTimeout(timer); timer = setTimeout(compute, 250); };
  here.onEnd(() => clearTimeout(timer));
  ask("choices").then(choices => {
    cards = choices.cards;
    form.append(
      labelled("Model", choice("model", choices.models.map(m => [m.name, m.name]), "qwen2.5-7b")),
      labelled("Way of training", choice("method", choices.methods.map(m => [m.key, m.name]), "lora")),
      labelled("Card", choice("card", cards.map(c => [c.size, `${c.size}: ${c.examples}`]), "24GB")),
      labelled("Tokens of a sample", amount("length", 2048, 1000000), "the longest"),
      labelled("Samples at once", amount("batch", 1, 4096), "batch_size"),
      labelled("Samples of an update", amount("update", 16, 65536), "effective_batch_size"),
      el("label", {class: "check"}, el("input", {id: "checkpointing", type: "checkbox", checked: true}), "recompute blocks (gradient checkpointing)"));
    form.addEventListener("input", soon);
    compute();
  }, problem => result.replaceChildren(problemLine(problem.message)));
  return [el("header", null, el("h1", null, "Memory plan"), el("span", {class: "soft small"}, "What a run needs, computed by the step itself: no weights, no data and no GPU are needed. bf16 on one GPU.")), form, result];
}
