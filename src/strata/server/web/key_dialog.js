// Asks for the API key when the server wants one.

import { access } from "./api.js";
import { html } from "./html.js";
import { useEffect, useRef } from "./vendor/hooks.js";

export function KeyDialog() {
  const dialog = useRef();
  useEffect(() => dialog.current.showModal(), []);
  const take = (event) => {
    event.preventDefault();
    const { key, keep } = event.target.elements;
    if (key.value) access.set(key.value, keep.checked);
  };
  return html`
    <dialog ref=${dialog} class="key" aria-labelledby="key-title" onCancel=${(event) => event.preventDefault()}>
      <form onSubmit=${take}>
        <h2 id="key-title">API key</h2>
        <p id="key-why">
          ${access.refused ? "The server refused this key." : "This server was started with --api-key. Its key opens this page."}
        </p>
        <label for="key">Key</label>
        <input id="key" name="key" type="password" autocomplete="current-password" required aria-describedby="key-why" />
        <label class="check"><input name="keep" type="checkbox" /> Keep it in this browser</label>
        <div class="actions"><button class="primary">Open</button></div>
      </form>
    </dialog>
  `;
}
