// Lines over the last minutes.

import { html } from "../html.js";
import { linear } from "../lib/series.js";
import { Canvas } from "./canvas.js";

const LEFT = 44;
const BOTTOM = 18;
const TOP = 8;
const HEIGHT = 132;

/** `lines`: {values, colour, label}, one value a second, null where there is none; `unit` and `scale` of all. */
export function Plot({ title, lines, unit, label, scale = linear }) {
  const heights = scale(lines.flatMap(({ values }) => values));
  const draw = (context, width, height, colour) => {
    const frame = { left: LEFT, right: width - 4, top: TOP, bottom: height - BOTTOM };
    grid(context, frame, heights, colour);
    for (const line of lines) trace(context, frame, line, heights, colour);
  };
  return html`
    <figure class="plot">
      <figcaption>
        ${title} <span class="unit">${unit}</span>
        ${lines.length > 1 &&
        html`<span class="keys">${lines.map((line) => html`<span class=${`key ${line.colour}`}>${line.label}</span>`)}</span>`}
      </figcaption>
      <${Canvas} draw=${draw} label=${label} height=${HEIGHT} />
    </figure>
  `;
}

function grid(context, frame, { ticks, at }, colour) {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.lineWidth = 1;
  for (const tick of ticks) {
    const y = Math.round(frame.bottom - (frame.bottom - frame.top) * at(tick)) + 0.5;
    context.strokeStyle = colour("line");
    context.beginPath();
    context.moveTo(frame.left, y);
    context.lineTo(frame.right, y);
    context.stroke();
    context.fillStyle = colour("soft");
    context.textAlign = "right";
    context.fillText(tick.toLocaleString("en", { notation: "compact" }), frame.left - 6, y);
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText("5 min ago", frame.left, frame.bottom + 14);
  context.textAlign = "right";
  context.fillText("now", frame.right, frame.bottom + 14);
}

function trace(context, frame, { values, colour: name }, { at }, colour) {
  const x = (i) => frame.left + ((frame.right - frame.left) * i) / (values.length - 1);
  const y = (value) => frame.bottom - (frame.bottom - frame.top) * at(value);
  context.strokeStyle = context.fillStyle = colour(name);
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.beginPath();
  values.forEach((value, i) => {
    if (value === null) return;
    const joined = i > 0 && values[i - 1] !== null;
    if (joined) context.lineTo(x(i), y(value));
    else {
      const alone = (values[i + 1] ?? null) === null;
      if (alone) context.rect(x(i) - 1, y(value) - 1, 2, 2);
      context.moveTo(x(i), y(value));
    }
  });
  context.stroke();
}
