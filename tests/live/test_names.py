"""Names: of apps, whose agents come in any order; of sessions, which all agents of an app share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from holdfast import Agent, AgentRunner, Runner, Task
from holdfast.activities.tools.child_start import NestingActivities
from holdfast.archive.archive import Archive
from holdfast.engine.cluster import has_workers
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    NoWorkerError,
    TaskExistsError,
    UserError,
)
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.unserved import unserved
from holdfast.serving.worker_process import App, build_workers
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.checks.ids import DEFAULT_APP, queue_of
from holdfast.values.messages import Message, ToolCall
from tests.support.rig import MakeAgent, Rig, until, until_status

LONG_ID = "i" * 200


def saying(name: str, *script: Any, **options: Any) -> Agent:
    model = ScriptedModel(list(script) if script else lambda _: f"{name} says so")
    return Agent(name=name, model=model, **options)


def seen(agent: Agent) -> list[str]:
    """What the model of an agent was last shown, system prompt aside."""
    assert isinstance(agent.model, ScriptedModel)
    return [message.text for message in agent.model.requests[-1].messages]


def app_of(*agents: Agent) -> App:
    return App(name=DEFAULT_APP, agents=agents)


@pytest.fixture
def connect(rig: Rig) -> Callable[[str], AgentRunner]:
    """Make a client of the default app, as `AgentRunner.connect` does, on the tests' server."""

    def made(agent: str) -> AgentRunner:
        return AgentRunner(agent=agent, client=rig.engine.client, archive=rig.engine.archive)

    return made


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.engine.client


@pytest.fixture
def archive(rig: Rig) -> Archive:
    return rig.engine.archive


@pytest.fixture(scope="module")
async def local() -> AsyncGenerator[AgentRunner]:
    async with AgentRunner.local(saying("ann"), saying("bob"), data_dir=None) as runner:
        yield runner


# ---- apps


async def test_a_worker_that_serves_its_agents_in_another_order_goes_on_with_their_tasks(
    rig: Rig, client: Client, archive: Archive, connect: Callable[[str], AgentRunner]
) -> None:
    first, second = saying(f"{rig.app}-first"), saying(f"{rig.app}-second")
    tasks: list[tuple[AgentRunner, Task]] = []
    async with build_workers(client, app_of(first, second), archive=archive):
        for agent in (first, second):
            runner = connect(agent.name)
            tasks.append((runner, await runner.create_task("q")))
    async with build_workers(client, app_of(second, first), archive=archive):
        answers = [str(await runner.run_task(task)) for runner, task in tasks]
    assert answers == [f"{first.name} says so", f"{second.name} says so"]


async def test_programs_of_the_default_app_that_share_no_agent_do_not_take_each_others_work(
    rig: Rig, server: ServerInfo, archive: Archive, connect: Callable[[str], AgentRunner]
) -> None:
    programs = [
        await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)]) for _ in range(2)
    ]
    one, other = saying(f"{rig.app}-one"), saying(f"{rig.app}-other")
    async with build_workers(programs[0], app_of(other), archive=archive):
        task = await connect(one.name).create_task("q")
        with pytest.raises(NoWorkerError, match=f"agent '{one.name}'"):
            await connect(one.name).run_task(task)
        async with build_workers(programs[1], app_of(one), archive=archive):
            for _ in range(5):
                assert str(await connect(one.name).chat("q")) == f"{one.name} says so"
            assert str(await connect(one.name).run_task(task)) == f"{one.name} says so"


async def test_every_agent_that_a_worker_serves_is_found_also_one_that_others_hand_over_to(
    rig: Rig, client: Client, archive: Archive, connect: Callable[[str], AgentRunner]
) -> None:
    billing = saying(f"{rig.app}-billing")
    triage = saying(f"{rig.app}-triage", handoffs=[billing])
    app = app_of(saying(f"{rig.app}-first"), triage)
    async with build_workers(client, app, archive=archive) as workers:
        for agent in app.served:
            assert str(await connect(agent.name).chat("q")) == f"{agent.name} says so"
            assert queue_of(DEFAULT_APP, agent.name) in workers.queues
    assert billing in app.served


async def test_a_worker_is_told_of_queues_with_open_tasks_that_nobody_serves(
    rig: Rig, client: Client, archive: Archive, connect: Callable[[str], AgentRunner]
) -> None:
    gone, here = f'{rig.app}-gone "it\'s"', saying(f"{rig.app}-here")
    lost = await connect(gone).create_task("q")
    kept = await connect(here.name).create_task("q")
    async with build_workers(client, app_of(here), archive=archive) as workers:

        async def told() -> dict[str, str]:
            found = await unserved(client, workers.queues)
            return {each.queue: each.text for each in found}

        async def has_told() -> str:
            return (await told()).get(queue_of(DEFAULT_APP, gone), "")

        text = await until(has_told)
        assert lost.task_id in text
        assert repr(gone) in text
        assert not [each for each in (await told()).values() if kept.task_id in each]
        assert await has_workers(client, queue_of(DEFAULT_APP, here.name))


# ---- sessions


async def test_a_session_is_one_for_all_agents(local: AgentRunner) -> None:
    await local.chat("I am Kim.", session="of two", agent="ann")
    assert (await local.session("of two").chat_history())[0].text == "I am Kim."
    await local.chat("Who am I?", session="of two", agent="bob")
    told = [message.text for message in await local.session("of two").chat_history()]
    assert told == ["I am Kim.", "ann says so", "Who am I?", "bob says so"]


async def test_a_run_of_another_agent_sees_what_a_session_holds(local: AgentRunner) -> None:
    carl = saying("carl", "Yes.")
    await local.chat("I am Kim.", session="of carl")
    await Runner.run(carl, "Who am I?", session="of carl", runner=local)
    assert seen(carl) == ["I am Kim.", "ann says so", "Who am I?"]


async def test_a_session_outlives_the_agent_that_began_it(
    rig: Rig, client: Client, archive: Archive, connect: Callable[[str], AgentRunner]
) -> None:
    old, new = saying(f"{rig.app}-old"), saying(f"{rig.app}-new")
    async with build_workers(client, app_of(old), archive=archive):
        await connect(old.name).chat("I am Kim.", session=rig.app)
    async with build_workers(client, app_of(new), archive=archive):
        await connect(new.name).chat("Who am I?", session=rig.app)
    assert seen(new)[0] == "I am Kim."


async def test_sessions_of_two_apps_are_two_however_they_are_named(rig: Rig) -> None:
    def session_of(app: str, name: str) -> str:
        made = AgentRunner(agent="a", app=app, client=rig.engine.client, archive=rig.engine.archive)
        return made.session(name).id

    assert session_of("a", "b.session.c") != session_of("a.session.b", "c")
    assert session_of("a", "b~session~c") not in {session_of("a", "b"), session_of("a", "c")}


async def test_what_can_be_no_name_is_refused_before_anything_begins(local: AgentRunner) -> None:
    odd: tuple[Any, ...] = ("n" * 1000, "", "\n", "a\x00b", "a\ud800b", 7, b"s")
    nested = [local.session("s1").id, "t~0.1.0.0", "holdfast~archive"]
    before = await local.list_tasks()
    for name in odd:
        with pytest.raises(InvalidArgumentError, match="app"):
            AgentRunner.local(saying("a"), data_dir=None, app=name)
        with pytest.raises(InvalidArgumentError, match="session"):
            local.session(name)
        with pytest.raises(InvalidArgumentError, match="session"):
            await local.chat("q", session=name)
        with pytest.raises(UserError, match="session"):
            await Runner.run(saying("carl"), "q", session=name, runner=local)
    for name in (*odd, "a\x1b[0m", *nested):
        with pytest.raises(InvalidArgumentError, match=r"task_id|may not have the character '~'"):
            await local.create_task("q", task_id=name)
    for name in nested:
        with pytest.raises(HoldfastError, match=r"session|may not have the character '~'"):
            await Runner.run(saying("ann"), "q", task_id=name, runner=local)
    nothing: Any = None
    with pytest.raises(InvalidArgumentError, match="needs an input"):
        await local.create_task(nothing)
    assert await local.list_tasks() == before
    task = await local.create_task("q")
    wrong: tuple[Any, ...] = ("n" * 201, "a\ud800b", "a\x00b", 7)
    for name in wrong:
        with pytest.raises(InvalidArgumentError, match="by m"):
            await local.pause(task, by=name)
        with pytest.raises(InvalidArgumentError, match="request_id"):
            await local.give_feedback(task, "more", request_id=name)
        with pytest.raises(InvalidArgumentError, match="request_id"):
            await local.run_step(task, request_id=name)
    assert (await local.get_task(task)).steps == 0


# ---- walls


async def test_a_session_is_no_task(local: AgentRunner) -> None:
    await local.session("s1").append([Message(role="user", content="hello")])
    for verb in (local.delete_task, local.get_task, local.pause, local.run_task):
        with pytest.raises(InvalidArgumentError, match="id of a session"):
            await verb(local.session("s1").id)
    assert [m.text for m in await local.session("s1").chat_history()] == ["hello"]


async def test_a_commit_to_what_is_no_session_is_refused(local: AgentRunner) -> None:
    session = local.session("taken")
    await local.client.start_workflow("Other", id=session.id, task_queue="nobody")
    with pytest.raises(InvalidArgumentError, match="workflow 'Other'"):
        await session.append([Message(role="user", content="hello")])


async def test_a_task_that_was_named_like_a_child_to_be_is_left_alone(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.reply("a stranger's")
    stranger = await runner.create_task("q")
    child = f"{rig.app}-1~0.1.0.0"
    history = await runner.client.get_workflow_handle(stranger.task_id).fetch_history()
    begun = history.events[0].workflow_execution_started_event_attributes
    given = runner.client.data_converter.payload_converter.from_payloads(begun.input.payloads)
    await runner.client.start_workflow("AgentTask", given[0], id=child, task_queue=rig.queue)
    assert str(await runner.run_task(child)) == "a stranger's"

    model.call("helper", {"input": "a"})
    model.reply("done")
    task = await runner.create_task("q", task_id=f"{rig.app}-1")
    assert str(await runner.run_task(task)) == "done"
    assert "there is a workflow" in next(iter(model.requests[-1].results.values()))
    await runner.abandon(task, "no more", by="bob")
    await until_status(runner, task, "abandoned")
    assert (await runner.get_task(child)).status == "answered"


async def test_a_call_whose_task_cannot_be_told_from_a_stranger_ends_as_unknown(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    @activity.defn(name="is_own")
    async def fails(_self: NestingActivities, _task: str) -> bool:
        raise ApplicationError("no permission", non_retryable=True)

    monkeypatch.setattr(NestingActivities, "is_own", fails)
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    child = f"{rig.app}-1~0.1.0.0"
    await runner.client.start_workflow("Stranger", id=child, task_queue=f"{rig.app}-none")
    model.call("helper", {"input": "a"})
    model.reply("done")
    task = await runner.create_task("q", task_id=f"{rig.app}-1")
    assert str(await runner.run_task(task)) == "done"
    [told] = model.requests[-1].results.values()
    assert "It is not known whether it ran" in told
    assert "no permission" in told


# ---- lengths


async def test_a_task_of_the_longest_id_has_children(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    model.call("helper", {"input": "a"})
    model.reply("helped")
    model.reply("done")
    runner = rig.runner()
    name = f"{rig.app}-{LONG_ID}"[:200]
    assert str(await runner.chat("q", task_id=name)) == "done"
    with pytest.raises(TaskExistsError):
        await runner.create_task("q", task_id=name)


@pytest.mark.exhaustive
async def test_agents_nested_forty_deep_run_to_the_end(rig: Rig) -> None:
    depth = 40
    agent = saying("a0", "found")
    for k in range(1, depth):
        call = ToolCall(id="", name=f"ask_{k}", arguments='{"input": "q"}')
        agent = saying(f"a{k}", call, "found", tools=[agent.as_tool(f"ask_{k}")])
    await rig.serve(agent)
    runner = rig.runner(agent.name)
    assert str(await runner.chat("q", task_id=f"{rig.app}-{LONG_ID}"[:200])) == "found"
    assert await runner.list_tasks(parent=f"{rig.app}-{LONG_ID}"[:200])


# ---- what is looked for


@pytest.mark.parametrize("name", ['it\'s "x" back\\slash', "`100%_end\\"])
async def test_tasks_are_found_by_agents_and_parents_with_any_name(rig: Rig, name: str) -> None:
    runner = rig.runner(f"{rig.app} {name}")
    await runner.create_task("q", task_id=f"{rig.app} {name}")
    other = rig.runner(f"{rig.app} other")
    await other.create_task("q")

    async def listed() -> list[str]:
        return [task.task_id for task in await runner.list_tasks(agent=runner.agent)]

    assert await until(listed) == [f"{rig.app} {name}"]
    assert await runner.list_tasks(parent=f"{rig.app} {name}") == []
    await runner.delete_task(f"{rig.app} {name}")


# ---- who acts, and requests
