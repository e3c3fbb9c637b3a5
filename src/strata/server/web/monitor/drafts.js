// How many drafts are right, by depth and by who made them.

import { html } from "../html.js";
import { number, percent } from "../lib/format.js";
import { Bar } from "./bar.js";

const SHOWN = 6;

export function Drafts({ engine }) {
  const { offered, accepted } = engine.drafts_by_depth;
  const depths = byDepth(offered, accepted);
  const { drafted, accepted: right } = engine.tokens;
  const made = Object.entries(engine.runner?.drafts?.drafters ?? {}).map(([name, counts]) => [name, total(counts.offered), total(counts.accepted)]);
  return html`
    <section class="panel" aria-labelledby="drafts-title">
      <h2 id="drafts-title">Drafts</h2>
      ${depths.length
        ? html`<p class="hint">${number(right)} of ${number(drafted)} were right, ${percent(right / drafted)}.</p>`
        : html`<p class="hint">None was checked yet.</p>`}
      ${depths.length > 0 &&
      html`<table>
        <thead><tr><th scope="col">Depth</th><th scope="col">Right</th><th scope="col">Checked</th></tr></thead>
        <tbody>
          ${depths.map(({ depth, checked, good }) => {
            const part = good / checked;
            return html`<tr>
              <th scope="row">${depth}</th>
              <td class="with-bar"><${Bar} label=${`Depth ${depth}: ${percent(part)} right`} parts=${[{ part, colour: "accent" }]} /> ${percent(part)}</td>
              <td>${number(checked)}</td>
            </tr>`;
          })}
        </tbody>
      </table>`}
      <ul class="legend">
        ${made.map(([name, count, good]) => html`<li>${name} <span class="unit">${count ? `${percent(good / count)} of ${number(count)}` : "none"}</span></li>`)}
      </ul>
    </section>
  `;
}

/** A line for each of the first depths, one for the deeper ones together. */
function byDepth(offered, accepted) {
  const all = Object.entries(offered).map(([depth, checked]) => ({ depth, checked, good: accepted[depth] ?? 0 }));
  const deep = all.slice(SHOWN);
  const sum = (name) => deep.reduce((found, one) => found + one[name], 0);
  const rest = deep.length ? [{ depth: `over ${SHOWN}`, checked: sum("checked"), good: sum("good") }] : [];
  return [...all.slice(0, SHOWN), ...rest];
}

function total(counts) {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
