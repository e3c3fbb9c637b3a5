// Every slot, and who waits for one.

import { html } from "../html.js";
import { number, percent, plural, seconds } from "../lib/format.js";
import { Bar } from "./bar.js";

export function Slots({ engine }) {
  const { seats, queue, context, slots } = engine;
  const why = slots.serving === slots.requested ? "" : `, ${slots.requested} were asked for: ${slots.reason}`;
  return html`
    <section class="panel" aria-labelledby="slots-title">
      <h2 id="slots-title">Slots</h2>
      <p class="hint">${plural(slots.serving, "slot")}${why}; ${number(context)} tokens each</p>
      <div class="wide" tabindex="0" role="region" aria-label="Table of slots">
        <table>
          <thead><tr><th scope="col">Slot</th><th scope="col">State</th><th scope="col">Held</th><th scope="col">Prompt</th><th scope="col">Answer</th></tr></thead>
          <tbody>${seats.map((seat) => html`<${Seat} seat=${seat} context=${context} />`)}</tbody>
        </table>
      </div>
      ${queue.length > 0 && html`<${Queue} queue=${queue} />`}
    </section>
  `;
}

function Seat({ seat, context }) {
  const { id, state, held, prompt, reused, generated } = seat;
  const busy = prompt !== undefined;
  return html`<tr class=${busy ? "busy" : ""}>
    <th scope="row">${id}</th>
    <td>${state}</td>
    <td class="with-bar">
      <${Bar} label=${`Slot ${id}: ${percent(held / context)} of its context held`} parts=${[{ part: held / context, colour: busy ? "accent" : "edge" }]} />
      ${number(held)}
    </td>
    <td>${busy ? html`${number(prompt)}${reused ? html` <span class="unit">${number(reused)} reused</span>` : ""}` : ""}</td>
    <td>${busy ? number(generated) : ""}</td>
  </tr>`;
}

function Queue({ queue }) {
  return html`
    <h3>Waiting</h3>
    <ol class="queue">
      ${queue.map(
        ({ request, prompt, waited_s, lacks }) =>
          html`<li>${request}: ${plural(prompt, "token")}, for ${seconds(waited_s)}${lacks ? `, ${lacks}` : ""}</li>`,
      )}
    </ol>
  `;
}
