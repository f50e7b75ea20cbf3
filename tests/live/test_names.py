"""Names: of apps, whose agents come in any order; of sessions, which all agents of an app share."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Agent, AgentRunner, Runner, Task
from holdfast.archive.archive import Archive
from holdfast.engine.cluster import has_workers
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import (
    CommandRefusedError,
    HoldfastError,
    InvalidArgumentError,
    NoWorkerError,
    UserError,
)
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.unserved import unserved
from holdfast.serving.worker_process import App, build_workers
from holdfast.testing import ScriptedModel, call
from holdfast.values.checks.ids import DEFAULT_APP, queue_of
from tests.support.rig import Rig, until, until_status


def saying(name: str, *script: Any, **options: Any) -> Agent:
    model = ScriptedModel(list(script) if script else lambda _: f"{name} says so")
    return Agent(name=name, model=model, **options)


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


async def test_what_can_be_no_name_is_refused_before_anything_begins(local: AgentRunner) -> None:
    odd: tuple[Any, ...] = ("n" * 1000, "", "\n", "a\x00b", "a\ud800b", 7, b"s")
    nested = [local.session("s1").id, "t~0.1.0.0", "holdfast~archive"]
    before = {each.task_id for each in await local.list_tasks()}
    for name in odd:
        with pytest.raises(InvalidArgumentError, match="app"):
            AgentRunner.local(saying("a"), data_dir=None, app=name)
        with pytest.raises(InvalidArgumentError, match="session"):
            local.session(name)
        with pytest.raises(InvalidArgumentError, match="session"):
            await local.chat("q", session=name)
        with pytest.raises(UserError, match="session"):
            await Runner.run(saying("carl"), "q", session=name, runner=local)
    for name in (*odd, "a\x1b[0m", ".", "..", *nested):
        with pytest.raises(InvalidArgumentError, match=r"task_id|may not have the character '~'"):
            await local.create_task("q", task_id=name)
    for name in nested:
        with pytest.raises(HoldfastError, match=r"session|may not have the character '~'"):
            await Runner.run(saying("ann"), "q", task_id=name, runner=local)
    nothing: Any = None
    with pytest.raises(InvalidArgumentError, match="needs an input"):
        await local.create_task(nothing)
    assert {each.task_id for each in await local.list_tasks()} == before
    task = await local.create_task("q")
    wrong: tuple[Any, ...] = ("n" * 201, "a\ud800b", "a\x00b", 7)
    for name in wrong:
        with pytest.raises(InvalidArgumentError, match="by m"):
            await local.pause(task, by=name)
        with pytest.raises(InvalidArgumentError, match="request_id"):
            await local.give_feedback(task, "more", request_id=name)
        with pytest.raises(InvalidArgumentError, match="request_id"):
            await local.run_step(task, request_id=name)
    await local.give_feedback(task, "more", request_id="r")
    with pytest.raises(CommandRefusedError, match="'r' was given to an earlier feedback"):
        await local.reject(f"{task.task_id}:1", by="ann", reason="no", request_id="r")
    assert (await local.get_task(task)).steps == 0


# ---- walls


async def test_a_task_that_was_named_like_a_child_to_be_is_left_alone(rig: Rig) -> None:
    helper = rig.agent(name="helper")
    runner = await rig.serving(rig.agent(helper.as_tool(), name="agent"))
    rig.model.reply("a stranger's")
    stranger = await runner.create_task("q")
    child = f"{rig.app}-1~0.1.0.0"
    history = await runner.client.get_workflow_handle(stranger.task_id).fetch_history()
    begun = history.events[0].workflow_execution_started_event_attributes
    given = runner.client.data_converter.payload_converter.from_payloads(begun.input.payloads)
    await runner.client.start_workflow("AgentTask", given[0], id=child, task_queue=rig.queue)
    assert str(await runner.run_task(child)) == "a stranger's"

    rig.model.add(call("helper", {"input": "a"}), "done")
    task = await runner.create_task("q", task_id=f"{rig.app}-1")
    assert str(await runner.run_task(task)) == "done"
    assert "there is a workflow" in next(iter(rig.model.requests[-1].results.values()))
    await runner.abandon(task, "no more", by="bob")
    await until_status(runner, task, "abandoned")
    assert (await runner.get_task(child)).status == "answered"
