// `/v1/responses` with OpenAI's SDK for Node and with the AI SDK's provider for OpenAI, as they are. The marks in the messages
// tell the model what to do.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateText, streamText } from "ai";
import OpenAI from "openai";

const { BASE_URL: baseURL, API_KEY: apiKey, ANSWER } = process.env;
const MODEL = "cynodeai.pm";
const client = new OpenAI({ baseURL, apiKey });
const model = createOpenAI({ baseURL, apiKey })(MODEL);

async function raised(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  assert.fail("nothing was raised");
}

const checks = {
  async "a response is answered"() {
    const response = await client.responses.create({ model: MODEL, input: "[plain:whole] hello" });
    assert.deepEqual([response.output_text, response.status], [ANSWER, "completed"]);
    assert.ok(response.usage.total_tokens > 0);
    assert.equal((await client.responses.retrieve(response.id)).output_text, ANSWER);
  },

  async "a stream has the same text"() {
    let [text, last] = ["", null];
    for await (const event of await client.responses.create({ model: MODEL, input: "[plain:streamed] hello", stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event;
    }
    assert.deepEqual([text, last.type], [ANSWER, "response.completed"]);
  },

  async "the previous response is the thread"() {
    const first = await client.responses.create({ model: MODEL, input: "[plain:one] hello" }).withResponse();
    const next = { model: MODEL, input: "[plain:two] and now?", previous_response_id: first.data.id };
    const second = await client.responses.create(next).withResponse();
    const thread = ({ response }) => response.headers.get("x-cynode-thread");
    assert.equal(thread(second), thread(first));
  },

  async "refusals are the classes of their status"() {
    const error = await raised(() => client.responses.create({ model: "gpt-9", input: "[plain:never] hello" }));
    assert.ok(error instanceof OpenAI.NotFoundError, String(error));
  },

  async "the AI SDK is answered"() {
    const answer = await generateText({ model, system: "Be brief.", prompt: "[plain:ai] hello" });
    assert.equal(answer.text, ANSWER);
    assert.ok(answer.usage.totalTokens > 0);
    const stream = streamText({ model, prompt: "[plain:ai-streamed] hello" });
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, ANSWER);
    assert.equal(await stream.finishReason, "stop");
  },

  async "a conversation of the AI SDK is one thread"() {
    const first = await generateText({ model, prompt: "[plain:ai-one] hello" });
    const messages = [
      { role: "user", content: "[plain:ai-one] hello" },
      ...first.response.messages,
      { role: "user", content: "[plain:ai-two] and now?" },
    ];
    const second = await generateText({ model, messages });
    assert.equal(second.text, ANSWER);
    assert.equal(second.response.headers["x-cynode-thread"], first.response.headers["x-cynode-thread"]);
  },

  async "a failure reaches users of the AI SDK"() {
    const error = await raised(() => generateText({ model, prompt: "[fail:ai] hello", maxRetries: 0 }));
    assert.match(String(error) + JSON.stringify(error), /inference/);
    const unknown = createOpenAI({ baseURL, apiKey })("gpt-9");
    const refused = await raised(() => generateText({ model: unknown, prompt: "[plain:never] hello" }));
    assert.ok(APICallError.isInstance(refused) && refused.statusCode === 404, String(refused));
    let failed = null;
    for await (const part of streamText({ model, prompt: "[fail:ai-streamed] hello", onError() {} }).fullStream) {
      if (part.type === "error") failed = part.error;
    }
    assert.ok(failed, "the stream ended as if it were whole");
  },
};

for (const [name, check] of Object.entries(checks)) {
  console.log(name);
  await check();
}
process.exit(0);
