"""People are notified when a task waits for them, on the real server, by real requests."""

import asyncio
import threading
import time
from datetime import datetime
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from holdfast import AgentRunner, ApprovalRule, Notice, Notifier, Task, Webhook, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.client.agent_runner import approvals
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    NotificationError,
    TaskClosedError,
)
from holdfast.testing import FakeOpenAI, call
from tests.support.people import ask
from tests.support.receiver import SECRET, Receiver
from tests.support.rig import Rig, histories, step_a_task, until, until_rolled


class Book:
    """A notifier of one's own, which refuses messages while it is closed.

    Attributes:
        sent: The ids of the messages that it has taken.
        tried: How many it was given.
        closed: What it raises.
    """

    def __init__(self, closed: Exception | None = None) -> None:
        self.sent: list[str] = []
        self.tried = 0
        self.closed = closed

    async def send(self, notice: Notice) -> None:
        self.tried += 1
        if self.closed is not None:
            raise self.closed
        self.sent.append(notice.id)


class Letters:
    """A notifier with a plain method, which waits until it is told to go on."""

    def __init__(self) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.sent: list[str] = []

    def send(self, notice: Notice) -> None:
        self.began.set()
        self.may_go_on.wait()
        self.sent.append(notice.id)


def paying(rule: ApprovalRule | bool = True) -> Tool:
    """Make a tool whose calls a person decides."""

    @tool(needs_approval=rule)
    def pay(euros: int, note: str = "", iban: str = "DE00") -> str:
        """Pay."""
        return f"paid {euros}{note and '!'}"

    return pay


async def serve(
    rig: Rig, *notifiers: Notifier, rule: ApprovalRule | bool = True, **options: Any
) -> AgentRunner:
    await rig.serve(rig.agent(paying(rule)), notify=notifiers)
    return rig.runner(**options)


async def waiting(runner: AgentRunner, model: FakeOpenAI, **arguments: object) -> Task:
    """Create a task that waits for a decision about a payment."""
    model.add(call("pay", {"euros": 3, **arguments}), "done")
    task = await runner.create_task("pay 3")
    assert (await runner.run_step(task)).status == "waiting"
    return task


async def sent(rig: Rig, task: Task, event: str) -> int:
    """Count events of the activity `notify` in a task's history."""
    kind = EventType.Value(f"EVENT_TYPE_ACTIVITY_TASK_{event}")
    found = 0
    for history in await histories(rig.engine.client, task.task_id):
        scheduled = {
            each.event_id
            for each in history.events
            if each.activity_task_scheduled_event_attributes.activity_type.name == "notify"
        }
        for each in history.events:
            if each.event_type == kind:
                own = each.event_id if event == "SCHEDULED" else _scheduled_id(each)
                found += own in scheduled
    return found


def _scheduled_id(event: object) -> int:
    for name in ("completed", "failed", "canceled", "cancel_requested", "timed_out"):
        attributes = getattr(event, f"activity_task_{name}_event_attributes")
        if attributes.scheduled_event_id:
            return int(attributes.scheduled_event_id)
    return 0


async def test_an_approval_is_posted_once_and_again_only_when_it_was_refused(
    rig: Rig, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    runner = await serve(rig, Webhook(receiver.url, SECRET))
    task = await waiting(runner, rig.model, note="key sk-live-A1b2C3d4E5f6G7")
    question = await ask(runner, task)
    await until(lambda: sent(rig, task, "COMPLETED"))
    assert receiver.ids() == [f"{question.id}:asked"] * 2
    first = receiver.got[0]
    assert first.is_signed
    assert first.body["type"] == "approval.asked"
    assert (first.data["task"], first.data["agent"]) == (task.task_id, "agent")
    assert (first.data["kind"], first.data["tool"]) == ("tool", "pay")
    assert '"euros":3' in first.data["arguments"].replace(" ", "")
    assert "A1b2C3d4" not in first.data["arguments"]
    assert first.data["defaults"] == ['iban: "DE00" (default)']
    assert first.data["digest"] == question.digest
    await runner.approve(question, "ann")
    assert str(await runner.run_task(task)) == "done"
    assert len(receiver.got) == 2


async def test_notifiers_that_fail_or_hang_keep_no_other_from_sending_once(rig: Rig) -> None:
    class Hangs:
        async def send(self, notice: Notice) -> None:
            await asyncio.Event().wait()

    good, bad = Book(), Book(NotificationError("It is closed."))
    await rig.serve(rig.agent(paying()), notify=[bad, good])
    runner = rig.runner()
    task = await waiting(runner, rig.model)
    question = await ask(runner, task)

    await until(lambda: bad.tried > 1)
    bad.closed = None
    await until(lambda: sent(rig, task, "COMPLETED"))
    assert good.sent == bad.sent == [f"{question.id}:asked"]
    assert good.tried == 1
    await runner.approve(question, "ann")
    assert str(await runner.run_task(task)) == "done"
    await rig.serve(rig.agent(paying()), notify=[Hangs(), good])
    task = await waiting(runner, rig.model)
    question = await ask(runner, task)

    await until(lambda: good.sent[1:] == [f"{question.id}:asked"])
    await runner.reject(question, "ann", "no")
    assert str(await runner.run_task(task)) == "done"


async def test_a_decision_ends_what_is_not_delivered_yet(rig: Rig, receiver: Receiver) -> None:
    receiver.always = 503
    runner = await serve(rig, Webhook(receiver.url, SECRET))
    task = await waiting(runner, rig.model)

    await until(lambda: bool(receiver.got))
    await runner.reject(await ask(runner, task), "ann", "no")
    assert str(await runner.run_task(task)) == "done"
    assert await sent(rig, task, "SCHEDULED") == 1
    assert await sent(rig, task, "CANCEL_REQUESTED") == 1
    assert await sent(rig, task, "COMPLETED") == 0


async def test_a_message_on_its_way_when_the_task_continues_as_new_is_sent_once(rig: Rig) -> None:
    letters = Letters()
    try:
        runner = await serve(rig, letters, roll_events=50)
        rig.model.call("pay", {"euros": 3})
        task = await step_a_task(runner, "pay 3")
        await asyncio.to_thread(letters.began.wait)
        for k in range(40):
            await runner.give_feedback(task, f"well, {k}")
    finally:
        letters.may_go_on.set()
    await until_rolled(runner.client, task.task_id)
    await until_noted(runner, task)
    assert len(letters.sent) == 1
    assert await sent(rig, task, "SCHEDULED") == 1


async def until_noted(runner: AgentRunner, task: Task) -> None:
    """Wait until the newest run of a task has taken a command, and with it what it begins with."""
    await runner.give_feedback(task, "that is all")
    await ask(runner, task)


async def test_a_snoozed_approval_comes_back_by_itself_and_says_so_also_after_a_rollover(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "LISTED_SECONDS", 0.5)  # for what other tests have left
    book = Book()
    runner = await serve(rig, book, roll_events=50)
    task = await waiting(runner, rig.model)
    question = await ask(runner, task)

    async def listed(*, snoozed: bool = False) -> bool:
        found = await runner.pending_approvals(snoozed=snoozed)
        return question.id in {each.id for each in found}

    await until(listed)
    with pytest.raises(CommandRefusedError, match="is over already"):
        await runner.snooze(question, "ann", time.time() - 1)
    with pytest.raises(CommandRefusedError, match="There is no open approval"):
        await runner.snooze(f"{task.task_id}:9", "ann", time.time() + 60)
    with pytest.raises(InvalidArgumentError, match="without a time zone"):
        await runner.snooze(question, "ann", datetime(2100, 1, 1))  # noqa: DTZ001  the claim
    handle = runner.client.get_workflow_handle(task.task_id)
    later = {"approval": question.id, "until": "2100-01-01T00:00:00Z", "by": "ann"}
    await handle.signal("snooze", later)

    async def gone() -> bool:
        return not await listed()

    await until(gone)
    for _ in range(50):
        await handle.signal("resume", {"by": "ann"})
    await until_rolled(runner.client, task.task_id)
    assert await gone()
    assert await listed(snoozed=True)
    [asked] = await runner.pending_approvals(task)
    assert asked.about["snoozed"] == "until 2100-01-01 00:00:00 UTC by ann"
    await runner.snooze(question, "ben", time.time() + 3, reason="lunch")
    await until(listed)

    await until(lambda: len(book.sent) > 1)
    assert [each.rstrip("0123456789") for each in book.sent] == [
        f"{question.id}:asked",
        f"{question.id}:returned",
    ]
    await runner.snooze(question, "ann", time.time() + 600)
    await runner.approve(question, "ann")
    assert str(await runner.run_task(task)) == "done"
    await runner.finalize_response(task)
    with pytest.raises(TaskClosedError):
        await runner.snooze(question, "ann", time.time() + 60)
    said = [each for each in await runner.audit(task) if each.verb == "snooze"]
    assert [(e.actor, e.status == "applied") for e in said if e.kind == "command"] == [
        ("ann", True),
        ("ben", True),
        ("ann", True),
    ]
