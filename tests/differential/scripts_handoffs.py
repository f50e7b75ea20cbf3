"""Handoffs: who goes on, what it sees, and what the run keeps of it."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from holdfast.testing import call, calls, reply
from tests.differential.lib import Lib
from tests.differential.script import Group

HANDOFFS = Group("handoffs")
FILTERS = Group("handoff_filters")
NESTED = Group("nested_history")

Make = Callable[[Any], Any]
"""Makes the handoff to an agent."""

TO_SECOND = call("transfer_to_second")


class Reason(BaseModel):
    """Why a task is handed over."""

    why: str
    urgency: int = 1


def team(lib: Lib, *, to: Make | None = None, **options: Any) -> Any:
    """Make an agent that may hand over to a second one; `to` makes the handoff of that."""
    second = lib.agent(
        "second",
        instructions="You are the second.",
        tools=[lib.tool("found", name="find")],
        handoff_description="Knows more.",
    )
    return lib.agent(
        instructions="You are the first.",
        tools=[lib.tool()],
        handoffs=[second if to is None else to(second)],
        **options,
    )


@HANDOFFS.script(calls([("transfer_to_second", {}), ("look", {"where": "a"})]), reply("done"))
async def a_transfer_before_a_tool(lib: Lib) -> Any:
    return await lib.run(team(lib), "q")


@HANDOFFS.script(calls([("transfer_to_second", {}), ("transfer_to_third", {})]), reply("done"))
async def two_transfers_in_one_response(lib: Lib) -> Any:
    agents = [lib.agent("second"), lib.agent("third")]
    return await lib.run(lib.agent(handoffs=agents), "q")


@HANDOFFS.script(
    TO_SECOND, *[call("transfer_to_third")] * 2, call("transfer_to_first"), reply("done")
)
async def a_ring_and_one_that_hands_over_to_itself(lib: Lib) -> Any:
    first, second, third = (lib.agent(name, handoffs=[]) for name in ("first", "second", "third"))
    first.handoffs.append(second)
    second.handoffs.append(third)
    third.handoffs += [first, third]
    return await lib.run(first, "q")


@HANDOFFS.script(TO_SECOND, call("look"), raises="ModelBehaviorError")
async def a_tool_of_the_agent_before(lib: Lib) -> Any:
    return await lib.run(team(lib), "q")


@HANDOFFS.script(TO_SECOND, call("find"), raises="MaxTurnsExceeded")
async def turns_are_counted_across_agents(lib: Lib) -> Any:
    return await lib.run(team(lib), "q", max_turns=2)


@HANDOFFS.script(call("escalate"), reply("done"))
async def another_name_and_description(lib: Lib) -> Any:
    def to(agent: Any) -> Any:
        return lib.handoff(
            agent, tool_name_override="escalate", tool_description_override="Escalate it."
        )

    return await lib.run(team(lib, to=to), "q")


def with_reason(lib: Lib) -> Make:
    def told(ctx: Any, reason: Reason) -> None:
        lib.note(type(reason).__name__, reason.why, reason.urgency)

    return lambda agent: lib.handoff(agent, on_handoff=told, input_type=Reason)


@HANDOFFS.script(call("transfer_to_second", {"why": "hard", "urgency": 3}), reply("done"))
async def told_with_an_input(lib: Lib) -> Any:
    return await lib.run(team(lib, to=with_reason(lib)), "q")


@HANDOFFS.script(call("transfer_to_second", {"urgency": 3}), raises="ModelBehaviorError")
async def an_input_that_lacks_something(lib: Lib) -> Any:
    return await lib.run(team(lib, to=with_reason(lib)), "q")


@HANDOFFS.script(TO_SECOND, raises="ModelBehaviorError")
async def a_disabled_handoff_is_called(lib: Lib) -> Any:
    return await lib.run(team(lib, to=lambda agent: lib.handoff(agent, is_enabled=False)), "q")


@HANDOFFS.script(TO_SECOND, reply("done"), reply("again"))
async def the_last_agent_goes_on(lib: Lib) -> Any:
    first = team(lib)
    result = await lib.run(first, "q")
    second = first.handoffs[0]
    given = [*result.to_input_list(), {"role": "user", "content": "more"}]
    return await lib.run(second, given)


# Filters


@FILTERS.script(call("look"), TO_SECOND, reply("done"))
async def all_tools_are_removed(lib: Lib) -> Any:
    def to(agent: Any) -> Any:
        return lib.handoff(agent, input_filter=lib.remove_all_tools)

    result = await lib.run(team(lib, to=to), "q")
    lib.note(
        [item.get("role", item.get("type")) for item in result.to_input_list(mode="normalized")]
    )
    return result


def cut(data: Any) -> Any:
    """Let the next agent see one item of its own only."""
    given = ({"role": "user", "content": "only this"},)
    return data.clone(input_history=given, pre_handoff_items=(), new_items=())


@FILTERS.script(call("look"), TO_SECOND, call("find"), reply("done"))
async def a_filter_of_the_handoff(lib: Lib) -> Any:
    def to(agent: Any) -> Any:
        def kept(data: Any) -> Any:
            lib.note(
                data.input_history if isinstance(data.input_history, str) else "items",
                [item.type for item in data.pre_handoff_items],
                [item.type for item in data.new_items],
            )
            return cut(data)

        return lib.handoff(agent, input_filter=kept)

    return await lib.run(team(lib, to=to), "q")


@FILTERS.script(TO_SECOND, reply("done"))
async def the_handoffs_own_filter_wins(lib: Lib) -> Any:
    def other(data: Any) -> Any:
        return data.clone(input_history="another text")

    to = team(lib, to=lambda agent: lib.handoff(agent, input_filter=other))
    return await lib.run(to, "q", run_config=lib.RunConfig(handoff_input_filter=cut))


@FILTERS.script(TO_SECOND, raises="UserError")
async def a_filter_that_gives_something_else(lib: Lib) -> Any:
    def kept(data: Any) -> Any:
        return "text"

    to = team(lib, to=lambda agent: lib.handoff(agent, input_filter=kept))
    return await lib.run(to, "q")


@FILTERS.script(call("look"), TO_SECOND, reply("done"))
async def input_items_are_what_the_next_agent_sees(lib: Lib) -> Any:
    def kept(data: Any) -> Any:
        return data.clone(input_items=())

    to = team(lib, to=lambda agent: lib.handoff(agent, input_filter=kept))
    return await lib.run(to, "q")


# Nested history


@NESTED.script(call("look"), call("transfer_to_second", text="over"), call("find"), reply("done"))
async def a_nested_history(lib: Lib) -> Any:
    return await lib.run(team(lib), "q", run_config=lib.RunConfig(nest_handoff_history=True))


@NESTED.script(TO_SECOND, call("transfer_to_third"), reply("done"))
async def a_history_nested_twice(lib: Lib) -> Any:
    third = lib.agent("third")
    second = lib.agent("second", handoffs=[third])
    first = lib.agent(handoffs=[second])
    return await lib.run(first, "q", run_config=lib.RunConfig(nest_handoff_history=True))


@NESTED.script(TO_SECOND, reply("done"))
async def a_history_mapped_by_the_run(lib: Lib) -> Any:
    def mapped(items: list[Any]) -> list[Any]:
        lib.note(len(items))
        return [{"role": "assistant", "content": f"{len(items)} items came before"}]

    config = lib.RunConfig(nest_handoff_history=True, handoff_history_mapper=mapped)
    return await lib.run(team(lib), "q", run_config=config)


# Several handoffs of a run


def chain(lib: Lib, *, to_third: Make) -> Any:
    """Make an agent that may hand over to a second one, and that to a third; the runs nest."""
    third = lib.agent("third")
    second = lib.agent("second", tools=[lib.tool("found", name="find")], handoffs=[to_third(third)])
    return lib.agent(handoffs=[lib.handoff(second, nest_handoff_history=True)])


TO_THIRD = call("transfer_to_third", text="over to the third")


@NESTED.script(
    call("transfer_to_second", text="over to the second"), call("find"), TO_THIRD, reply("done")
)
async def a_filter_that_adds_to_a_nested_history(lib: Lib) -> Any:
    def more(data: Any) -> Any:
        added = {"role": "user", "content": "And more."}
        return data.clone(input_history=(*data.input_history, added))

    return await lib.run(chain(lib, to_third=lambda to: lib.handoff(to, input_filter=more)), "q")
