// Where the server is reached, how it is set and why, and how other programs use it.

import { access, address } from "../api.js";
import { html } from "../html.js";
import { copyWith } from "../lib/clipboard.js";
import { number, plural } from "../lib/format.js";
import { Models } from "../models.js";
import { usePoller } from "../poller.js";
import { serverStatus, troubleOf } from "../server_status.js";
import { useId, useState } from "../vendor/hooks.js";
import { snippets } from "./snippets.js";

const PLACES = [
  ["v1", "OpenAI's API: chat/completions, completions, responses, models"],
  ["v1/messages", "Anthropic's API (its clients want the address without /v1)"],
  ["v1/status", "everything that the monitor shows, as JSON"],
  ["metrics", "Prometheus"],
  ["health", "200 when requests are taken; needs no key"],
];

export function AboutPage() {
  const status = usePoller(serverStatus);
  const { value } = status;
  const trouble = troubleOf(status);
  return html`
    <div class="page about">
      <h1>${value?.model ?? "Strata"}</h1>
      ${trouble && html`<p class="problem" role="alert">${trouble}</p>`}
      ${value && html`<p class="hint">${facts(value)}</p>`}
      <div class="panels">
        <${Addresses} />
        ${value && html`<${Models} value=${value} />`}
        <${Clients} model=${value?.model ?? "default"} />
        <${Settings} plan=${value?.engine?.plan} />
      </div>
      <p class="hint foot">
        Strata ${value?.version ?? ""}, Apache-2.0. This page uses Preact and marked (MIT), htm and DOMPurify (Apache-2.0).
      </p>
    </div>
  `;
}

function facts({ context, restarts, concurrency, info }) {
  const found = [`on ${(info.device ?? "cpu").toUpperCase()}`];
  if (context) found.push(`${number(context)} tokens of context`);
  if (concurrency) found.push(plural(concurrency.serving, "slot"));
  if (restarts) found.push(`the engine was restarted ${plural(restarts, "time")}`);
  return found.join(", ");
}

function Addresses() {
  return html`
    <section class="panel" aria-labelledby="addresses-title">
      <h2 id="addresses-title">Addresses</h2>
      <ul class="addresses">
        ${PLACES.map(
          ([path, what]) => html`<li>
            <code>${address(path)}</code>
            <button class="quiet" aria-label=${`Copy ${address(path)}`} onClick=${(event) => copyWith(event.target, address(path))}>Copy</button>
            <span class="unit">${what}</span>
          </li>`,
        )}
      </ul>
    </section>
  `;
}

function Clients({ model }) {
  const base = address("v1");
  const all = snippets({ base, root: base.slice(0, -"/v1".length), model, key: access.known ? "YOUR-KEY" : "" });
  const names = Object.keys(all);
  const [name, setName] = useState(names[0]);
  const id = useId();
  return html`
    <section class="panel" aria-labelledby="clients-title">
      <h2 id="clients-title">Clients</h2>
      <label for=${id}>For</label>
      <select id=${id} class="client" value=${name} onChange=${(event) => setName(event.target.value)}>
        ${names.map((one) => html`<option>${one}</option>`)}
      </select>
      <div class="code">
        <div class="code-head">
          <span>${name}</span>
          <button class="quiet" onClick=${(event) => copyWith(event.target, all[name])}>Copy</button>
        </div>
        <pre tabindex="0" role="region" aria-label=${`${name} snippet`}><code>${all[name]}</code></pre>
      </div>
    </section>
  `;
}

function Settings({ plan }) {
  if (!plan) return "";
  return html`
    <section class="panel whole" aria-labelledby="settings-title">
      <h2 id="settings-title">Settings, and why</h2>
      <table class="plan">
        <thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">Reason</th></tr></thead>
        <tbody>
          ${Object.entries(plan).map(
            ([name, { value, reason }]) => html`<tr>
              <th scope="row">${name.replaceAll("_", " ")}</th>
              <td>${typeof value === "number" ? number(value, 2) : String(value)}</td>
              <td>${reason}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </section>
  `;
}
