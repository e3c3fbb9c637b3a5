// What is kept of conversations, and how often it served.

import { html } from "../html.js";
import { bytes, number, percent, plural } from "../lib/format.js";
import { Bar } from "./bar.js";

const PLACES = { pages: "Pages", ram: "RAM", disk: "Disk" };

export function Kept({ engine }) {
  const kept = engine.runner?.kept;
  if (!kept?.pages) return "";
  const { prompt, reused } = engine.tokens;
  const held = kept.pages - kept.free_pages;
  const answered = Object.values(kept.hits).reduce((sum, count) => sum + count, 0);
  return html`
    <section class="panel" aria-labelledby="kept-title">
      <h2 id="kept-title">Conversations kept</h2>
      <p class="hint">
        ${reused + prompt ? `${percent(reused / (reused + prompt))} of the prompt tokens were held already` : "No prompt was read yet"};
        ${" "}${plural(kept.prefixes, "prefix", "prefixes")} kept.
      </p>
      <div class="wide" tabindex="0" role="region" aria-label="Table of what is kept"><table>
        <thead><tr><th scope="col">Where</th><th scope="col">Takes</th><th scope="col">Prompts served</th><th scope="col">Tokens served</th></tr></thead>
        <tbody>
          ${Object.entries(PLACES).map(
            ([place, name]) => html`<tr>
              <th scope="row">${name}</th>
              <td>${bytes(kept.bytes[place] ?? 0)}${kept.budget[place] ? html` <span class="unit">of ${bytes(kept.budget[place])}</span>` : ""}</td>
              <td>${number(kept.hits[place] ?? 0)}</td>
              <td>${number(kept.hit_tokens[place] ?? 0)}</td>
            </tr>`,
          )}
          <tr><th scope="row">New</th><td></td><td>${number(kept.hits.none ?? 0)} <span class="unit">of ${number(answered)}</span></td><td></td></tr>
        </tbody>
      </table></div>
      <h3>Pages <span class="unit">${number(held)} of ${number(kept.pages)} held, ${number(kept.promised_pages)} promised</span></h3>
      <${Bar} label=${`${percent(held / kept.pages)} of the pages are held`} parts=${[
        { part: held / kept.pages, colour: "accent" },
        { part: kept.promised_pages / kept.pages, colour: "cool" },
      ]} />
    </section>
  `;
}
