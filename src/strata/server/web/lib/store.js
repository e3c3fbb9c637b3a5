// Something that components follow.

export class Store {
  #listeners = new Set();
  /** Counts the changes. */
  version = 0;

  /** Call `listener` after each change; returns what ends that. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed() {
    this.version += 1;
    for (const listener of this.#listeners) listener();
  }
}
