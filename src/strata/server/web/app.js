// The frame around the three pages: navigation by the address's fragment, the server's state, the theme, the key.

import { html, useStore } from "./html.js";
import { render } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useState } from "./vendor/hooks.js";
import { AboutPage } from "./about/about.js";
import { access } from "./api.js";
import { ChatPage } from "./chat/chat.js";
import { chats } from "./chat/chats.js";
import { KeyDialog } from "./key_dialog.js";
import { MonitorPage } from "./monitor/monitor.js";
import { isComing, percentOf, serverStatus, troubleOf } from "./server_status.js";
import { THEMES, setTheme, theme } from "./theme.js";

const PAGES = {
  chat: { label: "Chat", page: ChatPage },
  monitor: { label: "Monitor", page: MonitorPage },
  about: { label: "About", page: AboutPage },
};

function pageName() {
  const name = location.hash.replace(/^#\/?/, "");
  return name in PAGES ? name : "chat";
}

function App() {
  const [name, setName] = useState(pageName());
  useStore(access);
  useLayoutEffect(() => {
    const follow = () => setName(pageName());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  useEffect(() => {
    document.title = name === "chat" ? "Strata" : `${PAGES[name].label} – Strata`;
  }, [name]);
  const { page: Page } = PAGES[name];
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="bar">
      <span class="brand"><i aria-hidden="true"></i>Strata</span>
      <nav aria-label="Pages">
        ${Object.entries(PAGES).map(
          ([key, { label }]) => html`<a href=${`#/${key}`} aria-current=${key === name ? "page" : null}>${label}</a>`,
        )}
      </nav>
      <${State} />
      <${ThemeButton} />
    </header>
    <main id="main" tabindex="-1"><${Page} /></main>
    ${access.wanted && html`<${KeyDialog} />`}
  `;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function State() {
  const { value } = useStore(serverStatus);
  const trouble = troubleOf(serverStatus);
  const coming = isComing(serverStatus);
  useEffect(() => (coming ? serverStatus.watch() : undefined), [coming]);
  const state = trouble ? "trouble" : value && !coming ? "ready" : "starting";
  const text = trouble || (coming ? comingText(serverStatus) : value ? value.model : "connecting …");
  return html`<span class=${`server-state ${state}`} role="status" title=${text}>
    <span class="visually-hidden">${state === "ready" ? "Model: " : "Server: "}</span><span>${text}</span>
  </span>`;
}

function comingText(status) {
  const percent = percentOf(status);
  return `${status.value.state}${percent === null ? " …" : ` ${Math.round(percent)}%`}`;
}

function ThemeButton() {
  const [name, setName] = useState(theme());
  const next = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
  const turn = () => {
    setTheme(next);
    setName(next);
  };
  const sign = { system: "◐", light: "○", dark: "●" }[name];
  return html`<button class="quiet icon" onClick=${turn} title=${`Theme: ${name}`} aria-label=${`Theme: ${name}`}>${sign}</button>`;
}

setTheme(theme());
serverStatus.start();
chats.load();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
