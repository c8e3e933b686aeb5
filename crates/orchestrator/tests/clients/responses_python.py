"""`/v1/responses` with OpenAI's SDK for Python, as it is, and as Codex calls it. The marks in the messages tell the model
what to do.
"""

import asyncio
import json
import os
import time

import httpx
import openai

BASE_URL, KEY, ANSWER = (os.environ[name] for name in ("BASE_URL", "API_KEY", "ANSWER"))
MODEL = "cynodeai.pm"
client = openai.OpenAI(base_url=BASE_URL, api_key=KEY)


def raised(kind, call):
    try:
        call()
    except kind as error:
        assert type(error) is kind, repr(error)
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def a_response_is_answered():
    response = client.responses.create(model=MODEL, instructions="Be brief.", input="[plain:whole] hello")
    assert response.output_text == ANSWER and response.status == "completed", response
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
    assert response._request_id.startswith("req_")
    assert client.responses.retrieve(response.id).output_text == ANSWER
    items = list(client.responses.input_items.list(response.id))
    assert any("[plain:whole] hello" in part.text for item in items for part in item.content), items


def a_stream_has_the_same_text_and_usage():
    text, last = "", None
    for event in client.responses.create(model=MODEL, input="[plain:streamed] hello", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        last = event
    assert text == ANSWER and last.type == "response.completed", last
    assert last.response.output_text == ANSWER and last.response.usage.total_tokens > 0
    with client.responses.stream(model=MODEL, input="[plain:helper] hello") as helper:
        for _ in helper:
            pass
        assert helper.get_final_response().output_text == ANSWER


def the_previous_response_is_the_thread():
    create = client.responses.with_raw_response.create
    first = create(model=MODEL, input="[plain:one] hello")
    second = create(model=MODEL, input="[plain:two] and now?", previous_response_id=first.parse().id)
    assert second.headers["x-cynode-thread"] == first.headers["x-cynode-thread"]
    question = create(model=MODEL, input="[question:sites] Publish the site.").parse()
    assert question.output_text == "Which site is meant?"
    answer = create(model=MODEL, input="[plain:docs] The documentation.", previous_response_id=question.id)
    assert answer.parse().output_text == ANSWER


def refusals_are_the_classes_of_their_status():
    create = client.responses.create
    error = raised(openai.NotFoundError, lambda: create(model="gpt-9", input="[plain:never] hello"))
    assert error.code == "model_not_found"
    demand = {"tools": [{"type": "function", "name": "f", "parameters": {}, "strict": False}], "tool_choice": "required"}
    error = raised(openai.BadRequestError, lambda: create(model=MODEL, input="[plain:never] hello", **demand))
    assert error.param == "tool_choice"
    error = raised(openai.BadRequestError, lambda: create(
        model=MODEL, input="[plain:never] hello", previous_response_id="resp_unknown"))
    assert error.code == "previous_response_not_found"
    raised(openai.NotFoundError, lambda: client.responses.retrieve("resp_unknown"))


def a_retry_after_a_timeout_joins_the_same_work():
    other = client.with_options(timeout=1, max_retries=20)
    answer = other.responses.with_raw_response.create(model=MODEL, input="[slow:retried] hello")
    assert answer.retries_taken >= 1 and answer.parse().output_text == ANSWER


def a_turn_that_fails_says_so():
    # A failed response is a response, or it is raised; it is never taken for an answer.
    try:
        response = client.responses.create(model=MODEL, input="[fail:whole] hello")
        assert response.status == "failed" and response.error, response
    except openai.APIStatusError as error:
        assert error.code.startswith("inference_"), error
    try:
        events = list(client.responses.create(model=MODEL, input="[fail:streamed] hello", stream=True))
        assert events[-1].type == "response.failed" and events[-1].response.error, events[-1]
    except openai.APIError as error:
        assert error.code.startswith("inference_"), error


def work_in_the_background_can_be_cancelled():
    response = client.responses.create(model=MODEL, input="[hang:background] hello", background=True)
    assert response.status in ("queued", "in_progress"), response
    until = time.monotonic() + 60
    while client.responses.cancel(response.id).status != "cancelled":
        assert time.monotonic() < until, "the work goes on"
        time.sleep(0.05)
    assert client.responses.retrieve(response.id).status == "cancelled"


def the_async_client_does_the_same():
    async def ask():
        async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as other:
            stream = await other.responses.create(model=MODEL, input="[plain:async] hello", stream=True)
            deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            assert "".join(deltas) == ANSWER

    asyncio.run(ask())


def codex(input):
    """Sends what Codex sends: the whole conversation, its own tools, not stored. Returns the events by their type."""
    body = {
        "model": MODEL,
        "instructions": "You are a coding agent running in a terminal.",
        "input": input,
        "tools": [
            {"type": "function", "name": "shell", "description": "Runs a shell command.", "strict": False,
             "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                            "required": ["command"], "additionalProperties": False}},
            {"type": "function", "name": "update_plan", "description": "Updates the plan.", "strict": False,
             "parameters": {"type": "object", "properties": {"explanation": {"type": "string"}}}},
            {"type": "custom", "name": "apply_patch", "description": "Edits files.",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
            {"type": "web_search"},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "019a8f0e-5b0c-7c3e-9d62-2f6c1a7d9b11",
        "text": {"verbosity": "medium"},
    }
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "text/event-stream", "originator": "codex_cli_rs",
               "OpenAI-Beta": "responses=experimental", "session_id": "019a8f0e-5b0c-7c3e-9d62-2f6c1a7d9b11"}
    response = httpx.post(f"{BASE_URL}/responses", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    lines = response.text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return response.headers, events


def message(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def codex_is_answered():
    asked = [message("user", "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"),
             message("user", "[plain:codex] What is left to do?")]
    headers, events = codex(asked)
    assert events[0]["type"] == "response.created", events[0]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == ANSWER
    # Codex takes what is said from the finished items, and the turn as finished with the last event.
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    texts = [part["text"] for item in done if item["type"] == "message" for part in item["content"]]
    assert texts == [ANSWER], done
    assert not any(item["type"].endswith("_call") for item in done), done
    assert events[-1]["type"] == "response.completed" and events[-1]["response"]["usage"]["total_tokens"] > 0
    again = [*asked, message("assistant", ANSWER), message("user", "[plain:codex-again] And tomorrow?")]
    later, events = codex(again)
    assert events[-1]["type"] == "response.completed"
    assert later["x-cynode-thread"] == headers["x-cynode-thread"]


CHECKS = [
    a_response_is_answered, a_stream_has_the_same_text_and_usage, the_previous_response_is_the_thread,
    refusals_are_the_classes_of_their_status, a_retry_after_a_timeout_joins_the_same_work, a_turn_that_fails_says_so,
    work_in_the_background_can_be_cancelled, the_async_client_does_the_same, codex_is_answered,
]

for check in CHECKS:
    print(check.__name__, flush=True)
    check()
