// Something that components follow.

export class Store {
  #listeners = new Set();

  /** Call `listener` after each change; returns what ends that. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed() {
    for (const listener of this.#listeners) listener();
  }
}
