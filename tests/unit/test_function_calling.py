"""FunctionCallingAgentWorker and the driver, without a server."""

from typing import Any

import pytest

from holdfast import Agent, TaskStep, TaskStepOutput, tool
from holdfast.errors import InvalidArgumentError, StepCodeChangedError
from holdfast.models.base import ModelAnswer
from holdfast.task.data.records import OpenStep
from holdfast.testing import ScriptedModel
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers import AgentWorker, FunctionCallingAgentWorker, StepContext
from tests.support.bench import Bench
from tests.support.runs import look
from tests.support.workers import Doing, ends


@tool(return_direct=True)
def direct() -> str:
    """Answer directly."""
    return "direct"


def bench(worker: AgentWorker, model: ScriptedModel, *tools: Any, **given: Any) -> Bench:
    agent = Agent(name="a", model=model, tools=tools).snapshot("m")
    opened = OpenStep(step=TaskStep(step_id="s1", input="q"))
    return Bench(worker, model.respond, agent, opened, **given)


def call(name: str = "look", **arguments: Any) -> ToolCall:
    import json

    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("limit", ["", "finish"])
async def test_an_answer_that_a_worker_makes_anew_is_said_once_whatever_its_ids(
    limit: str, again: bool
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        answer = await ctx.call_model()
        ctx.add(assistant(answer.text, calls=answer.message.calls))
        return ends(step) if not (again and limit) else await body(step, ctx)

    calls = (call(),) if limit else ()
    said = assistant("hello", calls=calls).model_copy(update={"item_ids": ("msg_1",)})
    got = await bench(Doing(body), ScriptedModel([ModelAnswer(message=said)]), limit=limit).run()
    assert got.result is not None
    answers = [add for add in got.result.adds if add == "j0" or as_role(add) == "assistant"]
    assert answers == ([assistant("hello")] if limit else ["j0"])


def as_role(added: Message | str) -> str:
    return added.role if isinstance(added, Message) else ""


async def test_calls_end_the_step_and_are_named_not_repeated() -> None:
    model = ScriptedModel([(call(), call())])
    got = await bench(FunctionCallingAgentWorker(), model, look).run()
    assert got.result is not None
    assert not got.result.last
    assert got.result.calls == "j0"
    assert len(got.result.next) == 1


async def test_refused_calls_get_a_result_in_the_next_step() -> None:
    worker = FunctionCallingAgentWorker(max_function_calls=1)
    got = await bench(worker, ScriptedModel([(call(), call())]), look).run()
    assert got.result is not None
    assert [c.id for c in got.result.calls if not isinstance(c, str)] == ["call_1"]
    [following] = got.result.next
    model = ScriptedModel(["enough"])
    work = bench(worker, model, look, n=2)
    last = await work.advance(OpenStep(step=following))
    assert last.result is not None
    assert last.result.last
    refused = model.requests[0].messages[-1]
    assert (refused.role, refused.call_id, refused.is_error) == ("tool", "call_2", True)
    assert model.requests[0].tool_choice == "none"


async def test_a_forbidden_model_call_is_reported_and_not_made() -> None:
    model = ScriptedModel(["never"])
    got = await bench(FunctionCallingAgentWorker(), model, limit="stop").advance()
    assert (got.limit, model.calls) == (True, 0)


async def test_a_direct_result_is_the_answer() -> None:
    got = await bench(FunctionCallingAgentWorker(), ScriptedModel([call("direct")]), direct).run()
    assert got.result is not None
    assert (got.result.output, got.result.last) == ("result of direct", True)
    assert got.result.adds == ("input", "j0", "j1.0", assistant("result of direct"))


@pytest.mark.parametrize("change", ["messages", "tools", "choice", "kind"])
async def test_a_changed_request_in_mid_step_is_noticed(change: str) -> None:
    changed = False

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if changed and change == "kind":
            await ctx.call_tools([ToolCall(id="1", name="look")])
        text = "new" if changed and change == "messages" else "old"
        tools = () if changed and change == "tools" else None
        choice = "required" if changed and change == "choice" else None
        await ctx.call_model([user(text)], tools=tools, tool_choice=choice)
        await ctx.call_model([user("second")])
        return ends(step)

    work = bench(Doing(body), ScriptedModel(["a", "b"]), look)
    await work.advance()
    changed = True
    with pytest.raises(StepCodeChangedError, match="mid-step"):
        await work.advance()
    changed = False
    assert (await work.run()).result is not None


async def test_the_state_that_a_step_changes_comes_back_as_a_patch() -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.state["list"].append(3)
        ctx.state["new"] = True
        return ends(step)

    opened = OpenStep(step=TaskStep(step_id="s1"), state={"list": [1, 2]})
    got = await bench(Doing(body), ScriptedModel([])).advance(opened)
    assert got.result is not None
    assert got.result.patch == {"set": {"new": True}, "splice": {"list": [2, 0, [3]]}}
    assert opened.state == {"list": [1, 2]}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"max_function_calls": -1}, "at least 0, as a whole number; it is -1"),
        ({"max_function_calls": "2"}, "it is '2'"),
        ({"max_function_calls": True}, "it is True"),
        ({"allow_parallel_tool_calls": "no"}, "allow_parallel_tool_calls='no': input should be"),
    ],
)
def test_limits_that_mean_nothing_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        FunctionCallingAgentWorker(**given)
