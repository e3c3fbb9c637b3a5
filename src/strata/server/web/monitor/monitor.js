// What the server is doing now.

import { html } from "../html.js";
import { Loading } from "../loading.js";
import { Models } from "../models.js";
import { usePoller } from "../poller.js";
import { isComing, serverStatus, troubleOf } from "../server_status.js";
import { Drafts } from "./drafts.js";
import { Experts } from "./experts.js";
import { Kept } from "./kept.js";
import { Memory } from "./memory.js";
import { Slots } from "./slots.js";
import { Speed } from "./speed.js";
import { Stages } from "./stages.js";

export function MonitorPage() {
  const status = usePoller(serverStatus);
  const { engine, concurrency, memory, info } = status.value ?? {};
  const trouble = troubleOf(status);
  return html`
    <div class="page monitor">
      <h1 class="visually-hidden">Monitor</h1>
      ${trouble && html`<p class="problem" role="alert">${trouble}</p>`}
      ${isComing(status) && html`<${Loading} status=${status} />`}
      ${!engine && !trouble && !isComing(status) && html`<p class="empty">${status.value ? "No model is loaded." : "Asking …"}</p>`}
      ${engine &&
      html`
        <${Speed} engine=${engine} concurrency=${concurrency} />
        <div class="panels">
          <${Slots} engine=${engine} />
          <${Memory} memory=${memory} device=${info.device ?? "cpu"} />
          <${Experts} />
          <${Drafts} engine=${engine} />
          <${Kept} engine=${engine} />
          <${Stages} engine=${engine} />
        </div>
      `}
      ${status.value && (!engine || status.value.models.length > 1) && html`<div class="panels"><${Models} value=${status.value} /></div>`}
    </div>
  `;
}
