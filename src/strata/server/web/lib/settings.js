// What a conversation asks of the model besides its messages. An empty field asks for nothing: the server's value holds.

export const FIELDS = [
  { name: "temperature", label: "Temperature", step: 0.05, min: 0, max: 5, help: "0 always takes the likeliest token." },
  { name: "top_p", label: "Top p", step: 0.01, min: 0, max: 1, help: "Of the likeliest tokens, those that make up this share." },
  { name: "top_k", label: "Top k", step: 1, min: 0, help: "So many of the likeliest tokens; 0 is all." },
  { name: "min_p", label: "Min p", step: 0.01, min: 0, max: 1, help: "Tokens at least so likely, compared to the likeliest." },
  { name: "repeat_penalty", label: "Repeat penalty", step: 0.05, min: 0.05, help: "Over 1 makes repetition less likely." },
  { name: "presence_penalty", label: "Presence penalty", step: 0.1, min: -2, max: 2, help: "For tokens that were there at all." },
  { name: "frequency_penalty", label: "Frequency penalty", step: 0.1, min: -2, max: 2, help: "For each time that a token was there." },
  { name: "max_tokens", label: "Most tokens", step: 1, min: 1, help: "Of an answer; thinking counts." },
  { name: "seed", label: "Seed", step: 1, min: 0, help: "The same seed gives the same answer." },
];

export const EFFORTS = ["none", "low", "medium", "high"];

/** A number, or undefined for an empty field. */
export function numberOf(text) {
  const trimmed = String(text ?? "").trim();
  return trimmed === "" || Number.isNaN(Number(trimmed)) ? undefined : Number(trimmed);
}

/** The body of the request for the next answer; `settings` as the drawer keeps them, `model` null for the usual one. */
export function requestBody(settings, messages, model = null) {
  const body = { messages: [], stream: true, stream_options: { include_usage: true } };
  if (model !== null) body.model = model;
  if (settings.system?.trim()) body.messages.push({ role: "system", content: settings.system });
  for (const { role, content } of messages) body.messages.push({ role, content });
  for (const { name } of FIELDS) {
    const value = numberOf(settings[name]);
    if (value !== undefined) body[name] = value;
  }
  const stops = (settings.stop ?? "").split("\n").filter(Boolean);
  if (stops.length) body.stop = stops.map((stop) => stop.replaceAll("\\n", "\n"));
  if (settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  return body;
}

/** How many settings differ from the server's. */
export function numSet(settings) {
  const names = [...FIELDS.map((field) => field.name), "stop", "reasoning_effort", "system"];
  return names.filter((name) => String(settings[name] ?? "").trim() !== "").length;
}
