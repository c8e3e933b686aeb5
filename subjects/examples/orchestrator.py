"""Hands off a chat with nats-py and waits for its answer: python orchestrator.py "What is left to do?"

NATS_URL is the address of the server. The answer is read from the stream, so it is not lost if this program or its
connection fails: run it again with the same id in HANDOFF_ID to get the same answer.
"""

import asyncio
import datetime
import json
import os
import sys
import uuid

import nats
from nats.js.api import DeliverPolicy


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
    await jetstream.publish("pma.handoff.chat", json.dumps(handoff).encode(), headers={"Nats-Msg-Id": handoff_id})

    answers = await jetstream.subscribe(
        f"pma.run.{handoff_id}.completion", stream="CYNODE_RUNS", ordered_consumer=True,
        deliver_policy=DeliverPolicy.ALL)
    answer = json.loads((await answers.next_msg(timeout=60)).data)
    await connection.close()
    if answer["error"]:
        sys.exit(f"{answer['error']['code']}: {answer['error']['message']}")
    print(answer["message"]["content"])


asyncio.run(main(sys.argv[1]))
