// What can be done with the conversation that is shown.

import { html } from "../html.js";
import { fileName, save, toJson, toMarkdown } from "../lib/export.js";
import { numSet } from "../lib/settings.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";
import { ModelPicker } from "./model_picker.js";

export function TitleBar({ conversation, side, toggle }) {
  const count = numSet(conversation.settings);
  const empty = !conversation.messages.length;
  return html`
    <div class="title-bar">
      <button class="quiet icon only-narrow" onClick=${() => toggle("list")} aria-expanded=${side === "list"} aria-label="Conversations">☰</button>
      <${Title} conversation=${conversation} />
      <${ModelPicker} conversation=${conversation} />
      <span class="tools">
        ${!empty && html`<${Menu} key=${conversation.id} conversation=${conversation} />`}
        <button class="quiet" onClick=${() => toggle("settings")} aria-expanded=${side === "settings"} title="Alt+S">
          Settings${count ? html` <span class="count" aria-label=${`${count} set`}>${count}</span>` : ""}
        </button>
      </span>
    </div>
  `;
}

function Title({ conversation }) {
  const take = (event) => chats.rename(conversation, event.target.value);
  const keys = (event) => {
    if (event.key === "Enter") event.target.blur();
  };
  return html`<h1 class="title">
    <input key=${conversation.id} aria-label="Title of the conversation" value=${conversation.title} onChange=${take} onKeyDown=${keys} />
  </h1>`;
}

function Menu({ conversation }) {
  const [open, setOpen] = useState(false);
  const [sure, setSure] = useState(false);
  const box = useRef();
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => box.current?.contains(event.target) || setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  const toggle = () => {
    setOpen(!open);
    setSure(false);
  };
  const close = (event) => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    box.current.querySelector("button").focus();
  };
  const write = (ending, type, text) => () => {
    save(fileName(conversation.title, ending), text(conversation), type);
    setOpen(false);
  };
  return html`
    <span class="menu" ref=${box} onKeyDown=${close}>
      <button class="quiet" aria-expanded=${open} onClick=${toggle}>More</button>
      ${open &&
      html`<span class="sheet">
        <button class="quiet" onClick=${write("md", "text/markdown", toMarkdown)}>Export as Markdown</button>
        <button class="quiet" onClick=${write("json", "application/json", toJson)}>Export as JSON</button>
        ${sure
          ? html`<button class="quiet danger" onClick=${() => chats.drop(conversation.id)}>Delete for good</button>`
          : html`<button class="quiet" onClick=${() => setSure(true)}>Delete …</button>`}
      </span>`}
    </span>
  `;
}
