// Where the next message is written.

import { html, useStore } from "../html.js";
import { number } from "../lib/format.js";
import { serverStatus } from "../server_status.js";
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";

const drafts = new Map();
/** Unsent text by conversation. */

export function Composer({ conversation }) {
  const area = useRef();
  const [text, setText] = useState("");
  const running = chats.isRunning(conversation);
  useEffect(() => {
    setText(drafts.get(conversation.id) ?? "");
    if (matchMedia("(pointer: fine)").matches) area.current.focus();
  }, [conversation.id]);
  useLayoutEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight + 2}px`;
  }, [text]);
  const change = (value) => {
    drafts.set(conversation.id, value);
    setText(value);
  };
  const send = () => {
    if (running || !text.trim()) return;
    chats.send(conversation, text.trim());
    change("");
  };
  const keys = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !text && conversation.messages.length) {
      event.preventDefault();
      [...document.querySelectorAll("li.user .edit")].at(-1)?.click();
    }
  };
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  return html`
    <form class="composer" onSubmit=${submit}>
      <textarea id="question" ref=${area} rows="1" placeholder="Message" aria-label="Message" aria-describedby="composer-hint"
        value=${text} onInput=${(event) => change(event.target.value)} onKeyDown=${keys}></textarea>
      ${running
        ? html`<button type="button" class="stop" onClick=${() => chats.stop(conversation.id)} title="Escape">Stop</button>`
        : html`<button class="primary" disabled=${!text.trim()}>Send</button>`}
      <p id="composer-hint" class="hint">
        <span class="only-wide">Enter sends, Shift+Enter breaks the line, Esc stops, ↑ edits the last message, / comes here</span>
        <${Fill} conversation=${conversation} />
      </p>
    </form>
  `;
}

/** How much of the context the conversation takes. */
function Fill({ conversation }) {
  const context = useStore(serverStatus).value?.context;
  const counts = conversation.messages.findLast(({ figures }) => figures?.tokens)?.figures;
  if (!counts || !context) return "";
  return html`<span>${number(counts.prompt + counts.tokens)} of ${number(context)} tokens</span>`;
}
