// A canvas that is as sharp as its screen, drawn again when its size, the theme or the data changes.

import { html } from "../html.js";
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";

/** `draw(context, width, height, colour)` in CSS pixels; `label` says the same in words. */
export function Canvas({ draw, label, height, ...more }) {
  const canvas = useRef();
  const [, redraw] = useState(0);
  useEffect(() => {
    const again = () => redraw((count) => count + 1);
    const sizes = new ResizeObserver(again);
    sizes.observe(canvas.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", again);
    document.addEventListener("themechange", again);
    return () => {
      sizes.disconnect();
      dark.removeEventListener("change", again);
      document.removeEventListener("themechange", again);
    };
  }, []);
  useLayoutEffect(() => {
    const { clientWidth } = canvas.current;
    const scale = devicePixelRatio || 1;
    canvas.current.width = Math.round(clientWidth * scale);
    canvas.current.height = Math.round(height * scale);
    const context = canvas.current.getContext("2d");
    context.scale(scale, scale);
    draw(context, clientWidth, height, (name) => colour(canvas.current, name));
  });
  return html`<canvas ref=${canvas} role="img" aria-label=${label} style=${{ height: `${height}px` }} ...${more}></canvas>`;
}

/** A colour of the stylesheet as it is now. */
function colour(element, name) {
  element.style.color = `var(--${name})`;
  return getComputedStyle(element).color;
}
