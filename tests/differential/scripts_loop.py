"""The loop: what ends a run, how many turns it has, and what its model is sent."""

from typing import Any

from holdfast.testing import call, reply
from tests.differential.lib import Lib
from tests.differential.script import Group, answer, called, hosted, refused, said, thought

LOOP = Group("loop")
ANSWERS = Group("answers")
SETTINGS = Group("settings")


@ANSWERS.script(answer(said("one", "msg_1"), said("two", "msg_2")))
async def two_messages(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


@ANSWERS.script(answer())
async def an_empty_response(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


@ANSWERS.script(answer(said("")))
async def a_message_without_a_text(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


@ANSWERS.script(
    answer(thought("hm"), called("look", '{"where": "a"}', "call_a")),
    answer(thought("so", "rs_b"), said("done")),
)
async def thoughts_between_calls(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "hi")


@LOOP.script(
    answer(said("first", "msg_1"), called("look", "{}", "call_a"), said("then", "msg_2")),
    reply("done"),
)
async def texts_around_a_call(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


@ANSWERS.script(answer(refused("I will not")), raises="ModelRefusalError")
async def a_refusal(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


SEARCH = hosted("web_search_call", action={"type": "search", "query": "here"})


@ANSWERS.script(answer(SEARCH, said("found")))
async def a_call_that_the_provider_has_run_and_a_text(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


CLICK = hosted(
    "computer_call",
    call_id="call_a",
    action={"type": "click", "button": "left", "x": 1, "y": 2},
    pending_safety_checks=[],
)


@ANSWERS.script(answer(CLICK), raises="ModelBehaviorError")
async def a_call_of_a_computer_that_nobody_has(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


@ANSWERS.script(
    answer(said("it was a dark and"), incomplete="max_output_tokens"), raises="ModelBehaviorError"
)
async def a_text_that_is_cut_off(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "hi")


@ANSWERS.script(
    answer(called("look", '{"where": "a"}', "call_a"), incomplete="max_output_tokens"),
    reply("never"),
    raises="ModelBehaviorError",
    left=1,
)
async def a_call_in_an_answer_that_is_cut_off(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "hi")


@LOOP.script(reply("done"))
async def a_list_with_calls(lib: Lib) -> Any:
    given = [
        {"role": "user", "content": "one"},
        {"type": "function_call", "call_id": "call_x", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_x", "output": "seen"},
        {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
    ]
    return await lib.run(lib.agent(tools=[lib.tool()]), given)


@LOOP.script(reply("never"), raises="MaxTurnsExceeded", left=1)
async def no_turn_at_all(lib: Lib) -> Any:
    return await lib.run(lib.agent(), "q", max_turns=0)


@LOOP.script(*[call("look")] * 12, "done")
async def turns_without_limit(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q", max_turns=None)


@LOOP.script(*[call("look")] * 10, raises="MaxTurnsExceeded")
async def ten_turns_by_default(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[lib.tool()]), "q")


@LOOP.script(reply("x"), raises="TypeError")
async def a_final_output_of_another_type(lib: Lib) -> Any:
    result = await lib.run(lib.agent(), "q")
    return result.final_output_as(int, raise_if_incorrect_type=True)


# Settings


@SETTINGS.script(reply("done"))
async def settings_of_the_run_win_field_by_field(lib: Lib) -> Any:
    agent = lib.agent(model_settings=lib.ModelSettings(temperature=0.5, max_tokens=100))
    config = lib.RunConfig(model_settings=lib.ModelSettings(temperature=0.0))
    return await lib.run(agent, "q", run_config=config)


@SETTINGS.script(call("look"), reply("done"))
async def a_required_tool_is_required_once(lib: Lib) -> Any:
    settings = lib.ModelSettings(tool_choice="required")
    return await lib.run(lib.agent(tools=[lib.tool()], model_settings=settings), "q")


@SETTINGS.script(call("look"), reply("done"))
async def a_tool_choice_that_is_not_reset(lib: Lib) -> Any:
    settings = lib.ModelSettings(tool_choice="required")
    agent = lib.agent(tools=[lib.tool()], model_settings=settings, reset_tool_choice=False)
    return await lib.run(agent, "q")


# Instructions


@SETTINGS.script(call("rename"), reply("done"))
async def instructions_see_what_a_tool_changed(lib: Lib) -> Any:
    def instructions(ctx: Any, agent: Any) -> str:
        return f"Serve {ctx.context['who']}."

    def rename(ctx: Any) -> str:
        """Rename."""
        ctx.context["who"] = "ben"
        return "renamed"

    rename.__annotations__["ctx"] = lib.ToolContext
    agent = lib.agent(instructions=instructions, tools=[lib.function_tool(rename)])
    context = {"who": "ann"}
    result = await lib.run(agent, "q", context=context)
    lib.note("the caller has", context["who"])
    return result
