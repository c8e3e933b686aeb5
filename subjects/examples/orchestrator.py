"""Hands off a chat with nats-py and waits for its answer: python orchestrator.py "What is left to do?"

NATS_URL is the address of the server. The answer is read from the stream, so it is not lost if this program or its
connection fails: run it again with the same id in HANDOFF_ID to get the same answer.

USER_ID is the user on whose behalf the manager acts. The lease for that is issued by the gateway at GATEWAY_URL, with the
orchestrator's token in GATEWAY_TOKEN_FILE.
"""

import asyncio
import datetime
import json
import os
import sys
import urllib.request
import uuid

import nats
from nats.js.api import DeliverPolicy


def issue_lease(user_id, handoff_id):
    """Calls the gateway's tool lease.issue, which is one HTTP request."""
    with open(os.environ["GATEWAY_TOKEN_FILE"]) as file:
        token = file.read().strip()
    wanted = {"agent": "project_manager", "user_id": user_id, "handoff_id": handoff_id}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "lease.issue", "arguments": wanted}}
    request = urllib.request.Request(
        os.environ.get("GATEWAY_URL", "http://127.0.0.1:8790/mcp"), json.dumps(call).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json",
         "Accept": "application/json, text/event-stream"})
    with urllib.request.urlopen(request) as response:
        reply = json.load(response)
    if "error" in reply or reply["result"].get("isError"):
        sys.exit(f"no lease: {reply}")
    return reply["result"]["structuredContent"]["lease"]


async def main(text):
    connection = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    jetstream = connection.jetstream()
    handoff_id = os.environ.get("HANDOFF_ID", str(uuid.uuid4()))
    handoff = {
        "schema_version": 1,
        "handoff_id": handoff_id,
        "kind": "chat",
        "issued_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "payload": {"model": "cynodeai.pm", "messages": [{"role": "user", "content": text}]},
    }
    # The server stores a message id once, so it is safe to publish again if the acknowledgement was lost.
    headers = {"Nats-Msg-Id": handoff_id}
    if user_id := os.environ.get("USER_ID"):
        headers["Cynode-Lease"] = issue_lease(user_id, handoff_id)
    await jetstream.publish("pma.handoff.chat", json.dumps(handoff).encode(), headers=headers)

    answers = await jetstream.subscribe(
        f"pma.run.{handoff_id}.completion", stream="CYNODE_RUNS", ordered_consumer=True,
        deliver_policy=DeliverPolicy.ALL)
    answer = json.loads((await answers.next_msg(timeout=60)).data)
    await connection.close()
    if answer["error"]:
        sys.exit(f"{answer['error']['code']}: {answer['error']['message']}")
    print(answer["message"]["content"])


asyncio.run(main(sys.argv[1]))
