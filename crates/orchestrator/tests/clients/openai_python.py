"""OpenAI's SDK for Python, as it is, against a running stack. The marks in the messages tell the model what to do."""

import asyncio
import os
import time

import openai

BASE_URL, KEY, STOP_KEY = (os.environ[name] for name in ("BASE_URL", "API_KEY", "STOP_KEY"))
ANSWER, DIRECT_ANSWER = os.environ["ANSWER"], os.environ["DIRECT_ANSWER"]
MODEL, DIRECT = "cynodeai.pm", "llama"
client = openai.OpenAI(base_url=BASE_URL, api_key=KEY)


def user(text):
    return [{"role": "user", "content": text}]


def ask(text, using=client, **more):
    return using.chat.completions.create(model=MODEL, messages=user(text), **more)


def read(stream):
    """The content of a stream, and its last usage."""
    content, usage = "", None
    for chunk in stream:
        if chunk.choices:
            content += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    return content, usage


def raised(kind, call):
    try:
        call()
    except kind as error:
        assert type(error) is kind, repr(error)
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def models_are_listed():
    assert [model.id for model in client.models.list()] == [MODEL, DIRECT]
    assert client.models.retrieve(MODEL).id == MODEL
    assert raised(openai.NotFoundError, lambda: client.models.retrieve("other")).code == "model_not_found"


def a_chat_is_answered():
    completion = ask("[plain:whole] hello")
    assert completion.choices[0].message.content == ANSWER, completion
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens > 0
    assert completion._request_id.startswith("req_")
    assert completion.cynode["state"] == "completed"
    assert client.chat.completions.retrieve(completion.id).choices[0].message.content == ANSWER


def a_stream_has_the_same_content_and_usage():
    stream = ask("[plain:streamed] hello", stream=True, stream_options={"include_usage": True})
    content, usage = read(stream)
    assert content == ANSWER
    assert usage.total_tokens > 0
    with client.chat.completions.stream(model=MODEL, messages=user("[plain:helper] hello")) as helper:
        written = "".join(event.delta for event in helper if event.type == "content.delta")
        assert written == helper.get_final_completion().choices[0].message.content == ANSWER


def tool_calls_of_the_manager_are_shown_as_reasoning():
    reasoning = ""
    for chunk in ask("[tools:shown] What is left?", stream=True):
        reasoning += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    assert "db.task.list" in reasoning, reasoning


def a_conversation_is_one_thread():
    """By its messages, or by a name."""
    create = client.chat.completions.with_raw_response.create
    first = create(model=MODEL, messages=user("[plain:one] hello"))
    said = first.parse().choices[0].message
    history = [*user("[plain:one] hello"), said, *user("[plain:two] and now?")]
    second = create(model=MODEL, messages=history)
    assert second.headers["x-cynode-thread"] == first.headers["x-cynode-thread"]
    named = {"X-Cynode-Thread": "python-thread"}
    third = create(model=MODEL, messages=user("[plain:three] hello"), extra_headers=named)
    fourth = create(model=MODEL, messages=user("[plain:four] go on"), metadata={"thread_id": "python-thread"})
    assert third.headers["x-cynode-thread"] == fourth.headers["x-cynode-thread"] != first.headers["x-cynode-thread"]


def a_question_is_answered_by_the_next_message():
    named = {"X-Cynode-Thread": "python-question"}
    question = ask("[question:sites] Publish the site.", extra_headers=named)
    assert question.choices[0].message.content == "Which site is meant?"
    assert question.cynode["state"] == "question"
    answer = ask("[plain:docs] The documentation.", extra_headers=named)
    assert answer.choices[0].message.content == ANSWER


def refusals_are_the_classes_of_their_status():
    unknown = openai.OpenAI(base_url=BASE_URL, api_key="cyn_unknown")
    error = raised(openai.AuthenticationError, lambda: ask("[plain:never] hello", unknown))
    assert error.code == "invalid_api_key" and error.request_id.startswith("req_")
    create = client.chat.completions.create
    error = raised(openai.NotFoundError, lambda: create(model="gpt-9", messages=user("[plain:never] hello")))
    assert (error.code, error.param) == ("model_not_found", "model")
    error = raised(openai.BadRequestError, lambda: ask("[plain:never] hello", n=2))
    assert (error.code, error.param) == ("unsupported_value", "n")
    error = raised(openai.BadRequestError, lambda: create(model=MODEL, messages=[]))
    assert error.param == "messages"
    error = raised(openai.PermissionDeniedError, lambda: ask("[plain:never] hello", extra_headers={"X-Cynode-User": "bob"}))
    assert error.code == "user_not_allowed"
    keyed = {"Idempotency-Key": "python-key"}
    ask("[plain:keyed] hello", extra_headers=keyed)
    error = raised(openai.UnprocessableEntityError, lambda: ask("[plain:never] hello", extra_headers=keyed))
    assert error.code == "idempotency_key_reused"


def counting():
    """A client that notes when it sends requests."""
    sent = []
    http = openai.DefaultHttpxClient(event_hooks={"request": [lambda _: sent.append(time.monotonic())]})
    return openai.OpenAI(base_url=BASE_URL, api_key=KEY, http_client=http, max_retries=20), sent


def a_busy_thread_is_not_asked_again():
    other, sent = counting()
    named = {"X-Cynode-Thread": "python-busy"}
    stream = ask("[hang:busy] hello", stream=True, extra_headers=named)
    id = next(iter(stream)).id
    error = raised(openai.ConflictError, lambda: ask("[plain:never] hello", other, extra_headers=named))
    assert error.code == "thread_busy" and len(sent) == 1
    cancel(id)


def cancel(id):
    error = raised(openai.ConflictError, lambda: client.post(f"/chat/completions/{id}/cancel", cast_to=object))
    assert error.code == "cancelled", error


def a_limited_key_waits_as_long_as_it_is_told():
    """The key may have two chats at a time."""
    streams = [ask(f"[hang:limit-{n}] hello", stream=True) for n in (1, 2)]
    ids = [next(iter(stream)).id for stream in streams]
    once = client.with_options(max_retries=0)
    error = raised(openai.RateLimitError, lambda: ask("[plain:never] hello", once))
    assert error.code == "rate_limit_exceeded" and float(error.response.headers["retry-after-ms"]) == 1000
    other, sent = counting()
    waiting = other.with_options(max_retries=1)
    raised(openai.RateLimitError, lambda: ask("[plain:never] hello", waiting))
    # Of its own accord it would wait half a second at most.
    assert len(sent) == 2 and sent[1] - sent[0] >= 0.99, sent
    for id in ids:
        cancel(id)
    assert ask("[plain:after-limit] hello", other).choices[0].message.content == ANSWER


def a_retry_after_a_timeout_joins_the_same_work():
    raised(openai.APITimeoutError, lambda: ask("[slow:timeout] hello", client.with_options(timeout=0.5, max_retries=0)))
    other, sent = counting()
    raw = other.with_options(timeout=1).chat.completions.with_raw_response
    answer = raw.create(model=MODEL, messages=user("[slow:retried] hello"))
    assert answer.retries_taken >= 1 and len(sent) == answer.retries_taken + 1
    assert answer.parse().choices[0].message.content == ANSWER


def a_turn_that_fails_is_raised_once():
    other, sent = counting()
    error = raised(openai.InternalServerError, lambda: ask("[fail:whole] hello", other))
    assert error.code.startswith("inference_") and len(sent) == 1, (error, sent)
    stream = ask("[fail:streamed] hello", stream=True)
    error = raised(openai.APIError, lambda: read(stream))
    assert error.code.startswith("inference_"), error.body


def closing_a_stream_cancels_the_work_if_the_key_says_so():
    other = openai.OpenAI(base_url=BASE_URL, api_key=STOP_KEY)
    with ask("[hang:stop] hello", other, stream=True) as stream:
        id = next(iter(stream)).id
    until = time.monotonic() + 60
    while True:
        try:
            assert other.chat.completions.retrieve(id).choices == []
        except openai.ConflictError as error:
            assert error.code == "cancelled"
            return
        assert time.monotonic() < until, "the work goes on"
        time.sleep(0.05)


def the_async_client_does_the_same():
    async def both():
        async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as other:
            create = other.chat.completions.create
            whole = create(model=MODEL, messages=user("[plain:async] hello"))
            stream = create(model=MODEL, messages=user("[plain:async-stream] hello"), stream=True)
            whole, stream = await asyncio.gather(whole, stream)
            content = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert whole.choices[0].message.content == content == ANSWER
            failed = await create(model=MODEL, messages=user("[fail:async] hello"), stream=True)
            try:
                async for _ in failed:
                    pass
            except openai.APIError as error:
                assert error.code.startswith("inference_"), error.body
                return
            raise AssertionError("the failure was not raised")

    asyncio.run(both())


def a_direct_model_answers_the_same_client():
    create = client.chat.completions.create
    whole = create(model=DIRECT, messages=user("hello"))
    assert whole.choices[0].message.content == DIRECT_ANSWER and whole._request_id.startswith("req_")
    stream = create(model=DIRECT, messages=user("hello"), stream=True, stream_options={"include_usage": True})
    content, usage = read(stream)
    assert content == DIRECT_ANSWER and usage.prompt_tokens > 0


CHECKS = [
    models_are_listed, a_chat_is_answered, a_stream_has_the_same_content_and_usage,
    tool_calls_of_the_manager_are_shown_as_reasoning, a_conversation_is_one_thread,
    a_question_is_answered_by_the_next_message, refusals_are_the_classes_of_their_status,
    a_busy_thread_is_not_asked_again, a_limited_key_waits_as_long_as_it_is_told,
    a_retry_after_a_timeout_joins_the_same_work, a_turn_that_fails_is_raised_once,
    closing_a_stream_cancels_the_work_if_the_key_says_so, the_async_client_does_the_same,
    a_direct_model_answers_the_same_client,
]

for check in CHECKS:
    print(check.__name__, flush=True)
    check()
