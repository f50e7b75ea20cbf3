"""What a run brings to the loop: error handlers, filters, models, limits, wording of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Agent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelSettings,
    RunConfig,
    Runner,
    StepFailedError,
    Tool,
    UserError,
    tool,
)
from holdfast.agents.run_config import ToolExecutionConfig
from holdfast.agents.runs.error_handlers import RunErrorHandlerInput, RunErrorHandlerResult
from holdfast.agents.runs.model_input import CallModelData, ModelInputData
from holdfast.agents.runs.rules import run_head
from holdfast.agents.tools.error_texts import ToolErrorFormatterArgs
from holdfast.client.agent_runner.task_ids import new_id
from holdfast.errors import ModelRefusalError, ModelUnavailableError
from holdfast.task.data.head import AGENTS_SDK, RunRules, TaskHead
from holdfast.task.data.state import TaskInput
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import ToolCall
from holdfast.values.settings import Budget
from holdfast.workflows.agent_task import AgentTask
from tests.live.test_loop import City, Run
from tests.support.rig import MakeAgent, Rig, event_types, until
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


async def test_a_handler_gives_the_output_when_the_turns_are_used_up(
    run: Run, model: FakeOpenAI
) -> None:
    asked: list[RunErrorHandlerInput] = []

    async def handler(data: RunErrorHandlerInput) -> str:
        asked.append(data)
        return "as far as I came"

    model.call("look")
    result = await run("q", look, max_turns=1, error_handlers={"max_turns": handler}, context={})
    assert result.final_output == "as far as I came"
    assert [item.type for item in result.new_items] == [
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    [data] = asked
    assert isinstance(data.error, MaxTurnsExceeded)
    assert str(data.error) == "Max turns (1) exceeded"
    assert data.context.context == {}
    assert (data.context.usage.requests, data.run_data.input) == (1, "q")
    assert [item.type for item in data.run_data.new_items] == [
        "tool_call_item",
        "tool_call_output_item",
    ]
    assert data.run_data.history[0] == {"role": "user", "content": "q"}


async def test_a_handler_answers_even_before_the_first_call(run: Run, model: FakeOpenAI) -> None:
    result = await run("q", max_turns=0, error_handlers={"max_turns": gives("nothing")})
    assert result.final_output == "nothing"
    assert result.to_input_list()[0] == {"role": "user", "content": "q"}
    assert len(result.new_items) == 1


async def test_an_output_may_stay_out_of_the_history(run: Run, model: FakeOpenAI) -> None:
    given = {"final_output": "over", "include_in_history": False}
    result = await run("q", max_turns=0, error_handlers={"max_turns": gives(given)})
    assert (result.final_output, result.new_items) == ("over", [])


async def test_a_handler_that_declines_leaves_the_error(run: Run) -> None:
    with pytest.raises(MaxTurnsExceeded):
        await run("q", max_turns=0, error_handlers={"max_turns": gives(None)})


async def test_a_handler_for_another_error_is_not_asked(run: Run) -> None:
    with pytest.raises(MaxTurnsExceeded):
        await run("q", max_turns=0, error_handlers={"model_refusal": gives("no")})


async def test_an_output_that_does_not_fit_the_type_is_an_error_of_the_user(run: Run) -> None:
    with pytest.raises(UserError, match="City"):
        await run(
            "q",
            of={"output_type": City},
            max_turns=0,
            error_handlers={"max_turns": gives("text")},
        )


async def test_a_refusal_may_be_answered_for_by_typed_output(run: Run, model: FakeOpenAI) -> None:
    model.refuse("I will not")

    def handler(data: RunErrorHandlerInput) -> RunErrorHandlerResult:
        assert isinstance(data.error, ModelRefusalError)
        assert data.run_data.raw_responses[0].refusal == data.error.refusal == "I will not"
        return RunErrorHandlerResult(City(name="None", people=0))

    result = await run("q", of={"output_type": City}, error_handlers={"model_refusal": handler})
    assert result.final_output in ({"name": "None", "people": 0}, City(name="None", people=0))
    texts = [item.to_input_item()["content"] for item in result.new_items]
    assert texts[-1][0]["text"] == '{"name":"None","people":0}'
    assert len(texts) == 2


async def test_invalid_output_may_be_answered_for(run: Run, model: FakeOpenAI) -> None:
    model.reply("no JSON")
    result = await run(
        "q", of={"output_type": int}, error_handlers={"invalid_final_output": gives(5)}
    )
    assert result.final_output == 5


async def test_no_output_is_asked_of_the_handler_and_then_of_the_model(
    run: Run, model: FakeOpenAI
) -> None:
    model.reply("")
    model.reply('{"response": 6}')
    errors: list[str] = []

    def handler(data: RunErrorHandlerInput) -> None:
        errors.append(str(data.error))

    result = await run(
        "q", of={"output_type": int}, error_handlers={"invalid_final_output": handler}
    )
    assert result.final_output == 6
    assert errors == ["Model returned no final output for the structured output type."]


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


async def test_a_filter_that_returns_something_else_is_an_error_of_the_user(run: Run) -> None:
    with pytest.raises(UserError, match="ModelInputData"):
        await run("q", run_config=RunConfig(call_model_input_filter=gives(None)))


def reasons(model: FakeOpenAI) -> None:
    model.call("look", reasoning="because")
    model.reply("done")


@pytest.mark.parametrize(("policy", "has_id"), [(None, True), ("preserve", True), ("omit", False)])
async def test_ids_of_reasoning_are_sent_back_or_not(
    run: Run, model: FakeOpenAI, policy: Any, has_id: bool
) -> None:
    reasons(model)
    result = await run("q", look, run_config=RunConfig(reasoning_item_id_policy=policy))
    for items in (model.requests[1].body["input"], result.to_input_list()):
        [item] = [i for i in items if i.get("type") == "reasoning"]
        assert ("id" in item) is has_id


async def test_a_filter_may_give_reasoning_an_id_where_ids_are_omitted(
    run: Run, model: FakeOpenAI
) -> None:
    def named(data: CallModelData) -> ModelInputData:
        for item in data.model_data.input:
            if item.get("type") == "reasoning":
                assert "id" not in item
                item["id"] = "rs_mine"
        return data.model_data

    reasons(model)
    config = RunConfig(reasoning_item_id_policy="omit", call_model_input_filter=named)
    await run("q", look, run_config=config)
    [item] = [i for i in model.requests[1].body["input"] if i.get("type") == "reasoning"]
    assert item["id"] == "rs_mine"


async def test_an_empty_list_is_an_input(run: Run, model: FakeOpenAI) -> None:
    model.reply("done")
    result = await run([])
    assert result.final_output == "done"
    assert model.requests[0].body["input"] == []
    assert [item["role"] for item in result.to_input_list()] == ["assistant"]


async def test_a_model_of_the_run_answers_for_the_agent(run: Run) -> None:
    other = ScriptedModel(["from the other"])
    result = await run("q", run_config=RunConfig(model=other))
    assert result.final_output == "from the other"


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


async def test_settings_of_the_run_replace_single_fields(run: Run, model: FakeOpenAI) -> None:
    model.reply("done")
    own = ModelSettings(temperature=0.1, top_p=0.5)
    await run("q", of={"model_settings": own}, run_config={"model_settings": {"top_p": 0.9}})
    sent = model.requests[0].body
    assert (sent["temperature"], sent["top_p"]) == (0.1, 0.9)


async def test_a_number_of_attempts_that_equals_the_default_is_what_a_run_asks_for(
    run: Run, model: FakeOpenAI
) -> None:
    model.fail(500)
    model.reply("done")
    config = RunConfig(model_settings=ModelSettings(max_attempts=10, timeout_seconds=600))
    own = ModelSettings(max_attempts=1, timeout_seconds=5)
    result = await run("q", of={"model_settings": own}, run_config=config)
    assert result.final_output == "done"


async def test_what_an_answer_includes_is_kept_and_sent_back(run: Run, model: FakeOpenAI) -> None:
    token: dict[str, Any] = {
        "token": "do",
        "logprob": -0.1,
        "bytes": [100, 111],
        "top_logprobs": [],
    }
    part: dict[str, Any] = {
        "type": "output_text",
        "text": "do",
        "annotations": [],
        "logprobs": [token],
    }
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "secret",
    }
    said: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    model.raw({"id": "resp_1", "status": "completed", "output": [thought, said]})
    wanted = ["reasoning.encrypted_content"]
    settings = ModelSettings(response_include=wanted, top_logprobs=0, store=False)  # type: ignore[arg-type]
    result = await run("q", of={"model_settings": settings})
    assert model.requests[0].body["include"] == [*wanted, "message.output_text.logprobs"]
    assert [item.raw_item.to_dict() for item in result.new_items] == [thought, said]
    model.reply("more")
    await run(
        [*result.to_input_list(), {"role": "user", "content": "more"}],
        of={"model_settings": settings},
    )
    sent = model.requests[1].body["input"]
    assert sent[1] == thought
    assert sent[2]["content"] == [part]


# ---- tool calls


async def test_a_limit_of_one_begins_a_call_when_the_one_before_has_ended(
    run: Run, model: FakeOpenAI
) -> None:
    order: list[int] = []

    @tool(effect="read")
    async def act(n: int) -> str:
        """Act."""
        order.append(n)
        return str(n)

    model.calls([("act", {"n": n}) for n in (1, 2, 3)])
    model.reply("done")
    limit = ToolExecutionConfig(max_function_tool_concurrency=1)
    await run("q", act, run_config=RunConfig(tool_execution=limit), task_id="loop-limit")
    assert order == [1, 2, 3]
    events = await event_types(run.runner.client, "loop-limit")
    ends = ("ACTIVITY_TASK_SCHEDULED", "ACTIVITY_TASK_COMPLETED")
    assert [event for event in events if event in ends] == list(ends) * 6


async def test_of_several_failures_the_first_in_call_order_is_raised(
    run: Run, model: FakeOpenAI
) -> None:
    async def second_is_known() -> bool:
        events = await event_types(run.runner.client, "loop-order")
        failed = "ACTIVITY_TASK_FAILED"
        return failed in events and "WORKFLOW_TASK_COMPLETED" in events[events.index(failed) :]

    @tool(failure_error_function=None)
    async def act(n: int) -> str:
        """Fail, the first one last."""
        if n == 1:
            await until(second_is_known)
        raise ValueError(f"failure {n}")

    model.calls([("act", {"n": 1}), ("act", {"n": 2})])
    with pytest.raises(UserError, match="failure 1"):
        await run("q", act, task_id="loop-order")


async def test_a_tool_made_by_hand_that_raises_ends_the_run(run: Run, model: FakeOpenAI) -> None:
    async def act(_ctx: object, _arguments: object) -> str:
        raise ValueError("the cause")

    schema: dict[str, Any] = {"type": "object", "properties": {}}
    made = Tool[..., Any](name="act", params_json_schema=schema, on_invoke_tool=act)
    model.call("act")
    with pytest.raises(UserError, match=r"act.*the cause"):
        await run("q", made)


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


async def test_agents_as_tools_and_calls_that_stop_have_their_own_words(
    run: Run, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    @tool
    async def stop() -> str:
        """Stop."""
        raise asyncio.CancelledError

    def extract(_result: object) -> str:
        raise ValueError("detail")

    asked: list[str] = []

    def words(args: ToolErrorFormatterArgs) -> str:
        asked.append(args.tool_name)
        return "worded"

    helper = make_agent(name="helper").as_tool("help", "Help.", extract)
    model.call("stop")
    model.call("help", {"input": "q"})
    model.reply("helped")
    model.reply("sorry")
    await run("q", stop, helper, run_config=RunConfig(tool_error_formatter=words))
    usual = "An error occurred while running the tool. Please try again."
    assert list(model.requests[-1].results.values()) == [usual, usual]
    assert asked == []


def mine(_ctx: object, error: Exception) -> str:
    return f"mine: {type(error).__name__}"


@pytest.mark.parametrize("function", [None, mine])
async def test_malformed_arguments_go_the_way_of_the_tools_failures(
    run: Run, model: FakeOpenAI, function: Any
) -> None:
    @tool(failure_error_function=function)
    def act(n: int) -> str:
        """Act."""
        return str(n)

    model.call("act", '{"n": ')
    if function is None:
        with pytest.raises(ModelBehaviorError, match="Invalid JSON input for tool act"):
            await run("q", act)
    else:
        model.reply("sorry")
        await run("q", act)
        assert model.requests[1].results["call_1"] == "mine: ModelBehaviorError"
