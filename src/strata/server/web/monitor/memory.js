// What takes VRAM and RAM.

import { html } from "../html.js";
import { bytes, percent } from "../lib/format.js";
import { Bar } from "./bar.js";

/** As many as there are uses of RAM. */
const COLOURS = ["accent", "warm", "cool", "rose", "moss", "edge", "sky", "gold"];
const NAMES = {
  base: "engine at its start",
  rest: "engine since",
  files: "model file, libraries",
  kept: "kept conversations",
  pool: "pages in use",
  steps: "room for steps",
};

export function Memory({ memory, device }) {
  return html`
    <section class="panel" aria-labelledby="memory-title">
      <h2 id="memory-title">Memory</h2>
      ${memory.vram
        ? html`<${Map} name="VRAM" of=${memory.vram} />`
        : html`<p class="hint">No VRAM is used: everything runs on the ${device.toUpperCase()}.</p>`}
      <${Map} name="RAM" of=${memory.ram} />
    </section>
  `;
}

function Map({ name, of: { uses, free, total } }) {
  const used = Object.entries(uses)
    .filter(([, size]) => size)
    .map(([use, size], i) => ({ use: NAMES[use] ?? use.replaceAll("_", " "), size, colour: COLOURS[i % COLOURS.length] }));
  const ours = used.reduce((sum, { size }) => sum + size, 0);
  const all = total ?? ours + (free ?? 0);
  if (!all) return html`<p class="hint">${name}: this system does not tell.</p>`;
  const others = total === null || free === null ? 0 : Math.max(0, total - free - ours);
  const shown = [...used, ...(others ? [{ use: "other programs", size: others, colour: "line" }] : [])];
  const words = [...shown.map(({ use, size }) => `${use} ${bytes(size)}`), ...(free ? [`free ${bytes(free)}`] : [])];
  return html`
    <h3>${name} <span class="unit">${bytes(all)}</span></h3>
    <${Bar} label=${`${name}: ${words.join(", ")}`} parts=${shown.map(({ size, colour }) => ({ part: size / all, colour }))} />
    <ul class="legend">
      ${shown.map(({ use, size, colour }) => html`<li><span class=${`key ${colour}`}>${use}</span> ${bytes(size)} <span class="unit">${percent(size / all)}</span></li>`)}
      ${free !== null && html`<li><span class="key">free</span> ${bytes(free)}</li>`}
    </ul>
  `;
}
