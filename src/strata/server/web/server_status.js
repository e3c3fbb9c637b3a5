// What the server says of itself.

import { getJson } from "./api.js";
import { Poller } from "./poller.js";

export const serverStatus = new Poller(() => getJson("v1/status"), 1000, 10_000);

/** What keeps the server from answering; empty when nothing does. */
export function troubleOf({ value, trouble }) {
  if (trouble) return trouble;
  return value && value.state !== "ready" ? value.reason || value.state : "";
}
