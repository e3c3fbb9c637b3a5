// A horizontal bar of parts of one whole.

import { html } from "../html.js";

/** `parts`: {part, colour}, parts from 0 to 1. */
export function Bar({ parts, label }) {
  return html`<span class="meter" role="img" aria-label=${label}>
    ${parts.map(({ part, colour }) => html`<i class=${colour} style=${{ width: `${Math.min(100, 100 * part)}%` }}></i>`)}
  </span>`;
}
