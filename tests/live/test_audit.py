"""Audit: every event of a task, whatever became of it, and whether the record is intact."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentRunner, Budget, Task, TaskStep, TaskStepOutput, ToolContext, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.archive.archive import Archive, record_name
from holdfast.archive.bytestore import blob_path
from holdfast.archive.segments import read_segment
from holdfast.errors import MaxTurnsExceeded, OutcomeUnknownError
from holdfast.reading.audit.verification import (
    CONSISTENT,
    ENDED_OUTSIDE,
    FORGOTTEN,
    IN_RUN,
    NO_KEY,
    OPEN,
    SEEN,
    SELF_ONLY,
    SIGNED,
    TURNS,
    UNSIGNED,
)
from holdfast.task.data.records import SegmentRef, record_digest
from holdfast.task.data.state import SessionState
from holdfast.task.data.wire import EntriesPage, EntriesRequest
from holdfast.testing import FakeOpenAI, call
from holdfast.values.base import canonical, extend_json
from holdfast.values.messages import assistant
from holdfast.values.text.redact import REDACTED
from holdfast.workers import StepContext
from tests.support.people import ask
from tests.support.rig import (
    Rig,
    damaged,
    forget,
    histories,
    read_record,
    until,
    until_status,
    until_steps,
)
from tests.support.workers import Doing

"""A result that no other test stores: they share an archive."""


@pytest.fixture
def pay() -> Tool:
    """A tool that a person approves and that can be taken back."""

    @tool(needs_approval=True, undo=lambda effect: "given back")
    def pay(ctx: ToolContext, amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return pay


async def eventful(runner: AgentRunner, model: FakeOpenAI, **options: object) -> Task:
    """Make a task with an edit, an undo, a rejection and an answer."""
    for amount in (500, 70):
        model.call("pay", {"amount": amount})
    model.reply("done")
    task = await runner.create_task("q", **options)  # type: ignore[arg-type]
    await runner.run_step(task)
    await runner.approve(await ask(runner, task), "ann", {"amount": 5}, note="less")
    await until_steps(runner, task, 1)
    await runner.undo_step(task, by="ben", reason="wrong account")
    await runner.run_step(task)
    await runner.reject(await ask(runner, task), "cid", "no money")
    await until_steps(runner, task, 1)
    await runner.give_feedback(task, "hurry", by="dan")
    await runner.run_task(task)
    return task


ORDER = [
    "created",
    "model_call",
    "asked",
    "command",
    "tool_call",
    "step",
    "effect_undone",
    "undone",
    "model_call",
    "asked",
    "command",
    "tool_call",
    "step",
    "command",
    "model_call",
    "step",
]


async def test_who_says_afterwards_what_a_call_did_has_not_approved_it(rig: Rig) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay, over a line that goes dead."""
        raise OutcomeUnknownError("no answer came")

    runner = await rig.make(pay)
    rig.model.call("pay", {"amount": 5})
    task = await runner.create_task("q", by="zoe")
    await runner.run_step(task)
    asked = await ask(runner, task)
    await runner.approve(asked, "ann")

    async def is_unknown() -> bool:
        return [a.kind for a in await runner.pending_approvals(task)] == ["unknown"]

    await until(is_unknown)
    await runner.respond(await ask(runner, task), "ben", "paid, says the bank")
    await until_steps(runner, task, 1)
    events = await runner.audit(task)
    [called] = [e for e in events if e.kind == "tool_call"]
    assert (called.approval, called.decision, called.approver) == (asked.id, "approved", "ann")
    assert (called.answered_by, called.result) == ("ben", "paid, says the bank")
    assert (events[0].kind, events[0].actor) == ("created", "zoe")


async def test_the_audit_tells_who_did_what_when_and_why_also_from_the_archive_alone(
    rig: Rig, pay: Tool
) -> None:
    runner = await rig.make(pay)
    task = await eventful(runner, rig.model)
    events = await runner.audit(task)
    assert [e.kind for e in events] == ORDER
    assert [e.time for e in events] == sorted(e.time for e in events)
    assert [e.branch for e in events] == [0] * 8 + [1] * 8
    named = {e.actor for e in events}
    assert named == {"task", "model", "ann", "ben", "cid", "dan"}
    first, second = [e for e in events if e.kind == "tool_call"]
    assert (first.tool, first.arguments, first.result) == ("pay", '{"amount": 5}', "paid 5")
    assert (first.attempts, first.worker != "", first.status) == (1, True, "done")
    assert (second.attempts, second.status) == (0, "not run")
    assert "no money" in second.result
    called = [e for e in events if e.kind == "model_call"]
    assert all(e.attempts == 1 and e.worker and e.tokens > 0 for e in called)
    steps = [e for e in events if e.kind == "step"]
    assert len({e.digest for e in steps}) == 3
    asked = [e for e in events if e.kind == "asked"]
    assert [e.arguments for e in asked] == ['{"amount": 500}', '{"amount": 70}']
    assert (first.approver, first.decision, first.answered_by) == ("ann", "approved", "tool")
    assert (first.approval, first.proposed) == (f"{task.task_id}:1", '{"amount": 500}')
    assert (first.effect, first.started <= first.ended) == ("reversible", True)
    assert (second.approver, second.decision, second.answered_by) == ("cid", "rejected", "task")
    commands = [e for e in events if e.kind == "command"]
    assert [e.verb for e in commands] == ["approve", "reject", "feedback"]
    assert [(e.tool, e.approver) for e in commands] == [("pay", "ann"), ("pay", "cid"), ("", "")]
    assert [e.call_id for e in commands[:2]] == [first.call_id, second.call_id]
    assert json.loads(commands[2].arguments)["text"] == "hurry"
    assert called[0].ended <= asked[0].time <= first.started
    [undone] = [e for e in events if e.kind == "undone"]
    assert (undone.actor, undone.reason) == ("ben", "wrong account")
    [back] = [e for e in events if e.kind == "effect_undone"]
    assert (back.reason, back.actor, back.tool, back.verb) == ("given back", "ben", "pay", "undo")
    verified = await runner.verify(task)
    assert (verified, verified.proved) == ([], [CONSISTENT, OPEN])
    await runner.finalize_response(task)
    finished = await runner.audit(task)
    assert finished[:-1] == events
    assert (finished[-1].kind, finished[-1].body["status"]) == ("closed", "finished")
    await rig.stop()
    await forget(runner, task)
    assert await runner.audit(task) == finished
    assert await runner.verify(task) == []


async def long_task(rig: Rig, steps: int = 14) -> tuple[AgentRunner, Task]:
    """Make a task that has continued as new."""

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(assistant(f"step {ctx.n}"))
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    runner = await rig.make(worker=Doing(body), roll_events=25)
    task = await runner.create_task("q")
    for _ in range(steps):
        await runner.run_step(task)
    assert len(await histories(runner.client, task.task_id)) >= 3
    return runner, task


async def test_a_task_that_rolled_has_every_event_once_and_a_changed_byte_is_found_with_its_place(
    rig: Rig,
) -> None:
    runner, task = await long_task(rig)
    events = await runner.audit(task)
    assert Counter(e.kind for e in events) == {"created": 1, "step": 14}
    assert [e.body["n"] for e in events if e.kind == "step"] == list(range(1, 15))
    page = await runner.client.get_workflow_handle(task.task_id).query(
        "entries", EntriesRequest(), result_type=EntriesPage
    )
    newest = page.segment
    assert newest is not None
    second = newest
    while second.number > 2:
        second = (await read_segment(rig.engine.archive, second)).before or second
    with damaged(runner, second.sha256):
        damage, lost = await runner.verify(task)
    assert "segment 2" in damage.text
    assert f"entries {second.start + 1} to {second.start + second.entries}" in damage.text
    assert second.sha256 in damage.text
    assert f"entries 1 to {second.start} of the ledger cannot be found" in lost.text
    assert await runner.verify(task) == []
    await runner.abandon(task, "enough", by="ann")
    await until_status(runner, task, "abandoned")
    assert (await runner.audit(task))[: len(events)] == events
    assert await runner.verify(task) == []


def rewrite(
    archive: Archive, task_id: str, change: Callable[[dict[str, Any], list[Any]], None]
) -> None:
    """Change a closed task's record and entries as somebody does who can write to its archive.

    All digests in the archive are made to fit: the segment's name, and the ledger's chain.
    """
    name = record_name("tasks", task_id)
    record: dict[str, Any] = archive.get_record(name)
    segment: dict[str, Any] = record["segment"]
    part: dict[str, Any] = json.loads(archive.get(segment["sha256"]))
    assert part["before"] is None, "a short task has one segment"
    entries: list[Any] = part["entries"]
    change(record, entries)
    if record["segment"] == segment:
        sha256 = archive.put(canonical(part))
        record["segment"] = {**segment, "sha256": sha256, "entries": len(entries)}
    record["ledger"] = [len(entries), extend_json("", entries)]
    archive.put_record(name, record)


def other_decider(_: dict[str, Any], entries: list[Any]) -> None:
    """Let somebody else have decided."""
    command = next(e["event"] for e in entries if e.get("event", {}).get("kind") == "command")
    command["by"] = "somebody else"


def other_payment(_: dict[str, Any], entries: list[Any]) -> None:
    """Let another amount have been paid."""
    next(e["step"] for e in entries if "step" in e)["outcomes"][0]["edited"] = '{"amount": 5000}'


def other_event(_: dict[str, Any], entries: list[Any]) -> None:
    """Leave out what was undone."""
    entries[:] = [e for e in entries if e.get("event", {}).get("kind") != "effect_undone"]


def no_end(_: dict[str, Any], entries: list[Any]) -> None:
    """Leave out the end of the ledger, as a lost segment does."""
    del entries[-2:]


def other_summary(record: dict[str, Any], _: list[Any]) -> None:
    """Let the task have ended with another answer."""
    record["output"] = "everything was paid"


ATTACKS = [other_decider, other_payment, other_event, no_end, other_summary]


async def test_a_record_that_was_written_anew_is_found_and_beyond_retention_only_if_it_is_signed(
    rig: Rig, pay: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await rig.make(pay)
    monkeypatch.setenv("HOLDFAST_SIGNING_KEY", "the key of the tests")
    task = await eventful(runner, rig.model)
    await runner.finalize_response(task)
    assert (await runner.verify(task)).proved == [CONSISTENT, IN_RUN, SIGNED]
    await rig.stop()
    archive, name = rig.engine.archive, record_name("tasks", task.task_id)
    intact = archive.get_record(name)
    for attack in ATTACKS:
        rewrite(archive, task.task_id, attack)
        found = [finding.text for finding in await runner.verify(task)]
        assert any("it was rewritten" in text for text in found), attack
        archive.put_record(name, intact)
    await forget(runner, task)
    signed = await runner.verify(task)
    assert signed == []
    assert (signed.proved, signed.unproved) == ([CONSISTENT, SIGNED], [FORGOTTEN])
    monkeypatch.setenv("HOLDFAST_SIGNING_KEY", "a newer key, the key of the tests")
    assert SIGNED in (await runner.verify(task)).proved
    monkeypatch.delenv("HOLDFAST_SIGNING_KEY")
    unknown = await runner.verify(task)
    assert (unknown, unknown.proved) == ([], [CONSISTENT])
    assert unknown.unproved == [FORGOTTEN, NO_KEY, SELF_ONLY]
    monkeypatch.setenv("HOLDFAST_SIGNING_KEY", "the key of the tests")
    rewrite(archive, task.task_id, other_payment)
    [finding] = await runner.verify(task)
    assert "signature is not that of a known key" in finding.text
    rewrite(archive, task.task_id, lambda record, _: record.pop("signature"))
    [finding] = await runner.verify(task)
    assert "has no signature" in finding.text
    monkeypatch.delenv("HOLDFAST_SIGNING_KEY")
    rewritten = await runner.verify(task)
    assert (rewritten, rewritten.proved) == ([], [CONSISTENT])
    assert rewritten.unproved == [FORGOTTEN, UNSIGNED, SELF_ONLY]


async def test_secrets_are_redacted_in_every_form(rig: Rig) -> None:
    secrets = ['pä"ss\\word', "42", "tail-of-a-long-result"]

    @tool(effect="read")
    def tell(text: str) -> str:
        """Tell."""
        return "x" * 1990 + secrets[2]

    runner = await rig.make(tell)
    rig.model.add(call("tell", {"text": f"it is {secrets[0]}"}), f"it was {secrets[0]} and 42")
    task = await runner.create_task("q")
    await runner.give_feedback(task, f"use {secrets[0]}", by="ann")
    await runner.run_task(task)
    assert "word" in "".join(e.model_dump_json() for e in await runner.audit(task))
    events = await runner.audit(task, secrets=secrets)
    text = "".join(str(e.model_dump()) for e in events)
    assert "word" not in text
    assert "tail" not in text
    assert REDACTED in text
    results = [e.result for e in events if e.kind == "tool_call"]
    assert all(len(result) <= 2000 for result in results)


# ---- verification: what somebody changes who can write to the archive is found, wherever it is


@pytest.fixture
def pays() -> Tool:
    @tool(effect="read")
    def pays(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return pays


# ---- how a run ended


async def ended(runner: AgentRunner, model: FakeOpenAI, how: str) -> Task:
    """Bring a task that has paid to one of its ends."""
    model.call("pay", {"amount": 5})
    if how != "failed":
        model.reply("done")
        task = await runner.create_task("q")
        await runner.run_task(task)
        if how == "finished":
            await runner.finalize_response(task)
        elif how == "abandoned":
            await runner.abandon(task, "enough", by="ann")
        else:
            await runner.client.get_workflow_handle(task.task_id).cancel()
    else:
        task = await runner.create_task("q", budget=Budget(max_turns=1, on_exceeded="fail"))
        with pytest.raises(MaxTurnsExceeded):
            await runner.run_task(task)
    await until_status(runner, task, "abandoned" if how == "cancelled" else how)
    return task


def pay_more(_: dict[str, Any], entries: list[Any]) -> None:
    """Let another amount have been paid, with messages that fit it."""
    entries[:] = json.loads(json.dumps(entries).replace("paid 5", "paid 9"))


def no_opens(record: dict[str, Any], _: list[Any]) -> None:
    record["opens"] = "none"


def no_event(_: dict[str, Any], entries: list[Any]) -> None:
    entries[0] = {"event": {"kind": 7}}


@pytest.mark.parametrize("how", ["finished", "failed", "abandoned", "cancelled"])
async def test_the_history_of_a_run_seals_its_record_and_one_that_was_changed_is_found(
    rig: Rig, pays: Tool, how: str
) -> None:
    runner = await rig.make(pays)
    task = await ended(runner, rig.model, how)
    archive, name = rig.engine.archive, record_name("tasks", task.task_id)
    record: Any = archive.get_record(name)
    [history] = await histories(runner.client, task.task_id)
    before, end = history.events[-2:]
    memo = before.workflow_properties_modified_event_attributes.upserted_memo.fields
    if how == "finished":
        [kept] = end.workflow_execution_completed_event_attributes.result.payloads
        sealed = json.loads(kept.data)["seal"]
    elif how == "cancelled":
        sealed = json.loads(memo["seal"].data)
    else:
        failure = end.workflow_execution_failed_event_attributes.failure
        [kept] = failure.application_failure_info.details.payloads
        sealed = json.loads(kept.data)["seal"]
    assert bool(memo) == (how == "cancelled")
    assert sealed["record"] == record_digest(record)
    assert (await runner.verify(task)).proved == [CONSISTENT, IN_RUN]
    rewrite(archive, task.task_id, pay_more)
    found = await runner.verify(task)
    assert "it was rewritten" in found[-1].text
    assert found.unproved == [UNSIGNED, found.unproved[-1]]
    archive.put_record(name, record)
    for change in (no_opens, no_event):
        rewrite(archive, task.task_id, change)
        assert any("cannot be read" in each.text for each in await runner.verify(task))
        archive.put_record(name, record)
    archive.delete_record(name)
    found = await runner.verify(task)
    assert "the archive has no" in found[0].text
    assert ENDED_OUTSIDE not in found.unproved


# ---- segments


def removed(file: Path, _: Path) -> None:
    file.unlink()


def older(file: Path, before: Path) -> None:
    file.write_bytes(before.read_bytes())


async def test_a_last_segment_that_is_lost_or_older_or_left_out_is_found(rig: Rig) -> None:
    runner, task = await long_task(rig)
    archive = rig.engine.archive
    before: SegmentRef | None = None
    for is_open in (True, False):
        if is_open:
            handle = runner.client.get_workflow_handle(task.task_id)
            page = await handle.query("entries", EntriesRequest(), result_type=EntriesPage)
            newest = page.segment
        else:
            await runner.abandon(task, "enough", by="ann")
            await until_status(runner, task, "abandoned")
            record = await read_record(archive, task.task_id)
            assert record is not None
            newest = record.segment
        assert newest is not None
        before = (await read_segment(archive, newest)).before
        assert before is not None
        file, second = (Path(archive.url) / blob_path(each.sha256) for each in (newest, before))
        whole = file.read_bytes()
        file.chmod(0o644)
        for damage in (removed, older):
            damage(file, second)
            damaged, lost = await runner.verify(task)
            assert "are damaged" in damaged.text
            assert newest.sha256 in damaged.text
            assert "cannot be found" in lost.text
            file.write_bytes(whole)
    assert await runner.verify(task) == []
    assert before is not None
    entries: list[Any] = []
    segment: SegmentRef | None = before
    while segment is not None:
        part = await read_segment(archive, segment)
        entries[:0] = part.entries
        segment = part.before
    name = record_name("tasks", task.task_id)
    data: Any = archive.get_record(name)
    ledger = [len(entries), extend_json("", entries)]
    archive.put_record(name, {**data, "segment": before.wire(), "ledger": ledger})
    [found] = await runner.verify(task)
    assert "it was rewritten" in found.text


# ---- sessions


async def talk(runner: AgentRunner, model: FakeOpenAI, count: int) -> list[str]:
    """Have a conversation in session s; return the ids of its tasks."""
    ids: list[str] = []
    for k in range(count):
        model.reply(f"answer {k}")
        ids.append((await runner.chat(f"question {k}", session="s")).task_id)
    return ids


async def state_of(runner: AgentRunner) -> SessionState:
    handle = runner.client.get_workflow_handle(runner.session("s").id)
    state: SessionState = await handle.query("state", result_type=SessionState)
    return state


async def test_a_turn_of_a_session_that_was_changed_is_found_by_all_that_know_of_it(
    rig: Rig,
) -> None:
    runner = await rig.make()
    first, second, third = await talk(runner, rig.model, 3)
    session = runner.session("s")
    intact = await session.verify()
    assert (intact, intact.proved, intact.unproved) == ([], [TURNS], [])
    for task in (first, second, third):
        known = await runner.verify(task)
        assert (known, known.proved) == ([], [CONSISTENT, SEEN, IN_RUN])
    turn = (await state_of(runner)).commits[1]
    with damaged(runner, turn.sha256):
        [found] = await session.verify()
        assert f"turn 2 of the session, of task {second!r}, is damaged" in found.text
        assert await runner.verify(first) == []
        for task in (second, third):
            seen = await runner.verify(task)
            assert all(turn.sha256 in each.text for each in seen)
            assert len(seen) == 1
            assert SEEN not in seen.proved
    assert await session.verify() == []
