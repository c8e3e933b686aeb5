// The AI SDK with its provider for OpenAI-compatible servers, as it is, against a running stack. The marks in the messages
// tell the model what to do.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, RetryError, streamText } from "ai";

const { BASE_URL: baseURL, API_KEY: apiKey, STOP_KEY, ANSWER, DIRECT_ANSWER } = process.env;
const provider = (more = {}) => createOpenAICompatible({ name: "cynode", baseURL, apiKey, includeUsage: true, ...more });
const model = provider()("cynodeai.pm");

async function raised(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  assert.fail("nothing was raised");
}

/** A provider that counts its requests. */
function counting(more = {}) {
  const sent = [];
  const counted = (...request) => {
    sent.push(performance.now());
    return fetch(...request);
  };
  return [provider({ fetch: counted, ...more })("cynodeai.pm"), sent];
}

async function read(parts) {
  let [text, reasoning, error] = ["", "", null];
  for await (const part of parts) {
    if (part.type === "text-delta") text += part.text;
    if (part.type === "reasoning-delta") reasoning += part.text;
    if (part.type === "error") error = part.error;
  }
  return { text, reasoning, error };
}

const checks = {
  async "a chat is answered"() {
    const answer = await generateText({ model, system: "Be brief.", prompt: "[plain:whole] hello" });
    assert.equal(answer.text, ANSWER);
    assert.equal(answer.finishReason, "stop");
    assert.ok(answer.usage.totalTokens > 0);
    assert.ok(answer.response.headers["x-request-id"].startsWith("req_"));
  },

  async "a stream has the same content and usage"() {
    const answer = streamText({ model, prompt: "[plain:streamed] hello" });
    assert.equal((await read(answer.fullStream)).text, ANSWER);
    assert.ok((await answer.usage).totalTokens > 0);
    assert.equal(await answer.finishReason, "stop");
  },

  async "tool calls of the manager are shown as reasoning"() {
    const shown = await read(streamText({ model, prompt: "[tools:shown] What is left?" }).fullStream);
    assert.match(shown.reasoning, /db\.task\.list/);
  },

  async "a conversation is one thread"() {
    const first = await generateText({ model, prompt: "[plain:one] hello" });
    const messages = [
      { role: "user", content: "[plain:one] hello" },
      ...first.response.messages,
      { role: "user", content: "[plain:two] and now?" },
    ];
    const second = await generateText({ model, messages });
    assert.equal(second.response.headers["x-cynode-thread"], first.response.headers["x-cynode-thread"]);
  },

  async "a question is answered by the next message"() {
    const headers = { "X-Cynode-Thread": "ai-question" };
    const question = await generateText({ model, headers, prompt: "[question:sites] Publish the site." });
    assert.equal(question.text, "Which site is meant?");
    assert.equal((await generateText({ model, headers, prompt: "[plain:docs] The documentation." })).text, ANSWER);
  },

  async "refusals have status and code"() {
    const refused = async (using, status, code) => {
      const error = await raised(() => generateText({ model: using, prompt: "[plain:never] hello" }));
      assert.ok(APICallError.isInstance(error), String(error));
      assert.deepEqual([error.statusCode, JSON.parse(error.responseBody).error.code], [status, code]);
    };
    await refused(provider({ apiKey: "cyn_unknown" })("cynodeai.pm"), 401, "invalid_api_key");
    await refused(provider()("gpt-9"), 404, "model_not_found");
    await refused(provider({ headers: { "X-Cynode-User": "bob" } })("cynodeai.pm"), 403, "user_not_allowed");
  },

  // It repeats a request without saying so, whatever x-should-retry says: a key makes it one.
  async "a repeated request with a key joins the first"() {
    const [counted, sent] = counting();
    const headers = { "Idempotency-Key": "ai-key" };
    const ask = () => generateText({ model: counted, headers, maxRetries: 1, prompt: "[fail:keyed] hello" });
    const error = await raised(ask);
    assert.ok(RetryError.isInstance(error), String(error));
    assert.equal(sent.length, 2);
    const [first, second] = error.errors.map((error) => error.responseHeaders["x-cynode-handoff"]);
    assert.equal(first, second);
    const patience = AbortSignal.timeout(500);
    const slow = { model, headers: { "Idempotency-Key": "ai-slow" }, prompt: "[slow:keyed] hello" };
    await raised(() => generateText({ ...slow, abortSignal: patience }));
    assert.equal((await generateText(slow)).text, ANSWER);
  },

  async "a stream that fails says so"() {
    const failed = streamText({ model, prompt: "[fail:streamed] hello", onError() {} });
    const { error } = await read(failed.fullStream);
    assert.match(JSON.stringify(error) + String(error), /inference/);
  },

  async "aborting a stream cancels the work if the key says so"() {
    const stop = new AbortController();
    const stopped = provider({ apiKey: STOP_KEY, headers: { "X-Cynode-Thread": "ai-stop" } })("cynodeai.pm");
    const stream = streamText({ model: stopped, prompt: "[hang:stop] hello", abortSignal: stop.signal, onError() {} });
    const headers = { Authorization: `Bearer ${STOP_KEY}` };
    const thread = async () => (await fetch(`${baseURL}/threads/ai-stop`, { headers })).json();
    const until = Date.now() + 60_000;
    const wait = async (isReached) => {
      for (;;) {
        const found = await thread();
        if (isReached(found)) return;
        assert.ok(Date.now() < until, JSON.stringify(found));
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    const reading = read(stream.fullStream);
    await wait((found) => Boolean(found.in_progress));
    stop.abort();
    await reading;
    await wait((found) => found.in_progress === null);
  },

  async "a direct model answers the same client"() {
    const llama = provider()("llama");
    assert.equal((await generateText({ model: llama, prompt: "hello" })).text, DIRECT_ANSWER);
    assert.equal((await read(streamText({ model: llama, prompt: "hello" }).fullStream)).text, DIRECT_ANSWER);
  },
};

for (const [name, check] of Object.entries(checks)) {
  console.log(name);
  await check();
}
process.exit(0);
