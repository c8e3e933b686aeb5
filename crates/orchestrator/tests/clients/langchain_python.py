"""LangChain's ChatOpenAI, as it is, against a running stack. The marks in the messages tell the model what to do."""

import asyncio
import os

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

BASE_URL, KEY = os.environ["BASE_URL"], os.environ["API_KEY"]
ANSWER, DIRECT_ANSWER = os.environ["ANSWER"], os.environ["DIRECT_ANSWER"]


def manager(**more):
    return ChatOpenAI(**{"model": "cynodeai.pm", "base_url": BASE_URL, "api_key": KEY, **more})


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def a_chat_is_answered():
    answer = manager().invoke([SystemMessage("Be brief."), HumanMessage("[plain:whole] hello")])
    assert answer.content == ANSWER, answer
    assert answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"


def a_stream_has_the_same_content_and_usage():
    whole = None
    for chunk in manager(stream_usage=True).stream("[plain:streamed] hello"):
        whole = chunk if whole is None else whole + chunk
    assert whole.content == ANSWER, whole
    assert whole.usage_metadata["total_tokens"] > 0


def the_manager_is_a_part_of_a_chain():
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "[plain:chain] {question}")])
    assert (prompt | manager()).invoke({"question": "What is left?"}).content == ANSWER
    answers = manager().batch(["[plain:batch-1] hello", "[plain:batch-2] hello"], config={"max_concurrency": 2})
    assert [answer.content for answer in answers] == [ANSWER, ANSWER]


def a_conversation_is_one_thread():
    first = manager(include_response_headers=True).invoke("[plain:one] hello")
    history = [HumanMessage("[plain:one] hello"), AIMessage(first.content), HumanMessage("[plain:two] and now?")]
    second = manager(include_response_headers=True).invoke(history)
    thread = [answer.response_metadata["headers"]["x-cynode-thread"] for answer in (first, second)]
    assert thread[0] == thread[1]


def a_question_is_answered_by_the_next_message():
    named = manager(default_headers={"X-Cynode-Thread": "langchain-question"})
    assert named.invoke("[question:sites] Publish the site.").content == "Which site is meant?"
    assert named.invoke("[plain:docs] The documentation.").content == ANSWER


def refusals_are_openais_classes():
    error = raised(openai.AuthenticationError, lambda: manager(api_key="cyn_unknown").invoke("[plain:never] hello"))
    assert error.code == "invalid_api_key"
    error = raised(openai.NotFoundError, lambda: manager(model="gpt-9").invoke("[plain:never] hello"))
    assert error.code == "model_not_found"
    error = raised(openai.BadRequestError, lambda: manager(n=2).invoke("[plain:never] hello"))
    assert error.param == "n"
    error = raised(openai.APIError, lambda: list(manager().stream("[fail:streamed] hello")))
    assert error.code.startswith("inference_")


def a_retry_after_a_timeout_joins_the_same_work():
    answer = manager(timeout=1, max_retries=20).invoke("[slow:retried] hello")
    assert answer.content == ANSWER


def it_works_asynchronously():
    async def both():
        whole = await manager().ainvoke("[plain:async] hello")
        pieces = [chunk.content async for chunk in manager().astream("[plain:async-stream] hello")]
        assert whole.content == "".join(pieces) == ANSWER

    asyncio.run(both())


def a_direct_model_answers_the_same_client():
    assert manager(model="llama").invoke("hello").content == DIRECT_ANSWER
    assert "".join(chunk.content for chunk in manager(model="llama").stream("hello")) == DIRECT_ANSWER


CHECKS = [
    a_chat_is_answered, a_stream_has_the_same_content_and_usage, the_manager_is_a_part_of_a_chain,
    a_conversation_is_one_thread, a_question_is_answered_by_the_next_message, refusals_are_openais_classes,
    a_retry_after_a_timeout_joins_the_same_work, it_works_asynchronously, a_direct_model_answers_the_same_client,
]

for check in CHECKS:
    print(check.__name__, flush=True)
    check()
