"""Calls that wait: for a time, for whoever has their token, and for events."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2 as httpx
import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from holdfast import (
    Agent,
    AgentRunner,
    Runner,
    Task,
    ToolContext,
    sleep_until,
    tool,
    wait_for_event,
)
from holdfast import agents_sdk as sdk
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.waiting import LaterTool
from holdfast.desk.api.hooks import SECRETS_VARIABLE, WINDOW_SECONDS, checked, secrets_of
from holdfast.desk.identity.protection import LONGEST_HOOK, Limits
from holdfast.desk.identity.tokens import NotAuthenticatedError
from holdfast.desk.server import desk_app
from holdfast.errors import CommandRefusedError, DeclarationError, InvalidArgumentError
from holdfast.task.mailbox import LARGEST_EVENT, mailbox_id
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig, until, until_status, until_task

Script = list[ToolCall | str]
LATER = datetime(2990, 1, 1, tzinfo=UTC)


def call(name: str, **arguments: object) -> ToolCall:
    """Return a call as the model makes it."""
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


async def served(rig: Rig, made: Tool, script: Script) -> AgentRunner:
    """Serve an agent with a tool, whose model follows a script."""
    await rig.serve(Agent(name="agent", model=ScriptedModel(script), tools=[made]))
    return rig.runner()


async def until_waits(runner: AgentRunner, task: Task, said: str) -> str:
    """Wait until a task says what its calls wait for; return that."""
    return (await until_task(runner, task, lambda found: said in found.waits)).waits


async def results(runner: AgentRunner, task: Task) -> list[str]:
    """List what the model has read of its calls."""
    return [str(m.content) for m in await runner.transcript(task) if m.role == "tool"]


async def test_people_see_that_a_call_sleeps_and_wake_it(rig: Rig) -> None:
    turns: Script = [call("sleep_until", when="2900-01-01T00:00:00Z", note="look again"), "done"]
    runner = await served(rig, sleep_until, turns)
    task = await runner.create_task("q", step_mode="automatic")
    waits = await until_waits(runner, task, "sleeps")
    assert waits == "sleeps until 2900-01-01 00:00:00 UTC, look again"
    await runner.wake(task, "anna", until=LATER)
    await until_waits(runner, task, "sleeps until 2990")
    with pytest.raises(CommandRefusedError, match="No such call"):
        await runner.wake(task, "anna", call="other")
    await runner.wake(task, "anna", reason="now")
    await until_status(runner, task, "answered")
    assert (await runner.get_task(task)).waits == ""
    with pytest.raises(CommandRefusedError, match="No such call"):
        await runner.wake(task, "anna")


async def ordering(rig: Rig, **options: Any) -> tuple[AgentRunner, list[str]]:
    """Serve an agent whose tool hands out tokens; return them as they come."""
    tokens: list[str] = []

    @tool(completes="later", **options)
    async def order(ctx: ToolContext, thing: str) -> str:
        """Order something."""
        ctx.state["ordered"] = thing
        tokens.append(ctx.completion_token)
        return f"order of {thing}"

    assert isinstance(order, LaterTool)
    return await served(rig, order, [call("order", thing="tea"), "done"]), tokens


async def test_whoever_has_the_token_completes_a_call_once(rig: Rig) -> None:
    runner, tokens = await ordering(rig)
    task = await runner.create_task("q", step_mode="automatic")
    assert await until_waits(runner, task, "outcome") == "waits for its outcome, order of tea"
    assert await runner.pending_approvals(task) == []
    assert (await runner.get_task(task)).status == "running"
    [token] = tokens
    await runner.complete(token, until=LATER)
    await until_waits(runner, task, "until 2990")
    with pytest.raises(CommandRefusedError, match="token of no call"):
        await runner.complete(f"{token[:-1]}{'0' if token[-1] != '0' else '1'}", "x")
    await runner.complete(token, {"price": 3}, "shop")
    await until_status(runner, task, "answered")
    assert await results(runner, task) == ['{"price": 3}']
    assert (await runner.get_task(task)).extra_state["ordered"] == "tea"
    with pytest.raises(CommandRefusedError, match="is over"):
        await runner.complete(token, "again")
    assert token not in str(await runner.audit(task))
    with pytest.raises(InvalidArgumentError, match="A token is"):
        await runner.complete("nonsense", "x")


async def test_a_call_fails_in_time(rig: Rig) -> None:
    late, _ = await ordering(rig, completion_seconds=0.2)
    task = await late.create_task("q", step_mode="automatic")
    await until_status(late, task, "answered")
    assert await results(late, task) == ["No outcome of this call has come in 0.2 seconds."]


async def test_a_call_that_waited_says_who_made_it_and_what_its_guardrails_found(rig: Rig) -> None:
    @sdk.tool_input_guardrail
    def fits(_data: sdk.ToolInputGuardrailData) -> sdk.ToolGuardrailFunctionOutput:
        return sdk.ToolGuardrailFunctionOutput.allow("fits")

    tokens: list[str] = []

    @tool(completes="later", tool_input_guardrails=[fits])
    async def order(ctx: ToolContext) -> None:
        tokens.append(ctx.completion_token)

    agent = Agent(name="agent", model=ScriptedModel([call("order"), "done"]), tools=[order])
    await rig.serve(agent)
    runner = rig.runner()
    running = asyncio.create_task(Runner.run(agent, "q", runner=runner))
    [token] = await until(lambda: asyncio.sleep(0, tokens))
    await runner.complete(token, "delivered")
    result = await running
    assert [each.output.output_info for each in result.tool_input_guardrail_results] == ["fits"]
    [made] = [e for e in await runner.audit(result.task_id) if e.kind == "tool_call"]
    assert (made.worker != "", made.attempts, made.answered_by) == (True, 1, "tool")


def test_a_tool_that_completes_later_is_checked_where_it_is_declared() -> None:
    async def order(thing: str) -> str:
        return thing

    odd: Any = "soon"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"completes": odd}, "is not 'later'"),
        ({"completes": "later", "completion_seconds": 0}, "greater than 0"),
        ({"completes": "later", "return_direct": True}, "never see its result"),
    )
    for options, said in cases:
        with pytest.raises(DeclarationError, match=said):
            tool(**options)(order)
    assert Agent(name="a", tools=[sleep_until]).tools == [sleep_until]


# ---- calls that wait for events, and who sends these: Python, the command line, Temporal, webhooks

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


async def waiting(rig: Rig, match: Any = None, **options: Any) -> tuple[AgentRunner, Task]:
    """Serve an agent, and begin a task of it whose first call waits for the order 7."""
    wanted = {"name": "paid", "match": match or {"order.id": 7}, "timeout": "1 d"}
    wait = ToolCall(id="", name="wait_for_event", arguments=json.dumps(wanted))
    runner = await served(rig, wait_for_event, [wait, "done"])
    task = await runner.create_task("q", step_mode="automatic", **options)
    assert "waits for event 'paid' since 20" in await until_waits(runner, task, "event")
    return runner, task


async def test_an_event_that_fits_ends_the_wait_and_is_its_result(rig: Rig) -> None:
    runner, task = await waiting(rig)
    assert await runner.pending_approvals(task) == []
    assert (await runner.send_event("paid", {"order": {"id": 8}})).waiters == 0
    mailbox = runner.client.get_workflow_handle(mailbox_id(f"hf.{runner.app}", "paid"))
    for name in ("event", "wait", "leave", "erase"):  # of plain Temporal
        for data in (b"[" * 50_000 + b"]" * 50_000, b"7", b""):
            await mailbox.signal(name, RawValue(Payload(data=data)))
    await mailbox.signal("event", {"id": "e1", "data": {"order": {"id": 7}}})
    await until_status(runner, task, "answered")
    [text] = await results(runner, task)
    assert {**json.loads(text), "at": ""} == {
        "event": "paid",
        "id": "e1",
        "at": "",
        "data": {"order": {"id": 7}},
    }
    sent = await runner.send_event("paid", {"order": {"id": 7}}, id="e1")  # the same once more
    assert (sent.id, sent.status, sent.waiters) == ("e1", "kept", 1)
    assert "event paid" in str(await runner.audit(task))


async def test_a_tenant_s_task_gets_the_events_that_name_it_whatever_the_model_says(
    rig: Rig,
) -> None:
    runner, task = await waiting(rig, {"tenant": "other"}, tenant="acme")
    for data in ({}, {"tenant": "other"}, {"tenant": True}):
        assert (await runner.send_event("paid", data)).waiters == 0
    assert (await runner.send_event("paid", {"tenant": "acme"})).waiters == 1
    await until_status(runner, task, "answered")


async def test_what_can_be_no_event_is_refused_before_it_is_sent(rig: Rig) -> None:
    runner = rig.runner()
    with pytest.raises(InvalidArgumentError, match=f"there may be {LARGEST_EVENT:,}"):
        await runner.send_event("paid", {"text": "x" * LARGEST_EVENT})
    with pytest.raises(InvalidArgumentError, match=r"The data of the event\.sum is nan"):
        await runner.send_event("paid", {"sum": float("nan")})
    with pytest.raises(InvalidArgumentError, match="may not have the character"):
        await runner.send_event("a~b")
    with pytest.raises(InvalidArgumentError):
        await runner.send_event("paid", keep=timedelta(days=31))


def signed(body: bytes, *, id: str = "e1", at: float = 0, key: bytes = KEY) -> dict[str, str]:
    """Return the headers of a webhook."""
    stamp = str(int(at or time.time()))
    made = hmac.digest(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256)
    signature = f"v1a,other v1,{base64.b64encode(made).decode()}"
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature}


async def test_a_signed_webhook_is_an_event_and_no_other_request_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, task = await waiting(rig)
    monkeypatch.setenv(SECRETS_VARIABLE, f"other={SECRET[:-4]}AAA= paid={SECRET}")
    transport = httpx.ASGITransport(desk_app(runner), client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://desk.example") as http:
        body = json.dumps({"order": {"id": 7}}).encode()
        for headers, said in (
            ({}, "not signed"),
            (signed(body, key=b"another key of ours"), "No secret"),
            (signed(b"{}"), "No secret"),
            (signed(body, at=time.time() - WINDOW_SECONDS - 5), "more than 300 seconds"),
        ):
            refused = await http.post("/hooks/paid", content=body, headers=headers)
            assert refused.status_code == 401
            assert said in refused.json()["detail"]
            assert SECRET[6:] not in refused.text
        wrong = await http.post("/hooks/else", content=body, headers=signed(body))
        assert wrong.status_code == 401
        bad = await http.post("/hooks/paid", content=b"[1]", headers=signed(b"[1]"))
        assert (bad.status_code, (await http.get("/hooks/paid")).status_code) == (422, 401)
        assert (await runner.get_task(task)).status == "running"
        sent = await http.post("/hooks/paid", content=body, headers=signed(body))
        assert (sent.status_code, sent.json()["waiters"]) == (202, 1)
        again = await http.post("/hooks/paid", content=body, headers=signed(body))
        assert again.status_code == 202
    await until_status(runner, task, "answered")
    [text] = await results(runner, task)
    assert json.loads(text)["id"] == "e1"


async def test_strangers_take_nothing_from_webhooks(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRETS_VARIABLE, "whsec_c2hvcnQ=")
    with pytest.raises(InvalidArgumentError, match="Part 1 of") as raised:
        desk_app(rig.runner())
    assert "c2hvcnQ" not in str(raised.value)
    monkeypatch.setenv(SECRETS_VARIABLE, SECRET)
    large = b"x" * (LONGEST_HOOK + 1)

    async def pieces() -> AsyncIterator[bytes]:  # 413 once they are read
        yield large

    app = desk_app(await rig.make(), limits=Limits(writes_per_second=0.001, burst=1))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        for _ in range(3):
            assert (await http.post("/hooks/paid", content=pieces())).status_code == 401
        for content in (large, pieces()):
            refused = await http.post("/hooks/paid", content=content, headers=signed(large))
            assert refused.status_code == 413
        assert (await http.put("/hooks/paid", content=b"{}")).status_code == 401
        for name, status in (("paid", 202), ("paid", 429), ("sent", 202)):
            sent = await http.post(f"/hooks/{name}", content=b"{}", headers=signed(b"{}"))
            assert sent.status_code == status, sent.text


def test_a_signature_is_that_of_the_standard() -> None:
    """The example of Standard Webhooks 1.0."""
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    [secret] = secrets_of("x", f"y={SECRET} {key}")
    body = b'{"test": 2432232314}'
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert len(secret) == 24
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(SECRETS_VARIABLE, key)
        assert checked("x", headers, body, now=1614265331) == headers["webhook-id"]
        with pytest.raises(NotAuthenticatedError, match="No secret"):
            checked("x", headers, body + b" ", now=1614265331)
