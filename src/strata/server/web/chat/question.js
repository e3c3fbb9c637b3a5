// A message of the user's, which can be changed: then the conversation goes on from there.

import { html } from "../html.js";
import { copyWith } from "../lib/clipboard.js";
import { useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";
import { Editor } from "./editor.js";

export function Question({ conversation, message, index }) {
  const [editing, setEditing] = useState(false);
  if (editing) {
    const take = (text) => {
      setEditing(false);
      chats.edit(conversation, index, text);
    };
    return html`<${Editor} text=${message.content} label="Your message" send="Send" take=${take} leave=${() => setEditing(false)} />`;
  }
  return html`
    <article>
      <h2 class="visually-hidden">You</h2>
      <p class="said">${message.content}</p>
      <div class="actions">
        <button class="quiet" onClick=${(event) => copyWith(event.target, message.content)}>Copy</button>
        <button class="quiet edit" disabled=${chats.isRunning(conversation)} onClick=${() => setEditing(true)}>Edit</button>
      </div>
    </article>
  `;
}
