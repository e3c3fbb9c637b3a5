// What somebody can do about an error, beside what the server says of it.

const BY_CODE = {
  context_length_exceeded: "Begin a new conversation, shorten a message, or ask for fewer tokens in the settings.",
  deadline_exceeded: "It waited too long. Try again when fewer requests are under way.",
  engine_failed: "Retry; if it fails again, the server's log says more.",
  model_not_found: "The about page says which models there are.",
};

const BY_STATUS = {
  0: "Is it still running, and can this device reach it? What was written stays here.",
  401: "The server wants another key.",
  403: "Start the server with --allow-origin and this page's address.",
  413: "Shorten the message, or start the server with a larger --body-mib.",
  429: "Everybody is waiting. Try again in a moment.",
  503: "Try again in a moment.",
};

/** One sentence; empty where the message says enough. */
export function hintOf({ status, code, message = "" }) {
  if (status === 403 && !message.startsWith("Origin")) return "";
  return BY_CODE[code] ?? BY_STATUS[status] ?? "";
}
