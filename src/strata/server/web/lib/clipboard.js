// Copying, also where the page came over plain HTTP from another machine and browsers hide their clipboard.

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text });
  area.setAttribute("aria-hidden", "true");
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  const held = document.activeElement;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  held?.focus();
  if (!done) throw new Error("The browser did not copy.");
  return undefined;
}

/** Copy, and let `button` say so for a moment. */
export async function copyWith(button, text) {
  const label = button.textContent;
  try {
    await copy(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => {
    button.textContent = label;
  }, 1500);
}
