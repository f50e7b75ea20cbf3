"""An archive of which a part is lost: one value, a part of a ledger, the record of a task."""

import json
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from holdfast import Agent, AgentRunner, Task, tool
from holdfast.archive import Keys
from holdfast.archive.archive import record_name
from holdfast.archive.segments import read_segment
from holdfast.cli.commands.lists.archive import check
from holdfast.cli.commands.task_view import read_task
from holdfast.errors import DigestMismatchError, StepFailedError, UndoFailedError
from holdfast.reading.step_events import StepEnd
from holdfast.task.data.state import SessionState
from holdfast.task.data.wire import EntriesPage, EntriesRequest
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.base import digest
from tests.live.test_audit import long_task
from tests.support.cli import engine_of
from tests.support.master_keys import keys
from tests.support.rig import Rig, damaged, step_a_task, until
from tests.support.scale import all_of

THOUGHT = "because " * 9000
DONE = "done " * 9000


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return seen(n)


def seen(n: int) -> str:
    return f"{n} " + "seen " * 9000


async def looked(runner: AgentRunner, model: FakeOpenAI) -> Task:
    """Run two steps that look; a third would be the answer."""
    for n in (1, 2):
        model.call("look", {"n": n}, reasoning=THOUGHT if n == 2 else "")
    model.reply(DONE)
    task = await runner.create_task("q")
    for _ in range(2):
        await runner.run_step(task)
    return task


async def test_a_damaged_value_is_one_value_and_a_damaged_record_none_whoever_reads_the_task(
    rig: Rig,
) -> None:
    runner = await rig.make(look)
    task = await looked(runner, rig.model)
    await runner.run_task(task)
    answer = digest(DONE.encode())
    with damaged(runner, answer):  # which is listed, and never given as the answer
        assert answer in str((await runner.get_completed_steps(task))[-1].output)
        with pytest.raises(DigestMismatchError, match=answer):
            await runner.response(task)
    name = digest(seen(1).encode())
    with damaged(runner, name):
        for is_closed in (False, True):
            first, second, last = await runner.get_completed_steps(task)
            [lost] = first.sources
            assert name in lost.content
            assert "Restore" in lost.content
            assert [each.content for each in second.sources] == [seen(2)]
            assert last.output == DONE
            shown = await read_task(engine_of(runner), task.task_id)
            steps = [each.task_step for each in (first, second, last)]
            assert [each.task_step for each in shown.outputs] == steps
            assert len([e for e in await runner.audit(task) if e.kind == "tool_call"]) == 2
            said = await runner.transcript(task)
            assert [name in str(message.content) for message in said].count(True) == 1
            events = [each async for each in runner.step_events(task, until="answered")]
            assert [type(e) for e in events].count(StepEnd) == 3
            response = await runner.response(task)
            assert (response.response, len(response.sources)) == (DONE, 2)
            if not is_closed:
                await runner.finalize_response(task)
    whole_steps, told = await runner.get_completed_steps(task), await runner.audit(task)
    assert whole_steps[0].sources[0].content == seen(1)
    file = Path(runner.archive.url) / record_name("tasks", task.task_id)
    whole = file.read_bytes()
    for broken in (whole[:-20], b'{"task": 1}'):  # the record itself: then the history is read
        file.write_bytes(broken)
        assert await runner.get_completed_steps(task) == whole_steps
        assert (await runner.audit(task))[: len(told) - 1] == told[:-1]
        assert "cannot be read" in str(await runner.verify(task))
    file.write_bytes(whole)
    assert await runner.audit(task) == told


async def test_a_model_is_never_sent_a_conversation_with_a_hole(rig: Rig) -> None:
    runner = await rig.make(look)
    task = await looked(runner, rig.model)
    name = digest(seen(1).encode())
    with damaged(runner, name):
        await rig.make(look)  # a worker that has nothing in memory
        forked = await runner.fork(task, "s1")
        for each in (task, forked):
            with pytest.raises(StepFailedError, match=name):
                await runner.run_step(each)
        assert len(rig.model.requests) == 2
    assert (await runner.run_step(task)).output == DONE
    assert seen(1) in json.dumps(rig.model.requests[-1].body)


async def test_an_undo_is_never_called_with_a_hole(rig: Rig) -> None:
    undone: list[Any] = []
    book = tool(seen, name="book", undo=lambda effect: undone.append(effect.result))
    runner = await rig.make(book)
    rig.model.call("book", {"n": 1})
    task = await step_a_task(runner)
    name = digest(seen(1).encode())
    with damaged(runner, name):
        await rig.make(book)  # a worker that has nothing in memory
        why = rf"{name}.* Restore .*backup\. Undone.*Ask again"
        with pytest.raises(UndoFailedError, match=why):
            await runner.undo_step(task)
        failed = (await runner.audit(task))[-1]
        assert (failed.kind, "Restore" in failed.reason, undone) == ("undo_failed", True, [])
    assert (await runner.undo_step(task)).steps == ("s1",)
    assert undone == [seen(1)]


async def test_a_person_says_what_became_of_an_effect_whose_undo_cannot_be_called(rig: Rig) -> None:
    book = tool(seen, name="book", undo=lambda _: "never")
    runner = await rig.make(book)
    rig.model.call("book", {"n": 1})
    task = await step_a_task(runner)
    with damaged(runner, digest(seen(1).encode())):
        await rig.make(book)  # a worker that has nothing in memory
        assert (await runner.undo_step(task, residue="keep")).status == "waiting"
        [approval] = await runner.pending_approvals(task)
        assert "Restore" in approval.text
        await runner.respond(approval, by="ann", result="called off by telephone")

        async def is_undone() -> bool:
            return not await runner.get_completed_steps(task)

        await until(is_undone)
    rig.model.reply("done")
    assert (await runner.run_step(task)).output == "done"


async def test_a_damaged_part_of_a_ledger_is_named_and_the_rest_is_shown(rig: Rig) -> None:
    runner, task = await long_task(rig)
    page = await runner.client.get_workflow_handle(task.task_id).query(
        "entries", EntriesRequest(), result_type=EntriesPage
    )
    assert page.segment is not None
    lost = (await read_segment(rig.engine.archive, page.segment)).before
    assert lost is not None
    events = await runner.audit(task)
    with damaged(runner, lost.sha256):
        which = f"Entries 1 to {lost.start + lost.entries} of the ledger cannot be read"
        told, *rest = await runner.audit(task)
        assert (told.kind, rest) == ("damaged", events[-len(rest) :])
        assert which in told.reason
        assert lost.sha256 in told.reason
        shown = await read_task(engine_of(runner), task.task_id)
        assert [each.output for each in shown.outputs] == list(range(15 - len(rest), 15))
        refused = f"{which}.*{lost.sha256}"
        steps = runner.get_completed_steps(task)
        for asked in (steps, runner.rewind(task, "s2"), runner.fork(task, "s2")):
            with pytest.raises(DigestMismatchError, match=refused):
                await asked


async def test_a_damaged_turn_is_shown_as_one_and_sent_to_no_model(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await rig.make()
    session = runner.session("s")
    for said in ("one", "two"):
        rig.model.reply(said)
        await runner.chat(f"say {said} in {rig.app}", session="s")
    state = await runner.reader.query(session.id, "state", SessionState)
    whole = await session.chat_history()
    with damaged(runner, state.commits[0].sha256):
        lost, *rest = await session.chat_history(legible=True)
        assert state.commits[0].sha256 in lost.text
        assert rest == whole[2:]
        await rig.make()
        # As a process that has not read the turn before.
        monkeypatch.setattr("holdfast.archive.segments._TURNS", WeakKeyDictionary())
        with pytest.raises(StepFailedError, match=state.commits[0].sha256):
            await runner.chat("three", session="s")
    assert len(rig.model.requests) == 2


@pytest.mark.parametrize("own", [all_of(None), keys()], ids=["plain", "encrypted"])
@pytest.mark.usefixtures("logs_told")
async def test_a_check_of_the_archive_names_broken_files_and_the_tasks_that_need_them(
    own: Keys | None,
) -> None:
    agent = Agent(name="clerk", model=ScriptedModel(["a " * 40_000, "b"]))
    async with AgentRunner.local(agent, data_dir=None, keys=own) as runner:
        engine = engine_of(runner)
        for task in ("t1", "t2"):
            await runner.run_task(await runner.create_task("q", task_id=task))
            await runner.finalize_response(task)
        files, tasks, found = await check(engine)
        assert (files > 4, tasks, found) == (True, 2, [])
        place = Path(runner.archive.url)
        values = [each for each in place.glob("blobs/**/*") if each.is_file()]
        [long] = [each for each in values if each.stat().st_size > 40_000]
        long.write_bytes(long.read_bytes()[:-1] + b"~")
        (place / "tasks" / "t2.json").write_bytes(b"no record")
        found = (await check(engine))[2]
    blob = long.relative_to(place).as_posix()
    assert [each.what for each in found[:2]] == [blob, "tasks/t2.json"]
    assert {each.what for each in found[2:]} == {"task t1", "task t2"}
