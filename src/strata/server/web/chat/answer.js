// An answer: folded thinking, markdown, its figures, and what can be done with it.

import { html, useStore } from "../html.js";
import { copyWith } from "../lib/clipboard.js";
import { number, plural, seconds } from "../lib/format.js";
import { blocks } from "../lib/markdown.js";
import { Loading } from "../loading.js";
import { isComing, serverStatus } from "../server_status.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";
import { Editor } from "./editor.js";

const ACTIVE = ["waiting", "thinking", "writing"];

export function Answer({ conversation, message, index, last }) {
  const [editing, setEditing] = useState(false);
  const active = ACTIVE.includes(message.state);
  if (editing) {
    const take = (text) => {
      setEditing(false);
      chats.edit(conversation, index, text);
    };
    return html`<${Editor} text=${message.content} label="The answer" send="Save" take=${take} leave=${() => setEditing(false)} />`;
  }
  return html`
    <article aria-busy=${active}>
      <h2 class="visually-hidden">Assistant</h2>
      ${message.reasoning && html`<${Thinking} message=${message} />`}
      ${message.state === "waiting" && html`<${Waiting} />`}
      <${Text} text=${message.content} />
      ${message.state === "failed" && html`<${Failure} message=${message} />`}
      ${!active &&
      html`<div class="actions">
        ${message.content && html`<button class="quiet" onClick=${(event) => copyWith(event.target, message.content)}>Copy</button>`}
        ${last && html`<button class="quiet" onClick=${() => chats.retry(conversation, index)}>Retry</button>`}
        ${message.content &&
        html`<button class="quiet edit" disabled=${chats.isRunning(conversation)} onClick=${() => setEditing(true)}>Edit</button>`}
        <${Figures} message=${message} />
      </div>`}
    </article>
  `;
}

function Failure({ message: { error, hint } }) {
  return html`<div class="problem" role="alert">
    <p>${error}</p>
    ${hint && html`<p class="hint">${hint}</p>`}
  </div>`;
}

function Waiting() {
  const status = useStore(serverStatus);
  if (isComing(status)) return html`<${Loading} status=${status} />`;
  return html`<${Reading} />`;
}

function Reading() {
  const [since, setSince] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSince((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<p class="waiting"><i aria-hidden="true"></i>${since > 1 ? `reading the prompt, ${since} s` : ""}</p>`;
}

function Thinking({ message }) {
  const thinking = message.state === "thinking";
  const label = thinking ? "Thinking …" : message.thought_s ? `Thought for ${seconds(message.thought_s)}` : "Thinking";
  return html`<details class="thinking">
    <summary>${label}</summary>
    <div class="prose">${message.reasoning.trim()}</div>
  </details>`;
}

function Text({ text }) {
  return html`<div class="markdown" onClick=${copyCode}>${blocks(text).map((block, i) => html`<${Block} key=${i} block=${block} />`)}</div>`;
}

/** Drawn again only when its HTML is another one, so a selection in a finished block stays. */
function Block({ block }) {
  return html`<div dangerouslySetInnerHTML=${{ __html: block }}></div>`;
}

function copyCode(event) {
  const button = event.target.closest(".code-copy");
  if (button) copyWith(button, button.closest(".code").querySelector("code").textContent);
}

function Figures({ message }) {
  const { figures, state, finish, edited } = message;
  const parts = [];
  if (state === "stopped") parts.push("stopped");
  if (finish === "length") parts.push("cut at the limit of tokens");
  if (edited) parts.push("edited");
  if (figures?.tokens) parts.push(plural(figures.tokens, "token"));
  if (figures?.rate) parts.push(`${number(figures.rate, 1)} tok/s`);
  if (figures?.first_s) parts.push(`first after ${seconds(figures.first_s)}`);
  if (figures?.cached) parts.push(`${number(figures.cached)} of ${number(figures.prompt)} read before`);
  if (figures?.drafted) parts.push(`${number(figures.accepted)} of ${number(figures.drafted)} drafts right`);
  return html`<span class="figures">${parts.map((part) => html`<span>${part}</span>`)}</span>`;
}
