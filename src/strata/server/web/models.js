// The models that the server has, which one is loaded, and buttons that change it.

import { postJson } from "./api.js";
import { html } from "./html.js";
import { plural } from "./lib/format.js";
import { useState } from "./vendor/hooks.js";

export const CAN_LOAD = ["unloaded", "failed"];

/** `value` as /v1/status gives it. */
export function Models({ value }) {
  const { models, waiting_for_model: waiting } = value;
  const [asked, setAsked] = useState("");
  const [problem, setProblem] = useState("");
  const change = (what, name) => async () => {
    setAsked(name);
    setProblem("");
    try {
      await postJson(`v1/${what}`, { model: name });
    } catch (error) {
      setProblem(error.message);
    }
    setAsked("");
  };
  return html`
    <section class="panel" aria-labelledby="models-title">
      <h2 id="models-title">Models</h2>
      <ul class="addresses">
        ${models.map(
          (model) => html`<li>
            <b>${model.name}</b> <${Change} model=${model} busy=${asked} change=${change} />
            <span class="unit">${standing(model)}</span>
          </li>`,
        )}
      </ul>
      ${waiting > 0 && html`<p class="hint">${plural(waiting, "request")} for another model, until what runs has ended</p>`}
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </section>
  `;
}

function Change({ model: { name, state }, busy, change }) {
  const what = CAN_LOAD.includes(state) ? "load" : state === "loaded" ? "unload" : "";
  if (!what) return "";
  const label = what === "load" ? "Load" : "Unload";
  return html`<button class="quiet" disabled=${Boolean(busy)} aria-label=${`${label} ${name}`} onClick=${change(what, name)}>
    ${busy === name ? `${label} …` : label}
  </button>`;
}

function standing({ state, percent, what, reason }) {
  if (reason) return `${state}: ${reason}`;
  return percent === undefined ? state : `${state}, ${what}: ${percent}%`;
}
