// The list of conversations that this browser keeps.

import { html, useStore } from "../html.js";
import { ago } from "../lib/format.js";
import { fromJson } from "../lib/export.js";
import { useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";

const SEARCH_FROM = 8;

export function Conversations({ close }) {
  useStore(chats);
  const [wanted, setWanted] = useState("");
  const [trouble, setTrouble] = useState("");
  const kept = chats.list.filter((one) => one.messages.length);
  const shown = kept.filter((one) => matches(one, wanted.toLowerCase()));
  const begin = () => {
    chats.begin();
    close();
    document.getElementById("question")?.focus();
  };
  const open = (id) => {
    chats.open(id);
    close();
  };
  return html`
    <aside class="conversations" aria-label="Conversations">
      <button class="new" onClick=${begin} title="Alt+N">New conversation</button>
      ${kept.length >= SEARCH_FROM &&
      html`<input type="search" placeholder="Search" aria-label="Search conversations" value=${wanted}
        onInput=${(event) => setWanted(event.target.value)} />`}
      <ul>
        ${shown.map(
          (one) => html`<li key=${one.id}>
            <button class="quiet" onClick=${() => open(one.id)} aria-current=${one === chats.current ? "true" : null}>
              <span class="name">${one.title}</span>
              <span class="when">${chats.isRunning(one) ? "writing …" : ago(one.updated, Date.now())}</span>
            </button>
          </li>`,
        )}
      </ul>
      ${!shown.length && html`<p class="hint">${wanted ? "None says that." : "Conversations stay in this browser."}</p>`}
      ${(trouble || chats.trouble) && html`<p class="problem" role="alert">${trouble || chats.trouble}</p>`}
      <label class="import quiet">
        Import …<input type="file" accept=".json,application/json" class="visually-hidden" onChange=${take(setTrouble, close)} />
      </label>
    </aside>
  `;
}

function matches(conversation, words) {
  const found = (text) => text.toLowerCase().includes(words);
  return !words || found(conversation.title) || conversation.messages.some(({ content }) => found(content));
}

function take(setTrouble, close) {
  return async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      chats.add(fromJson(await file.text()));
      setTrouble("");
      close();
    } catch (error) {
      setTrouble(error.message);
    }
  };
}
