// OpenAI's SDK for Node, as it is, against a running stack. The marks in the messages tell the model what to do.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { BASE_URL: baseURL, API_KEY: apiKey, STOP_KEY, ANSWER, DIRECT_ANSWER } = process.env;
const MODEL = "cynodeai.pm";
const DIRECT = "llama";
const client = new OpenAI({ baseURL, apiKey });

const user = (text) => [{ role: "user", content: text }];
const ask = (text, using = client, more = {}, options = {}) =>
  using.chat.completions.create({ model: MODEL, messages: user(text), ...more }, options);
const named = (thread) => ({ headers: { "X-Cynode-Thread": thread } });

async function read(stream) {
  let [content, usage] = ["", null];
  for await (const chunk of stream) {
    content += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  return [content, usage];
}

/** Returns the id of a stream that goes on. */
const opened = async (stream) => (await stream[Symbol.asyncIterator]().next()).value.id;

async function raised(kind, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.constructor, kind, String(error));
    return error;
  }
  assert.fail(`${kind.name} was not raised`);
}

/** A client that notes when it sends requests. */
function counting(options = {}) {
  const sent = [];
  const counted = (...request) => {
    sent.push(performance.now());
    return fetch(...request);
  };
  return [new OpenAI({ baseURL, apiKey, fetch: counted, maxRetries: 20, ...options }), sent];
}

async function cancel(id) {
  const error = await raised(OpenAI.ConflictError, () => client.post(`/chat/completions/${id}/cancel`));
  assert.equal(error.code, "cancelled");
}

const checks = {
  async "models are listed"() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.deepEqual(ids, [MODEL, DIRECT]);
    const error = await raised(OpenAI.NotFoundError, () => client.models.retrieve("other"));
    assert.equal(error.code, "model_not_found");
  },

  async "a chat is answered"() {
    const completion = await ask("[plain:whole] hello");
    assert.equal(completion.choices[0].message.content, ANSWER);
    assert.equal(completion.choices[0].finish_reason, "stop");
    assert.ok(completion.usage.total_tokens > 0);
    assert.ok(completion._request_id.startsWith("req_"));
    assert.equal(completion.cynode.state, "completed");
    const stored = await client.chat.completions.retrieve(completion.id);
    assert.equal(stored.choices[0].message.content, ANSWER);
  },

  async "a stream has the same content and usage"() {
    const streamed = { stream: true, stream_options: { include_usage: true } };
    const [content, usage] = await read(await ask("[plain:streamed] hello", client, streamed));
    assert.equal(content, ANSWER);
    assert.ok(usage.total_tokens > 0);
    const helper = client.chat.completions.stream({ model: MODEL, messages: user("[plain:helper] hello") });
    assert.equal(await helper.finalContent(), ANSWER);
  },

  async "tool calls of the manager are shown as reasoning"() {
    let reasoning = "";
    for await (const chunk of await ask("[tools:shown] What is left?", client, { stream: true })) {
      reasoning += chunk.choices[0].delta.reasoning_content ?? "";
    }
    assert.match(reasoning, /db\.task\.list/);
  },

  async "a conversation is one thread"() {
    const threadOf = async (asked) => (await asked.withResponse()).response.headers.get("x-cynode-thread");
    const first = await ask("[plain:one] hello").withResponse();
    const messages = [...user("[plain:one] hello"), first.data.choices[0].message, ...user("[plain:two] and now?")];
    const second = await threadOf(client.chat.completions.create({ model: MODEL, messages }));
    assert.equal(second, first.response.headers.get("x-cynode-thread"));
    const third = await threadOf(ask("[plain:three] hello", client, {}, named("node-thread")));
    const fourth = await threadOf(ask("[plain:four] go on", client, { metadata: { thread_id: "node-thread" } }));
    assert.equal(third, fourth);
    assert.notEqual(third, second);
  },

  async "a question is answered by the next message"() {
    const question = await ask("[question:sites] Publish the site.", client, {}, named("node-question"));
    assert.equal(question.choices[0].message.content, "Which site is meant?");
    assert.equal(question.cynode.state, "question");
    const answer = await ask("[plain:docs] The documentation.", client, {}, named("node-question"));
    assert.equal(answer.choices[0].message.content, ANSWER);
  },

  async "refusals are the classes of their status"() {
    const unknown = new OpenAI({ baseURL, apiKey: "cyn_unknown" });
    let error = await raised(OpenAI.AuthenticationError, () => ask("[plain:never] hello", unknown));
    assert.equal(error.code, "invalid_api_key");
    assert.ok(error.requestID.startsWith("req_"));
    error = await raised(OpenAI.NotFoundError, () => ask("[plain:never] hello", client, { model: "gpt-9" }));
    assert.deepEqual([error.code, error.param], ["model_not_found", "model"]);
    error = await raised(OpenAI.BadRequestError, () => ask("[plain:never] hello", client, { n: 2 }));
    assert.deepEqual([error.code, error.param], ["unsupported_value", "n"]);
    const other = { headers: { "X-Cynode-User": "bob" } };
    error = await raised(OpenAI.PermissionDeniedError, () => ask("[plain:never] hello", client, {}, other));
    assert.equal(error.code, "user_not_allowed");
    await ask("[plain:keyed] hello", client, {}, { headers: { "Idempotency-Key": "node-key" } });
    const keyed = { headers: { "Idempotency-Key": "node-key" } };
    error = await raised(OpenAI.UnprocessableEntityError, () => ask("[plain:never] hello", client, {}, keyed));
    assert.equal(error.code, "idempotency_key_reused");
  },

  async "a busy thread is not asked again"() {
    const [other, sent] = counting();
    const id = await opened(await ask("[hang:busy] hello", client, { stream: true }, named("node-busy")));
    const busy = () => ask("[plain:never] hello", other, {}, named("node-busy"));
    assert.equal((await raised(OpenAI.ConflictError, busy)).code, "thread_busy");
    assert.equal(sent.length, 1);
    await cancel(id);
  },

  async "a limited key waits as long as it is told"() {
    const streams = [await ask("[hang:limit-1] hello", client, { stream: true })];
    streams.push(await ask("[hang:limit-2] hello", client, { stream: true }));
    const ids = [await opened(streams[0]), await opened(streams[1])];
    const error = await raised(OpenAI.RateLimitError, () => ask("[plain:never] hello", client, {}, { maxRetries: 0 }));
    assert.equal(error.code, "rate_limit_exceeded");
    assert.equal(error.headers.get("retry-after-ms"), "1000");
    const [other, sent] = counting();
    await raised(OpenAI.RateLimitError, () => ask("[plain:never] hello", other, {}, { maxRetries: 1 }));
    // Of its own accord it would wait half a second at most.
    assert.ok(sent.length === 2 && sent[1] - sent[0] >= 990, String(sent));
    for (const id of ids) await cancel(id);
    assert.equal((await ask("[plain:after-limit] hello", other)).choices[0].message.content, ANSWER);
  },

  async "a retry after a timeout joins the same work"() {
    const impatient = { timeout: 500, maxRetries: 0 };
    await raised(OpenAI.APIConnectionTimeoutError, () => ask("[slow:timeout] hello", client, {}, impatient));
    const [other, sent] = counting({ timeout: 1000 });
    const answer = await ask("[slow:retried] hello", other);
    assert.ok(sent.length >= 2, String(sent));
    assert.equal(answer.choices[0].message.content, ANSWER);
  },

  async "a turn that fails is raised once"() {
    const [other, sent] = counting();
    const error = await raised(OpenAI.InternalServerError, () => ask("[fail:whole] hello", other));
    assert.match(error.code, /^inference_/);
    assert.equal(sent.length, 1);
    const stream = await ask("[fail:streamed] hello", client, { stream: true });
    assert.match((await raised(OpenAI.APIError, () => read(stream))).code, /^inference_/);
  },

  async "closing a stream cancels the work if the key says so"() {
    const other = new OpenAI({ baseURL, apiKey: STOP_KEY });
    const stream = await ask("[hang:stop] hello", other, { stream: true });
    const id = await opened(stream);
    stream.controller.abort();
    for (const until = Date.now() + 60_000; ; ) {
      try {
        assert.deepEqual((await other.chat.completions.retrieve(id)).choices, []);
      } catch (error) {
        if (!(error instanceof OpenAI.ConflictError)) throw error;
        assert.equal(error.code, "cancelled");
        return;
      }
      assert.ok(Date.now() < until, "the work goes on");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  },

  async "a direct model answers the same client"() {
    const whole = await ask("hello", client, { model: DIRECT });
    assert.equal(whole.choices[0].message.content, DIRECT_ANSWER);
    const streamed = { model: DIRECT, stream: true, stream_options: { include_usage: true } };
    const [content, usage] = await read(await ask("hello", client, streamed));
    assert.equal(content, DIRECT_ANSWER);
    assert.ok(usage.prompt_tokens > 0);
  },
};

for (const [name, check] of Object.entries(checks)) {
  console.log(name);
  await check();
}
process.exit(0);
