// The chat page: conversations beside the one that is shown, and its settings.

import { html, useStore } from "../html.js";
import { useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";
import { Composer } from "./composer.js";
import { Conversations } from "./conversations.js";
import { Messages } from "./messages.js";
import { Settings } from "./settings.js";
import { TitleBar } from "./title_bar.js";

export function ChatPage() {
  useStore(chats);
  const [side, setSide] = useState("");
  const conversation = chats.current;
  const open = useRef();
  open.current = side;
  useLayoutEffect(() => { // with what is shown: a key pressed at once is heard
    const keys = (event) => onKey(event, open.current, setSide);
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  if (!conversation) return html`<p class="empty">Reading what this browser keeps …</p>`;
  const toggle = (name) => setSide(side === name ? "" : name);
  return html`
    <div class="chat" data-side=${side}>
      <${Conversations} close=${() => setSide("")} />
      <section class="talk" aria-label="Conversation">
        <${TitleBar} conversation=${conversation} side=${side} toggle=${toggle} />
        <${Messages} key=${conversation.id} conversation=${conversation} />
        <${Composer} conversation=${conversation} />
      </section>
      ${side === "settings" && html`<${Settings} conversation=${conversation} close=${() => setSide("")} />`}
      ${side && html`<div class="shade" onClick=${() => setSide("")}></div>`}
    </div>
  `;
}

function onKey(event, side, setSide) {
  if (document.querySelector("dialog[open]")) return;
  const question = document.getElementById("question");
  if (event.key === "Escape") {
    if (side) setSide("");
    else chats.stop(chats.current?.id);
  } else if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    chats.begin();
    question?.focus();
  } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    question?.focus();
  } else if (event.altKey && event.code === "KeyS") {
    event.preventDefault();
    setSide(side === "settings" ? "" : "settings");
  }
}
