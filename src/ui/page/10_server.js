// What the page asks of `trainer ui`. Addresses are relative, so that each has the token of the page's own.

class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function lost(message) {
  const line = document.getElementById("lost");
  line.textContent = message || "";
  line.hidden = !message;
}

async function answerOf(request) {
  let response;
  try {
    response = await request;
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    lost("No connection to `trainer ui`: it has ended, or the connection to its machine is lost. This page tries again.");
    throw new ServerError("No connection to `trainer ui`.", 0);
  }
  lost(response.status === 403 ? "`trainer ui` was started again, with another address: open the one that it printed." : "");
  if (response.ok) return response;
  let message = "";
  try {
    message = (await response.json()).error;
  } catch { /* a plain sentence */ }
  throw new ServerError(message || `The answer was ${response.status}.`, response.status);
}

const ask = async (path, query) => (await answerOf(fetch(`api/${path}?${new URLSearchParams(query || {})}`))).json();
const tell = (path, body, signal) => answerOf(fetch(`api/${path}`, {method: "POST", body: JSON.stringify(body), signal}));

// The rows of an answer of JSON lines, as they come.
async function* rowsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    rest += value || "";
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
    if (done) return;
  }
}

// The view that is shown: what it began ends with it.
let view = null;
class View {
  constructor() { this.ends = []; this.isOver = false; }
  onEnd(work) { this.ends.push(work); }
  end() {
    this.isOver = true;
    for (const work of this.ends) work();
  }
  // Calls work() now, and then as often as it asks for: it returns the seconds until the next time. Not while nobody looks.
  repeat(work) {
    let timer = 0, isAtWork = false;
    const turn = async () => {
      clearTimeout(timer);
      if (this.isOver || isAtWork) return;
      if (document.hidden) return;
      isAtWork = true;
      let seconds = 5;
      try {
        seconds = await work() ?? 5;
      } catch (problem) {
        if (!(problem instanceof ServerError)) throw problem;
      } finally {
        isAtWork = false;
        if (!this.isOver) timer = setTimeout(turn, 1000 * seconds);
      }
    };
    document.addEventListener("visibilitychange", turn);
    this.onEnd(() => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", turn);
    });
    turn();
    return turn;
  }
}

const ago = seconds => seconds < 5 ? "now" : duration(seconds < 60 ? Math.round(seconds) : 60 * Math.round(seconds / 60)) + " ago";
const problemLine = text => el("p", {class: "problem", role: "alert"}, text);

// Replaces what is in the element when `mark` has changed: what somebody reads or has selected stays as it is otherwise.
function fill(element, mark, make) {
  const now = JSON.stringify(mark);
  if (element.mark === now) return;
  element.mark = now;
  element.replaceChildren(...[make()].flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
}
