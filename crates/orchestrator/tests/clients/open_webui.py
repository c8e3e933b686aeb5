"""Requests as Open WebUI makes them: its own code renders prompts and headers, which are sent as it sends them.

Only the functions that are needed are taken out of its modules; the whole has hundreds of dependencies.
"""

import ast
import asyncio
import json
import logging
import math
import os
import pathlib
import re
from datetime import datetime
from enum import Enum
from string import punctuation
from types import SimpleNamespace
from typing import Any, Optional
from urllib.parse import quote

import httpx

BASE_URL, KEY, ANSWER = (os.environ[name] for name in ("BASE_URL", "API_KEY", "ANSWER"))
# The headers of a connection as docs/chat-api.md tells people to set them.
CONNECTION_HEADERS = json.loads(os.environ["CONNECTION_HEADERS"])
MODULES = pathlib.Path(os.environ["OPEN_WEBUI"]) / "open_webui"


def take(module, namespace):
    """Runs the functions, classes and prompts of a module, without what it imports and sets up."""
    def is_wanted(node):
        if isinstance(node, ast.Assign):
            return all(isinstance(name, ast.Name) for name in node.targets) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.ClassDef):
            return node.name == "TASKS"
        return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list
    tree = ast.parse((MODULES / module).read_text(encoding="utf-8"))
    # Annotations may name what is not imported here.
    first = ast.parse("from __future__ import annotations").body
    kept = [node for node in tree.body if is_wanted(node)]
    exec(compile(ast.Module(first + kept, []), module, "exec"), namespace)


webui = {
    "Any": Any, "Optional": Optional, "Enum": Enum, "datetime": datetime, "json": json, "math": math, "re": re,
    "quote": quote, "punctuation": punctuation, "log": logging.getLogger(), "JSONCodec": json,
}
for module in ("config.py", "constants.py", "utils/misc.py", "utils/headers.py", "utils/task.py"):
    take(module, webui)

USER = SimpleNamespace(id="7d3f0b52-carol", name="Carol", email="carol@example.org", role="user", info={})
CHAT_ID = "0d5c8b1e-9f43-4a7e-8a52-6f2b8a3d1c77"
FIRST = "[plain:first] Paint the fence"
HISTORY = [{"role": "user", "content": FIRST}, {"role": "assistant", "content": ANSWER}]
TOOLS = [{"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}}}
         for name in ("get_current_timestamp", "ask_user")]


def rendered(name, *arguments, template=None):
    prompt = webui[f"DEFAULT_{(template or name).upper()}_PROMPT_TEMPLATE"]
    made = webui[f"{name}_template"](prompt, *arguments)
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def forwarded():
    """As ENABLE_FORWARD_USER_INFO_HEADERS=true sends them; the names are the defaults."""
    return {"X-OpenWebUI-User-Name": quote(USER.name, safe=" "), "X-OpenWebUI-User-Id": USER.id,
            "X-OpenWebUI-User-Email": USER.email, "X-OpenWebUI-User-Role": USER.role, "X-OpenWebUI-Chat-Id": CHAT_ID}


def templated(message, task=None):
    """As a connection with headers sends them."""
    metadata = {"chat_id": CHAT_ID, "message_id": message, "task": task}
    return webui["parse_custom_headers"](CONNECTION_HEADERS, USER, metadata)


def post(body, headers):
    headers = {"Authorization": f"Bearer {KEY}", **headers}
    response = httpx.post(f"{BASE_URL}/chat/completions", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    return response


def chat(messages, headers):
    """As the page sends a chat: streamed, and with tools of Open WebUI itself."""
    body = {"stream": True, "model": "cynodeai.pm", "messages": messages, "tools": TOOLS,
            "stream_options": {"include_usage": True}}
    lines = post(body, headers).text.splitlines()
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events[-1] == "[DONE]", events
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert content == ANSWER, content


def task(name, content, headers, system=None):
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    body = {"model": "cynodeai.pm", "messages": messages, "stream": False}
    if name == "title_generation":
        body["max_tokens"] = 1000
    found = post(body, headers(name)).json()["choices"][0]["message"]["content"]
    # As Open WebUI finds the answer.
    return json.loads(found[found.find("{"):found.rfind("}") + 1]), found


def background_tasks(headers):
    answered, _ = task("title_generation", rendered("title_generation", HISTORY, USER), headers)
    assert answered["title"] == "[plain:first] Paint the fence", answered
    answered, _ = task("tags_generation", rendered("tags_generation", HISTORY, USER), headers)
    assert answered["tags"] and all(isinstance(tag, str) for tag in answered["tags"]), answered
    _, found = task("follow_up_generation", rendered("follow_up_generation", HISTORY, USER), headers)
    assert webui["parse_follow_ups"](found) == [] and "follow_ups" in found, found
    answered, _ = task("query_generation", rendered("query_generation", HISTORY, USER), headers)
    assert answered == {"queries": []}, answered
    completion = rendered("autocomplete_generation", "Paint the fen", HISTORY, "search query", USER)
    answered, _ = task("autocomplete_generation", completion, headers)
    assert answered == {"text": ""}, answered
    answered, _ = task("image_prompt_generation", rendered("image_prompt_generation", HISTORY, USER), headers)
    assert isinstance(answered["prompt"], str), answered
    tools = rendered("tools_function_calling_generation", "[]", template="tools_function_calling")
    answered, _ = task("function_calling", "Query: Paint the fence", headers, system=tools)
    assert answered == {"tool_calls": []}, answered


if os.environ["WITH_HEADERS"] == "yes":
    chat(HISTORY[:1], templated("message-1"))
    background_tasks(lambda name: templated("message-1", name))
    chat([*HISTORY, {"role": "user", "content": "[plain:second] And the gate?"}], templated("message-2"))
else:
    chat(HISTORY[:1], forwarded())
    background_tasks(lambda name: forwarded())
    chat([*HISTORY, {"role": "user", "content": "[plain:second] And the gate?"}], forwarded())
