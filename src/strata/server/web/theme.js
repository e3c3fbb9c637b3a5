// Dark or light: the system's choice until somebody makes another one here.

import { recall, remember } from "./lib/storage.js";

export const THEMES = ["system", "light", "dark"];

export function theme() {
  const chosen = recall("theme");
  return THEMES.includes(chosen) ? chosen : "system";
}

export function setTheme(name) {
  remember("theme", name === "system" ? null : name);
  document.documentElement.dataset.theme = name;
  document.dispatchEvent(new Event("themechange"));
}
