// The expert map: a row for each layer, a column for each expert; colour says where it is, strength how much it is used.

import { getJson } from "../api.js";
import { html } from "../html.js";
import { byTier, expertAt, layerRows, readMap } from "../lib/expert_map.js";
import { number, percent, plural } from "../lib/format.js";
import { Poller, usePoller } from "../poller.js";
import { useState } from "../vendor/hooks.js";
import { Canvas } from "./canvas.js";

const COLOURS = { vram: "accent", pinned: "warm", host: "cool" };
const NAMES = { vram: "VRAM", pinned: "RAM, read by the GPU", host: "RAM, computed by the CPU" };
const FAINTEST = 0.18;
const ROW_PX = { least: 3, most: 12, all: 280 };

const experts = new Poller(async () => readMap(await getJson("v1/experts")), 2000);

export function Experts() {
  const { value: map, trouble } = usePoller(experts);
  return html`
    <section class="panel whole" aria-labelledby="experts-title">
      <h2 id="experts-title">Experts</h2>
      ${!map && html`<p class="hint">${trouble || "Asking …"}</p>`}
      ${map && !map.layers.length && html`<p class="hint">This model has no routed experts.</p>`}
      ${map && map.layers.length > 0 && html`<${Map} map=${map} />`}
    </section>
  `;
}

function Map({ map }) {
  const [shown, setShown] = useState(null);
  const tiers = byTier(map);
  const rows = map.layers.length;
  const height = rows * Math.min(ROW_PX.most, Math.max(ROW_PX.least, Math.floor(ROW_PX.all / rows)));
  const draw = (context, width, _, colour) => paint(context, width, height, map, colour);
  const look = (event) => {
    const box = event.target.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const column = Math.floor(((event.clientX - box.left) / box.width) * map.experts);
    setShown(expertAt(map, Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(map.experts - 1, column))));
  };
  const words = tiers.map(({ tier, count }) => `${number(count)} in ${NAMES[tier]}`).join(", ");
  return html`
    <p class="hint">
      ${plural(rows, "layer")} of ${map.experts} experts; colour says where one is, strength how much it is used.
      ${map.counted ? "" : "Uses are not counted here."}
    </p>
    <${Canvas} draw=${draw} height=${height} class="expert-map" onPointerMove=${look} onPointerDown=${look} onPointerLeave=${() => setShown(null)}
      label=${`Map of ${rows} layers by ${map.experts} experts: ${words}. The table below says the same.`} />
    <p class="hint readout" aria-hidden="true">
      ${shown ? `layer ${shown.layer}, expert ${shown.expert}: ${NAMES[shown.tier]}, ${percent(shown.heat)} of the uses of the most used one` : "Point at an expert to read it."}
    </p>
    <ul class="legend">
      ${tiers.map(
        ({ tier, count, share }) => html`<li>
          <span class=${`key ${COLOURS[tier]}`}>${NAMES[tier]}</span> ${plural(count, "expert")}${" "}
          ${share !== null && html`<span class="unit">${percent(share)} of the uses</span>`}
        </li>`,
      )}
    </ul>
    <details><summary>By layer</summary><${Layers} map=${map} tiers=${tiers} /></details>
  `;
}

function paint(context, width, height, map, colour) {
  const across = width / map.experts;
  const down = height / map.layers.length;
  const gap = across > 4 && down > 4 ? 1 : 0;
  const colours = Object.fromEntries(Object.entries(map.tier_names).map(([code, name]) => [code, colour(COLOURS[name])]));
  for (let row = 0; row < map.layers.length; row += 1) {
    const top = Math.round(row * down);
    for (let column = 0; column < map.experts; column += 1) {
      const at = row * map.experts + column;
      const ink = colours[map.tiers[at]];
      if (!ink) continue;
      const left = Math.round(column * across);
      context.globalAlpha = FAINTEST + (1 - FAINTEST) * (map.heat[at] / 255);
      context.fillStyle = ink;
      context.fillRect(left, top, Math.round((column + 1) * across) - left - gap, Math.round((row + 1) * down) - top - gap);
    }
  }
}

function Layers({ map, tiers }) {
  return html`<div class="wide" tabindex="0" role="region" aria-label="Experts by layer">
    <table>
      <thead><tr>
        <th scope="col">Layer</th>
        ${tiers.map(({ tier }) => html`<th scope="col">${NAMES[tier]}</th>`)}
        <th scope="col">Used at all</th><th scope="col">Most used</th>
      </tr></thead>
      <tbody>
        ${layerRows(map).map(
          ({ layer, counts, used, hottest }) => html`<tr>
            <th scope="row">${layer}</th>
            ${tiers.map(({ tier }) => html`<td>${counts[tier] ?? 0}</td>`)}
            <td>${used}</td><td>${hottest ?? "–"}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
