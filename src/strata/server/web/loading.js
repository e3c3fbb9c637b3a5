// That the engine is on its way, and how far it is.

import { html } from "./html.js";
import { percentOf } from "./server_status.js";

/** `status` as the server gave it while the engine starts. */
export function Loading({ status }) {
  const { model, loading, state, reason } = status.value;
  const percent = percentOf(status);
  const what = state === "restarting" ? `The engine starts again: ${reason}` : `${model} is loading`;
  return html`<div class="loading">
    <p>${what}${percent === null ? " …" : ""}${percent === null ? "" : html` <b>${Math.round(percent)}%</b>`}</p>
    <progress max="100" value=${percent} aria-label="Loading"></progress>
    ${loading?.what && html`<p class="hint">${loading.what}</p>`}
  </div>`;
}
