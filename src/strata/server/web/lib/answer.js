// From the events of a stream to a message.

export function emptyAnswer() {
  return { role: "assistant", content: "", reasoning: "", state: "waiting", figures: null };
}

/** Add one chunk of /v1/chat/completions; `elapsed_s` since the request was sent. */
export function addChunk(answer, chunk, elapsed_s) {
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content ?? "";
  const thought = choice?.delta?.reasoning_content ?? "";
  if (text || thought) {
    answer.first_s ??= elapsed_s;
    answer.content += text;
    answer.reasoning += thought;
    if (text) answer.thought_s ??= answer.reasoning ? elapsed_s : undefined;
    answer.state = text || answer.content ? "writing" : "thinking";
  }
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  if (chunk.timings || chunk.usage) {
    answer.figures = { ...answer.figures, ...figures(chunk), first_s: answer.first_s };
  }
}

function figures({ timings, usage }) {
  const found = {};
  if (timings) {
    found.rate = timings.predicted_per_second;
    found.drafted = timings.draft_n;
    found.accepted = timings.draft_n_accepted;
  }
  if (usage) {
    found.prompt = usage.prompt_tokens;
    found.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    found.tokens = usage.completion_tokens;
  }
  return found;
}

/** What is left of an answer that a closed page cut short. */
export function settle(message) {
  return ["waiting", "thinking", "writing"].includes(message.state) ? { ...message, state: "stopped" } : message;
}
