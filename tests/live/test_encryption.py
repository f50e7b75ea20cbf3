"""One setting encrypts histories, the archive and logs; keys change, and are lost, without harm."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Agent, AgentRunner, HoldfastPlugin, ToolCall, tool
from holdfast.archive import Archive, Keys
from holdfast.engine.connect import connect_embedded
from holdfast.engine.converter import holdfast_converter
from holdfast.errors import ArchiveMismatchError, KeyMissingError, StuckTaskError
from holdfast.serving.activities import WORKFLOWS
from holdfast.serving.worker_process import build_worker
from holdfast.testing import ScriptedModel
from holdfast.values.checks.ids import session_id
from tests.support.lent import ephemeral_server
from tests.support.master_keys import K1, K2, keys
from tests.support.rig import histories, run_a_task, until, until_rolled, until_status

pytestmark = pytest.mark.usefixtures("logs_told")

T = TypeVar("T")
MARKS = {
    *("MKquestion", "MKinstructions", "MKargument", "MKresult", "MKanswer", "MKfeedback"),
    *("MKreason", "MKperson", "MKtool_text", "MKtool_error", "MKbig", "MKmodel_error", "MKchild"),
}


@tool(effect="read", needs_approval=True)
def ask(text: str) -> str:
    """MKtool_text."""
    return f"MKresult {text}"


@tool(effect="read")
def big() -> str:
    """Return much."""
    return "MKbig " * 60_000


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(effect="read")
def fail() -> str:
    """Fail."""
    raise ValueError("MKtool_error")


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


def agent() -> Agent:
    helper = Agent(name="helper", model=ScriptedModel(["MKchild"]))
    return Agent(
        name="clerk",
        instructions="MKinstructions",
        model=ScriptedModel(
            [
                call("big"),
                call("fail"),
                call("ask_helper", input="MKargument"),
                call("ask", text="MKargument"),
                RuntimeError("MKmodel_error"),
                call("ask", text="MKargument"),
                "MKanswer",
            ]
        ),
        tools=[ask, big, fail, helper.as_tool("ask_helper", "MKtool_text")],
    )


def marks_in(place: Path) -> set[str]:
    """Return the marks that stand in any file of a directory, or in a file's name."""
    every = [each for each in place.rglob("*") if each.is_file()]
    assert any(each.suffix == ".db" for each in every), every
    return {
        mark
        for mark in MARKS
        if any(mark.encode() in each.read_bytes() or mark in str(each) for each in every)
    }


async def test_no_text_of_a_task_is_anywhere_and_keys_are_exchanged_while_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    place = tmp_path / "data"
    served = agent()
    async with AgentRunner.local(served, data_dir=place, keys=keys()) as runner:
        task = await run_a_task(runner, "MKquestion", session="talk", task_id="t1")
        await runner.give_feedback(task, "MKfeedback", by="MKperson")
        [card] = await runner.pending_approvals(task)
        await runner.reject(card, reason="MKreason", by="MKperson")
        failed = await until_status(runner, task, "needs_attention")  # by itself, once decided
        assert "MKmodel_error" in failed.error
        await runner.run_task(task)
        [listed] = [each for each in await runner.list_tasks() if each.task_id == "t1"]
        assert listed.input == "MKquestion"
    assert marks_in(place) == set()
    assert not [mark for mark in MARKS if mark in caplog.text]

    with pytest.raises(KeyMissingError, match="the key 'k1', which is not here"):
        await AgentRunner.local(served, data_dir=place, keys=keys(k2=K2)).start()
    async with AgentRunner.local(served, data_dir=place, keys=keys(k2=K2, k1=K1)) as runner:
        store = runner.archive.encrypted
        assert store is not None
        assert all(store.data_keys.rotate())
    async with AgentRunner.local(served, data_dir=place, keys=keys(k2=K2)) as runner:
        [card] = await runner.pending_approvals("t1")
        assert card.arguments == '{"text": "MKargument"}'
        await runner.approve(card, by="MKperson")
        assert str(await runner.run_task("t1")) == "MKanswer"
        await runner.finalize_response("t1")
        assert not await runner.verify("t1")
        said = [each.content for each in await runner.session("talk").chat_history()]
        assert said[0] == "MKquestion"
    assert marks_in(place) == set()


async def failed_tasks(client: Client, workflow_id: str) -> list[str]:
    """Return what failed workflow tasks of a workflow's newest run, oldest first."""
    newest, *_ = await histories(client, workflow_id)
    return [
        str(event.workflow_task_failed_event_attributes.failure)
        for event in newest.events
        if event.HasField("workflow_task_failed_event_attributes")
    ]


async def after_its_pause(ask: Callable[[], Awaitable[T]]) -> T | None:
    """Ask a workflow; None while the pause after its last failure is not over."""
    with suppress(StuckTaskError):
        return await ask()
    return None


async def test_a_teams_own_worker_without_the_keys_is_refused_and_one_by_hand_ends_nothing(
    tmp_path: Path,
) -> None:
    """The newest run of the task has continued another one, and its session waits as well."""
    served = Agent(
        name="clerk",
        model=ScriptedModel(["First.", *[call("look")] * 9, call("ask", text="x"), "Done."]),
        tools=[ask, look],
    )

    def archive(given: Keys | None) -> Archive:
        return Archive(tmp_path / "archive", keys=given)

    async with await ephemeral_server() as server:

        async def connected(given: Keys | None, *agents: Agent) -> Client:
            plugin = HoldfastPlugin(archive=archive(given), agents=agents)
            return await connect_embedded(server.info, plugins=[plugin])

        client = await connected(keys(), served)
        runner = AgentRunner(
            agent="clerk", queue="orders", client=client, archive=archive(keys()), roll_events=20
        )
        async with runner, Worker(client, task_queue="orders"):
            await runner.chat("q", session="talk")
            task = await run_a_task(runner, session="talk")
            await until_rolled(client, task.task_id)
            [card] = await runner.pending_approvals(task)
        before = await histories(client, task.task_id)

        for wrong, why in ((None, "this process has no keys"), (keys(k2=K2), "'k1', which is not")):
            other = await connected(wrong)
            plugged = await connected(wrong, served)
            for worker in (
                Worker(plugged, task_queue="orders"),
                build_worker(other, [served], app="orders", archive=archive(wrong)),
            ):
                with pytest.raises(KeyMissingError, match=why):
                    await worker.run()
            stranger = AgentRunner(agent="clerk", client=other, archive=archive(wrong))
            with pytest.raises(KeyMissingError, match=why):
                await stranger.start()
            with pytest.raises(KeyMissingError, match=why):
                await stranger.create_task("q", task_id="t2")
        with pytest.raises(ArchiveMismatchError):
            await AgentRunner(agent="clerk", client=client, archive=Archive(tmp_path / "b")).start()

        plain = await Client.connect(server.info.address, data_converter=holdfast_converter())
        ids = (task.task_id, session_id(runner.app, "talk"))
        async with Worker(plain, task_queue="orders", workflows=WORKFLOWS, build_id="x"):
            await runner.approve(card, by="ann")
            await client.get_workflow_handle(ids[1]).signal("nothing")
            for each in ids:
                [failed, *_] = await until(partial(failed_tasks, client, each))
                assert "and this process has no keys" in failed
        assert len(await histories(client, task.task_id)) == len(before)
        async with Worker(client, task_queue="orders"):
            answer = await until(partial(after_its_pause, partial(runner.run_task, task)))
            assert str(answer) == "Done."
            await runner.finalize_response(task)
            turns = await until(partial(after_its_pause, runner.session("talk").chat_history))
            assert len(turns or ()) > 2
