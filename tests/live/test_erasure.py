"""Erased tasks: nothing of them is left, and all else goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from holdfast import Agent, AgentRunner, Session, ToolCall, tool
from holdfast.activities.erasure import PLACE, ErasingActivities
from holdfast.archive import Keys
from holdfast.archive.bytestore import LocalStore
from holdfast.archive.names import key_id
from holdfast.cli.commands.lists.archive import check
from holdfast.cli.connection import Engine
from holdfast.errors import ArchiveError, CommandRefusedError, ErasedError, TaskExistsError
from holdfast.task.data.wire import ErasedTurn, Erasure
from holdfast.testing import ScriptedModel
from tests.support.master_keys import keys, logs_are_told_again

__all__ = ["logs_are_told_again"]
pytestmark = pytest.mark.usefixtures("logs_told")

MARKS = ("MKquestion", "MKargument", "MKbig", "MKsmall", "MKanswer")


@tool(effect="read")
def big(text: str) -> str:
    """Big."""
    return "MKbig " * 9000


@tool
def small(text: str) -> str:
    """Small."""
    return "MKsmall"


def served(*answers: Any) -> Agent:
    calls = [
        ToolCall(id="", name=each, arguments=json.dumps({"text": "MKargument"}))
        for each in ("big", "small")
    ]
    model = ScriptedModel([*calls, "MKanswer", *answers])
    return Agent(name="clerk", model=model, tools=[big, small])


def model_of(agent: Agent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


def marks_in(place: Path) -> dict[str, set[str]]:
    """Return the folders of an archive in which each mark stands."""
    found: dict[str, set[str]] = {}
    for file in (each for each in place.rglob("*") if each.is_file()):
        for mark in MARKS:
            if mark.encode() in file.read_bytes():
                found.setdefault(mark, set()).add(file.relative_to(place).parts[0])
    return found


async def finished(runner: AgentRunner, text: str, **options: Any) -> str:
    task = await runner.create_task(text, **options)
    await runner.run_task(task)
    await runner.finalize_response(task)
    return task.task_id


async def texts(session: Session) -> list[str]:
    return [each.text for each in await session.chat_history()]


async def is_known(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        return error.status is not RPCStatusCode.NOT_FOUND
    return True


@pytest.mark.parametrize("own", [None, keys()], ids=["plain", "encrypted"])
async def test_nothing_of_an_erased_task_is_left_and_its_session_goes_on(
    own: Keys | None, tmp_path: Path
) -> None:
    agent = served("second answer", "late answer", "third answer")
    async with AgentRunner.local(agent, data_dir=tmp_path, keys=own) as runner:
        place = Path(runner.archive.url)
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        await finished(runner, "second", session="talk", task_id="t2")
        late = await runner.create_task("late", session="talk")  # began with the turn
        certificate = await runner.erase("t1", by="ann", reason="asked to")
        assert not await is_known(runner.client, "t1")
        assert "t1" not in [each.task_id for each in await runner.list_tasks()]
        left = marks_in(place)
        assert {folder for each in left.values() for folder in each} <= {"blobs"}
        assert not left or own is None
        told = await texts(runner.session("talk"))
        assert told == [PLACE, "second", "second answer"]
        assert await runner.session("talk").verify() == []
        assert await runner.verify("t2") == []
        await runner.run_task(late)
        await runner.finalize_response(late)
        await finished(runner, "third", session="talk")
        for request in model_of(agent).requests[-2:]:
            said = " ".join(str(each) for each in request.messages)
            assert PLACE in said
            assert not [mark for mark in MARKS if mark in said]
        await runner.session("talk").usage()

        assert (certificate["by"], certificate["tasks"]) == ("ann", ["t1"])
        assert f'"session": "{runner.session("talk").id}"' in json.dumps(certificate["turns"])
        assert await runner.erase("t1", by="bo", reason="again") == certificate
        for asked in (runner.get_task, runner.audit, runner.verify, runner.transcript):
            with pytest.raises(ErasedError, match="'t1' was erased"):
                await asked("t1")
        with pytest.raises(TaskExistsError):
            await runner.create_task("again", task_id="t1")
        engine = Engine(runner.client, runner.archive, _none)
        assert (await check(engine))[2] == []


async def _none() -> Client:
    raise AssertionError


async def test_what_is_open_has_forks_or_belongs_to_another_is_refused_untouched() -> None:
    agent = served("fork's answer")
    async with AgentRunner.local(agent, data_dir=None) as runner:
        task = await runner.create_task("MKquestion", task_id="t1")
        with pytest.raises(CommandRefusedError, match="'t1' is open"):
            await runner.erase(task, by="ann", reason="r")
        await runner.run_task(task)
        await runner.finalize_response(task)
        for who, why in (("", "r"), ("ann", " ")):
            with pytest.raises(CommandRefusedError, match="a person and a reason"):
                await runner.erase(task, by=who, reason=why)
        fork = await runner.fork(task, at="s1", task_id="t2")
        with pytest.raises(CommandRefusedError, match=r"has forks.*: t2"):
            await runner.erase(task, by="ann", reason="r")
        await runner.run_task(fork)
        await runner.finalize_response(fork)
        assert str(await runner.response(task)) == "MKanswer"
        certificate = await runner.erase(task, by="ann", reason="r", forks="erase")
        assert certificate["tasks"] == ["t1", "t2"]
        with pytest.raises(ErasedError):
            await runner.get_task(fork)


async def test_an_erasure_that_is_cut_off_anywhere_ends_erased_with_one_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt fails at its next request to the archive, as if its worker was killed there."""
    async with AgentRunner.local(served(), data_dir=None, keys=keys()) as runner:
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        given = Erasure(
            task="t1",
            tasks=("t1",),
            turns=(ErasedTurn(task="t1", session=runner.session("talk").id, queue="hf"),),
            by="ann",
            reason="r",
            asked=1.0,
            queue="hf",
        )
        environment, count, cuts = ActivityEnvironment(runner.client), 0, 0

        def cut(name: str) -> Any:
            real = getattr(LocalStore, name)

            def call(own: LocalStore, *args: Any, **options: Any) -> Any:
                nonlocal count
                count -= 1
                if count == -1:
                    msg = "no answer"
                    raise OSError(msg)
                return real(own, *args, **options)

            return call

        with monkeypatch.context() as patched:
            for name in ("read", "write", "create", "delete", "find", "size"):
                patched.setattr(LocalStore, name, cut(name))
            while True:
                count = cuts
                try:
                    await environment.run(ErasingActivities(runner.archive).erase, given)
                    break
                except ArchiveError:
                    cuts += 1
        assert cuts >= 10
        assert await runner.archive.alist_records("erasures") == ["erasures/t1.json"]
        assert not await is_known(runner.client, "t1")
        assert await texts(runner.session("talk")) == [PLACE]
        ends = f"~/{key_id('t1').hex()}"
        assert not [each for each in runner.archive.files() if each.endswith(ends)]
        assert (await runner.erase("t1", by="bo", reason="again"))["by"] == "ann"
