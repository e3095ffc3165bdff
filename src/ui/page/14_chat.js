// Chat with the result of a run, and with its base model beside it. A model is loaded with the first message.

let chat = null;  // {run, parts, close}: it stays while other parts of the run are looked at

function chatWith(run) {
  if (chat && chat.run === run.id) return chat.parts;
  leaveChat(null);
  chat = chatPart(run);
  return chat.parts;
}
function leaveChat(run) {
  if (!chat || chat.run === run) return;
  chat.close();
  chat = null;
}
addEventListener("pagehide", () => leaveChat(null));

function chatPart(run) {
  const panes = new Map();  // side -> {messages, list, root}
  let talk = "", abort = null, isAtWork = false;
  const problem = el("div"), note = el("p", {class: "soft small", role: "status"}), both = el("div", {class: "panes"});
  const withBase = el("input", {type: "checkbox", id: "base", checked: true});
  const device = el("select", {id: "device"}, [["auto", "auto"], ["cpu", "CPU"], ["cuda", "GPU"]].map(([key, name]) => el("option", {value: key}, name)));
  const temperature = el("input", {id: "temperature", type: "number", min: 0, max: 2, step: .1, placeholder: "auto"});
  const most = el("input", {id: "most", type: "number", min: 1, max: 4096, placeholder: "auto"});
  const system = el("input", {id: "system", type: "text", placeholder: "none"});
  const text = el("textarea", {id: "message", rows: 3, placeholder: "A message. Enter sends it, Shift+Enter begins a new line.", "aria-label": "Message", onkeydown: event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  }});
  const sendButton = el("button", {type: "button", id: "send", class: "main", onclick: () => send()}, "Send");
  const stopButton = el("button", {type: "button", id: "stop-answer", disabled: true, onclick: () => abort && abort.abort()}, "Stop the answer");
  const clearButton = el("button", {type: "button", id: "clear", onclick: () => clear()}, "New conversation");

  const close = () => {
    if (abort) abort.abort();
    if (talk) navigator.sendBeacon("api/chat/close", JSON.stringify({talk}));
    talk = "";
  };
  const clear = () => {
    for (const pane of panes.values()) {
      pane.messages.length = 0;
      pane.list.replaceChildren();
    }
    problem.replaceChildren();
    text.focus();
  };
  // Other settings are those of another program.
  const settings = () => ({base: withBase.checked, device: device.value, ...(temperature.value !== "" ? {temperature: Number(temperature.value)} : {}),
    ...(most.value !== "" ? {max_new_tokens: Number(most.value)} : {})});
  let opened = "";
  const open = async () => {
    const wanted = JSON.stringify(settings());
    if (talk && wanted === opened) return;
    close();
    const answer = await (await tell("chat/open", {run: run.id, ...settings()})).json();
    talk = answer.talk;
    opened = wanted;
    const keys = answer.sides.map(side => side.key);
    for (const key of [...panes.keys()]) if (!keys.includes(key)) panes.delete(key);
    for (const side of answer.sides) {
      if (panes.has(side.key)) continue;
      const list = el("div", {class: "messages", role: "log", tabindex: 0, "aria-label": side.key === "base" ? "Base model" : "Result"});
      panes.set(side.key, {messages: [], list, converses: side.converses, root: el("section", {class: "pane", "data-side": side.key},
        el("h3", null, side.key === "base" ? "Base model" : "Result of the run", el("span", {class: "soft small mono"}, side.model)), list)});
    }
    both.replaceChildren(...[...panes.values()].map(pane => pane.root));
    const plain = answer.sides.filter(side => !side.converses).map(side => side.key === "base" ? "the base model" : "the result");
    note.textContent = [answer.note, plain.length ? `Without a chat template, each message is a prompt of its own for ${plain.join(" and ")}.` : ""].filter(Boolean).join(" ");
  };
  const answerIn = async (key, message, signal) => {
    const pane = panes.get(key), said = el("div", {class: "said model"}, el("span", {class: "soft waiting"}, "…"));
    pane.list.append(el("div", {class: "said user"}, message), said);
    pane.list.scrollTop = pane.list.scrollHeight;
    const asked = {role: "user", content: message}, before = system.value ? [{role: "system", content: system.value}] : [];
    let answer = "", isWhole = false;
    const show = () => { said.textContent = answer || (isWhole ? "(an empty answer)" : ""); pane.list.scrollTop = pane.list.scrollHeight; };
    try {
      for await (const row of rowsOf(await tell("chat/say", {talk, side: key, messages: [...before, ...pane.messages, asked]}, signal))) {
        if (row.error) throw new ServerError(row.error, 500);
        if (row.piece) answer += row.piece;
        if ("answer" in row) { answer = row.answer; isWhole = true; }
        show();
      }
      if (!isWhole) throw new ServerError("The answer was cut off.", 0);
      pane.messages.push(asked, {role: "assistant", content: answer});
    } catch (caught) {
      if (caught.name === "AbortError") {
        show();
        said.append(el("div", {class: "soft small"}, "stopped"));
        if (answer) pane.messages.push(asked, {role: "assistant", content: answer});
        return;
      }
      said.replaceChildren(problemLine(caught.message));
      if (caught.status === 404) talk = "";  // closed after ten minutes: the next message opens it again
    }
  };
  const send = async () => {
    const message = text.value.trim();
    if (!message || isAtWork) return;
    isAtWork = true;
    sendButton.disabled = true;
    problem.replaceChildren();
    try {
      await open();
      text.value = "";
      stopButton.disabled = false;
      abort = new AbortController();
      await Promise.all([...panes.keys()].map(key => answerIn(key, message, abort.signal)));
    } catch (caught) {
      problem.replaceChildren(problemLine(caught.message));
    }
    isAtWork = false;
    sendButton.disabled = false;
    stopButton.disabled = true;
  };
  ask("chat", {id: run.id}).then(facts => {
    if (!facts.result) note.textContent = "The run has saved no model yet: there is nothing to chat with.";
    else note.textContent = `The first message loads ${facts.result}` + (facts.bytes ? ` (${bytes(facts.bytes)} of weights)` : "") + "; ten minutes after the last one it is freed.";
    if (!facts.base) { withBase.checked = false; withBase.disabled = true; }
  }, caught => { note.textContent = caught.message; });
  const parts = [el("div", {class: "controls"}, el("label", null, withBase, "base model beside it"), el("label", null, "Device", device), el("label", null, "Temperature", temperature),
    el("label", null, "Longest answer", most), el("label", {class: "grow"}, "System message", system)), note, problem, both,
    el("div", {class: "compose"}, text, el("div", {class: "tools"}, sendButton, stopButton, clearButton))];
  return {run: run.id, parts, close};
}
