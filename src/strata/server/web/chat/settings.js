// The drawer with the system prompt and what the sampler is asked for.

import { html, useStore } from "../html.js";
import { EFFORTS, FIELDS } from "../lib/settings.js";
import { serverStatus } from "../server_status.js";
import { useLayoutEffect, useRef } from "../vendor/hooks.js";
import { chats } from "./chats.js";

export function Settings({ conversation, close }) {
  const drawer = useRef();
  const { settings } = conversation;
  const defaults = useStore(serverStatus).value?.sampling ?? {};
  useLayoutEffect(() => {
    const held = document.activeElement;
    drawer.current.querySelector("textarea").focus();
    return () => held?.focus();
  }, []);
  const change = (name) => (event) => chats.setting(conversation, name, event.target.value);
  const clear = () => {
    conversation.settings = {};
    chats.save(conversation);
  };
  return html`
    <aside class="settings" ref=${drawer} aria-label="Settings of this conversation">
      <div class="drawer-head">
        <h2>Settings</h2>
        <button class="quiet" onClick=${close}>Close</button>
      </div>
      <label for="system">System prompt</label>
      <textarea id="system" rows="5" value=${settings.system ?? ""} onInput=${change("system")}></textarea>
      <label for="effort">Thinking</label>
      <select id="effort" value=${settings.reasoning_effort ?? ""} onChange=${change("reasoning_effort")}>
        <option value="">as the model does</option>
        ${EFFORTS.map((effort) => html`<option value=${effort}>${effort}</option>`)}
      </select>
      <div class="fields">
        ${FIELDS.map((field) => html`<${Field} field=${field} value=${settings[field.name]} standard=${defaults[field.name]}
          change=${change(field.name)} />`)}
      </div>
      <label for="stop">Stop texts, one a line</label>
      <textarea id="stop" rows="2" value=${settings.stop ?? ""} onInput=${change("stop")}></textarea>
      <p class="hint">Empty fields leave the choice to the server, whose values they show. A new conversation begins with these settings.</p>
      <button onClick=${clear}>Clear all</button>
    </aside>
  `;
}

const NOT_SET = { max_tokens: "no limit", seed: "random" };

function Field({ field: { name, label, help, ...limits }, value, standard, change }) {
  const shown = limits.step < 1 ? "decimal" : "numeric";
  return html`<div class="field" title=${help}>
    <label for=${name}>${label}</label>
    <input id=${name} type="number" inputmode=${shown} ...${limits} placeholder=${standard ?? NOT_SET[name] ?? ""} value=${value ?? ""} onInput=${change}
      aria-describedby=${`${name}-help`} />
    <span id=${`${name}-help`} class="visually-hidden">${help}</span>
  </div>`;
}
