"""Steps that share an activity against steps that have one each: nobody can tell them apart."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from openai import AsyncOpenAI

from holdfast import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    ToolContext,
    tool,
)
from holdfast.activities.data.cache import Cache
from holdfast.agents.guardrails import OutputGuardrail
from holdfast.agents.runs.error_handlers import RunErrorHandlerResult
from holdfast.agents.runs.model_input import CallModelData, ModelInputData
from holdfast.agents.tools.guardrails import ToolGuardrailFunctionOutput, ToolOutputGuardrail
from holdfast.errors import HoldfastError
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI, ScriptedModel, hang
from holdfast.values.messages import ToolCall
from holdfast.values.steps import CLOSED
from holdfast.workers import FunctionCallingAgentWorker, StepContext
from holdfast.workers.tool_use import StopAtTools
from tests.support.fast_steps import count_as_fast, look, looks
from tests.support.rig import Engine, Rig, activities_of, assert_replays, until, until_status


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every step as fast, on a machine of any speed, and report soon."""
    count_as_fast(monkeypatch, report_seconds=0.5)


@tool(effect="read")
def count(ctx: ToolContext) -> str:
    """Count."""
    ctx.context["n"] = ctx.context.get("n", 0) + 1
    return f"{ctx.context['n']} after {ctx.usage.requests}"


@tool(effect="read")
def clash(ctx: ToolContext, what: str) -> str:
    """Write what others write, too."""
    ctx.context["clash"] = what
    return what


@tool(effect="read")
def fail(ctx: ToolContext) -> str:
    """Fail."""
    ctx.context["lost"] = True
    raise LookupError("nothing there")


@tool(needs_approval=True)
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


class Told(AgentHooks):
    """Writes down what it is told, and fails at one moment."""

    def __init__(self, told: list[Any], fails: str = "") -> None:
        self.told, self.fails = told, fails

    def tell(self, what: str, ctx: Any, *more: Any) -> None:
        self.told.append((what, repr(ctx.context), ctx.usage.requests, *more))
        if self.fails == f"{what} {sum(each[0] == what for each in self.told)}":
            raise ValueError(self.fails)

    async def on_start(self, context: Any, agent: Any) -> None:
        self.tell("start", context, agent.name, context.turn_input)

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.tell("end", context, agent.name, output)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.tell("tool_start", context, agent.name, tool.name)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.tell("tool_end", context, agent.name, tool.name, result)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        self.tell("llm_start", context, agent.name, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.tell("llm_end", context, agent.name, repr(response.usage))


class ToldOfRun(RunHooks):
    """Writes down the calls of the hooks of a run."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.told.append(("tool_end", context.usage.requests, agent.name, tool.name, result))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.told.append(("llm_end", context.usage.requests, agent.name, response.response_id))


@dataclass
class Side:
    """One of the two ways to run a scenario.

    Attributes:
        told: What hooks, filters and AgentWorkers were told.
        told_of_run: What the hooks of its runs were told.
    """

    rig: Rig
    model: FakeOpenAI
    client: AsyncOpenAI
    most: int
    told: list[Any] = field(default_factory=list[Any])
    told_of_run: list[Any] = field(default_factory=list[Any])

    @property
    def task(self) -> str:
        """Id of the task that the scenario runs."""
        return f"{self.rig.app}-x"

    async def agent(self, *tools: Any, **options: Any) -> Agent:
        """Make and serve an agent."""
        made = self.make(*tools, **options)
        await self.rig.serve(made)
        return made

    def make(self, *tools: Any, name: str = "agent", fails: str = "", **options: Any) -> Agent:
        """Make an agent whose hooks are heard."""
        options.setdefault("model", ResponsesModel("gpt-5-mini", client=self.client))
        options.setdefault("worker", FunctionCallingAgentWorker(steps_per_activity=self.most))
        return Agent(name=name, tools=tools, hooks=Told(self.told, fails), **options)

    def calls(self, *tools: str) -> None:
        """Script an answer for each of these calls."""
        for k, name in enumerate(tools):
            self.model.call(name, {"what": f"w{k}"} if name in ("look", "clash") else {})

    async def run(self, agent: Agent, given: Any = "q", **options: Any) -> Any:
        """Run an agent; return all that the caller sees of it."""
        is_new = isinstance(given, str)
        if is_new:
            options = {"task_id": self.task, "context": {"who": "me"}, **options}
        hooks = ToldOfRun(self.told_of_run)
        try:
            result = await Runner.run(
                agent, given, runner=self.rig.runner(), hooks=hooks, **options
            )
        except (HoldfastError, ValueError) as error:
            data = getattr(error, "run_data", None)
            return [type(error).__name__, str(error), data and seen(data)]
        return [seen(result), result]

    async def recorded(self, task: str = "") -> Any:
        """Return what is recorded of a task, without times and names of processes."""
        task, runner = task or self.task, self.rig.runner()
        found, steps = await runner.get_task(task), await runner.get_completed_steps(task)
        assert await runner.verify(task) == []
        await assert_replays(runner, task)
        return [
            found.status,
            found.error,
            repr(found.usage),
            found.extra_state,
            [(each.task_step.step_id, each.output, each.is_last) for each in steps],
            [each.step_id for each in await runner.get_upcoming_steps(task)],
            [each.model_dump(mode="json") for each in await runner.transcript(task)],
            [
                (e.kind, e.step, e.tool, e.arguments, e.result, e.status, e.attempts, e.reason)
                for e in await runner.audit(task)
            ],
        ]


def seen(data: Any) -> Any:
    """Return what the result of a run holds, or what its error has of it."""
    guards = ("output_guardrail_results", "tool_output_guardrail_results")
    return [
        [(each.type, each.agent.name, repr(each.raw_item)) for each in data.new_items],
        [(repr(each.usage), each.response_id) for each in data.raw_responses],
        [[repr(each.output) for each in getattr(data, name)] for name in guards],
        repr(data.context_wrapper.usage),
        repr(data.context_wrapper.context),
        data.to_input_list(),
        data.last_agent.name,
        getattr(data, "final_output", None),
        [(each.tool_name, each.arguments) for each in data.interruptions],
    ]


async def hooks_and_context(s: Side) -> Any:
    agent = await s.agent(count, look, clash, fail)
    s.calls("count")
    s.model.calls([("count", {}), ("look", {"what": "x"})])
    s.calls("fail")
    s.model.calls([("clash", {"what": "a"}), ("clash", {"what": "b"})])
    s.calls("count")
    s.model.reply("done")
    return await s.run(agent)


async def hook_that_raises(s: Side) -> Any:
    agent = await s.agent(look, fails="tool_end 2")
    s.calls("look", "look")
    found = [await s.run(agent), await s.recorded()]
    s.calls("look")
    s.model.reply("done")
    return [*found, await s.run(agent, RunState.of(s.task))]


async def tool_guardrail(s: Side) -> Any:
    def check(data: Any) -> ToolGuardrailFunctionOutput:
        s.told.append(("guard", data.output, repr(data.context.context)))
        trips = data.output == "saw w1"
        act = ToolGuardrailFunctionOutput
        return act.raise_exception({"of": "w1"}) if trips else act.allow()

    agent = await s.agent(replace(look, tool_output_guardrails=[ToolOutputGuardrail(check)]))
    s.calls("look", "look")
    return await s.run(agent)


async def output_guardrail(s: Side) -> Any:
    def check(ctx: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        s.told.append(("guard", agent.name, output, repr(ctx.context), ctx.usage.requests))
        return GuardrailFunctionOutput({"a": 1}, tripwire_triggered=True)

    agent = await s.agent(count, look, output_guardrails=[OutputGuardrail(check)])
    s.calls("count", "look")
    s.model.reply("done")
    return await s.run(agent)


async def last_turn(s: Side) -> Any:
    def handle(given: Any) -> RunErrorHandlerResult:
        s.told.append((str(given.error), len(given.run_data.new_items)))
        return RunErrorHandlerResult("handled")

    agent = await s.agent(count, look)
    s.calls("count", "look", "count")
    return await s.run(agent, max_turns=3, error_handlers={"max_turns": handle})


async def stops_at_tool(s: Side) -> Any:
    agent = await s.agent(count, look, tool_use_behavior=StopAtTools(stop_at_tool_names=["count"]))
    s.calls("look", "look", "count")
    return await s.run(agent)


async def sessions_and_filter(s: Side) -> Any:
    def last_four(data: CallModelData[Any]) -> ModelInputData:
        s.told.append(("filter", len(data.model_data.input), repr(data.context)))
        return ModelInputData(data.model_data.input[-4:], "Look.")

    agent, found = await s.agent(look), list[Any]()
    own, callers = f"{s.rig.app}-s", SQLiteSession("s")
    for k, session in enumerate((own, own, callers, callers)):
        s.calls("look", "look", "look")
        s.model.reply(f"done {k}")
        config = RunConfig(call_model_input_filter=last_four)
        more: Any = {"session": session, "run_config": config, "task_id": f"{s.task}{k or ''}"}
        found.append(await s.run(agent, f"q{k}", **more))
    history = await s.rig.runner().session(own).chat_history()
    asked = [each.body["input"] for each in s.model.requests]
    return [found, texts(history), await callers.get_items(), asked]


def texts(messages: Any) -> list[str]:
    return [f"{each.role}: {each.text}" for each in messages]


async def approval(s: Side) -> Any:
    agent = await s.agent(count, look, pay)
    s.calls("count", "look")
    s.model.calls([("pay", {"to": "ann"}), ("count", {})])
    found, result = await s.run(agent)
    state = await RunState.from_string(agent, result.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    s.calls("count", "look")
    s.model.reply("done")
    return [found, await s.run(agent, state)]


async def nested_approval(s: Side) -> Any:
    helper = s.make(count, look, pay, name="helper")
    agent = await s.agent(count, look, helper.as_tool("ask", "Ask."))
    s.calls("count", "look")
    s.model.call("ask", {"input": "please"})
    s.calls("count", "look")
    s.model.call("pay", {"to": "ann"})
    found, result = await s.run(agent)
    state = result.to_state()
    state.approve(result.interruptions[0])
    s.calls("count")
    s.model.reply("helped")
    s.calls("count", "look")
    s.model.reply("done")
    again, child = await s.run(agent, state), f"{s.task}~0.3.0.0"
    await until_status(s.rig.runner(), child, *CLOSED)
    return [found, again, await s.recorded(child)]


async def abandoned_child(s: Side) -> Any:
    helper, runner = s.make(count, look, name="helper"), s.rig.runner()
    agent = await s.agent(count, look, helper.as_tool("ask", "Ask."))
    s.calls("count", "look")
    s.model.call("ask", {"input": "please"})
    s.calls("count", "look")
    s.model.add(hang(looks("c")))
    running, child = asyncio.create_task(s.run(agent)), f"{s.task}~0.3.0.0"
    await s.model.until_held()

    async def is_reported() -> bool:
        return len(await runner.get_completed_steps(child)) == 2

    await until(is_reported)
    s.calls("count")
    s.model.reply("done")
    await runner.abandon(child, "enough", by="ann")
    await until_status(runner, child, *CLOSED)
    s.model.release()
    return [await running, await s.recorded(child)]


class Curious(FunctionCallingAgentWorker):
    """Asks in each step for its task."""

    def __init__(self, told: list[Any], **options: Any) -> None:
        super().__init__(**options)
        self.told = told

    async def run_step(self, step: Any, ctx: StepContext) -> Any:
        task = await ctx.task()
        self.told.append((task.steps, task.status, dict(task.extra_state), repr(task.usage)))
        self.told.append((ctx.state == task.extra_state, repr(task.branch_usage)))
        task.extra_state.clear()
        return await super().run_step(step, ctx)


async def worker_of_ones_own(s: Side) -> Any:
    worker = Curious(s.told, steps_per_activity=s.most)
    agent = await s.agent(count, look, worker=worker)
    s.calls("count", "look", "count")
    s.model.reply("done")
    return await s.run(agent)


async def lost_worker(s: Side) -> Any:
    agent = await s.agent(count, look)
    s.calls("count", "look")
    s.model.add(hang(looks("c")))
    running = asyncio.create_task(s.run(agent))
    await s.model.until_held()
    await s.rig.stop()
    s.model.release()
    s.calls("count", "count")
    s.model.reply("done")
    await s.rig.serve(agent)
    return await running


SCENARIOS: list[Callable[[Side], Awaitable[Any]]] = [
    hooks_and_context,
    hook_that_raises,
    tool_guardrail,
    output_guardrail,
    last_turn,
    stops_at_tool,
    sessions_and_filter,
    approval,
    nested_approval,
    abandoned_child,
    worker_of_ones_own,
    lost_worker,
]


@pytest.fixture
async def sides(engine: Engine, openai_client: AsyncOpenAI) -> AsyncGenerator[list[Side]]:
    """Give each of the two a rig and a fake API of its own."""
    with FakeOpenAI() as first, FakeOpenAI() as second:
        made = [
            Side(Rig(engine), model, openai_client.with_options(base_url=model.base_url), most)
            for model, most in ((first, 1), (second, 8))
        ]
        yield made
        for side in made:
            await side.rig.stop()
            await side.rig.assert_replays()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_nobody_can_tell_shared_activities_from_others(
    sides: list[Side], scenario: Callable[[Side], Awaitable[Any]]
) -> None:
    found, ran = list[str](), list[int]()
    for side in sides:
        whole = [await scenario(side), await side.recorded(), side.told, side.told_of_run]
        text = json.dumps(whole, default=lambda _: "", indent=1, sort_keys=True)
        found.append(re.sub(rf"\b{side.rig.app}-", "app-", text))
        ran.append((await activities_of(side.rig.engine.client, side.task)).count("step"))
    assert found[1].splitlines() == found[0].splitlines()
    assert ran[1] < ran[0]


@pytest.mark.parametrize("most", [1, 8])
async def test_a_full_cache_stops_no_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(Cache.__init__, "__defaults__", (1,))  # room for one task at a time

    def answer(request: Any) -> Any:
        done = sum(each.role == "tool" for each in request.messages)
        return ToolCall(id=f"c{done}", name="count", arguments="{}") if done < 2 else "done"

    worker = FunctionCallingAgentWorker(steps_per_activity=most)
    agent = Agent(name="agent", tools=[count], model=ScriptedModel(answer), worker=worker)
    await rig.serve(agent)
    runs = (Runner.run(agent, "q", context={"n": k}, runner=rig.runner()) for k in range(4))
    for k, result in enumerate(await asyncio.gather(*runs)):
        assert result.context_wrapper.context == {"n": k + 2}
        assert await rig.runner().verify(result.task_id) == []
