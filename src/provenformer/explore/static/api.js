// Requests to the server: an answer, or an error with a sentence for the page and the field that it belongs to.

const SILENT = "The server does not answer. Start it again with: provenformer explore";

export class ServerError extends Error {
  constructor(message, field = null) {
    super(message);
    this.field = field;
  }
}

export async function ask(path, fields) {
  waiting(1);
  try {
    return await request(path, fields);
  } finally {
    waiting(-1);
  }
}

// For whoever asked, and for the page.
export function unanswered() {
  notice(SILENT);
  return new ServerError(SILENT);
}

async function request(path, fields) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(fields),
    });
  } catch {
    throw unanswered();
  }
  notice("");
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new ServerError("The server gave an answer that is not readable.");
  }
  if (!response.ok) throw new ServerError(answer.error, answer.field);
  return answer;
}

// Whoever waits for long is told so; a mark that comes and goes with every move would be laid out every time.
const LONG = 500;
let pending = 0;
let timer = null;
function waiting(change) {
  pending += change;
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", String(pending > 0));
  clearTimeout(timer);
  if (pending > 0) timer = setTimeout(() => main.classList.add("slow"), LONG);
  else main.classList.remove("slow");
}

// At most one request on its way; of those asked for meanwhile only the last is made, so a fast hand never builds a queue.
export function latest(send, show, fail) {
  let busy = false;
  let next = null;
  async function go(asked) {
    busy = true;
    try {
      const answer = await send(asked);
      if (next === null) show(answer);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (next === null) fail(error);
    } finally {
      busy = false;
      if (next !== null) {
        const fields = next;
        next = null;
        go(fields);
      }
    }
  }
  return (fields) => {
    if (busy) next = fields;
    else go(fields);
  };
}

function notice(text) {
  const line = document.getElementById("notice");
  if (line.textContent === text) return;
  line.textContent = text;
  line.hidden = !text;
}
