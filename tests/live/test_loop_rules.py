"""What a run brings to the loop: error handlers, filters, models, limits, wording of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Agent, ModelSettings, RunConfig, Runner, StepFailedError, tool
from holdfast.agents.runs.model_input import CallModelData, ModelInputData
from holdfast.agents.runs.rules import run_head
from holdfast.agents.tools.error_texts import ToolErrorFormatterArgs
from holdfast.client.agent_runner.task_ids import new_id
from holdfast.errors import ModelUnavailableError
from holdfast.task.data.head import AGENTS_SDK, RunRules, TaskHead
from holdfast.task.data.state import TaskInput
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import ToolCall
from holdfast.values.settings import Budget
from holdfast.workflows.agent_task import AgentTask
from tests.live.test_loop import Run
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import look
from tests.support.workers import said


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Run:
    return Run(rig, make_agent)


def gives(value: Any) -> Callable[[object], Any]:
    """Make a handler, or a filter, that gives this."""

    def function(_data: object) -> Any:
        return value

    return function


# ---- error handlers


async def test_a_handler_that_raises_leaves_the_task_to_be_continued(
    run: Run, model: FakeOpenAI
) -> None:
    broken = [True]

    def handler(_data: object) -> str:
        if broken:
            raise ZeroDivisionError("mend me")
        return "mended"

    model.refuse("I will not")
    with pytest.raises(StepFailedError, match="mend me"):
        await run("q", error_handlers={"model_refusal": handler}, task_id="loop-handler")
    broken.clear()
    assert str(await run.runner.run_task("loop-handler")) == "mended"
    assert len(model.requests) == 1


async def test_code_that_this_process_lacks_leaves_the_task_waiting(
    run: Run, model: FakeOpenAI
) -> None:
    rules = RunRules(error_handlers={"model_refusal": "local:0:of another process"})
    model.refuse("I will not")
    task = await start(run, run.make_agent(), rules, Budget())
    with pytest.raises(StepFailedError, match="of another process"):
        await run.runner.run_step(task)
    assert (await run.runner.get_task(task)).status == "needs_attention"


async def start(run: Run, agent: Agent, rules: RunRules, budget: Budget) -> str:
    """Start a task with these rules that runs one step at a time."""
    await run.rig.serve(agent)
    given = TaskInput(
        head=TaskHead(agent="agent", dialect=AGENTS_SDK, run=rules), input="q", budget=budget
    )
    task = new_id("loop")
    await run.runner.client.start_workflow(AgentTask.run, given, id=task, task_queue=run.rig.queue)
    return task


async def test_a_last_step_that_a_handler_gave_can_be_undone(run: Run, model: FakeOpenAI) -> None:
    answers = iter(["one", "two"])

    def handler(_data: object) -> str:
        return next(answers)

    rules = run_head("agent", RunConfig(), error_handlers={"max_turns": handler}).run
    model.call("look")
    budget = Budget(max_turns=1, on_exceeded="fail")
    task = await start(run, run.make_agent(look), rules, budget)
    assert not (await run.runner.run_step(task)).is_last
    assert (await run.runner.run_step(task)).output == "one"
    await run.runner.undo_step(task)
    assert (await run.runner.run_step(task)).output == "two"
    transcript = await run.runner.all_messages(task)
    assert [m.text for m in transcript if m.role == "assistant"] == ["", "two"]
    assert len(await run.runner.get_completed_steps(task)) == 2


async def test_a_worker_lost_inside_a_handler_has_it_asked_again(
    run: Run, model: FakeOpenAI
) -> None:
    """What the model said before is not paid for again."""
    begun = asyncio.Event()
    asked: list[int] = []

    async def handler(_data: object) -> str:
        asked.append(1)
        if len(asked) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "at last"

    model.refuse("I will not")
    agent = run.make_agent()
    await run.rig.serve(agent, graceful_shutdown_timeout=timedelta(0))
    work = asyncio.create_task(
        Runner.run(agent, "q", runner=run.runner, error_handlers={"model_refusal": handler})
    )
    await asyncio.wait_for(begun.wait(), 100)
    await run.rig.serve(agent)
    assert (await work).final_output == "at last"
    assert (len(asked), len(model.requests)) == (2, 1)


# ---- what a model is sent


async def test_a_filter_changes_what_is_sent_and_nothing_that_is_recorded(
    run: Run, model: FakeOpenAI
) -> None:
    seen: list[tuple[Any, str]] = []

    async def shorten(data: CallModelData) -> ModelInputData:
        seen.append((data.context, data.agent.name))
        data.model_data.input.append({"role": "user", "content": "be short"})
        return ModelInputData(input=data.model_data.input[-1:], instructions="new")

    model.call("look")
    model.reply("done")
    result = await run(
        "q",
        look,
        of={"instructions": "old"},
        run_config=RunConfig(call_model_input_filter=shorten),
        context={"a": 1},
        task_id="loop-filter",
    )
    assert [(r.instructions, said(r.messages)) for r in model.requests] == [
        ("new", [("user", "be short")])
    ] * 2
    assert seen == [({"a": 1}, "agent")] * 2
    assert result.to_input_list()[0] == {"role": "user", "content": "q"}
    transcript = await run.runner.all_messages("loop-filter")
    assert said(transcript)[0] == ("user", "q")
    assert len(transcript) == 4


async def test_a_filter_runs_for_each_attempt_of_a_model_call(run: Run, model: FakeOpenAI) -> None:
    runs: list[int] = []

    def note(data: CallModelData) -> ModelInputData:
        runs.append(1)
        return data.model_data

    model.fail(500)
    model.reply("done")
    await run("q", run_config=RunConfig(call_model_input_filter=note))
    assert len(runs) == 2


def reasons(model: FakeOpenAI) -> None:
    model.call("look", reasoning="because")
    model.reply("done")


async def test_a_model_is_asked_by_its_own_name_in_each_attempt(run: Run) -> None:
    wish = ToolCall(id="c1", name="look", arguments="{}")
    other = ScriptedModel([wish, ModelUnavailableError("busy"), "done"], name="the-other")
    result = await run("q", look, run_config=RunConfig(model=other))
    assert (result.final_output, result.usage.requests) == ("done", 2)
    assert {request.model for request in other.requests} == {"the-other"}


class Provider:
    """Gives one model, whatever the name."""

    def __init__(self) -> None:
        self.model = ScriptedModel(["provided"])
        self.names: list[str | None] = []

    def get_model(self, name: str | None) -> ScriptedModel:
        self.names.append(name)
        return self.model


async def test_a_provider_makes_models_of_names_only(run: Run, model: FakeOpenAI) -> None:
    provider = Provider()
    named = Agent(name="agent", model="some-name")
    await run.rig.serve(named)
    config = RunConfig(model_provider=provider)
    result = await Runner.run(named, "q", runner=run.runner, run_config=config)
    assert (result.final_output, provider.names) == ("provided", ["some-name"])
    model.reply("own model")
    assert (await run("q", run_config=config)).final_output == "own model"


async def test_a_number_of_attempts_that_equals_the_default_is_what_a_run_asks_for(
    run: Run, model: FakeOpenAI
) -> None:
    model.fail(500)
    model.reply("done")
    config = RunConfig(model_settings=ModelSettings(max_attempts=10, timeout_seconds=600))
    own = ModelSettings(max_attempts=1, timeout_seconds=5)
    result = await run("q", of={"model_settings": own}, run_config=config)
    assert result.final_output == "done"


# ---- tool calls


async def test_a_run_may_word_what_the_model_reads_of_an_exception(
    run: Run, model: FakeOpenAI
) -> None:
    @tool
    def act() -> str:
        """Fail."""
        raise ValueError("detail")

    model.call("act")
    model.reply("sorry")

    def words(args: ToolErrorFormatterArgs) -> str:
        return f"{args.kind}: {args.error}"

    config = RunConfig(tool_error_formatter=words)
    await run("q", act, run_config=config)
    assert model.requests[1].results["call_1"] == "tool_exception: detail"


def mine(_ctx: object, error: Exception) -> str:
    return f"mine: {type(error).__name__}"
