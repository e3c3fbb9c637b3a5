// What the server says of itself.

import { getJson } from "./api.js";
import { Poller } from "./poller.js";

export const serverStatus = new Poller(() => getJson("v1/status"), 1000, 10_000);

const COMING = ["loading", "restarting"];
/** An engine that is not there, but starts with the next request. */
const ASLEEP = "unloaded";

/** What keeps the server from answering; empty when nothing does. */
export function troubleOf({ value, trouble }) {
  if (trouble) return trouble;
  return value && !["ready", ASLEEP, ...COMING].includes(value.state) ? value.reason || value.state : "";
}

/** Whether the engine is on its way, so that waiting helps. */
export function isComing({ value, trouble }) {
  return !trouble && COMING.includes(value?.state);
}

/** How far the model is loaded, 0 to 100; null when nobody knows. */
export function percentOf({ value }) {
  return value?.loading?.percent ?? null;
}

/** The name of the model that answers `conversation`, of the server's several; null where it has one, or is not known. */
export function modelOf({ model }, value) {
  const names = (value?.models ?? []).map(({ name }) => name);
  if (names.length < 2) return null;
  return names.includes(model) ? model : value.model;
}

/** Ends when the engine is no longer on its way; fails when `signal` ends the wait. */
export function untilTaken(signal) {
  if (!isComing(serverStatus)) return Promise.resolve();
  const unwatch = serverStatus.watch();
  let unsubscribe;
  return new Promise((resolve, reject) => {
    unsubscribe = serverStatus.subscribe(() => isComing(serverStatus) || resolve());
    signal.addEventListener("abort", () => reject(signal.reason));
  }).finally(() => {
    unsubscribe();
    unwatch();
  });
}
