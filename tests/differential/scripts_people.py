"""Approvals, and agents as tools."""

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from holdfast.testing import call, calls, reply
from tests.differential.lib import Lib
from tests.differential.script import Group
from tests.differential.scripts_guardrails import Answer
from tests.differential.scripts_hooks import agent_hooks, run_hooks

APPROVALS = Group("approvals")
CHILDREN = Group("agents_as_tools")

PAY = call("pay", {"where": "a"})


def payer(lib: Lib, *tools: Any, needs: Any = True, **options: Any) -> Any:
    """Make an agent whose tool `pay` needs approval."""
    return lib.agent(tools=[lib.tool("paid", name="pay", needs_approval=needs), *tools], **options)


async def approved(lib: Lib, agent: Any, result: Any, **options: Any) -> Any:
    """Approve everything that is open, and go on."""
    state = result.to_state()
    for item in result.interruptions:
        lib.note(item.agent.name, item.name)
        state.approve(item, **options)
    return await lib.run(agent, state)


@APPROVALS.script(PAY, reply("done"))
async def a_rejection_with_a_message(lib: Lib) -> Any:
    agent = payer(lib)
    result = await lib.run(agent, "q")
    state = result.to_state()
    state.reject(result.interruptions[0], rejection_message="too dear")
    return await lib.run(agent, state)


@APPROVALS.script(PAY, reply("done"))
async def a_rejection_in_words_of_the_run(lib: Lib) -> Any:
    def words(args: Any) -> str:
        lib.note(args.kind, args.tool_name, args.default_message)
        return f"{args.tool_name} is not allowed"

    agent = payer(lib)
    config = lib.RunConfig(tool_error_formatter=words)
    result = await lib.run(agent, "q", run_config=config)
    state = result.to_state()
    state.reject(result.interruptions[0])
    return await lib.run(agent, state, run_config=config)


@APPROVALS.script(PAY)
async def the_limit_in_words_that_the_state_is_given_with(lib: Lib) -> Any:
    agent = payer(lib)
    result = await lib.run(agent, "q", max_turns=1)
    state = result.to_state()
    state.approve(result.interruptions[0])

    def enough(given: Any) -> str:
        lib.note(type(given.error).__name__)
        return "enough"

    return await lib.run(agent, state, error_handlers={"max_turns": enough}, max_turns=5)


@APPROVALS.script(PAY)
async def nothing_decided(lib: Lib) -> Any:
    agent = payer(lib)
    result = await lib.run(agent, "q")
    return await lib.run(agent, result.to_state())


@APPROVALS.script(calls([("pay", {"where": "a"}), ("look", {"where": "b"})]), reply("done"))
async def a_call_beside_one_that_waits(lib: Lib) -> Any:
    agent = payer(lib, lib.tool())
    return await approved(lib, agent, await lib.run(agent, "q"))


@APPROVALS.script(calls([("pay", {"where": "a"}), ("pay", {"where": "b"})]), reply("done"))
async def one_after_the_other(lib: Lib) -> Any:
    agent = payer(lib)
    result = await lib.run(agent, "q")
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = await lib.run(agent, state)
    return await approved(lib, agent, result)


@APPROVALS.script(PAY, call("pay", {"where": "b"}), reply("done"))
async def an_approval_for_the_rest_of_the_run(lib: Lib) -> Any:
    agent = payer(lib)
    return await approved(lib, agent, await lib.run(agent, "q"), always_approve=True)


@APPROVALS.script(PAY, call("pay", {"where": "b"}), reply("done"))
async def a_rejection_for_the_rest_of_the_run(lib: Lib) -> Any:
    agent = payer(lib)
    result = await lib.run(agent, "q")
    state = result.to_state()
    state.reject(result.interruptions[0], always_reject=True)
    return await lib.run(agent, state)


@APPROVALS.script(PAY, call("look"), raises="MaxTurnsExceeded")
async def turns_go_on_where_they_were(lib: Lib) -> Any:
    agent = payer(lib, lib.tool())
    result = await lib.run(agent, "q", max_turns=2)
    return await approved(lib, agent, result)


@APPROVALS.script(calls([("pay", {"where": "a"}), ("transfer_to_second", {})]), reply("done"))
async def a_transfer_beside_one_that_waits(lib: Lib) -> Any:
    agent = payer(lib, handoffs=[lib.agent("second")])
    return await approved(lib, agent, await lib.run(agent, "q"))


@APPROVALS.script(PAY)
async def an_approved_call_ends_the_run(lib: Lib) -> Any:
    agent = payer(lib, tool_use_behavior="stop_on_first_tool")
    return await approved(lib, agent, await lib.run(agent, "q"))


# Agents as tools


class Trip(BaseModel):
    """A trip."""

    city: str
    days: int


def parent(lib: Lib, child: Any, **options: Any) -> Any:
    """Make an agent with another one as its tool."""
    tool = child.as_tool(
        **{"tool_name": "ask_child", "tool_description": "Ask the child.", **options}
    )
    return lib.agent("parent", instructions="You are the parent.", tools=[tool])


ASK = call("ask_child", {"input": "how?"})


@CHILDREN.script(ASK, PAY, reply("so"), reply("done"))
async def a_child_has_the_words_that_the_state_is_given_with(lib: Lib) -> Any:
    def words(args: Any) -> str:
        lib.note(args.kind, args.tool_name)
        return f"{args.tool_name} is not allowed"

    agent = parent(lib, payer(lib, name="child", instructions="You are the child."))
    result = await lib.run(agent, "q")
    state = result.to_state()
    state.reject(result.interruptions[0])
    return await lib.run(agent, state, run_config=lib.RunConfig(tool_error_formatter=words))


@CHILDREN.script(ASK, call("look"), call("look"), reply("done"))
async def a_child_with_too_few_turns(lib: Lib) -> Any:
    child = lib.agent("child", tools=[lib.tool()])
    return await lib.run(parent(lib, child, max_turns=2), "q")


@CHILDREN.script(ASK, call("nowhere"), raises="ModelBehaviorError")
async def a_child_that_fails_and_nobody_words_it(lib: Lib) -> Any:
    return await lib.run(parent(lib, lib.agent("child"), failure_error_function=None), "q")


@CHILDREN.script(ASK, reply("so"), reply("done"))
async def an_extractor(lib: Lib) -> Any:
    async def extract(result: Any) -> str:
        return f"<{result.final_output}>"

    child = lib.agent("child")
    return await lib.run(parent(lib, child, custom_output_extractor=extract), "q")


@CHILDREN.script(call("ask_child", {"city": "Rome", "days": 2}), reply("so"), reply("done"))
async def a_structured_input(lib: Lib) -> Any:
    return await lib.run(parent(lib, lib.agent("child"), parameters=Trip), "q")


@CHILDREN.script(ASK, call("transfer_to_other"), reply("so"), reply("done"))
async def a_child_that_hands_over(lib: Lib) -> Any:
    other = lib.agent("other", instructions="You are the other.")
    return await lib.run(parent(lib, lib.agent("child", handoffs=[other])), "q")


@CHILDREN.script(ASK, reply("so"), reply("done"))
async def the_settings_of_the_run_reach_the_child(lib: Lib) -> Any:
    config = lib.RunConfig(model="gpt-of-the-run")
    return await lib.run(parent(lib, lib.agent("child")), "q", run_config=config)


def guarded(
    lib: Lib, child: Any, *, before: Answer, after: Answer | None = None, **more: Any
) -> Any:
    """Make an agent whose calls of another one are checked."""
    kind = lib.ToolGuardrailFunctionOutput
    after = after or (lambda kind: kind.allow())

    def check_call(data: Any) -> Any:
        lib.note("in", data.context.tool_name, data.context.tool_arguments, data.agent.name)
        return before(kind)

    def check_result(data: Any) -> Any:
        lib.note("out", data.output)
        return after(kind)

    agent = parent(lib, child, **more)
    tool = replace(
        agent.tools[0],
        tool_input_guardrails=[lib.tool_input_guardrail(check_call)],
        tool_output_guardrails=[lib.tool_output_guardrail(check_result)],
    )
    return lib.agent("parent", tools=[tool], hooks=agent_hooks(lib))


@CHILDREN.script(ASK, call("look"), reply("so"), reply("done"))
async def hooks_of_a_parent_and_its_child(lib: Lib) -> Any:
    child = lib.agent("child", tools=[lib.tool()], hooks=agent_hooks(lib, "child"))
    agent = parent(lib, child)
    return await lib.run(lib.agent("parent", tools=agent.tools, hooks=agent_hooks(lib)), "q")


@CHILDREN.script(ASK, reply("so"), reply("done"))
async def hooks_of_a_run_with_a_child(lib: Lib) -> Any:
    return await lib.run(parent(lib, lib.agent("child")), "q", hooks=run_hooks(lib))


@CHILDREN.script(ASK, reply("so"), raises="ToolInputGuardrailTripwireTriggered", left=1)
async def a_call_of_a_child_that_ends_the_run(lib: Lib) -> Any:
    child = lib.agent("child", hooks=agent_hooks(lib, "child"))
    agent = guarded(lib, child, before=lambda kind: kind.raise_exception("bad"))
    return await lib.run(agent, "q")


@CHILDREN.script(ASK, reply("so"), reply("done"))
async def a_guarded_child_that_needs_approval(lib: Lib) -> Any:
    child = lib.agent("child", hooks=agent_hooks(lib, "child"))
    agent = guarded(lib, child, before=lambda kind: kind.allow("fine"), needs_approval=True)
    return await approved(lib, agent, await lib.run(agent, "q"))


@CHILDREN.script(ASK, reply("done"))
async def a_child_that_nobody_is_asked_about(lib: Lib) -> Any:
    config = lib.RunConfig(
        tool_execution=lib.ToolExecutionConfig(pre_approval_tool_input_guardrails=True)
    )
    agent = guarded(
        lib,
        lib.agent("child"),
        before=lambda kind: kind.reject_content("not now"),
        needs_approval=True,
    )
    return await lib.run(agent, "q", run_config=config)


@CHILDREN.script(call("ask_child", {"question": "how?"}), reply("done"))
async def a_child_that_cannot_be_asked_so(lib: Lib) -> Any:
    child = lib.agent("child", hooks=agent_hooks(lib, "child"))
    agent = guarded(lib, child, before=lambda kind: kind.allow("fine"))
    return await lib.run(agent, "q")


@CHILDREN.script(ASK, PAY, reply("so"), reply("done"))
async def an_approval_in_a_guarded_child(lib: Lib) -> Any:
    pay = lib.tool("paid", name="pay", needs_approval=True)
    agent = guarded(lib, lib.agent("child", tools=[pay]), before=lambda kind: kind.allow("fine"))
    return await approved(lib, agent, await lib.run(agent, "q"))
