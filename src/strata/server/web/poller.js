// Something the server tells, asked for again and again while somebody looks.

import { access } from "./api.js";
import { useStore } from "./html.js";
import { Store } from "./lib/store.js";
import { useEffect } from "./vendor/hooks.js";

const RETRY_MS = 1000;

export class Poller extends Store {
  /** The last answer; null before the first one. */
  value = null;
  /** Why there is none now. */
  trouble = "";
  #read;
  #every_ms;
  #idle_ms;
  #watchers = 0;
  #timer = 0;

  /** `read` asks once; without watchers it is called every `idle_ms`, or not at all. */
  constructor(read, every_ms, idle_ms = Infinity) {
    super();
    this.#read = read;
    this.#every_ms = every_ms;
    this.#idle_ms = idle_ms;
    access.subscribe(() => access.wanted || this.#again(0));
    document.addEventListener("visibilitychange", () => this.#again(0));
  }

  /** Ask often until the returned function is called. */
  watch() {
    this.#watchers += 1;
    this.#again(0);
    return () => {
      this.#watchers -= 1;
    };
  }

  #again(wait_ms) {
    clearTimeout(this.#timer);
    if (access.wanted || document.hidden || !(this.#watchers || Number.isFinite(this.#idle_ms))) return;
    this.#timer = setTimeout(() => this.#ask(), wait_ms);
  }

  async #ask() {
    try {
      this.value = await this.#read(this.value);
      this.trouble = "";
    } catch (error) {
      this.trouble = error.message;
    }
    this.changed();
    this.#again(this.#watchers ? this.#every_ms : this.trouble ? RETRY_MS : this.#idle_ms);
  }

  start() {
    this.#again(0);
  }
}

/** Watch `poller` as long as the component is there, and follow it. */
export function usePoller(poller) {
  useEffect(() => poller.watch(), [poller]);
  return useStore(poller);
}
