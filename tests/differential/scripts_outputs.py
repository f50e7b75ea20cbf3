"""Typed outputs, answers in the place of errors, edits of what the model is sent, sessions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from holdfast.testing import call, reply
from tests.differential.lib import Lib
from tests.differential.script import Group, answer, refused, said

OUTPUTS = Group("output_types")
HANDLERS = Group("error_handlers")
MODEL_INPUT = Group("model_input_filter")
SESSIONS = Group("sessions")


class Weather(BaseModel):
    """The weather."""

    city: str
    degrees: float = 0.0


class Renamed(BaseModel):
    """A model whose JSON has other names."""

    city: str = Field(alias="theCity")


@dataclass
class Point:
    """A point."""

    x: int
    y: int


def always(value: Any) -> Callable[[Any], Any]:
    """Make a function that gives the same whatever it is asked."""

    def give(_: Any) -> Any:
        return value

    return give


WARM = reply('{"city": "Rome", "degrees": 21.5}')


@OUTPUTS.script(reply('{"response": {"x": 1, "y": 2}}'))
async def a_dataclass(lib: Lib) -> Any:
    result = await lib.run(lib.agent(output_type=Point), "q")
    lib.note(type(result.final_output).__name__)
    return result


@OUTPUTS.script(reply("not json"), raises="ModelBehaviorError")
async def an_answer_that_is_no_json(lib: Lib) -> Any:
    return await lib.run(lib.agent(output_type=Weather), "q")


@OUTPUTS.script(answer(), WARM)
async def an_empty_response_is_followed_by_another_turn(lib: Lib) -> Any:
    return await lib.run(lib.agent(output_type=Weather), "q")


@OUTPUTS.script(answer(said("thinking", "msg_1"), said('{"city": "Rome", "degrees": 1}', "msg_2")))
async def the_last_message_counts(lib: Lib) -> Any:
    return await lib.run(lib.agent(output_type=Weather), "q")


# Error handlers


@HANDLERS.script(call("look"), call("look"))
async def an_answer_for_too_many_turns(lib: Lib) -> Any:
    def answered(given: Any) -> Any:
        data = given.run_data
        lib.note(
            type(given.error).__name__,
            data.input,
            [item.type for item in data.new_items],
            len(data.history),
            len(data.output),
            getattr(data.last_agent, "name", data.last_agent),
        )
        return "enough"

    return await lib.run(
        lib.agent(tools=[lib.tool()]), "q", max_turns=2, error_handlers={"max_turns": answered}
    )


@HANDLERS.script(call("look"), raises="UserError")
async def a_typed_answer_with_other_names(lib: Lib) -> Any:
    agent = lib.agent(tools=[lib.tool()], output_type=Renamed)
    handlers = {"max_turns": always(Renamed(theCity="Rome"))}
    return await lib.run(agent, "q", max_turns=1, error_handlers=handlers)


@HANDLERS.script(answer(refused("I will not")))
async def an_answer_for_a_refusal(lib: Lib) -> Any:
    def answered(given: Any) -> Any:
        lib.note(str(given.error), [item.type for item in given.run_data.new_items])
        return "as you wish"

    return await lib.run(lib.agent(), "q", error_handlers={"model_refusal": answered})


@HANDLERS.script(reply("not json"))
async def an_answer_for_one_that_does_not_fit(lib: Lib) -> Any:
    def answered(given: Any) -> Any:
        lib.note(type(given.error).__name__, [item.type for item in given.run_data.new_items])
        return Weather(city="Rome", degrees=1.0)

    return await lib.run(
        lib.agent(output_type=Weather), "q", error_handlers={"invalid_final_output": answered}
    )


# Filters of what the model is sent


@MODEL_INPUT.script(call("look"), reply("done"))
async def the_last_item_only(lib: Lib) -> Any:
    def short(data: Any) -> Any:
        lib.note(data.agent.name, data.context, len(data.model_data.input))
        return lib.ModelInputData(
            input=[{"role": "user", "content": f"{len(data.model_data.input)} items"}],
            instructions="Be brief.",
        )

    config = lib.RunConfig(call_model_input_filter=short)
    agent = lib.agent(instructions="Be long.", tools=[lib.tool()])
    return await lib.run(agent, "q", run_config=config, context={"n": 1})


@MODEL_INPUT.script(reply("never"), raises="UserError", left=1)
async def something_else(lib: Lib) -> Any:
    config = lib.RunConfig(call_model_input_filter=always("text"))
    return await lib.run(lib.agent(), "q", run_config=config)


# Sessions


@SESSIONS.script(call("look"), reply("done"), reply("again"))
async def two_runs(lib: Lib) -> Any:
    session = lib.session("two")
    agent = lib.agent(tools=[lib.tool()])
    await lib.run(agent, "q", session=session)
    return await lib.run(agent, "more", session=session)


@SESSIONS.script(reply("one"), reply("two"), reply("three"))
async def the_newest_items_only(lib: Lib) -> Any:
    session = lib.session("limit")
    agent = lib.agent()
    await lib.run(agent, "a", session=session)
    await lib.run(agent, "b", session=session)
    config = lib.RunConfig(session_settings=lib.SessionSettings(limit=2))
    return await lib.run(agent, "c", session=session, run_config=config)


@SESSIONS.script(reply("one"), reply("two"))
async def a_callback_merges(lib: Lib) -> Any:
    def merged(history: list[Any], given: list[Any]) -> list[Any]:
        lib.note(len(history), len(given))
        return [*history[-1:], *given]

    session = lib.session("merge")
    agent = lib.agent()
    await lib.run(agent, "a", session=session)
    config = lib.RunConfig(session_input_callback=merged)
    return await lib.run(agent, "b", session=session, run_config=config)


@SESSIONS.script(call("look"), reply("again"))
async def a_run_that_had_too_many_turns(lib: Lib) -> Any:
    session = lib.session("turns")
    agent = lib.agent(tools=[lib.tool()])
    try:
        await lib.run(agent, "q", session=session, max_turns=1)
    except lib.MaxTurnsExceeded:
        lib.note("too many turns")
    return await lib.run(agent, "more", session=session)


@SESSIONS.script(reply("fine"))
async def an_input_that_was_blocked(lib: Lib) -> Any:
    def check(ctx: Any, agent: Any, given: Any) -> Any:
        lib.note(given if isinstance(given, str) else [item["content"] for item in given])
        trips = given == "bad" or given[-1] == {"role": "user", "content": "bad"}
        return lib.GuardrailFunctionOutput(output_info=None, tripwire_triggered=trips)

    session = lib.session("blocked")
    guard = lib.InputGuardrail(guardrail_function=check, name="g", run_in_parallel=False)
    agent = lib.agent(input_guardrails=[guard])
    try:
        await lib.run(agent, "bad", session=session)
    except lib.InputGuardrailTripwireTriggered:
        lib.note("blocked")
    return await lib.run(agent, "good", session=session)


@SESSIONS.script(reply("secret"), reply("fine"))
async def an_output_that_was_blocked(lib: Lib) -> Any:
    def check(ctx: Any, agent: Any, output: Any) -> Any:
        return lib.GuardrailFunctionOutput(output_info=None, tripwire_triggered=output == "secret")

    session = lib.session("secret")
    guard = lib.OutputGuardrail(guardrail_function=check, name="g")
    agent = lib.agent(output_guardrails=[guard])
    try:
        await lib.run(agent, "q", session=session)
    except lib.OutputGuardrailTripwireTriggered:
        lib.note("blocked")
    return await lib.run(agent, "more", session=session)
