"""Names: of apps, whose agents come in any order; of sessions; of several agents of a run."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentRunner,
    GuardrailFunctionOutput,
    OutputGuardrail,
    RunConfig,
    Runner,
    RunState,
    ToolContext,
    UserError,
    handoff,
    tool,
)
from holdfast.agents.agent_base import names_apart
from holdfast.agents.items.run_items import HandoffOutputItem
from holdfast.engine.cluster import has_workers
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import CommandRefusedError, HoldfastError, InvalidArgumentError, NoWorkerError
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.unserved import unserved
from holdfast.serving.worker_host import Workers
from holdfast.serving.worker_process import App, build_workers
from holdfast.testing import ScriptedModel, call
from holdfast.values.checks.ids import DEFAULT_APP, queue_of
from holdfast.values.code.code_refs import forget
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig, until, until_status
from tests.support.runs import pay


def saying(name: str, *script: Any, **options: Any) -> Agent:
    model = ScriptedModel(list(script) if script else lambda _: f"{name} says so")
    return Agent(name=name, model=model, **options)


def workers(rig: Rig, *agents: Agent, **options: Any) -> Workers:
    """Serve agents of the default app."""
    app = App(name=DEFAULT_APP, agents=agents)
    return build_workers(rig.engine.client, app, archive=rig.engine.archive, **options)


@pytest.fixture
def connect(rig: Rig) -> Callable[[str], AgentRunner]:
    """Make a client of the default app, as `AgentRunner.connect` does, on the tests' server."""

    def made(agent: str) -> AgentRunner:
        return AgentRunner(agent=agent, client=rig.engine.client, archive=rig.engine.archive)

    return made


@pytest.fixture(scope="module")
async def local() -> AsyncGenerator[AgentRunner]:
    async with AgentRunner.local(saying("ann"), saying("bob"), data_dir=None) as runner:
        yield runner


# ---- apps


async def test_a_worker_that_serves_its_agents_in_another_order_goes_on_with_their_tasks(
    rig: Rig, connect: Callable[[str], AgentRunner]
) -> None:
    first, second = saying(f"{rig.app}-first"), saying(f"{rig.app}-second")
    with pytest.raises(InvalidArgumentError, match="notify"):
        workers(rig, first, notify=["nobody"])
    async with workers(rig, first, second):
        runners = [connect(agent.name) for agent in (first, second)]
        tasks = [await runner.create_task("q") for runner in runners]
    async with workers(rig, second, first):
        for runner, task in zip(runners, tasks, strict=True):
            assert str(await runner.run_task(task)) == f"{runner.agent} says so"


async def test_programs_of_the_default_app_that_share_no_agent_do_not_take_each_others_work(
    rig: Rig, server: ServerInfo, connect: Callable[[str], AgentRunner]
) -> None:
    archive = rig.engine.archive
    plugins = [HoldfastPlugin(archive=archive)]
    programs = [await connect_embedded(server, plugins=plugins) for _ in range(2)]
    one, other = saying(f"{rig.app}-one"), saying(f"{rig.app}-other")
    apps = [App(name=DEFAULT_APP, agents=(each,)) for each in (one, other)]
    async with build_workers(programs[0], apps[1], archive=archive):
        task = await connect(one.name).create_task("q")
        with pytest.raises(NoWorkerError, match=f"agent '{one.name}'"):
            await connect(one.name).run_task(task)
        async with build_workers(programs[1], apps[0], archive=archive):
            for _ in range(5):
                assert str(await connect(one.name).chat("q")) == f"{one.name} says so"
            assert str(await connect(one.name).run_task(task)) == f"{one.name} says so"


async def test_a_worker_is_told_of_queues_with_open_tasks_that_nobody_serves(
    rig: Rig, connect: Callable[[str], AgentRunner]
) -> None:
    client, gone, here = rig.engine.client, f'{rig.app}-gone "it\'s"', saying(f"{rig.app}-here")
    lost = await connect(gone).create_task("q")
    kept = await connect(here.name).create_task("q")
    async with workers(rig, here) as serving:

        async def told() -> dict[str, str]:
            return {each.queue: each.text for each in await unserved(client, serving.queues)}

        queue = queue_of(DEFAULT_APP, gone)
        text = (await until(told, lambda found: queue in found))[queue]
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
    selectors = ["session:s1", "person:kim", "task:a"]
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
    for name in (*odd, "a\x1b[0m", ".", "..", *nested, *selectors):
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
    with pytest.raises(CommandRefusedError, match="'r' was given to an earlier feedback"):
        await local.give_feedback(task, "less", request_id="r")
    assert (await local.give_feedback(task, "more", request_id="r", by="kim")).status == "applied"
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


# ---- runs in which several agents have one name: each has an identity of its own in the task

HAND_OVER = ToolCall(id="", name="transfer_to_test", arguments="{}")
HOME = Agent(name="at home", model="offline")
PAY = ToolCall(id="", name="pay", arguments="{}")


@pytest.fixture(scope="module")
async def runner() -> AsyncGenerator[AgentRunner]:
    async with AgentRunner.local(HOME, data_dir=None) as made:
        yield made


def named_test(*script: ToolCall | str, **options: Any) -> Agent[Any]:
    return Agent(name="test", model=ScriptedModel(script), **options)


def circle() -> list[Agent]:
    """Three agents of one name, each of which hands over to the next one, the last to the first."""
    team = [
        named_test(HAND_OVER, "It is done.", instructions="I am the first."),
        named_test(HAND_OVER, instructions="I am the second."),
        named_test(HAND_OVER, instructions="I am the third."),
    ]
    for agent, other in zip(team, [*team[1:], team[0]], strict=True):
        agent.handoffs.append(other)
    return team


async def agents_of(runner: AgentRunner, task_id: str) -> list[str]:
    """Names of the agents of a task's steps, as its record has them."""
    entries, _ = await runner.reader.ledger(task_id)
    return [entry.step.step.agent for entry in entries if entry.step is not None]


async def test_agents_of_one_name_hand_over_in_a_circle(runner: AgentRunner) -> None:
    first, second, third = team = circle()
    result = await Runner.run(first, "q", runner=runner)
    told = [agent.model.requests[0].instructions for agent in team]  # type: ignore[union-attr]
    assert told == ["I am the first.", "I am the second.", "I am the third."]
    assert result.final_output == "It is done."
    assert result.last_agent is first
    handed = [item for item in result.new_items if isinstance(item, HandoffOutputItem)]
    assert [item.raw_item["output"] for item in handed] == ['{"assistant": "test"}'] * 3
    assert [id(item.source_agent) for item in handed] == [id(agent) for agent in team]
    assert [id(item.target_agent) for item in handed] == [id(second), id(third), id(first)]
    asked = [item.agent for item in result.new_items if item.type == "handoff_call_item"]
    assert [id(agent) for agent in asked] == [id(agent) for agent in team]
    assert all(agent.name == "test" for agent in team)


async def test_so_do_instructions_tools_predicates_guardrails_and_filters_of_the_model(
    runner: AgentRunner,
) -> None:
    seen: dict[str, Any] = {}

    def instructions(_ctx: Any, agent: Agent) -> str:
        seen["instructions"] = agent
        return ""

    def is_enabled(_ctx: Any, agent: Agent) -> bool:
        seen["predicate"] = agent
        return True

    def check(_ctx: Any, agent: Agent, _output: Any) -> GuardrailFunctionOutput:
        seen["guardrail"] = agent
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    @tool(is_enabled=is_enabled, effect="read")
    def look(ctx: ToolContext[Any]) -> str:
        seen["tool"], seen["its name"] = ctx.agent, ctx.agent_name
        return "seen"

    def before_model(data: Any) -> Any:
        seen["filter"] = data.agent
        return data.model_data

    second = named_test(
        ToolCall(id="", name="look", arguments="{}"),
        "done",
        instructions=instructions,
        tools=[look],
        output_guardrails=[OutputGuardrail(check)],
    )
    first = named_test(HAND_OVER, handoffs=[second])
    config = RunConfig(call_model_input_filter=before_model)
    result = await Runner.run(first, "q", runner=runner, run_config=config)
    wanted = {"instructions", "predicate", "guardrail", "filter", "tool"}
    assert seen["its name"] == "test"
    assert {name for name in wanted if seen[name] is second} == wanted
    assert result.output_guardrail_results[0].agent is second


def test_each_agent_gets_a_name_that_no_other_has() -> None:
    agents = [Agent(name=name) for name in ("a", "b", "a", "a#2", "b", "a", "a#2")]
    assert names_apart(agents) == ["a", "b", "a#3", "a#2", "b#2", "a#4", "a#2#2"]


def paying(*, swapped: bool = False, renamed: str = "") -> Agent:
    """An agent that hands over to another of its name, which pays; a third may be there, too."""
    payer = named_test(PAY, "It is paid.", instructions="You pay.", tools=[pay])
    other = named_test("Nothing.", instructions=f"You do something else.{renamed}")
    to_payer = handoff(payer, tool_name_override="to_payer")
    to_other = handoff(other, tool_name_override="to_other")
    call = ToolCall(id="", name="to_payer", arguments="{}")
    handoffs = [to_other, to_payer] if swapped else [to_payer, to_other]
    return named_test(call, handoffs=handoffs)


def rest_of(agent: Agent) -> Agent:
    """Let the agent that pays answer only: it has called its tool in an earlier process."""
    [payer] = [each.agent for each in agent.made_handoffs if each.tool_name == "to_payer"]
    payer.model = ScriptedModel(["It is paid."])
    return agent


async def end_process(runner: AgentRunner, task_id: str) -> None:
    """Let go of a run's own agents, as the end of its process does."""
    forget((await runner.reader.head(task_id)).run.code)


async def test_a_run_goes_on_with_the_same_program_in_another_process(tmp_path: Path) -> None:
    async with AgentRunner.local(HOME, data_dir=tmp_path) as one:
        stopped = await Runner.run(paying(), "q", runner=one)
        await end_process(one, stopped.task_id)
        text = stopped.to_state().to_string()
    again = rest_of(paying())
    async with AgentRunner.local(HOME, data_dir=tmp_path) as other:
        state = await RunState.from_string(again, text)
        [item] = state.get_interruptions()
        payer = again.handoffs[0].agent
        assert item.agent is payer
        state.approve(item)
        result = await Runner.run(again, state, runner=other)
        assert (result.final_output, result.last_agent is payer) == ("It is paid.", True)
        assert await agents_of(other, result.task_id) == ["", "test#2", "test#2"]


async def test_a_run_does_not_go_on_with_agents_that_have_changed_places(tmp_path: Path) -> None:
    async with AgentRunner.local(HOME, data_dir=tmp_path) as one:
        stopped = await Runner.run(paying(), "q", runner=one)
        await end_process(one, stopped.task_id)
    swapped = rest_of(paying(swapped=True))
    async with AgentRunner.local(HOME, data_dir=tmp_path) as other:
        state = RunState.of(stopped.task_id, stopped.interruptions)
        state.approve(stopped.interruptions[0])
        with pytest.raises(UserError, match=r"it may be another of them\. Nothing was changed"):
            await Runner.run(swapped, state, runner=other)
        result = await Runner.run(rest_of(paying()), state, runner=other)
        assert result.final_output == "It is paid."


async def test_the_state_of_a_streamed_run_in_progress_knows_its_agent(runner: AgentRunner) -> None:
    team = circle()
    streamed = Runner.run_streamed(team[0], "q", runner=runner)
    events = streamed.stream_events()
    told = [
        streamed.to_state().to_json()["runs"]
        async for event in events
        if event.type == "agent_updated_stream_event"
    ]
    assert told == ["test", "test#2", "test#3", "test"]
