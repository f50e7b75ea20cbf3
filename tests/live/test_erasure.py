"""Erased tasks: nothing of them is left, and all else goes on."""

import asyncio
import json
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.workflow import ParentClosePolicy

from holdfast import Agent, AgentRunner, Effect, Message, Session, ToolCall, tool, wait_for_event
from holdfast.activities import erasure
from holdfast.activities.erasure import PLACE, ErasingActivities
from holdfast.archive import Archive, Keys, hashed
from holdfast.archive.bytestore import LocalStore, key_id, record_name
from holdfast.archive.holds import add_hold, certificate_name
from holdfast.archive.kept_answers import drop_rest
from holdfast.cli.commands.lists.archive import check
from holdfast.cli.commands.start.restore import Forgotten, brought_back
from holdfast.errors import (
    ArchiveError,
    CommandRefusedError,
    ErasedError,
    InvalidArgumentError,
    NotFoundError,
    TaskExistsError,
)
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.state import SessionState, TaskInput
from holdfast.task.data.wire import Erasure, Retention
from holdfast.task.mailbox import mailbox_id
from holdfast.testing import ScriptedModel
from holdfast.values.checks.gate import as_array, as_object
from tests.support.cli import engine_of
from tests.support.master_keys import keys
from tests.support.rig import finish_a_task, forget, run_a_task, until
from tests.support.scale import all_of

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
    return (await finish_a_task(runner, text, **options)).task_id


async def texts(session: Session) -> list[str]:
    return [each.text for each in await session.chat_history()]


async def is_known(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        return error.status is not RPCStatusCode.NOT_FOUND
    return True


@pytest.mark.parametrize("own", [all_of(None), keys()], ids=["plain", "encrypted"])
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
        told = "sessions in certificates of tasks" in str(certificate["remains"])
        assert told is (own is not None)
        assert await texts(runner.session("talk")) == [PLACE, "second", "second answer"]
        assert (await runner.session("talk").verify(), await runner.verify("t2")) == ([], [])
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
        assert (await check(engine_of(runner)))[2] == []


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
        # Temporal forgets a closed task after some days, and the archive does not.
        await forget(runner.client, "t2")
        with pytest.raises(CommandRefusedError, match=r"has forks.*: t2"):
            await runner.erase(task, by="ann", reason="r")
        other = await runner.fork(task, at="s1", task_id="t3")
        await runner.erase(
            other, by="ann", reason="r", open_tasks="abandon"
        )  # and is not in the way any more
        certificate = await runner.erase(task, by="ann", reason="r", forks="erase")
        assert certificate["tasks"] == ["t1", "t2"]
        with pytest.raises(ErasedError):
            await runner.get_task(fork)


@pytest.mark.parametrize("kind", ["task", "session"])
async def test_an_erasure_that_is_cut_off_anywhere_ends_erased_with_one_certificate(
    kind: Literal["task", "session"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt fails at its next request to the archive, as if its worker was killed there."""
    async with AgentRunner.local(served(), data_dir=None, keys=keys()) as runner:
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        session = runner.session("talk").id
        named: dict[str, Any] = {"task": "t1"} if kind == "task" else {"session": "talk"}
        given = (await runner.plan_erasure(**named, by="ann", reason="r")).erasure
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
        assert await runner.archive.alist_records("erasures") == [certificate_name(given)]
        assert not await is_known(runner.client, "t1")
        if kind == "session":
            assert not await is_known(runner.client, session)
            with pytest.raises(ErasedError):
                await texts(runner.session("talk"))
            return
        assert await texts(runner.session("talk")) == [PLACE]
        ends = f"~/{key_id('t1').hex()}"
        assert not [each for each in runner.archive.files() if each.endswith(ends)]
        assert (await runner.erase("t1", by="bo", reason="again"))["by"] == "ann"


async def test_a_session_goes_with_its_tasks_and_its_name_stays_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = served("MKanswer 2", "other answer")
    async with AgentRunner.local(agent, data_dir=tmp_path, keys=keys()) as runner:
        place = Path(runner.archive.url)
        await finished(runner, "MKquestion", session="annsmith", task_id="t1")
        await finished(runner, "MKquestion", session="annsmith", task_id="t2")
        await runner.session("annsmith").append([Message(role="user", content="MKsmall")])
        await finished(runner, "other", session="elsewhere", task_id="t3")
        open_task = await runner.create_task("MKquestion", session="annsmith", task_id="t4")
        # Open, and of an app whose worker processes are gone: it must not be asked.
        await runner.client.start_workflow(
            "AgentTask", TaskInput(head=TaskHead(agent="gone")), id="t5", task_queue="gone"
        )
        with pytest.raises(CommandRefusedError, match="'t4' is open; nothing was erased"):
            await runner.erase(session="annsmith", by="ann", reason="r")
        assert (await runner.get_task(open_task)).status == "running"

        plan = await runner.plan_erasure(session="annsmith")
        assert (set(plan.erasure.tasks), plan.opens) == ({"t1", "t2", "t4"}, ("t4",))
        given = await runner.erase(session="annsmith", by="ann", reason="r", open_tasks="abandon")
        assert (set(given["tasks"]), given["abandoned"]) == ({"t1", "t2", "t4"}, ["t4"])
        [code] = as_array(given["sessions"])
        assert given["task"] == code
        assert not marks_in(place)
        files = [each for each in place.rglob("*") if each.is_file()]
        assert not [each for each in files if "annsmith" in f"{each} {each.read_bytes()!r}"]
        assert not [e.id async for e in runner.client.list_workflows() if "annsmith" in e.id]
        for each in ("t1", "t2", "t4", runner.session("annsmith").id):
            assert not await is_known(runner.client, each)
        assert [each.task_id for each in await runner.list_tasks()] == ["t5", "t3"]
        assert await texts(runner.session("elsewhere")) == ["other", "other answer"]
        assert await runner.erase(session="annsmith", by="bo", reason="again") == given
        for asked in (runner.session("annsmith").chat_history, runner.session("annsmith").reset):
            with pytest.raises(ErasedError, match="was erased by ann"):
                await asked()
        rests = record_name("sessions", runner.session("annsmith").id)
        writes = [rests, rests]  # before, and once more meanwhile

        async def meanwhile(archive: Archive, tasks: Sequence[str]) -> None:
            if writes:
                await archive.aput_record(writes.pop(), SessionState().wire())
            await drop_rest(archive, tasks)

        await meanwhile(runner.archive, [])
        monkeypatch.setattr(erasure, "drop_rest", meanwhile)
        assert await runner.erase_again(given) == given
        assert (writes, await runner.archive.ahas_record(rests)) == ([], False)
        assert (await check(engine_of(runner)))[2] == []


async def test_a_person_is_found_by_who_created_tasks_and_by_names_of_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_NAMES_KEY", "k" * 16)
    answers = ["kim's answer", "in kim's session", "bo's answer", "chat", "others", "later answer"]
    agent = served(*answers)
    async with AgentRunner.local(agent, data_dir=None) as runner:

        async def asked(text: str, by: str, session: str, task_id: str) -> None:
            await finished(runner, text, by=by, session=session, task_id=task_id)

        await asked("MKquestion", "Kim", "shared", "t1")
        await asked("MKquestion", "", "shared", "t2")
        await asked("MKquestion", "bo", hashed("kim"), "t3")
        await asked("MKquestion", "kim", "Kim/chat", "t5")
        await asked("MKquestion", "bo", "kim/others", "t6")
        with pytest.raises(NotFoundError, match="nothing of the person 'zoe'"):
            await runner.erase(person="zoe", by="ann", reason="r")
        names = sorted((hashed("kim"), "Kim/chat"))
        sessions = tuple(runner.session(each).id for each in names)
        assert (await runner.plan_erasure(person="kim")).erasure.sessions == sessions
        given = await runner.erase(person="kim", by="ann", reason="r")
        assert set(given["tasks"]) == {"t1", "t3", "t5"}
        assert "kim" not in json.dumps(given).casefold()
        engine, found = engine_of(runner), list[Forgotten]()
        assert (await check(engine))[2] == []
        assert await brought_back(engine, 0.0, found) == []
        for id in ("t1", sessions[0]):  # stands for what a restored database of Temporal has
            await runner.client.start_workflow("AgentTask", "x", id=id, task_queue="nobody")
        assert await brought_back(engine, 0.0, found) == [given]
        assert {each.task for each in found if each.kind == "erased"} == {"t1", sessions[0]}
        assert await brought_back(engine, float(str(given["done"])) + 1, found) == []
        await runner.hold("session:Kim/chat", case="A-1", by="ann")
        with pytest.raises(CommandRefusedError, match="held for the case 'A-1'"):
            await runner.erase_again(given)
        assert await is_known(runner.client, "t1")
        await runner.end_hold("session:Kim/chat", case="A-1", by="ann")
        assert await runner.erase_again(given) == given
        assert await brought_back(engine, 0.0, found) == []
        assert await texts(runner.session("shared")) == [PLACE, "MKquestion", "kim's answer"]
        assert await runner.erase(person="KIM", by="bo", reason="again") == given
        await asked("MKquestion", "kim", "shared", "t4")
        assert (await runner.erase(person="kim", by="ann", reason="r"))["tasks"] == ["t4"]
        assert len(await runner.archive.alist_records("erasures/persons")) == 2


async def test_open_tasks_take_back_what_they_did_before_they_are_erased() -> None:
    done = list[str]()

    def cancel(effect: Effect) -> None:
        done.append(f"cancelled {effect.arguments['text']}")

    @tool(undo=cancel)
    def book(text: str) -> str:
        """Book."""
        done.append(f"booked {text}")
        return "MKsmall"

    calls = ToolCall(id="", name="book", arguments='{"text": "MKargument"}')
    agent = Agent(name="clerk", model=ScriptedModel([calls, "MKanswer"]), tools=[book])
    async with AgentRunner.local(agent, data_dir=None) as runner:
        task = await run_a_task(runner, "MKquestion", by="kim")
        assert done == ["booked MKargument"]
        await runner.erase(person="kim", by="ann", reason="r", open_tasks="abandon")
        assert done == ["booked MKargument", "cancelled MKargument"]
        with pytest.raises(ErasedError):
            await runner.get_task(task)


async def test_what_is_held_is_neither_erased_nor_deleted_until_the_hold_ends() -> None:
    async with AgentRunner.local(served(), data_dir=None) as runner:
        await finished(runner, "MKquestion", by="kim", session="talk", task_id="t1")
        with pytest.raises(InvalidArgumentError, match="task:ID, session:NAME or person:NAME"):
            await runner.hold("t1", case="A-1", by="ann")
        for selector in ("task:t1", "session:talk", "person:Kim"):
            held = await runner.hold(selector, case="A-1", by="ann", reason="court order")
            assert await runner.hold(selector, case="A-1", by="bo") == held
            told = f"{selector.partition(':')[0]} .* is held for the case 'A-1' by ann.*court order"
            for erased in (
                runner.erase("t1", by="bo", reason="r"),
                runner.erase(session="talk", by="bo", reason="r"),
                runner.erase(person="kim", by="bo", reason="r"),
                runner.delete_task("t1"),
            ):
                with pytest.raises(CommandRefusedError, match=told):
                    await erased
            assert str(await runner.response("t1")) == "MKanswer"
            with pytest.raises(NotFoundError, match="it is held for: 'A-1'"):
                await runner.end_hold(selector, case="A-2", by="bo")
            assert (await runner.list_holds()) == [held]
            await runner.end_hold(selector, case="A-1", by="bo", reason="settled")
            assert await runner.list_holds() == []
        ended = await runner.list_holds(ended=True)
        held_by: dict[str, Any] = {"case": "A-9", "by": "ann", "reason": ""}
        adding = [add_hold(runner.archive, "task", "t9", "task t9", **held_by) for _ in range(2)]
        await asyncio.gather(*adding)  # two at once
        for _ in range(3):
            await runner.end_hold("task:t9", case="A-9", by="bo")
        assert await runner.list_holds() == []
        assert [(each.kind, each.by, each.ended_by) for each in ended] == [
            (each, "ann", "bo") for each in ("task", "session", "person")
        ]
        given = (await runner.plan_erasure("t1", by="a", reason="r")).erasure
        await runner.hold("task:t1", case="A-3", by="ann")  # once the erasure was asked for
        with pytest.raises(ApplicationError, match="A-3"):
            await ActivityEnvironment(runner.client).run(
                ErasingActivities(runner.archive).erase, given
            )
        assert str(await runner.response("t1")) == "MKanswer"


async def test_an_erased_fork_leaves_the_child_tasks_of_the_task_it_departs_from() -> None:
    helper = Agent(name="helper", model=ScriptedModel(["helped"]))
    calls = ToolCall(id="", name="helper", arguments='{"input": "MKargument"}')
    agent = Agent(
        name="clerk", model=ScriptedModel([calls, "MKanswer", "fork's"]), tools=[helper.as_tool()]
    )
    async with AgentRunner.local(agent, data_dir=None) as runner:
        await finished(runner, "MKquestion", task_id="t1")
        child = (await runner.plan_erasure("t1")).erasure.tasks[1]
        fork = await runner.fork("t1", at="s1", task_id="t2")
        await runner.run_task(fork)
        await runner.finalize_response(fork)
        assert (await runner.plan_erasure(fork)).erasure.tasks == ("t2",)
        await runner.erase(fork, by="ann", reason="r")
        assert str(await runner.response(child)) == "helped"


async def test_a_held_person_holds_the_sessions_that_have_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_NAMES_KEY", "k" * 16)
    agent = served(*["answer"] * 3)
    async with AgentRunner.local(agent, data_dir=None) as runner:
        for n, session in enumerate(("kim", "acme~Kim", hashed("kim"), "acme~kim/chat")):
            options = {"tenant": "acme"} if "~" in session else {}
            name = session.partition("~")[2] or session
            await finished(runner, f"q{n}", session=name, task_id=f"t{n}", **options)
        assert len((await runner.plan_erasure(person="Kim")).erasure.sessions) == 3
        await runner.hold("person:Kim", case="A-1", by="ann")
        for n, session in enumerate(("kim", "acme~Kim", hashed("kim"), "acme~kim/chat")):
            for refused in (
                runner.plan_erasure(session=session),
                runner.plan_erasure(f"t{n}"),
                runner.delete_task(f"t{n}"),
            ):
                with pytest.raises(CommandRefusedError, match="'Kim' is held for the case 'A-1'"):
                    await refused


async def test_the_mark_of_another_erasure_does_not_say_that_this_one_has_begun() -> None:
    async with AgentRunner.local(served("second", "third"), data_dir=None) as runner:
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        asked = (runner.erase(session="talk", by=each, reason="r") for each in ("ann", "bo"))
        given, same = await asyncio.gather(*asked)
        assert given == same
        await finished(runner, "MKquestion", task_id="t2")
        both = Erasure.model_validate(given).model_copy(
            update={"tasks": ("t1", "t2"), "held_by": ("task t2",), "asked": 1.0}
        )
        await runner.hold("task:t2", case="A-2", by="ann")
        with pytest.raises(ApplicationError, match="A-2"):
            await ActivityEnvironment(runner.client).run(
                ErasingActivities(runner.archive).erase, both
            )
        ref = SessionRef(id=runner.session("other").id, name="other")  # a client need not say where
        started = TaskInput(head=TaskHead(agent="clerk", session=ref), input="q")
        await runner.client.start_workflow("AgentTask", started, id="t3", task_queue="hf:clerk")
        await runner.run_task("t3")
        await runner.finalize_response("t3")
        assert (await runner.erase("t3", by="ann", reason="r"))["tasks"] == ["t3"]


async def test_a_turn_of_a_session_that_was_ended_from_outside_refuses_the_erasure() -> None:
    async with AgentRunner.local(served("second"), data_dir=None) as runner:
        await finished(runner, "MKquestion", session="chat", task_id="t2", by="pat")
        await finished(runner, "MKquestion", session="talk", task_id="t1", by="pat")
        plan = await runner.plan_erasure("t1", by="ann", reason="r")
        await runner.client.get_workflow_handle(runner.session("talk").id).terminate()
        with pytest.raises(CommandRefusedError, match=r"Or erase the session.*: none"):
            await runner.erase("t1", by="ann", reason="r")
        with pytest.raises(CommandRefusedError, match="replaced already: 't2'"):
            await runner.erase(person="pat", by="ann", reason="r")
        assert await texts(runner.session("chat")) != ["MKquestion", "MKanswer"]
        assert [str(await runner.response(each)) for each in ("t2", "t1")] == ["MKanswer", "second"]
        await runner.archive.aput_record(
            record_name("sessions", runner.session("talk").id), {"erased": "r", "by": "another"}
        )
        await forget(runner.client, runner.session("talk").id)
        erase = ErasingActivities(runner.archive).erase
        await ActivityEnvironment(runner.client).run(erase, plan.erasure)
        assert (await runner.erase("t1", by="bo", reason="again"))["by"] == "ann"


async def test_a_retention_goes_past_what_stays_and_ends_with_its_rule() -> None:
    async with AgentRunner.local(served(*["answer"] * 6), data_dir=None) as runner:
        for n in range(1, 6):
            await finished(runner, "MKquestion", task_id=f"t{n}")
        await runner.hold("task:t1", case="A-1", by="ann")
        begin = runner.client.start_workflow  # stands for an erasure that is under way
        await begin("AgentTask", "x", id="t2~erasure", task_queue="nobody")
        rule = Retention(app="default", agent="clerk", days=1e-9, by="ann", batch=1, rate=6000)
        expired = ErasingActivities(runner.archive).expired
        of_another = rule.model_copy(update={"app": "shop"})
        assert await ActivityEnvironment(runner.client).run(expired, of_another) == []
        run = await begin("Retention", rule, id="r", task_queue="hf:clerk", result_type=int)
        assert await run.result() == 3
        for each in ("t3", "t4", "t5"):
            with pytest.raises(ErasedError):
                await runner.get_task(each)
        children = [
            each.start_child_workflow_execution_initiated_event_attributes.parent_close_policy
            async for part in runner.client.list_workflows("WorkflowType = 'Retention'")
            async for each in runner.client.get_workflow_handle(
                part.id, run_id=part.run_id
            ).fetch_history_events()
            if each.HasField("start_child_workflow_execution_initiated_event_attributes")
        ]
        assert set(children) == {ParentClosePolicy.ABANDON.value}

        for n in (6, 7):
            await finished(runner, "MKquestion", task_id=f"t{n}")
        await runner.set_retention("clerk", 1e-6, by="ann", every="1 s", rate=1e-3)
        await until(lambda: runner.archive.afind_record("erasures/t6.json"))
        query = "WorkflowType = 'Retention' AND ExecutionStatus = 'Running'"
        await runner.end_retention("clerk")

        async def has_ended() -> bool:
            return not [each async for each in runner.client.list_workflows(query)]

        await until(has_ended)
        assert (await runner.get_task("t7")).status == "finished"


async def test_retention_erases_what_is_old_but_neither_what_is_held_nor_what_others_did() -> None:
    other = Agent(name="other", model=ScriptedModel(["other answer"]))
    async with AgentRunner.local(served("held answer"), other, data_dir=None) as runner:
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        await finished(runner, "held", session="talk", task_id="t2")
        await finished(runner, "other", agent="other", task_id="t3")
        await runner.create_task("open", task_id="t4")
        await runner.hold("task:t2", case="A-1", by="ann")
        rule = await runner.set_retention("clerk", 1e-6, by="ann", every="1 s", rate=6000)
        assert (await runner.list_retentions(), await runner.list_schedules()) == ([rule], [])

        async def certificate(task_id: str) -> dict[str, Any]:
            return as_object(await runner.archive.afind_record(f"erasures/{task_id}.json"))

        first = await until(lambda: certificate("t1"))
        assert (first["by"], first["reason"]) == ("retention, set by ann", "closed for 1e-06 days")
        query = "WorkflowType = 'Retention' AND ExecutionStatus = 'Completed'"

        async def ran_again() -> bool:
            return len([each async for each in runner.client.list_workflows(query)]) > 1

        await until(ran_again)
        assert await texts(runner.session("talk")) == [PLACE, "held", "held answer"]
        await runner.end_hold("task:t2", case="A-1", by="ann")
        await until(lambda: certificate("t2"))
        assert str(await runner.response("t3")) == "other answer"
        assert (await runner.get_task("t4")).status == "running"
        await runner.end_retention("clerk")
        assert await runner.list_retentions() == []
        with pytest.raises(NotFoundError, match="no retention for the agent 'clerk'"):
            await runner.end_retention("clerk")


async def test_a_certificate_or_a_hold_that_was_changed_or_deleted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_SIGNING_KEY", "secret")
    async with AgentRunner.local(served("second answer"), data_dir=None) as runner:
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        await finished(runner, "MKquestion", session="talk", task_id="t2")
        await runner.hold("task:t2", case="A-1", by="ann")
        await runner.end_hold("task:t2", case="A-1", by="ann")
        given = await runner.erase("t1", by="ann", reason="r")
        await runner.erase("t2", by="ann", reason="r")
        engine, archive = engine_of(runner), runner.archive
        assert (await check(engine))[2] == []
        changed = ["erasures/t1.json", *archive.list_records("holds")]
        for name in changed:
            archive.put_record(name, {**as_object(archive.get_record(name)), "by": "zoe"})
        assert given["signature"]
        archive.delete_record("erasures/t2.json")
        broken = dict((await check(engine))[2])
        assert set(broken) == {*changed, "tasks/t2.json"}
        assert "no certificate says so" in broken["tasks/t2.json"]


async def test_a_mailbox_forgets_the_events_that_only_erased_tasks_have_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paid, shared = (
        ToolCall(id="", name="wait_for_event", arguments=json.dumps({"name": each}))
        for each in ("paid", "shared")
    )
    answers: list[ToolCall | str] = [paid, paid, shared, "done", shared, "done", paid, "done"]
    agent = Agent(name="clerk", model=ScriptedModel(answers), tools=[wait_for_event])
    async with AgentRunner.local(agent, data_dir=None) as runner:
        for id in ("mine", "later"):
            await runner.send_event("paid", {"text": "MKevent"}, id=id)
        await runner.send_event("shared", {"text": "MKshared"})
        for id in ("t1", "t2"):
            await finished(runner, "q", task_id=id)
        first = runner.client.get_workflow_handle(mailbox_id("hf:clerk", "paid"))
        deleting, died = erasure._forgotten, list[str]()
        emptied, asked = erasure._emptied, list[str]()

        def asks(client: Client, id: str, tasks: Sequence[str]) -> Awaitable[bool]:
            asked.append(id)
            return emptied(client, id, tasks)

        async def dies(client: Client, id: str, closed: str | None = None) -> None:
            if closed and not died:  # the mailbox goes on, and its closed run is there still
                died.append(id)
                raise RuntimeError("killed")
            await deleting(client, id, closed)

        monkeypatch.setattr(erasure, "_forgotten", dies)
        monkeypatch.setattr(erasure, "_emptied", asks)
        certificate = await runner.erase("t1", by="ann", reason="r")
        boxes = [mailbox_id("hf.default", each) for each in ("paid", "shared")]
        assert (certificate["mailboxes"], len(died)) == (boxes, 1)
        assert asked[:2] == boxes  # side by side: one may not answer for minutes
        assert not [
            each for each in as_array(certificate["remains"]) if "did not answer" in str(each)
        ]
        assert "MKevent" not in await history(runner.client, first.id)
        # A new one under the known id changes nothing, and another event is given as ever.
        assert (await runner.send_event("paid", {"text": "MKagain"}, id="mine")).waiters == 0
        await runner.send_event("paid", {"text": "fresh"})
        await finished(runner, "q", task_id="t3")
        assert "fresh" in str(await runner.transcript("t3"))
        assert "MKshared" in await history(runner.client, boxes[1])
        assert "MKagain" not in str(await first.query("state"))

        await forget(runner.client, "t3")  # the record knows the app, if the user named no queue
        runner._read.presence.forget("t3")
        record = as_object(await runner.archive.afind_record("tasks/t3.json"))
        for app, queue, box in (
            *(("shop", None, "hf.shop"), ("shop", "mine", "hf.shop")),
            *(("default", "mine", "mine"), ("default", "hf.shop", "hf.default")),
        ):
            await runner.archive.aput_record("tasks/t3.json", {**record, "app": app})
            monkeypatch.setattr(runner, "_queue", queue)
            planned = await runner.plan_erasure("t3")
            assert planned.erasure.mailboxes == (mailbox_id(box, "paid"),)
        monkeypatch.setattr(runner, "_queue", None)
        monkeypatch.setattr(erasure, "MAILBOX_SECONDS", 0.0)
        remains = str((await runner.erase("t3", by="ann", reason="r"))["remains"])
        assert f"Events of the mailbox {first.id!r}, which did not answer." in remains


async def history(client: Client, workflow_id: str) -> str:
    """Return what Temporal has of all runs of a workflow."""
    return "".join(
        str([*each.events])
        for each in [
            await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
            async for run in client.list_workflows(f"WorkflowId = '{workflow_id}'")
        ]
    )
