"""Agents as tools: a call is a task of its own, which its parent starts, waits for and owns."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Runner, ToolContext, tool
from holdfast.activities import long_calls
from holdfast.activities.tools import child_result as collecting
from holdfast.agents.hooks import AgentHooks
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.cli.commands.open_questions import find_task
from holdfast.errors import (
    ArchiveError,
    CommandRefusedError,
    DigestMismatchError,
    InvalidArgumentError,
    NoWorkerError,
    StepFailedError,
    TaskNotFoundError,
    UndoRefusedError,
    UserError,
    WrongTypeError,
)
from holdfast.reading.runs.recorded import Recorded, read_recorded
from holdfast.testing import ScriptedModel, call, calls, hang
from holdfast.values.messages import ToolCall
from holdfast.workflows.children import children
from tests.support.people import ask
from tests.support.rig import Rig, until, until_rolled, until_status, until_task
from tests.support.runs import look, pay, serve_nested


async def test_a_call_is_a_task_of_its_own_that_sees_only_its_input_and_goes_with_its_parent(
    rig: Rig,
) -> None:
    helper = rig.agent(name="Helper Bot", instructions="help")
    runner = await rig.serving(rig.agent(helper.as_tool(tool_description="Helps."), name="agent"))
    rig.model.add(call("helper_bot", {"input": "how?"}), "like this", "all done")
    task = await runner.create_task("please")
    assert str(await runner.run_task(task)) == "all done"
    outer, inner, last = rig.model.requests
    assert [m.text for m in inner.messages if m.role == "user"] == ["how?"]
    assert "please" not in str(inner.body)
    assert last.messages[-1].text == "like this"
    [spec] = outer.tools
    assert (spec.name, spec.description) == ("helper_bot", "Helps.")
    assert spec.parameters["required"] == ["input"]
    [output] = (await runner.get_completed_steps(task))[0].sources
    assert output.child_task == f"{task.task_id}~0.1.0.0"
    child = await runner.get_task(output.child_task)
    assert (child.status, child.parent, child.agent) == ("answered", task.task_id, "Helper Bot")
    [event] = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert event.body == {"task": child.task_id}
    assert (await runner.get_task(task)).usage.requests == 3
    await runner.finalize_response(task)
    await until_status(runner, child, "finished")
    await runner.delete_task(task)
    with pytest.raises(TaskNotFoundError):
        await runner.get_task(child)


async def test_three_levels_and_their_cost(rig: Rig) -> None:
    low = rig.agent(name="low")
    middle = rig.agent(low.as_tool(), name="middle")
    runner = await rig.serving(rig.agent(middle.as_tool(), name="agent"))
    rig.model.add(
        call("middle", {"input": "m"}), call("low", {"input": "l"}), "deep", "halfway", "top"
    )
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "top"
    [listed] = await until(lambda: runner.list_tasks(parent=task))
    assert listed.task_id == f"{task.task_id}~0.1.0.0"
    assert listed.parent == task.task_id
    [lowest] = await until(lambda: runner.list_tasks(parent=listed))
    everything = {each.task_id for each in await runner.list_tasks()}
    assert task.task_id in everything
    assert not everything & {listed.task_id, lowest.task_id}
    typed: Any = rig.engine  # what a person types means the task, not those that work for it
    assert await find_task(typed, task.task_id[:-1]) == task.task_id
    assert await find_task(typed, f"{task.task_id}~0.1.0.0~") == lowest.task_id
    found = [await runner.get_task(each) for each in (task, listed, lowest)]
    assert [each.usage.requests for each in found] == [5, 3, 1]
    assert found[0].usage.total_tokens > found[1].usage.total_tokens > 0
    first, second = await runner.get_completed_steps(task)
    assert (first.usage.requests, second.usage.requests) == (4, 1)
    [called] = [each for each in await runner.audit(task) if each.kind == "tool_call"]
    below = [
        each for each in await runner.audit(listed) if each.kind in {"model_call", "tool_call"}
    ]
    # The call began before the first one in its task, and not when its result was read.
    assert called.started < below[0].ended
    assert called.ended > below[-1].ended
    await runner.finalize_response(task)
    for each in (listed, lowest):
        await until_status(runner, each, "finished")


async def test_undoing_a_step_undoes_what_its_agents_did_and_the_call_is_a_new_task_then(
    rig: Rig, book: Tool
) -> None:
    low = rig.agent(book, name="low")
    helper = rig.agent(book, low.as_tool(), name="helper")
    runner = await rig.serving(rig.agent(helper.as_tool(), name="agent"))
    rig.model.add(call("helper", {"input": "a"}), call("book", {"city": "rome"}))
    rig.model.add(
        call("low", {"input": "b"}), call("book", {"city": "oslo"}), "low is done", "helped"
    )
    task = await runner.create_task("q")
    child = f"{task.task_id}~0.1.0.0"
    await runner.run_step(task)
    assert (await runner.get_task(task)).usage.requests == 6
    for inside in (child, f"{child}~0.2.0.0"):
        with pytest.raises(CommandRefusedError, match="Undo the step there that has called it"):
            await runner.undo_step(inside, by="ann")
        with pytest.raises(CommandRefusedError, match="has answered task"):
            await runner.run_step(inside, input="and more")
    [called] = await runner.client.get_workflow_handle(task.task_id).query("effects")
    assert (called["tool"], called["task"]) == ("helper", child)
    receipt = await runner.undo_step(task, by="ann", reason="wrong")
    assert rig.world.done == ["book rome", "book oslo", "cancel oslo", "cancel rome"]
    [undone] = receipt.undone
    assert undone.startswith(f"task {child!r}: ")
    assert 'book({"city": "rome"})' in undone
    assert 'book({"city": "oslo"})' in undone
    assert (receipt.remains, receipt.check) == ((), ())
    found = await runner.get_task(task)
    assert (found.steps, found.usage.requests, found.status) == (0, 6, "running")
    for each in (child, f"{child}~0.2.0.0"):
        await until_status(runner, each, "abandoned")
    rig.model.add(call("helper", {"input": "a"}), "nothing to do", "done")
    assert str(await runner.run_task(task)) == "done"
    [output] = (await runner.get_completed_steps(task))[0].sources
    assert output.child_task == f"{task.task_id}~1.1.0.0"
    assert (await runner.get_task(task)).usage.requests == 9
    assert await runner.verify(task) == []


async def test_trouble_in_reading_a_child_does_not_cost_its_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble: list[Exception] = [DigestMismatchError("a segment was changed")]
    trouble += [NoWorkerError("queue"), ArchiveError("busy")]

    async def flaky(*given: Any) -> Recorded:
        if trouble:
            raise trouble.pop()
        return await read_recorded(*given)

    monkeypatch.setattr(collecting, "read_recorded", flaky)
    helper = rig.agent(name="helper")
    runner = await rig.serving(rig.agent(helper.as_tool(), name="agent"))
    rig.model.add(call("helper", {"input": "alpha"}), "the answer", "done")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="a segment was changed"):  # no failure of the tool
        await runner.run_task(task)
    assert str(await runner.run_task(task)) == "done"
    assert rig.model.requests[-1].messages[-1].text == "the answer"
    assert (len(rig.model.requests), trouble) == (3, [])


async def test_pausing_and_abandoning_a_task_reaches_those_that_work_for_it_at_any_depth(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "HEAR_SECONDS", 0.001)  # it ends before those below
    low = rig.agent(look, name="low")
    middle = rig.agent(low.as_tool(), name="middle")
    runner = await rig.serving(rig.agent(middle.as_tool()))
    rig.model.add(
        call("middle", {"input": "a"}), call("low", {"input": "b"}), hang(call("look", {}))
    )
    task = await runner.create_task("q", step_mode="automatic")
    await asyncio.to_thread(rig.model.wait_held)
    child = f"{task.task_id}~0.1.0.0"
    lowest = f"{child}~0.1.0.0"
    await runner.pause(child, by="bob")
    await runner.pause(task, reason="stop", by="ann")
    await until_status(runner, lowest, "paused")
    rig.model.release()
    with pytest.raises(CommandRefusedError, match="resume that one"):
        await runner.resume(lowest)
    await runner.resume(task, by="ann")
    await until_task(runner, task, lambda found: found.paused != "ann: stop")
    assert (await runner.get_task(child)).paused == "bob"  # by itself
    rig.model.add(call("look", {}), hang("never read"))  # a cost alone is not reported
    await runner.resume(child, by="bob")
    await asyncio.to_thread(rig.model.wait_held)
    await runner.abandon(task, "enough", by="ann")
    for each in (task, child, lowest):
        assert "enough" in (await until_status(runner, each, "abandoned")).error
    assert (await runner.get_task(task)).usage.requests == 4  # as far as answers have arrived
    rig.model.release()


async def test_an_agent_that_is_a_tool_of_itself_goes_as_deep_as_it_may(rig: Rig) -> None:
    agent = rig.agent(name="agent")
    agent.tools = [agent.as_tool(tool_name="again", max_depth=2)]
    runner = await rig.serving(agent)
    rig.model.add(*[call("again", {"input": "deeper"})] * 3, "bottom", "middle", "top")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "top"
    assert "'again' was not called" in rig.model.requests[3].messages[-1].text
    with pytest.raises(UserError, match="max_depth must be at least 1"):
        agent.as_tool(max_depth=0)


async def test_a_task_that_works_for_one_that_has_ended_asks_no_model(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_calls, "ASKING", timedelta(seconds=1))

    @tool(effect="read")
    async def end_all(ctx: ToolContext) -> str:
        """End the first task of all, of which those below do not hear."""
        await runner.client.get_workflow_handle(ctx.task_id.partition("~")[0]).terminate()
        ended.set()
        return "ended"

    low = rig.agent(end_all, name="low")
    runner = await serve_nested(rig, low.as_tool())
    rig.model.add(call("helper", {"input": "a"}), call("low", {"input": "b"}), call("end_all", {}))
    ended = asyncio.Event()
    task = await runner.create_task("q", step_mode="automatic")
    lowest = f"{task.task_id}~0.1.0.0~0.1.0.0"
    await ended.wait()
    # Whether its own end reaches it first depends on the machine; no model is asked in any case.
    assert "has ended" in (await until_status(runner, lowest, "needs_attention", "abandoned")).error
    assert len(rig.model.requests) == 3


async def test_a_call_is_forked_and_a_fork_does_not_own_what_its_steps_called(
    rig: Rig, book: Tool, send: Tool
) -> None:
    runner = await serve_nested(rig, book, send)
    rig.model.call("helper", {"input": "alpha"})
    rig.model.add(
        calls([("book", {"city": "rome"}), ("send", {"text": "hi"})]), "helped", "done", "so"
    )
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    child = f"{task.task_id}~0.1.0.0"
    fork = await runner.fork(task, first)
    assert str(await runner.run_task(fork)) == "done"
    await runner.abandon(fork, "no")
    await until_status(runner, fork, "abandoned")
    assert (await runner.get_task(child)).status == "answered"
    own = await runner.fork(child, at="s1", input="and then?")
    assert str(await runner.run_task(own)) == "so"
    assert await runner.verify(own) == []
    done = sorted(rig.world.done)
    with pytest.raises(UndoRefusedError, match=f"task '{child}', step 1: send"):
        await runner.undo_step(task)
    assert sorted(rig.world.done) == done == ["book rome", "send hi"]
    receipt = await runner.undo_step(task, "keep")
    assert rig.world.done[2:] == ["cancel rome"]
    assert ("send" in receipt.remains[0], len(receipt.undone)) == (True, 1)


# ---- guardrails and hooks of calls of agents as tools: they come before the task that a call is


class Telling(AgentHooks):
    """Writes down the calls that it is told of, and changes what they see."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.told.append(f"start {tool.name}")
        context.state["started"] = tool.name
        context.context["seen"].append("start")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.told.append(f"end {tool.name}: {result}")
        assert context.state["started"] == tool.name
        context.context["seen"].append("end")


def check_call(data: Any) -> ToolGuardrailFunctionOutput:
    if "secret" in data.context.arguments:
        return ToolGuardrailFunctionOutput.reject_content("ask for less", "no")
    return ToolGuardrailFunctionOutput.allow({"given": data.context.arguments})


def allow_result(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow({"gave": data.output})


def said(results: list[Any]) -> list[tuple[str, Any]]:
    """List what guardrails are called and what they said."""
    return [(each.guardrail.get_name(), each.output.output_info) for each in results]


async def test_a_rejected_call_starts_no_task_and_what_was_found_of_another_is_kept_while_it_waits(
    rig: Rig,
) -> None:
    @tool(needs_approval=True)
    def pay(ctx: ToolContext) -> str:
        """Pay."""
        assert "started" not in ctx.state  # the caller's state is not its
        ctx.context["seen"].append("inner")
        return "paid"

    hooks = Telling()
    guarded = replace(
        rig.agent(pay, name="helper").as_tool(),
        tool_input_guardrails=[ToolInputGuardrail(check_call, "before")],
        tool_output_guardrails=[ToolOutputGuardrail(allow_result, "after")],
    )
    agent = rig.agent(guarded, name="agent", hooks=hooks)
    await rig.serve(agent)
    runner = rig.runner(roll_events=50)
    rig.model.add(call("helper", {"input": "the secret"}), call("helper", {"input": "a"}))
    rig.model.call("pay")
    result = await Runner.run(agent, "q", runner=runner, context={"seen": []})
    before = [("before", "no"), ("before", {"given": '{"input": "a"}'})]
    assert said(result.tool_input_guardrail_results) == before
    assert rig.model.requests[1].messages[-1].text == "ask for less"
    assert hooks.told == ["start helper"]
    [waits_for] = (await runner.run_task(result.task_id)).waiting_for
    child = f"{result.task_id}~0.2.0.0"
    assert waits_for.startswith(f"{child}:1")
    assert [each.task_id for each in await runner.list_tasks(parent=result.task_id)] == [child]
    for k in range(12):
        await runner.give_feedback(result.task_id, f"go on, {k}")
    await until_rolled(runner.client, result.task_id)
    rig.model.add("it is paid", "done")
    await runner.approve(await ask(runner, result.task_id), by="ann")
    last = await Runner.run(agent, result.to_state(), runner=runner)
    assert said(last.tool_input_guardrail_results) == before
    assert said(last.tool_output_guardrail_results) == [("after", {"gave": "it is paid"})]
    assert hooks.told == ["start helper", "end helper: it is paid"]
    state = (await runner.get_task(result.task_id)).extra_state
    assert state == {"started": "helper", "context": {"seen": ["start", "inner", "end"]}}


# ---- agents as tools in runs of the Agents SDK's kind: context, settings, results, arguments


async def test_a_function_that_is_assigned_to_the_tool_is_called_for_the_agent_and_cannot_wait(
    rig: Rig,
) -> None:
    asks = ScriptedModel([ToolCall(id="", name="pay", arguments="{}")])
    ask_helper = rig.agent(pay, name="helper", model=asks).as_tool(failure_error_function=None)
    before = ask_helper.on_invoke_tool

    async def mine(ctx: Any, arguments: str) -> str:
        if "wait" in arguments:
            return str(await before(ctx, arguments))
        return f"{arguments} was told to nobody"

    ask_helper.on_invoke_tool = mine
    agent = rig.agent(ask_helper, name="agent")
    await rig.serve(agent)
    runner = rig.runner()
    rig.model.add(call("helper", {"input": "a"}), "done")
    result = await Runner.run(agent, "q", runner=runner)
    assert rig.model.requests[-1].messages[-1].text == '{"input": "a"} was told to nobody'
    [called] = [e for e in await runner.audit(result.task_id) if e.kind == "tool_call"]
    assert called.effect == "irreversible"  # nothing is known of the function
    rig.model.call("helper", {"input": "wait"})
    with pytest.raises(UserError, match=r"waits for a person to decide on: pay\. Its run '"):
        await Runner.run(agent, "q", runner=runner)


class Payment(BaseModel):
    """A payment."""

    to: str
    amount: int = 1000


def is_large(arguments: dict[str, Any]) -> bool:
    """Whether a person decides."""
    return bool(arguments.get("amount", 0) > 100)


async def test_a_predicate_decides_on_what_the_nested_run_is_told(rig: Rig) -> None:
    pay = rig.agent(name="pay").as_tool(parameters=Payment, needs_approval=is_large)
    small, bare = '{"to": "x", "amount": 50}', '{"to": "x"}'
    assert not await pay.asks_approval(ToolContext(None), small)
    assert await pay.asks_approval(ToolContext(None), small.replace("50", "500"))
    assert await pay.asks_approval(ToolContext(None), bare)
    assert await pay.asks_approval(ToolContext(None), small.replace("50", '"50"'))

    async def mine(_ctx: Any, arguments: str) -> str:
        return arguments

    pay.on_invoke_tool = mine  # which is given what the model wrote
    assert not await pay.asks_approval(ToolContext(None), bare)
    assert await pay.asks_approval(ToolContext(None), "{}")


def test_what_cannot_be_a_tool_is_refused(rig: Rig) -> None:
    agent = rig.agent(name="Größe 1")
    assert agent.as_tool().name == "gr__e_1"
    wrong: Any = dict[str, int]
    with pytest.raises(WrongTypeError, match="dataclass or a pydantic model"):
        agent.as_tool(parameters=wrong)
    with pytest.raises(InvalidArgumentError, match="cannot be a tool's name"):
        agent.as_tool("not a name")
    with pytest.raises(UserError, match="max_turns"):
        agent.as_tool(max_turns=-1)


async def test_an_input_builder_makes_the_nested_input(rig: Rig) -> None:
    def build(options: dict[str, Any]) -> Any:
        to = options["params"]["to"]
        return f"Pay {to}" if to == "ann" else [{"role": "user", "content": each} for each in to]

    nested = rig.agent(name="helper").as_tool(parameters=Payment, input_builder=build)
    runner = await rig.serving(rig.agent(nested))
    for to in ("ann", "bo"):
        rig.model.call("helper", {"to": to})
        rig.model.reply("paid")
    rig.model.reply("done")
    assert str(await runner.chat("q")) == "done"
    said = [[m.text for m in r.messages if m.role == "user"] for r in rig.model.requests]
    assert (said[1], said[3]) == (["Pay ann"], ["b", "o"])
