// A message being changed.

import { html } from "../html.js";
import { useLayoutEffect, useRef } from "../vendor/hooks.js";

export function Editor({ text, label, send, take, leave }) {
  const area = useRef();
  // Before anybody can type: a caret that moves later would put the end of the old text before what was typed first.
  useLayoutEffect(() => {
    area.current.focus();
    area.current.setSelectionRange(text.length, text.length);
  }, []);
  const save = () => {
    const said = area.current.value.trim();
    if (said) take(said);
  };
  const keys = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      leave();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
  };
  return html`
    <div class="editor">
      <textarea ref=${area} aria-label=${label} rows=${Math.min(12, text.split("\n").length + 1)} onKeyDown=${keys}>${text}</textarea>
      <div class="actions">
        <button class="primary" onClick=${save} title="Ctrl+Enter">${send}</button>
        <button onClick=${leave} title="Escape">Cancel</button>
      </div>
    </div>
  `;
}
