// The server, by addresses relative to the page: the same below any prefix.

import { events } from "./lib/sse.js";
import { Store } from "./lib/store.js";
import { recall, remember } from "./lib/storage.js";

/** An answer that is an error; `status` 0: the server was not reached; `code` is the server's word for it. */
export class ApiError extends Error {
  constructor(message, status, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The key, if the server wants one. */
class Access extends Store {
  #key = recall("key") ?? recall("key", sessionStorage);
  wanted = false;
  refused = false;

  /** Use `key` from now on; kept beyond this tab only when asked to. */
  set(key, keep) {
    remember("key", keep ? key : null);
    remember("key", keep ? null : key, sessionStorage);
    this.#key = key;
    this.wanted = this.refused = false;
    this.changed();
  }

  ask() {
    if (this.wanted) return;
    this.wanted = true;
    this.refused = Boolean(this.#key);
    this.changed();
  }

  get known() {
    return Boolean(this.#key);
  }

  headers() {
    // A header is bytes, which fetch takes as Latin-1 letters.
    const letters = String.fromCharCode(...new TextEncoder().encode(this.#key ?? ""));
    return this.#key ? { Authorization: `Bearer ${letters}` } : {};
  }
}

export const access = new Access();

/** The full address of `path` ("v1/models"), as other programs would use it. */
export function address(path) {
  return new URL(path, new URL(".", document.baseURI)).href;
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(address(path), { ...options, headers: { ...options.headers, ...access.headers() } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached.", 0);
  }
  if (response.ok) return response;
  if (response.status === 401) access.ask();
  throw await errorOf(response);
}

async function errorOf(response) {
  const text = await response.text();
  try {
    const { message, code } = JSON.parse(text).error;
    return new ApiError(message, response.status, code);
  } catch {
    return new ApiError(`The server answered ${response.status} ${response.statusText}`.trim(), response.status);
  }
}

export async function getJson(path) {
  return (await request(path)).json();
}

/** Ask for a change; the answer's values. */
export async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** The chunks of a chat answer as they come. */
export async function* streamChat(body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await request("v1/chat/completions", options);
  let ended = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      ended = true;
      continue;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, 500, chunk.error.code);
    yield chunk;
  }
  if (!ended) throw new ApiError("The connection ended before the answer did.", 0);
}
