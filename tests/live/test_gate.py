"""Values that no task could keep: refused where they enter, and nothing that is sent by hand hurts.

What a program of Temporal's own sends to a task by hand passes no check of ours before it is there.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import AgentRunner, Runner, ToolContext, tool
from holdfast.engine.converter import UNREADABLE
from holdfast.errors import InvalidArgumentError
from holdfast.testing import call
from holdfast.values.checks.ids import queue_of
from holdfast.values.messages import user
from tests.support.rig import Rig, step_a_task, until_status
from tests.support.scale import all_of
from tests.support.workers import Counting

NAN, LONE = float("nan"), "\ud800"


def nested(levels: int) -> Any:
    data: Any = 1
    for _ in range(levels):
        data = {"a": data}
    return data


ODD: dict[str, Any] = {
    "nested 70 deep": nested(70),
    "nested 240 deep": nested(240),
    "nested 5000 deep": nested(5000),
    "not a number": NAN,
    "a lone surrogate": LONE,
    "a lone surrogate in a key": {LONE: 1},
    "an object": object(),
    "a key that is no text": {1: "a"},
    "a set": {1},
    "bytes": b"b",
}


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


async def goes_on(runner: AgentRunner, task: Any) -> None:
    """Run a task on and end it."""
    assert (await runner.run_step(task)).status == "done"
    await runner.abandon(task, reason="enough")
    await until_status(runner, task, "abandoned")


# ---- what people and programs give


@tool(needs_approval=True)
def pay(amount: int, about: dict[str, Any] | None = None) -> str:
    """Pay."""
    return f"paid {amount}, {about}"


async def test_what_no_task_can_keep_begins_no_task_and_no_run_and_enters_no_session(
    rig: Rig,
) -> None:
    runner = await rig.make(worker=Counting())
    session = runner.session("s")
    for name, odd in ODD.items():
        with naming(name):
            with pytest.raises(InvalidArgumentError, match="extra_state"):
                await runner.create_task("q", task_id=rig.app, extra_state={"a": odd})
            items: list[Any] = [{"type": "reasoning", "summary": [], "odd": odd}]
            with pytest.raises(InvalidArgumentError, match="Item 0 of the input list"):
                await Runner.run(
                    rig.agent(), [*items, {"role": "user", "content": "q"}], runner=runner
                )
            with pytest.raises(InvalidArgumentError, match="Item 0 of the input list"):
                await session.add_items(items)
    for add in (session.append, session.replace):
        with pytest.raises(InvalidArgumentError, match="holds a lone surrogate"):
            await add([user(LONE)])
    assert await session.get_items() == []
    await goes_on(runner, await runner.create_task("q", task_id=rig.app))


async def test_decisions_commands_and_requests_that_no_task_can_keep_are_not_sent(rig: Rig) -> None:
    runner = await rig.make(pay)
    rig.model.call("pay", {"amount": 1})
    task = await step_a_task(runner)
    [approval] = await runner.pending_approvals(task)
    for name, odd in ODD.items():
        with naming(name), pytest.raises(InvalidArgumentError, match="The decision"):
            await runner.approve(approval, by="ann", arguments={"amount": 1, "about": odd})
    for field, texts in (("reason", (LONE,)), ("by", ("", LONE))):
        with pytest.raises(InvalidArgumentError, match=rf"{field} .*lone surrogate"):
            await runner.pause(task, *texts)
    with pytest.raises(InvalidArgumentError, match="by may have at most 200 characters"):
        await runner.pause(task, by="x" * 201)
    with pytest.raises(InvalidArgumentError, match="at most 262144 bytes"):
        await runner.edit_step(task, "s1", "x" * 300_000)
    with pytest.raises(InvalidArgumentError, match="lone surrogate"):
        await runner.run_step(task, step=LONE)
    with pytest.raises(InvalidArgumentError, match="lone surrogate"):
        await runner.undo_step(task, by=LONE)
    assert [a.status for a in await runner.pending_approvals(task)] == ["open"]
    await runner.reject(approval, by="ann", reason="no")
    await goes_on(runner, task)


# ---- what tools, AgentWorkers and guardrails give


async def test_a_change_of_the_state_that_no_task_can_keep_is_told_to_the_model(rig: Rig) -> None:
    ran: list[int] = []

    @tool
    def change(ctx: ToolContext) -> str:
        """Change the state."""
        ran.append(1)
        ctx.state["a"] = nested(240)
        return "changed"

    runner = await rig.make(change)
    rig.model.add(call("change"), "done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    assert "its change of the state was not kept" in rig.model.requests[1].results["call_1"]
    assert ran == [1]
    assert (await runner.get_task(task)).extra_state == {}


# ---- what a program sends by hand

DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
HANDMADE: dict[str, list[Any]] = {
    "nothing": [],
    "null": [None],
    "a number": [7],
    "a list": [[1]],
    "an empty object": [{}],
    "two values": [{}, {}],
    "three values": [1, "a", None],
    "wrong fields": [{"number": "x", "id": [1], "all": {}, "to": "x", "n": {}, "skip": "x"}],
    "huge numbers": [{"number": 10**400, "to": 10**400, "n": 10**400, "skip": -(10**400)}],
    "not JSON": [raw(b"{")],
    "not UTF-8": [raw(b"\xff\xfe\x00")],
    "nested deep": [raw(b'{"id":' + DEEP + b"}")],
    "nested 240 deep": [raw(b'{"x":' * 240 + b"1" + b"}" * 240)],
    "infinite": [raw(b'{"number":1e999,"usage":{"input_tokens":1e999}}')],
    "surrogates": [raw(b'{"id":"\\ud800","by":"\\ud800","\\ud800":1,"undo":"do"}')],
    "an unknown encoding": [raw(b"x", b"binary/strange")],
    "binary": [b"\x00\x01"],
}


@contextmanager
def naming(name: str) -> Generator[None]:
    """Say in a failure which of the values was sent."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"What was sent is {name}.")
        raise


async def sent(handle: Any, update: str, values: list[Any]) -> None:
    """Send an update, again if the server drops the workflow task that has it, as at a rollover."""
    while True:
        try:
            with suppress(WorkflowUpdateFailedError):
                await handle.execute_update(update, args=values)
        except RPCError as error:
            if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                raise
        else:
            return


async def test_signals_updates_and_queries_that_are_sent_by_hand_do_not_hurt(rig: Rig) -> None:
    """A task that gets each of the values by each way does a step after each, and goes on."""
    runner = await rig.make(worker=Counting(100), roll_events=100)
    task = await runner.create_task("q")
    handle: Any = runner.client.get_workflow_handle(task.task_id)
    for said in ({"number": 1, "end": "abandon"}, {"number": 2, "undo": "do"}, {"paused": "x"}):
        await handle.signal("parent", said)  # it has none
    for name, values in HANDMADE.items():
        with naming(name):
            for signal in ("child", "parent", "feedback", "explode", "__temporal_x", "\n"):
                await handle.signal(signal, args=values)
            for update in ("run", "undo", "finalize", "unknown"):
                await sent(handle, update, values)
            for query in ("view", "entries", "step", "task", "receipt", "unknown"):
                with suppress(WorkflowQueryFailedError):
                    await handle.query(query, args=values)
            assert (await runner.run_step(task)).status == "done"
    await goes_on(runner, task)


NO_INPUTS = [name for name in HANDMADE if name != "an unknown encoding"]  # a codec that is not here
OBJECTS = ("an empty object", "wrong fields", "huge numbers", "infinite", "nested deep")
NO_SESSIONS = [name for name in NO_INPUTS if name not in OBJECTS]  # it has a default for each field


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # Temporal's own
@pytest.mark.parametrize(
    ("kind", "names"),
    [("AgentTask", NO_INPUTS), ("Session", NO_SESSIONS), all_of("Mailbox", NO_SESSIONS)],
    ids=["task", "session", "mailbox"],
)
async def test_a_start_by_hand_with_an_input_that_is_none_ends_at_once(
    rig: Rig, kind: str, names: list[str]
) -> None:
    runner = await rig.make(worker=Counting())
    for number, name in enumerate(names):
        with naming(name):
            handle = await runner.client.start_workflow(
                kind,
                args=HANDMADE[name],
                id=f"handmade-{number}-{rig.app}",
                task_queue=queue_of(rig.app),
            )
            with pytest.raises(WorkflowFailureError) as caught:
                await handle.result()
            cause = caught.value.cause
            assert isinstance(cause, ApplicationError)
            assert cause.type == UNREADABLE
            assert "cannot be read" in cause.message or "cannot read" in cause.message
    await rig.stop()
    gc.collect()  # here, where the warning is expected, and not in a later test
