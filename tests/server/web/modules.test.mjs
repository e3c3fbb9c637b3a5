// The modules of the web app that need no page: node --test modules.test.mjs

import assert from "node:assert/strict";
import { test } from "node:test";

const LIB = new URL("../../../src/strata/server/web/lib/", import.meta.url);
const { addChunk, emptyAnswer, settle } = await import(new URL("answer.js", LIB));
const { fileName, fromJson, toJson, toMarkdown } = await import(new URL("export.js", LIB));
const { ago, bytes, number, percent, plural, seconds } = await import(new URL("format.js", LIB));
const { hintOf } = await import(new URL("hints.js", LIB));
const { numSet, numberOf, requestBody } = await import(new URL("settings.js", LIB));
const { EventReader, events } = await import(new URL("sse.js", LIB));

const STREAM = 'data: {"a":1}\n\n: keep-alive\n\ndata: {"text":"é漢😀"}\r\n\r\ndata: two\ndata: lines\n\ndata: [DONE]\n\n';

test("events come whole, however the stream is cut", async () => {
  const wanted = ['{"a":1}', '{"text":"é漢😀"}', "two\nlines", "[DONE]"];
  const raw = new TextEncoder().encode(STREAM.replaceAll("\r\n", "\n"));
  for (let size = 1; size <= raw.length; size += 1) {
    const pieces = Array.from({ length: Math.ceil(raw.length / size) }, (_, i) => raw.slice(i * size, (i + 1) * size));
    const found = [];
    for await (const data of events(ReadableStream.from(pieces))) found.push(data);
    assert.deepEqual(found, wanted);
  }
});

test("both line ends are read, and what is not ended is no event", () => {
  const reader = new EventReader();
  assert.deepEqual(reader.push(STREAM).length, 4);
  assert.deepEqual(reader.push("data: half"), []);
  assert.deepEqual(reader.push("\n\n"), ["half"]);
});

test("chunks become an answer with its figures", () => {
  const answer = emptyAnswer();
  const choice = (delta, more = {}) => ({ choices: [{ index: 0, delta, finish_reason: null, ...more }] });
  addChunk(answer, choice({ role: "assistant", content: "" }), 0.1);
  assert.equal(answer.state, "waiting");
  addChunk(answer, choice({ reasoning_content: "hm" }), 0.5);
  assert.equal(answer.state, "thinking");
  addChunk(answer, choice({ content: "Yes" }), 2);
  addChunk(answer, choice({ content: "." }), 3);
  addChunk(answer, { ...choice({}, { finish_reason: "stop" }), timings: { predicted_per_second: 7, draft_n: 4, draft_n_accepted: 3 } }, 3);
  addChunk(answer, { choices: [], usage: { prompt_tokens: 9, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 5 } } }, 3);
  assert.equal(answer.content, "Yes.");
  assert.equal(answer.reasoning, "hm");
  assert.equal(answer.thought_s, 2);
  assert.deepEqual(answer.figures, { rate: 7, drafted: 4, accepted: 3, prompt: 9, cached: 5, tokens: 3, first_s: 0.5 });
  assert.equal(settle(answer).state, "stopped");
  assert.equal(settle({ ...answer, state: "done" }).state, "done");
});

test("a request asks for what was set, and for nothing else", () => {
  assert.deepEqual(requestBody({}, [{ role: "user", content: "Hi", state: "done" }]), {
    messages: [{ role: "user", content: "Hi" }],
    stream: true,
    stream_options: { include_usage: true },
  });
  const body = requestBody({ temperature: "0", seed: " 7 ", stop: "a\n\n\\n", system: " ", top_k: "x" }, []);
  assert.deepEqual([body.temperature, body.seed, body.stop, body.messages, body.top_k], [0, 7, ["a", "\n"], [], undefined]);
  assert.equal(numberOf(""), undefined);
  assert.equal(numSet({ temperature: "0", seed: "", system: "x" }), 2);
});

test("a conversation survives its file, and other files are refused", () => {
  const whole = { title: "A / B?", created: 1, settings: { seed: "1" }, messages: [{ role: "user", content: "x" }], id: "i" };
  const { updated, ...read } = fromJson(toJson(whole));
  const { id, ...kept } = whole;
  assert.ok(id && updated);
  assert.deepEqual(read, kept);
  for (const bad of ["", "{}", "[]", '{"strata_conversation":1,"messages":[{"role":"system","content":"x"}]}'])
    assert.throws(() => fromJson(bad), /file is not/);
  assert.equal(fileName("A / B?", "md"), "a-b.md");
  assert.equal(fileName("???", "md"), "conversation.md");
  const thought = { role: "assistant", content: "4", reasoning: "2+2\n" };
  assert.match(toMarkdown({ ...whole, messages: [thought] }), /<details><summary>Thinking<\/summary>\n\n2\+2\n\n<\/details>\n\n4\n$/);
});

test("numbers and times are short", () => {
  assert.equal(bytes(1536), "1.5 KiB");
  assert.equal(bytes(0), "0 B");
  assert.equal(number(12345.67, 1), "12,345.7");
  assert.equal(percent(0.873), "87%");
  assert.equal(plural(1, "token"), "1 token");
  assert.equal(plural(1200, "token"), "1,200 tokens");
  assert.deepEqual([0.0042, 0.034, 2.5, 42, 90].map(seconds), ["4.2 ms", "34 ms", "2.5 s", "42 s", "1 min 30 s"]);
  assert.equal(ago(0, 30_000), "1 min ago");
  assert.equal(ago(0, 5 * 3600_000), "5 h ago");
});

const { byTier, expertAt, layerRows, readMap } = await import(new URL("expert_map.js", LIB));
const { SPAN_S, ceiling, linear, logarithmic, merged, recent, series, summary } = await import(new URL("series.js", LIB));

test("the expert map is read back from its bytes", () => {
  const map = readMap({
    layers: [0, 2], experts: 3, tier_names: { 0: "vram", 1: "pinned", 2: "host" }, counted: true,
    in_tier: { vram: 2, pinned: 0, host: 2 }, uses_in_tier: { vram: 3, pinned: 0, host: 1 }, tiers: "AAECAAL/", heat: "/4BAwAAA",
  });
  assert.deepEqual(byTier(map), [{ tier: "vram", count: 2, share: 0.75 }, { tier: "host", count: 2, share: 0.25 }]);
  assert.deepEqual(expertAt(map, 0, 0), { layer: 0, expert: 0, tier: "vram", heat: 1 });
  assert.equal(expertAt(map, 1, 2), null);
  assert.deepEqual(layerRows(map)[1], { layer: 2, counts: { vram: 1, host: 1 }, used: 1, hottest: 0 });
});

test("seconds become series of a fixed span", () => {
  const seconds = merged([{ second: 10, tokens: 1 }, { second: 399, tokens: 2 }], [{ second: 399, tokens: 5 }], 400.5);
  assert.deepEqual(seconds, [{ second: 399, tokens: 5 }]);
  const values = series([{ second: 397, tokens: 3 }, ...seconds, { second: 400, tokens: 9 }], "tokens", 400.5, 0);
  assert.equal(values.length, SPAN_S);
  assert.deepEqual(values.slice(-3), [3, 0, 5]);
  assert.equal(recent(values, 2), 2.5);
  assert.deepEqual([0, 0.3, 1, 3, 50, 501].map(ceiling), [1, 0.5, 1, 5, 50, 1000]);
  assert.deepEqual(summary([null, 3, 1, 2]), { middle: 2, most: 3 });
  assert.equal(summary([null]), null);
  assert.deepEqual(linear([null, 30]).ticks, [0, 25, 50]);
  assert.equal(linear([null, 30]).at(25), 0.5);
  assert.deepEqual(logarithmic([null, 700]).ticks, [1, 10, 100, 1000]);
  assert.deepEqual([0, 1, 10, 1000].map(logarithmic([700]).at), [0, 0, 1 / 3, 1]);
  assert.deepEqual(logarithmic([]).ticks, [1, 10, 100]);
});

test("an error's hint goes by its code, then by its status", () => {
  assert.match(hintOf({ status: 400, code: "context_length_exceeded" }), /new conversation/);
  assert.match(hintOf({ status: 429, code: "queue_full" }), /Try again/);
  assert.match(hintOf({ status: 403, message: "Origin 'http://a' is not allowed" }), /--allow-origin/);
  assert.equal(hintOf({ status: 403, message: "Host 'x' is not this server's name" }), "");
  assert.equal(hintOf({ status: 400, code: "invalid_value", message: "top_p: ..." }), "");
});
