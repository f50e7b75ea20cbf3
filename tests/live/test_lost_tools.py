"""Approved calls whose agent has lost a tool, a handoff or a nested agent meanwhile.

What a person has approved is neither lost nor done by something else, and no call of an answer
takes effect while another one of it cannot be made.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import RunConfig, Runner, handoff, tool
from holdfast.agents.tools.arguments import ToolErrorFormatterArgs
from holdfast.agents.tools.decorator import Tool
from holdfast.agents_sdk import ToolExecutionConfig
from holdfast.errors import CommandRefusedError, ModelBehaviorError, UserError
from holdfast.testing import FakeOpenAI, call, calls
from tests.support.people import ask
from tests.support.rig import MakeAgent, until_status
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


@pytest.mark.parametrize(("lost", "limit"), [("book", None), ("post", 1)])
async def test_no_approved_call_begins_while_the_tool_of_one_beside_it_is_lost(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent, lost: str, limit: int | None
) -> None:
    done: list[str] = []
    tools = {name: acting(name, done) for name in ("book", "pay", "post")}
    old = make_agent(*tools.values())
    model.add(calls([(name, {}) for name in tools]), "done")
    config = RunConfig(tool_execution=ToolExecutionConfig(limit))
    state = await site.waiting(old, run_config=config)
    new = make_agent(*(each for name, each in tools.items() if name != lost))
    await site.parks(new, state, ModelBehaviorError, LOST.format(lost))
    assert done == []
    result = await site.goes_on(old, state)
    assert result.final_output == "done"
    assert sorted(done) == list(tools)
    assert outputs(result) == [f"did {name}" for name in tools]


async def test_an_approved_call_waits_where_a_deploy_has_changed_a_default_that_was_shown(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    paid: list[tuple[int, str]] = []

    def paying(default: str) -> Tool:
        @tool(needs_approval=True)
        def pay(euros: int, iban: str = default) -> str:
            """Pay."""
            paid.append((euros, iban))
            return "paid"

        return pay

    old, new = (make_agent(paying(default)) for default in ("DE00", "DE66"))
    model.add(call("pay", {"euros": 40}), "done")
    state = await site.waiting(old)
    await site.parks(new, state, UserError, "fills in other defaults .*: iban")
    assert paid == []
    assert (await site.goes_on(old, state)).final_output == "done"
    assert paid == [(40, "DE00")]


async def test_an_approved_call_waits_for_the_tool_of_one_that_is_not_decided_yet(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[str] = []
    book, pay = acting("book", done), acting("pay", done)
    model.add(calls([("book", {}), ("pay", {})]), "as you like")
    old, new = make_agent(book, pay), make_agent(book)
    await site.rig.serve(old)
    stopped = await Runner.run(old, "q", runner=site.runner)
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


def noted(_context: Any) -> None:
    """Do what a handoff asks for."""


async def test_an_approved_call_waits_for_the_lost_handoff_that_follows_it(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    other = make_agent(name="other")
    old = make_agent(site.ask(), handoffs=[handoff(other, "go", on_handoff=noted)])
    model.add(calls([("ask", {}), ("go", {})]), "done")
    state = await site.waiting(old)
    await site.parks(make_agent(site.ask()), state, ModelBehaviorError, LOST.format("go"))
    assert site.asked == []
    result = await site.goes_on(old, state)
    assert (result.final_output, result.last_agent.name) == ("done", "other")
    assert site.asked == ["ask"]


def words(args: ToolErrorFormatterArgs[Any]) -> str | None:
    """Word what the model reads of a tool that is not there."""
    return f"no {args.tool_name} any more" if args.kind == "tool_not_found" else None


async def test_a_run_that_was_begun_to_tell_the_model_answers_a_lost_call_in_its_order(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[str] = []
    book, pay = acting("book", done), acting("pay", done)
    model.add(calls([("pay", {}), ("book", {})]), "done")
    config = RunConfig(tool_not_found_behavior="return_error_to_model", tool_error_formatter=words)
    state = await site.waiting(make_agent(book, pay), run_config=config)
    new = make_agent(book)
    await site.rig.serve(new)
    result = await Runner.run(new, state, runner=site.runner)
    assert result.final_output == "done"
    assert outputs(result) == ["no pay any more", "did book"]
    assert done == ["book"]


async def test_a_nested_run_looks_for_the_tools_of_its_own_answer(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    done: list[str] = []
    send, mail = acting("send", done), acting("mail", done)
    old, new = (
        make_agent(make_agent(*tools, name="inner").as_tool("look_up", "Look something up."))
        for tools in ([send, mail], [send])
    )
    model.add(call("look_up", {"input": "hi"}), calls([("send", {}), ("mail", {})]), "inner done")
    model.reply("outer done")
    state = await site.waiting(old)
    await site.parks(new, state, ModelBehaviorError, "Tool mail not found in agent inner")
    assert done == []
    assert (await site.goes_on(old, state)).final_output == "outer done"
    assert sorted(done) == ["mail", "send"]


def paying(done: list[int]) -> Tool:
    """Make a tool that notes what it pays, and that a person approves."""

    @tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        done.append(euros)
        return f"paid {euros}"

    return pay


@pytest.mark.parametrize("verb", ["edit", "reject", "undo", "abandon"])
async def test_an_edit_that_could_not_be_checked_keeps_nobody_from_ending_the_wait(
    site: Site, model: FakeOpenAI, make_agent: MakeAgent, verb: str
) -> None:
    done: list[int] = []
    runner = site.runner
    model.call("pay", {"euros": 1})
    await site.rig.serve(make_agent(paying(done)))
    task = await runner.create_task("q")
    await runner.run_step(task)
    approval = await ask(runner, task)
    await site.rig.serve(make_agent())
    with pytest.raises(CommandRefusedError, match=r"(?s)could not be checked.*stays open"):
        await runner.approve(approval, by="ann", arguments={"euros": 2})
    [again] = await runner.pending_approvals(task)
    assert (again.id, again.arguments) == (approval.id, approval.arguments)
    assert "Tool pay not found" in again.text
    assert (await runner.run_step(task)).status == "waiting"
    if verb in ("edit", "reject"):
        model.reply("over")
    match verb:
        case "edit":
            await site.rig.serve(make_agent(paying(done)))
            await runner.approve(approval, by="ann", arguments={"euros": 3})
            assert str(await runner.run_task(task)) == "over"
        case "reject":
            await runner.reject(approval, by="ann", reason="no")
            assert str(await runner.run_task(task)) == "over"
        case "undo":
            assert (await runner.undo_step(task)).steps
            assert await runner.pending_approvals(task) == []
        case _:
            await runner.abandon(task, "enough", by="ann")
            await until_status(runner, task, "abandoned")
    assert done == ([3] if verb == "edit" else [])
