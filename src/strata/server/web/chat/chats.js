// All conversations, the one that is shown, and the answers under way. Answers go on while another page is shown.

import { ApiError, streamChat } from "../api.js";
import { addChunk, emptyAnswer, settle } from "../lib/answer.js";
import { hintOf } from "../lib/hints.js";
import { requestBody } from "../lib/settings.js";
import { allConversations, dropConversation, putConversation, recall, remember } from "../lib/storage.js";
import { Store } from "../lib/store.js";
import { modelOf, serverStatus, untilTaken } from "../server_status.js";

const LONGEST_TITLE = 60;
const SAVE_EVERY_MS = 2000;

export class Chats extends Store {
  list = [];
  current = null;
  /** Why history is not kept, if it is not. */
  trouble = "";
  #running = new Map();
  #frame = null;
  #saved = new Map();

  async load() {
    try {
      this.list = (await allConversations()).sort((a, b) => b.updated - a.updated);
    } catch (error) {
      this.trouble = `This browser keeps no history here (${error.message}).`;
    }
    for (const one of this.list) one.messages = one.messages.map(settle);
    this.current = this.list.find(({ id }) => id === recall("current")) ?? null;
    if (!this.current) this.begin();
    this.changed();
  }

  /** A new conversation with the last one's settings; an empty one is taken again. */
  begin() {
    const empty = this.list.find(({ messages }) => !messages.length);
    if (empty) return this.open(empty.id);
    const now = Date.now();
    const settings = { ...this.current?.settings };
    const { model } = this.current ?? {};
    const fresh = { id: newId(), title: "New conversation", created: now, updated: now, model, settings, messages: [] };
    this.list.unshift(fresh);
    return this.open(fresh.id);
  }

  open(id) {
    this.current = this.list.find((one) => one.id === id);
    remember("current", id);
    this.changed();
  }

  add(conversation) {
    this.list.unshift({ ...conversation, id: newId(), messages: conversation.messages.map(settle) });
    this.save(this.list[0]);
    this.open(this.list[0].id);
  }

  async drop(id) {
    this.stop(id);
    this.list = this.list.filter((one) => one.id !== id);
    if (this.current?.id === id) {
      this.current = this.list[0] ?? null;
      if (!this.current) this.begin();
    }
    this.changed();
    await dropConversation(id).catch(() => {});
  }

  rename(conversation, title) {
    conversation.title = title.trim().slice(0, 200) || conversation.title;
    conversation.named = true;
    this.save(conversation);
  }

  setting(conversation, name, value) {
    conversation.settings = { ...conversation.settings, [name]: value };
    this.save(conversation);
  }

  /** Have the model of that name write the next answers. */
  choose(conversation, model) {
    conversation.model = model;
    this.save(conversation);
  }

  isRunning(conversation) {
    return this.#running.has(conversation?.id);
  }

  stop(id) {
    this.#running.get(id)?.abort();
  }

  /** Say `text` and have it answered. */
  send(conversation, text) {
    if (!conversation.messages.length && !conversation.named) conversation.title = titleOf(text);
    conversation.messages.push({ role: "user", content: text });
    return this.#answer(conversation);
  }

  /** Say something else in message `index`, and go on from there. */
  edit(conversation, index, text) {
    const message = conversation.messages[index];
    if (message.role === "assistant") {
      conversation.messages[index] = { ...message, content: text, edited: true };
      this.save(conversation);
      return undefined;
    }
    conversation.messages = conversation.messages.slice(0, index);
    return this.send(conversation, text);
  }

  /** Have message `index`, an answer, written anew. */
  retry(conversation, index) {
    conversation.messages = conversation.messages.slice(0, index);
    return this.#answer(conversation);
  }

  async #answer(conversation) {
    const stopper = new AbortController();
    const answer = emptyAnswer();
    const model = modelOf(conversation, serverStatus.value);
    const body = requestBody(conversation.settings, conversation.messages, model);
    conversation.messages.push(answer);
    this.#running.set(conversation.id, stopper);
    this.save(conversation);
    // The request may load its model: how far that is comes from the status.
    const unwatch = model === null ? () => {} : serverStatus.watch();
    try {
      await untilTaken(stopper.signal);
      const began = performance.now();
      for await (const chunk of streamChat(body, stopper.signal)) {
        addChunk(answer, chunk, (performance.now() - began) / 1000);
        this.#progress(conversation);
      }
      answer.state = "done";
    } catch (error) {
      answer.state = error.name === "AbortError" ? "stopped" : "failed";
      if (answer.state === "failed") {
        answer.error = error instanceof ApiError ? error.message : String(error);
        answer.hint = hintOf(error);
      }
    }
    unwatch();
    this.#running.delete(conversation.id);
    this.save(conversation);
  }

  #progress(conversation) {
    const now = Date.now();
    if (now - (this.#saved.get(conversation.id) ?? 0) > SAVE_EVERY_MS) this.save(conversation);
    else this.#drawSoon();
  }

  /** With the next frame: an answer may grow faster than a screen shows it, and reading markdown takes its time. */
  #drawSoon() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.changed();
    });
  }

  save(conversation) {
    conversation.updated = Date.now();
    this.#saved.set(conversation.id, conversation.updated);
    this.list.sort((a, b) => b.updated - a.updated);
    if (conversation.messages.length) {
      putConversation(conversation).catch((error) => {
        this.trouble = `History could not be kept (${error.message}).`;
        this.changed();
      });
    }
    this.changed();
  }
}

function titleOf(text) {
  const line = text.trim().split("\n")[0];
  return line.length > LONGEST_TITLE ? `${line.slice(0, LONGEST_TITLE).trimEnd()}…` : line;
}

/** crypto.randomUUID is there over HTTPS and on this machine only. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join("-");
}

export const chats = new Chats();
