// What the server says of itself, asked for again and again while somebody looks.

import { access, getJson } from "./api.js";
import { Store } from "./lib/store.js";

const QUICK_MS = 1000;
const SLOW_MS = 10_000;

class ServerStatus extends Store {
  /** The last answer of /v1/status; null before the first one. */
  value = null;
  /** Why there is none now. */
  trouble = "";
  #watchers = 0;
  #timer = 0;

  /** Ask often until the returned function is called. */
  watch() {
    this.#watchers += 1;
    this.#again(0);
    return () => {
      this.#watchers -= 1;
    };
  }

  start() {
    access.subscribe(() => access.wanted || this.#again(0));
    document.addEventListener("visibilitychange", () => document.hidden || this.#again(0));
    this.#again(0);
  }

  #again(wait_ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), wait_ms);
  }

  async #ask() {
    if (document.hidden) return;
    try {
      this.value = await getJson("v1/status");
      this.trouble = this.value.state === "ready" ? "" : this.value.reason || this.value.state;
    } catch (error) {
      this.trouble = error.message;
    }
    this.changed();
    if (!access.wanted) this.#again(this.#watchers || this.trouble ? QUICK_MS : SLOW_MS);
  }
}

export const serverStatus = new ServerStatus();
