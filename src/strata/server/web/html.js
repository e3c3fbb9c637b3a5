// Markup in template strings, and a component that follows a store.

import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";
import { useLayoutEffect, useReducer } from "./vendor/hooks.js";

export const html = htm.bind(h);

/** Draw the component again whenever `store` says that it changed. */
export function useStore(store) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const drawn = store.version;
  useLayoutEffect(() => {
    if (store.version !== drawn) redraw(); // it changed between the drawing and now
    return store.subscribe(redraw);
  }, [store]);
  return store;
}
