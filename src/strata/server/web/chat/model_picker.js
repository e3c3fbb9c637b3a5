// Which model answers a conversation, where the server has several, and how far it is.

import { postJson } from "../api.js";
import { html, useStore } from "../html.js";
import { CAN_LOAD } from "../models.js";
import { modelOf, serverStatus } from "../server_status.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";

export function ModelPicker({ conversation }) {
  const { value } = useStore(serverStatus);
  const models = value?.models ?? [];
  if (models.length < 2) return "";
  const name = modelOf(conversation, value);
  // A choice alone loads nothing: arrow keys pass through all of them.
  const choose = (event) => chats.choose(conversation, event.target.value);
  return html`<span class="picker">
    <select aria-label="Model" title="Which model answers" value=${name} onChange=${choose}>
      ${models.map((model) => html`<option value=${model.name}>${model.name}${model.state === "loaded" ? " ●" : ""}</option>`)}
    </select>
    <${Standing} key=${name} model=${models.find((model) => model.name === name)} />
  </span>`;
}

function Standing({ model: { name, state, percent, reason } }) {
  const [problem, setProblem] = useState("");
  const loading = state === "loading";
  useEffect(() => (loading ? serverStatus.watch() : undefined), [loading]);
  const load = async () => {
    setProblem("");
    const unwatch = serverStatus.watch();
    try {
      await postJson("v1/load", { model: name });
    } catch (error) {
      setProblem(error.message);
    }
    unwatch();
    serverStatus.start();
  };
  const known = percent === undefined ? "" : `${Math.round(percent)}%`;
  const why = problem || reason || "";
  return html`
    ${loading && html`<progress max="100" value=${percent} aria-label=${`Loading ${name}`}></progress><span class="unit">${known}</span>`}
    ${CAN_LOAD.includes(state) &&
    html`<button class="quiet" onClick=${load} aria-label=${`Load ${name}`} title="Its next message loads it, too">Load</button>`}
    <span class=${why ? "problem" : "visually-hidden"} role="status">${why ? `${name}: ${why}` : `${name} is ${state}`}</span>
  `;
}
