"""Approved calls whose agent has lost a tool, a handoff or a nested agent meanwhile.

What a person has approved is neither lost nor done by something else, and no call of an answer
takes effect while another one of it cannot be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Agent, RunConfig, Runner, RunResult, ToolExecutionConfig, handoff, tool
from holdfast.agents.handoffs.filters import HandoffInputData
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.error_texts import ToolErrorFormatterArgs
from holdfast.errors import CommandRefusedError, ModelBehaviorError, StepFailedError
from holdfast.task.data.calls import Approval
from holdfast.testing import FakeOpenAI
from tests.support.people import ask, asked
from tests.support.rig import MakeAgent, histories, until_status
from tests.support.site import Site

LOST = "Tool {} not found in agent agent"


def acting(name: str, done: list[str], **options: Any) -> Tool:
    """Make a tool that notes its calls, and that a person approves."""
    given: dict[str, Any] = {"needs_approval": True, **options}

    @tool(name=name, **given)
    def act() -> str:
        """Act."""
        done.append(name)
        return f"did {name}"

    return act


def outputs(result: Any) -> list[Any]:
    """Return the results of tool calls, in order."""
    return [each.output for each in result.new_items if each.type == "tool_call_output_item"]


async def look_ups(site: Site, task_id: str) -> int:
    """Count the activities that looked for tools in all runs of a task."""
    runs = await histories(site.runner.client, task_id)
    found = (e.activity_task_scheduled_event_attributes for run in runs for e in run.events)
    return [each.activity_type.name for each in found].count("find_tools")


@pytest.mark.parametrize(("lost", "limit"), [("book", None), ("post", 1)])
async def test_no_approved_call_begins_while_the_tool_of_one_beside_it_is_lost(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent, lost: str, limit: int | None
) -> None:
    done: list[str] = []
    tools = {name: acting(name, done) for name in ("book", "pay", "post")}
    old = make_agent(*tools.values())
    model.calls([(name, {}) for name in tools])
    model.reply("done")
    config = RunConfig(tool_execution=ToolExecutionConfig(limit))
    state = await site.waiting(old, run_config=config)
    new = make_agent(*(each for name, each in tools.items() if name != lost))
    await site.parks(new, state, ModelBehaviorError, LOST.format(lost))
    assert done == []
    result = await site.goes_on(old, state)
    assert result.final_output == "done"
    assert sorted(done) == list(tools)
    assert outputs(result) == [f"did {name}" for name in tools]


async def test_a_call_approved_with_other_arguments_waits_for_the_tool_of_the_one_beside_it(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[int] = []

    @tool(needs_approval=True)
    def book(seat: int) -> str:
        """Book."""
        done.append(seat)
        return f"seat {seat}"

    old = make_agent(book, acting("pay", []))
    model.calls([("book", {"seat": 1}), ("pay", {})])
    model.reply("done")
    await site.rig.serve(old)
    task = await site.runner.create_task("q")
    await site.runner.run_step(task)
    first, second = await asked(site.runner, task, 2)
    await site.rig.serve(make_agent(book))
    await site.runner.approve(first, "ann", {"seat": 2})
    with pytest.raises(StepFailedError, match=LOST.format("pay")):
        await site.runner.run_step(task)
    assert done == []
    await site.rig.serve(old)
    await site.runner.approve(second, "ann")
    assert str(await site.runner.run_task(task)) == "done"
    assert done == [2]


async def test_nested_runs_that_need_attention_are_not_looked_up_again_and_again(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    helpers = [make_agent(name=name).as_tool(needs_approval=True) for name in ("one", "two")]
    old = make_agent(*helpers)
    model.calls([(name, {"input": "help"}) for name in ("one", "two")])
    model.fail(401, message="no key")
    model.fail(401, message="no key")
    state = await site.waiting(old)
    with pytest.raises(StepFailedError, match="no key"):
        await Runner.run(old, state, runner=site.runner)
    assert (await site.runner.get_task(state.task_id)).status == "needs_attention"
    assert await look_ups(site, state.task_id) == 1


async def two_asked(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> tuple[list[str], RunResult, Agent]:
    """Begin a run that waits for decisions on book and pay.

    Returns:
        What is done, the result, and the agent as it is without pay.
    """
    done: list[str] = []
    book, pay = acting("book", done), acting("pay", done)
    model.calls([("book", {}), ("pay", {})])
    model.reply("as you like")
    old = make_agent(book, pay)
    await site.rig.serve(old)
    stopped = await Runner.run(old, "q", runner=site.runner)
    return done, stopped, make_agent(book)


async def test_an_approved_call_waits_for_the_tool_of_one_that_is_not_decided_yet(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done, stopped, new = await two_asked(site, model, make_agent)
    state = stopped.to_state()
    state.approve(stopped.interruptions[0])
    await site.rig.serve(new)
    with pytest.raises(ModelBehaviorError, match=LOST.format("pay")) as caught:
        await Runner.run(new, state, runner=site.runner)
    error: Any = caught.value
    assert "or reject the call if it still waits for a person" in error.remedy
    assert done == []
    state = stopped.to_state()
    state.reject(stopped.interruptions[1])
    result = await Runner.run(new, state, runner=site.runner)
    assert result.final_output == "as you like"
    assert done == ["book"]


async def test_a_state_may_approve_a_call_and_reject_the_one_whose_tool_is_lost(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done, stopped, new = await two_asked(site, model, make_agent)
    state = stopped.to_state()
    for each in (1, 0):
        decide = state.reject if each else state.approve
        decide(stopped.interruptions[each])
    await site.rig.serve(new)
    result = await Runner.run(new, state, runner=site.runner)
    assert result.final_output == "as you like"
    assert done == ["book"]


def noted(_context: Any) -> None:
    """Do what a handoff asks for."""


def as_it_is(given: HandoffInputData) -> HandoffInputData:
    """Leave the conversation as it is."""
    return given


@pytest.mark.parametrize("options", [{"on_handoff": noted}, {"input_filter": as_it_is}])
async def test_an_approved_call_waits_for_the_lost_handoff_that_follows_it(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent, options: dict[str, Any]
) -> None:
    other = make_agent(name="other")
    old = make_agent(site.ask(), handoffs=[handoff(other, "go", **options)])
    model.calls([("ask", {}), ("go", {})])
    model.reply("done")
    state = await site.waiting(old)
    await site.parks(make_agent(site.ask()), state, ModelBehaviorError, LOST.format("go"))
    assert site.asked == []
    result = await site.goes_on(old, state)
    assert (result.final_output, result.last_agent.name) == ("done", "other")
    assert site.asked == ["ask"]


async def test_an_approved_call_waits_for_a_handoff_that_leads_elsewhere_now(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    first, second = (handoff(make_agent(name=name), "go") for name in ("first", "second"))
    old = make_agent(site.ask(), handoffs=[first, second])
    model.calls([("ask", {}), ("go", {})])
    model.reply("done")
    state = await site.waiting(old)
    new = make_agent(site.ask(), handoffs=[second, first])
    await site.parks(new, state, ModelBehaviorError, "reconcile queued tool go")
    assert site.asked == []
    assert (await site.goes_on(old, state)).last_agent.name == "second"


def words(args: ToolErrorFormatterArgs[Any]) -> str | None:
    """Word what the model reads of a tool that is not there."""
    return f"no {args.tool_name} any more" if args.kind == "tool_not_found" else None


async def test_a_run_that_was_begun_to_tell_the_model_answers_a_lost_call_in_its_order(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[str] = []
    book, pay = acting("book", done), acting("pay", done)
    model.calls([("pay", {}), ("book", {})])
    model.reply("done")
    config = RunConfig(tool_not_found_behavior="return_error_to_model", tool_error_formatter=words)
    state = await site.waiting(make_agent(book, pay), run_config=config)
    new = make_agent(book)
    await site.rig.serve(new)
    result = await Runner.run(new, state, runner=site.runner)
    assert result.final_output == "done"
    assert outputs(result) == ["no pay any more", "did book"]
    assert done == ["book"]


def nesting(make_agent: MakeAgent, done: list[str], *tools: Tool) -> Agent:
    """Make an agent with another one as a tool, which asks a person."""
    inner = make_agent(acting("send", done), name="inner")
    nested = inner.as_tool("look_up", "Look something up.")
    return make_agent(nested, *tools)


async def test_a_nested_run_waits_for_the_tool_that_it_is(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[str] = []
    old = nesting(make_agent, done)
    model.call("look_up", {"input": "hi"})
    model.call("send", {})
    model.reply("inner done")
    model.reply("outer done")
    state = await site.waiting(old)
    await site.parks(make_agent(), state, ModelBehaviorError, LOST.format("look_up"))
    assert done == []
    assert (await site.goes_on(old, state)).final_output == "outer done"
    assert done == ["send"]


async def test_a_nested_run_looks_for_the_tools_of_its_own_answer(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[str] = []
    send, mail = acting("send", done), acting("mail", done)
    old, new = (
        make_agent(make_agent(*tools, name="inner").as_tool("look_up", "Look something up."))
        for tools in ([send, mail], [send])
    )
    model.call("look_up", {"input": "hi"})
    model.calls([("send", {}), ("mail", {})])
    model.reply("inner done")
    model.reply("outer done")
    state = await site.waiting(old)
    await site.parks(new, state, ModelBehaviorError, "Tool mail not found in agent inner")
    assert done == []
    assert (await site.goes_on(old, state)).final_output == "outer done"
    assert sorted(done) == ["mail", "send"]


async def edit_unchecked(site: Site, make_agent: MakeAgent, tools: Sequence[Tool]) -> Approval:
    """Approve a call with edited arguments where no process has its tool; return the approval."""
    runner = site.runner
    await site.rig.serve(make_agent(*tools))
    task = await runner.create_task("q")
    await runner.run_step(task)
    approval = await ask(runner, task)
    await site.rig.serve(make_agent())
    with pytest.raises(CommandRefusedError, match=r"(?s)could not be checked.*stays open"):
        await runner.approve(approval, by="ann", arguments={"euros": 2})
    [again] = await runner.pending_approvals(task)
    assert (again.id, again.arguments) == (approval.id, approval.arguments)
    assert "Tool pay not found" in again.text
    assert (await runner.get_task(task)).status == "waiting"
    assert (await runner.run_step(task)).status == "waiting"
    return again


async def test_an_edit_that_could_not_be_checked_can_be_made_again_once_the_tool_is_back(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[int] = []
    model.call("pay", {"euros": 1})
    model.reply("done")
    approval = await edit_unchecked(site, make_agent, [paying(done)])
    task = approval.id.split(":", maxsplit=1)[0]
    await site.rig.serve(make_agent(paying(done)))
    await site.runner.approve(approval, by="ann", arguments={"euros": 3})
    assert str(await site.runner.run_task(task)) == "done"
    assert done == [3]
    assert await site.runner.verify(task) == []


@pytest.mark.parametrize("verb", ["reject", "undo", "abandon"])
async def test_an_edit_that_could_not_be_checked_keeps_nobody_from_ending_the_wait(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent, verb: str
) -> None:
    done: list[int] = []
    model.call("pay", {"euros": 1})
    approval = await edit_unchecked(site, make_agent, [paying(done)])
    task, runner = approval.id.split(":", maxsplit=1)[0], site.runner
    match verb:
        case "reject":
            model.reply("then not")
            await runner.reject(approval, by="ann", reason="no")
            assert str(await runner.run_task(task)) == "then not"
        case "undo":
            assert (await runner.undo_step(task)).steps
            assert await runner.pending_approvals(task) == []
        case _:
            await runner.abandon(task, "enough", by="ann")
            await until_status(runner, task, "abandoned")
    assert done == []


def paying(done: list[int]) -> Tool:
    """Make a tool that notes what it pays, and that a person approves."""

    @tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        done.append(euros)
        return f"paid {euros}"

    return pay
