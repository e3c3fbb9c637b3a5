// What stays in this browser: conversations in IndexedDB, small choices in localStorage. Names carry the page's path, so
// that two servers behind one proxy keep theirs apart.

const SPACE = `strata:${new URL(".", document.baseURI).pathname}`;
const TABLE = "conversations";

/** A small choice; null takes it back. Private windows may refuse: then it lasts as long as the page. */
export function remember(name, value, store = localStorage) {
  try {
    if (value === null) store.removeItem(`${SPACE}:${name}`);
    else store.setItem(`${SPACE}:${name}`, value);
  } catch {
    // nothing to do about it
  }
}

export function recall(name, store = localStorage) {
  try {
    return store.getItem(`${SPACE}:${name}`);
  } catch {
    return null;
  }
}

let opened;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const asked = indexedDB.open(SPACE, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(TABLE, { keyPath: "id" });
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  return opened;
}

async function run(mode, work) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(TABLE, mode);
    const asked = work(transaction.objectStore(TABLE));
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

export const allConversations = () => run("readonly", (table) => table.getAll());
export const putConversation = (conversation) => run("readwrite", (table) => table.put(conversation));
export const dropConversation = (id) => run("readwrite", (table) => table.delete(id));
