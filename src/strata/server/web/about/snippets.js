// What other programs need to use this server, ready to be pasted.

/** {name: text}; `base` ends in /v1, `key` stands for the one that was given, if any. */
export function snippets({ base, root, model, key }) {
  return {
    curl: `curl ${base}/chat/completions \\
  -H 'Content-Type: application/json' \\${key ? `\n  -H 'Authorization: Bearer ${key}' \\` : ""}
  -d '{
    "model": "${model}",
    "messages": [{"role": "user", "content": "Hello"}]
  }'`,
    "Python, openai": `from openai import OpenAI

client = OpenAI(base_url="${base}", api_key="${key || "none"}")
stream = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    "Python, anthropic": `from anthropic import Anthropic

client = Anthropic(base_url="${root}", api_key="${key || "none"}")
message = client.messages.create(
    model="${model}",
    max_tokens=256,
    messages=[{"role": "user", "content": "Hello"}],
)
print(message.content[-1].text)`,
    JavaScript: `import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${base}", apiKey: "${key || "none"}" });
const answer = await client.chat.completions.create({
  model: "${model}",
  messages: [{ role: "user", content: "Hello" }],
});
console.log(answer.choices[0].message.content);`,
    "Claude Code": `export ANTHROPIC_BASE_URL=${root}
export ANTHROPIC_AUTH_TOKEN=${key || "none"}
export ANTHROPIC_MODEL=${model}
claude`,
    "Open WebUI": `# Admin panel > Settings > Connections > OpenAI API
URL:     ${base}
API key: ${key || "none"}`,
  };
}
