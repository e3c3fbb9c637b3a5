// Where the time of steps goes.

import { html } from "../html.js";
import { percent } from "../lib/format.js";
import { Bar } from "./bar.js";

const STAGES = {
  mixer: ["attention", "accent"],
  experts: ["experts", "warm"],
  wait: ["waiting for experts on the CPU", "rose"],
  head: ["head", "cool"],
  sample: ["choosing tokens", "moss"],
  rest: ["everything else", "line"],
};

export function Stages({ engine }) {
  const seconds = engine.runner?.seconds ?? {};
  const all = Object.values(seconds).reduce((sum, one) => sum + one, 0);
  if (!all) return "";
  const shown = Object.entries(STAGES)
    .filter(([stage]) => seconds[stage])
    .map(([stage, [name, colour]]) => ({ name, colour, part: seconds[stage] / all }));
  return html`
    <section class="panel" aria-labelledby="stages-title">
      <h2 id="stages-title">Where steps go</h2>
      <${Bar} label=${shown.map(({ name, part }) => `${name} ${percent(part)}`).join(", ")} parts=${shown} />
      <ul class="legend">
        ${shown.map(({ name, colour, part }) => html`<li><span class=${`key ${colour}`}>${name}</span> <span class="unit">${percent(part)}</span></li>`)}
      </ul>
    </section>
  `;
}
