"""A small MCP server with one tool, which counts words. It shows how little a server behind the gateway needs."""

import json
import sys

COUNT_WORDS = {
    "name": "count_words",
    "description": "Counts the words of a text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True},
}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "words", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [COUNT_WORDS]}
    if method == "tools/call" and params["name"] == COUNT_WORDS["name"]:
        words = len(params["arguments"]["text"].split())
        return {"content": [{"type": "text", "text": f"{words} words"}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue  # a notification
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        reply["error"] = {"code": -32601, "message": "unknown method or tool"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
