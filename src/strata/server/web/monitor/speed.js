// How fast it is now, and was in the last minutes.

import { getJson } from "../api.js";
import { html, useStore } from "../html.js";
import { number, seconds } from "../lib/format.js";
import { logarithmic, merged, recent, series, summary } from "../lib/series.js";
import { Poller, usePoller } from "../poller.js";
import { useRef } from "../vendor/hooks.js";
import { Plot } from "./plot.js";

const NOW_S = 5;

const timeline = new Poller(async (before) => {
  const known = before?.seconds ?? [];
  const since = Math.max(0, (known.at(-1)?.second ?? 0) - 1);
  const { now, seconds: fresh } = await getJson(`v1/timeline?since=${since}`);
  return { now, seconds: merged(known, fresh, now) };
}, 1000);

export function Speed({ engine, concurrency }) {
  const { value, trouble } = usePoller(timeline);
  const read = usePromptRate(engine);
  if (!value) return html`<p class="empty">${trouble || "Asking …"}</p>`;
  const of = (name, missing) => series(value.seconds, name, value.now, missing);
  const tokens = of("tokens", 0);
  const firsts = of("first_ms");
  const gaps = of("gap_ms");
  return html`
    <${Figures} rate=${recent(tokens, NOW_S)} read=${read} first=${lastOf(firsts)} gap=${lastOf(gaps)} concurrency=${concurrency} />
    <div class="plots">
      <${Plot} title="Answers" unit="tokens a second" label=${inWords("Tokens a second", tokens, (x) => number(x))}
        lines=${[{ values: tokens, colour: "accent" }]} />
      <${Plot} title="First token" unit="ms" scale=${logarithmic} label=${inWords("Wait for the first token", firsts, ms)}
        lines=${[{ values: firsts, colour: "accent" }]} />
      <${Plot} title="Gaps between tokens" unit="ms" scale=${logarithmic} label=${inWords("Longest gap within a second", gaps, ms)}
        lines=${[
          { values: gaps, colour: "warm", label: "longest" },
          { values: of("mean_gap_ms"), colour: "accent", label: "mean" },
        ]} />
    </div>
  `;
}

const ms = (value) => seconds(value / 1000);

function inWords(what, values, shown) {
  const found = summary(values);
  return found ? `${what} in the last 5 minutes: mostly ${shown(found.middle)}, at most ${shown(found.most)}` : `${what}: none in the last 5 minutes`;
}

function lastOf(values) {
  return values.findLast((value) => value !== null) ?? null;
}

/** Prompt tokens a second, between two looks at the engine's counter. */
function usePromptRate(engine) {
  const before = useRef({ at: 0, tokens: 0, rate: 0 });
  const now = performance.now();
  const last = before.current;
  if (engine.tokens.prompt !== last.tokens || now - last.at > 1500) {
    const rate = last.at ? (1000 * (engine.tokens.prompt - last.tokens)) / (now - last.at) : 0;
    before.current = { at: now, tokens: engine.tokens.prompt, rate: Math.max(0, rate) };
  }
  return before.current.rate;
}

function Figures({ rate, read, first, gap, concurrency }) {
  const { running, reading, waiting, serving, queue_limit } = concurrency;
  const shown = [
    ["Answers", number(rate, 1), "tok/s"],
    ["Prompts", number(read), "tok/s"],
    ["Slots busy", running + reading, `of ${serving}`],
    ["Waiting", waiting, `of ${queue_limit}`],
    ["First token", first === null ? "–" : ms(first), "last"],
    ["Longest gap", gap === null ? "–" : ms(gap), "last"],
  ];
  return html`<dl class="figures-row">
    ${shown.map(([name, value, unit]) => html`<div><dt>${name}</dt><dd>${value} <span class="unit">${unit}</span></dd></div>`)}
  </dl>`;
}
