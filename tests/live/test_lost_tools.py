"""Approved calls whose agent has lost a tool, a handoff or a nested agent meanwhile.

What a person has approved is neither lost nor done by something else, and no call of an answer
takes effect while another one of it cannot be made.
"""

from typing import Any

import pytest

from holdfast import RunConfig, Runner, tool
from holdfast.agents.tools.arguments import ToolErrorFormatterArgs
from holdfast.agents.tools.decorator import Tool
from holdfast.agents_sdk import ToolExecutionConfig
from holdfast.errors import ModelBehaviorError, UserError
from holdfast.testing import call, calls
from tests.support.rig import Rig
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
    site: Site, rig: Rig, lost: str, limit: int | None
) -> None:
    done: list[str] = []
    tools = {name: acting(name, done) for name in ("book", "pay", "post")}
    old = rig.agent(*tools.values())
    rig.model.add(calls([(name, {}) for name in tools]), "done")
    config = RunConfig(tool_execution=ToolExecutionConfig(limit))
    state = await site.waiting(old, run_config=config)
    new = rig.agent(*(each for name, each in tools.items() if name != lost))
    text = f"(?s){LOST.format(lost)}.*or reject the call if it still waits for a person"
    await site.parks(new, state, ModelBehaviorError, text)
    assert done == []
    result = await site.goes_on(old, state)
    assert result.final_output == "done"
    assert sorted(done) == list(tools)
    assert outputs(result) == [f"did {name}" for name in tools]


async def test_an_approved_call_waits_where_a_deploy_has_changed_a_default_that_was_shown(
    site: Site, rig: Rig
) -> None:
    paid: list[tuple[int, str]] = []

    def paying(default: str) -> Tool:
        @tool(needs_approval=True)
        def pay(euros: int, iban: str = default) -> str:
            """Pay."""
            paid.append((euros, iban))
            return "paid"

        return pay

    old, new = (rig.agent(paying(default)) for default in ("DE00", "DE66"))
    rig.model.add(call("pay", {"euros": 40}), "done")
    state = await site.waiting(old)
    await site.parks(new, state, UserError, "fills in other defaults .*: iban")
    assert paid == []
    assert (await site.goes_on(old, state)).final_output == "done"
    assert paid == [(40, "DE00")]


def words(args: ToolErrorFormatterArgs[Any]) -> str | None:
    """Word what the model reads of a tool that is not there."""
    return f"no {args.tool_name} any more" if args.kind == "tool_not_found" else None


async def test_a_run_that_was_begun_to_tell_the_model_answers_a_lost_call_in_its_order(
    site: Site, rig: Rig
) -> None:
    done: list[str] = []
    book, pay = acting("book", done), acting("pay", done)
    rig.model.add(calls([("pay", {}), ("book", {})]), "done")
    config = RunConfig(tool_not_found_behavior="return_error_to_model", tool_error_formatter=words)
    state = await site.waiting(rig.agent(book, pay), run_config=config)
    new = rig.agent(book)
    await site.rig.serve(new)
    result = await Runner.run(new, state, runner=site.runner)
    assert result.final_output == "done"
    assert outputs(result) == ["no pay any more", "did book"]
    assert done == ["book"]


async def test_a_nested_run_looks_for_the_tools_of_its_own_answer(site: Site, rig: Rig) -> None:
    done: list[str] = []
    send, mail = acting("send", done), acting("mail", done)
    old, new = (
        rig.agent(rig.agent(*tools, name="inner").as_tool("look_up", "Look something up."))
        for tools in ([send, mail], [send])
    )
    rig.model.add(
        call("look_up", {"input": "hi"}), calls([("send", {}), ("mail", {})]), "inner done"
    )
    rig.model.reply("outer done")
    state = await site.waiting(old)
    await site.parks(new, state, ModelBehaviorError, "Tool mail not found in agent inner")
    assert done == []
    assert (await site.goes_on(old, state)).final_output == "outer done"
    assert sorted(done) == ["mail", "send"]
