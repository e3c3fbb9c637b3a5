// Server-sent events, as far as the API uses them: data lines and comments.

/** Splits text that comes in pieces into the data of whole events. */
export class EventReader {
  #rest = "";

  /** The data of every event that `text` completes; comments are left out. */
  push(text) {
    const parts = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = parts.pop();
    return parts.map(dataOf).filter((data) => data !== null);
  }
}

function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}

/** The data of each event of a response's body, until it ends. */
export async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const found = new EventReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* found.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.releaseLock();
  }
}
