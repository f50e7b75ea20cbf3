"""Agents as tools in runs of the Agents SDK's kind: context, settings, results, arguments."""

from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Runner, ToolContext
from holdfast.errors import InvalidArgumentError, UserError, WrongTypeError
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig
from tests.support.runs import pay


async def test_a_function_that_is_assigned_to_the_tool_is_called_in_place_of_the_agent(
    rig: Rig,
) -> None:
    ask_helper = rig.agent(name="helper").as_tool()

    async def mine(_ctx: Any, arguments: str) -> str:
        return f"{arguments} was told to nobody"

    ask_helper.on_invoke_tool = mine
    agent = rig.agent(ask_helper, name="agent")
    await rig.serve(agent)
    rig.model.call("helper", {"input": "a"})
    rig.model.reply("done")
    runner = rig.runner()
    result = await Runner.run(agent, "q", runner=runner)
    assert rig.model.requests[-1].messages[-1].text == '{"input": "a"} was told to nobody'
    [call] = [e for e in await runner.audit(result.task_id) if e.kind == "tool_call"]
    assert call.effect == "irreversible"  # nothing is known of the function


async def test_such_a_function_cannot_wait_for_a_person(rig: Rig) -> None:
    asks = ScriptedModel([ToolCall(id="", name="pay", arguments="{}")])
    ask_helper = rig.agent(pay, name="helper", model=asks).as_tool(failure_error_function=None)
    before = ask_helper.on_invoke_tool

    async def mine(ctx: Any, arguments: str) -> str:
        return str(await before(ctx, arguments))

    ask_helper.on_invoke_tool = mine
    agent = rig.agent(ask_helper, name="agent")
    await rig.serve(agent)
    rig.model.call("helper", {"input": "a"})
    with pytest.raises(UserError, match=r"waits for a person to decide on: pay\. Its run '"):
        await Runner.run(agent, "q", runner=rig.runner())


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
