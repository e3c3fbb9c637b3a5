// A conversation as a file.

/** Markdown for people; thinking is folded. */
export function toMarkdown({ title, settings, messages }) {
  const parts = [`# ${title}`];
  if (settings?.system?.trim()) parts.push(`## System\n\n${settings.system.trim()}`);
  for (const { role, content, reasoning } of messages) {
    const thought = reasoning ? `<details><summary>Thinking</summary>\n\n${reasoning.trim()}\n\n</details>\n\n` : "";
    parts.push(`## ${role === "user" ? "You" : "Assistant"}\n\n${thought}${content.trim()}`);
  }
  return `${parts.join("\n\n")}\n`;
}

export function toJson(conversation) {
  const { title, created, updated, settings, messages } = conversation;
  return `${JSON.stringify({ strata_conversation: 1, title, created, updated, settings, messages }, null, 2)}\n`;
}

/** A conversation from a file that `toJson` wrote; throws an Error with one sentence otherwise. */
export function fromJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  const whole = value?.strata_conversation === 1 && Array.isArray(value.messages);
  const turns = whole && value.messages.every((m) => ["user", "assistant"].includes(m?.role) && typeof m.content === "string");
  if (!turns) throw new Error("This file is not a conversation that was exported here.");
  const now = Date.now();
  return {
    title: String(value.title ?? "Imported"),
    created: Number(value.created) || now,
    updated: now,
    settings: typeof value.settings === "object" && value.settings ? value.settings : {},
    messages: value.messages,
  };
}

/** A file name from a title. */
export function fileName(title, ending) {
  const words = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return `${words || "conversation"}.${ending}`;
}

/** Let the browser save `text`. */
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
