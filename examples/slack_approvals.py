"""Approvals in Slack: a notifier that posts questions, and a web app that takes the answers.

python examples/slack_approvals.py

The Slack here is a function of this process, and the model follows a script, so that this runs
offline. In your app, `Slack` gets no client.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
from fastapi import FastAPI, HTTPException, Request

from holdfast import Agent, AgentRunner, Notice, ToolCall, tool
from holdfast.errors import CommandRefusedError
from holdfast.task.data.calls import Approval
from holdfast.testing import ScriptedModel


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


class Slack:
    """Posts what waits for a person: `notify=[Slack(...)]`, of the runner or the worker."""

    def __init__(self, token: str, channel: str, client: httpx.AsyncClient | None = None) -> None:
        self.channel, self.client = channel, client or httpx.AsyncClient()
        self.headers = {"Authorization": f"Bearer {token}"}

    async def send(self, notice: Notice) -> None:
        call = "\n".join([f"{notice.tool} {notice.arguments}", *notice.defaults])
        shown, verbs = f"{notice.title}: {json.dumps(call)}", ["approve", "reject"]
        if len(shown) > 3000 or "[hidden: " in shown:  # too long for Slack, or with a secret
            shown, verbs = f"{notice.title}, by a call to see in whole: {notice.url}", ["reject"]
        value = f"{notice.approval} {notice.digest}"
        buttons = [
            {"type": "button", "action_id": verb, "text": plain(verb), "value": value}
            for verb in verbs
        ]
        text = {"type": "section", "text": plain(shown)}
        blocks = [text, {"type": "actions", "elements": buttons}]
        body = {"channel": self.channel, "text": notice.title, "blocks": blocks}
        url = "https://slack.com/api/chat.postMessage"
        answer = await self.client.post(url, json=body, headers=self.headers)
        told = answer.raise_for_status().json()
        if not told["ok"]:  # Slack says 200, and in the body what went wrong: sent again later
            raise RuntimeError(f"Slack refused the message: {told['error']}")


def signature(secret: str, sent: str, body: bytes) -> str:
    made = hmac.new(secret.encode(), f"v0:{sent}:".encode() + body, hashlib.sha256)
    return f"v0={made.hexdigest()}"


def is_from_slack(secret: str, headers: Any, body: bytes) -> bool:
    """Check the signature of a request, and that it is no old one that is sent again."""
    sent = headers.get("X-Slack-Request-Timestamp", "")
    if not sent.isdecimal() or abs(time.time() - int(sent)) > 300:
        return False
    given = headers.get("X-Slack-Signature", "")
    return hmac.compare_digest(signature(secret, sent, body).encode(), given.encode())


def slack_app(runner: AgentRunner, secret: str) -> FastAPI:
    """Take the presses of buttons: the request URL of the Slack app's interactivity."""
    app = FastAPI()

    @app.post("/slack/actions")
    async def act(request: Request) -> dict[str, str]:
        body = await request.body()
        if not is_from_slack(secret, request.headers, body):
            raise HTTPException(401)
        pressed = json.loads(parse_qs(body.decode())["payload"][0])
        [action] = pressed["actions"]
        by = f"slack:{pressed['user']['id']}"
        id, _, digest = action["value"].rpartition(" ")
        approval = Approval(id=id, digest=digest)  # of the call that was shown, and no other
        try:
            if action["action_id"] == "approve":
                await runner.approve(approval, by=by)
            else:
                await runner.reject(approval, by=by, reason="rejected in Slack")
        except CommandRefusedError as error:  # somebody was faster
            return {"text": str(error)}
        return {"text": "Recorded."}

    return app


posted: list[dict[str, Any]] = []
is_posted = threading.Event()  # for both threads: an asyncio.Event is not


def fake_slack(request: httpx.Request) -> httpx.Response:
    posted.append(json.loads(request.content))
    is_posted.set()
    return httpx.Response(200, json={"ok": True})


@tool(needs_approval=True)
def pay(to: str, euros: int, iban: str = "DE00") -> str:
    """Pay somebody."""
    return f"paid {euros} to {to}, {iban}"


def pressed(value: str, secret: str) -> dict[str, Any]:
    """Make the request that Slack sends when the first button is pressed."""
    action = {"action_id": "approve", "value": value}
    payload = json.dumps({"user": {"id": "U1"}, "actions": [action]})
    body, now = urlencode({"payload": payload}).encode(), str(int(time.time()))
    signed = {"X-Slack-Signature": signature(secret, now, body)}
    return {"content": body, "headers": {"X-Slack-Request-Timestamp": now, **signed}}


async def main() -> None:
    fake = httpx.AsyncClient(transport=httpx.MockTransport(fake_slack))
    slack = Slack("xoxb-1", "#payments", fake)
    call = ToolCall(id="", name="pay", arguments='{"to": "Kim", "euros": 40}')
    clerk = Agent(name="clerk", model=ScriptedModel([call, "It is paid."]), tools=[pay])
    async with AgentRunner.local(clerk, data_dir=None, notify=[slack]) as runner:
        task = await runner.create_task("Pay Kim.")
        await runner.run_step(task)
        await asyncio.to_thread(is_posted.wait)
        text, actions = posted[0]["blocks"]
        print(text["text"]["text"])
        transport = httpx.ASGITransport(slack_app(runner, "secret"))
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            for secret in ("forged", "secret"):
                press = pressed(actions["elements"][0]["value"], secret)
                print((await client.post("/slack/actions", **press)).status_code)
        print(await runner.run_task(task))


if __name__ == "__main__":
    asyncio.run(main())
