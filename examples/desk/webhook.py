"""A receiver that is notified of an approval by a signed webhook, and approves; offline.

python examples/desk/webhook.py
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import time

import uvicorn
from fastapi import FastAPI, HTTPException, Request

from holdfast import Agent, AgentRunner, ToolCall, Webhook, tool
from holdfast.task.data.calls import Approval
from holdfast.testing import ScriptedModel

SECRET = base64.b64encode(os.urandom(32)).decode()
"""Shared by the worker process and the receiver; yours is in the environment of both."""

NAMES = ("id", "timestamp", "signature")
"""The headers of a message, after "webhook-"."""

TOLERANCE = 300
"""Seconds that a message may be old, so that nobody can send a recorded one again later."""

app = FastAPI()
asked: asyncio.Queue[Approval] = asyncio.Queue()
seen: set[str] = set()


@app.post("/approvals", status_code=204)
async def approvals(request: Request) -> None:
    """Check the signature, leave out what has arrived before, and pass on the rest."""
    body, headers = await request.body(), request.headers
    message, at, signature = (headers.get(f"webhook-{name}", "") for name in NAMES)
    signed = f"{message}.{at}.".encode() + body
    digest = hmac.digest(base64.b64decode(SECRET), signed, hashlib.sha256)
    right = b"v1," + base64.b64encode(digest)
    is_right = hmac.compare_digest(right, signature.encode())
    if not is_right or abs(time.time() - int(at)) > TOLERANCE:  # what is signed has a number
        raise HTTPException(401)
    if message not in seen:
        seen.add(message)
        data = (await request.json())["data"]
        print(f"{data['agent']} asks: {data['tool']} {data['arguments']} {data['defaults']}")
        await asked.put(Approval(id=data["approval"], digest=data["digest"]))


@tool(needs_approval=True)
def pay(to: str, euros: int) -> str:
    """Pay somebody."""
    return f"{euros} euros were paid to {to}"


async def main() -> None:
    """Receive the webhook of a task, and approve what it asks."""
    config = uvicorn.Config(app, port=8402, log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    call = ToolCall(id="", name="pay", arguments='{"to": "Kim", "euros": 40}')
    clerk = Agent(name="clerk", model=ScriptedModel([call, "Kim has the money."]), tools=[pay])
    webhook = Webhook("http://127.0.0.1:8402/approvals", SECRET)
    async with AgentRunner.local(clerk, data_dir=None, notify=[webhook]) as runner:
        task = await runner.create_task("Pay Kim 40 euros.", step_mode="automatic")
        await runner.approve(await asked.get(), by="anna")
        print(await runner.run_task(task))
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
