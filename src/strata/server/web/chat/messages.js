// The messages of a conversation. The view follows a growing answer as long as its end is in sight.

import { html, useStore } from "../html.js";
import { Loading } from "../loading.js";
import { isComing, modelOf, serverStatus } from "../server_status.js";
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { chats } from "./chats.js";
import { Answer } from "./answer.js";
import { Question } from "./question.js";

const NEAR_PX = 60;
const IDEAS = ["What is the capital of France?", "What is 17 times 23?", "Tell me a short story about a dog."];

export function Messages({ conversation }) {
  const box = useRef();
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const scrolled = () => {
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    setAway(!follows.current);
  };
  const toEnd = () => {
    box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  });
  const { messages } = conversation;
  return html`
    <div class="messages" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label="Messages">
      ${!messages.length && html`<${Start} conversation=${conversation} />`}
      <ol>
        ${messages.map(
          (message, index) =>
            html`<li key=${index} class=${message.role}>
              ${message.role === "user"
                ? html`<${Question} conversation=${conversation} message=${message} index=${index} />`
                : html`<${Answer} conversation=${conversation} message=${message} index=${index} last=${index === messages.length - 1} />`}
            </li>`,
        )}
      </ol>
      ${away && html`<button class="to-end" onClick=${toEnd}>To the end</button>`}
    </div>
    <${Announcer} message=${messages.at(-1)} />
  `;
}

function Start({ conversation }) {
  const status = useStore(serverStatus);
  const model = modelOf(conversation, status.value) ?? status.value?.model;
  return html`<div class="start">
    <h2>${model ? html`Ask <b>${model}</b>` : "Ask something"}</h2>
    ${isComing(status) && html`<${Loading} status=${status} />`}
    <p>Write below, or begin with one of these. Everything stays between this browser and your server.</p>
    <ul>
      ${IDEAS.map((idea) => html`<li><button onClick=${() => chats.send(conversation, idea)}>${idea}</button></li>`)}
    </ul>
  </div>`;
}

/** For screen readers: that an answer is being written, and then the answer, once. */
function Announcer({ message }) {
  const [text, setText] = useState("");
  const before = useRef(message?.state);
  const state = message?.state;
  useEffect(() => {
    const news = { waiting: "Answer under way", done: message?.content, stopped: "Answer stopped", failed: message?.error };
    if (state !== before.current && state in news) setText(news[state] ?? "");
    before.current = state;
  }, [state]);
  return html`<div class="visually-hidden" role="status">${text}</div>`;
}
