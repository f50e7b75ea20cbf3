"""Calls that do not fit: what was called, in the caller's words, and which argument was meant."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

import holdfast as package
from holdfast import sync
from holdfast.client.agent_runner.base import id_of
from holdfast.errors import InvalidArgumentError, WrongTypeError
from holdfast.models.openai.item_contents import check_item
from holdfast.values.checks import gate
from holdfast.values.checks.gate import known_as
from holdfast.values.code.context_data import dump

blocking: Any = sync
holdfast: Any = package  # as a program that no type checker has seen


def agent(**options: Any) -> Any:
    return holdfast.Agent(name="a", model="offline", **options)


def runner() -> Any:
    return holdfast.AgentRunner.local(agent(), data_dir=None)


async def no_task() -> str:
    """Stand in for a call that nobody has awaited."""
    return "t"


SAID: list[tuple[Callable[[], Any], str]] = [
    (lambda: agent(instruction="x"), r"of Agent: instruction\. Did you mean 'instructions'\?"),
    (holdfast.Agent, r"^Agent\(\) missing 1 required .*'name'$"),
    (lambda: agent().as_tool(tool_nam="x"), "of Agent.as_tool: .* mean 'tool_name'"),
    (lambda: holdfast.tool(effects="read")(len), "of a tool: effects. Did you mean 'effect'"),
    (lambda: holdfast.tool(effect=5)(no_task), "Tool 'no_task'.* effect"),
    (lambda: holdfast.FunctionTool(nme="x"), "of Tool: nme. Did you mean 'name'"),
    (lambda: holdfast.RunConfig(workflow="x"), "of RunConfig: .* mean 'workflow_name'"),
    (lambda: holdfast.handoff(agent(), on_hand=1), "of handoff: .* mean 'on_handoff'"),
    (lambda: holdfast.input_guardrail(nam="x"), "of input_guardrail: .* mean 'name'"),
    (lambda: holdfast.AgentRunner.local(agent(), data_dri=1), "Runner.local: .* mean 'data_dir'"),
    (lambda: blocking.AgentRunner.local(agent(), data_dri=1), "Runner.local: .* mean 'data_dir'"),
    (lambda: runner().session(nam="x"), "of AgentRunner.session: .* mean 'name'"),
    (lambda: runner().chat("x", sesion="k"), "of AgentRunner.chat: .* mean 'session'"),
    (lambda: runner().approve("t:1"), r"^AgentRunner.approve\(\) missing .* 'by'$"),
    (lambda: holdfast.Runner.run(agent(), "x", contxt=1), "of Runner.run: .* mean 'context'"),
    (lambda: holdfast.Runner.run_streamed(agent(), "x", contxt=1), "of Runner: .* mean 'context'"),
]


@pytest.mark.parametrize(("call", "said"), SAID)
def test_a_call_that_does_not_fit_names_what_was_called_and_the_argument_that_was_meant(
    call: Callable[[], Any], said: str
) -> None:
    async def calling() -> None:
        made = call()
        if asyncio.iscoroutine(made):
            await made

    with pytest.raises(WrongTypeError, match=said):
        asyncio.run(calling())


def test_an_error_of_the_function_itself_is_not_taken_for_one_of_its_call() -> None:
    @known_as("wait")
    def wait(seconds: int = 0) -> float:
        return seconds + cast("float", holdfast)

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        wait(seconds=1)
    assert type(caught.value) is TypeError


def test_with_in_the_place_of_async_with_says_what_to_write() -> None:
    with pytest.raises(InvalidArgumentError, match=r"async with AgentRunner\.local"), runner():
        pass


def test_a_name_that_the_package_lacks_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"'AgentRuner'\. Did you mean 'AgentRunner'"):
        _ = holdfast.AgentRuner


def dumped(given: Any) -> Any:
    return dump({"k": given})


def as_item(given: Any) -> Any:
    return check_item(0, given)


def as_state(given: Any) -> Any:
    return gate.check(given, "state")


@pytest.mark.parametrize("take", [id_of, dump, dumped, as_item, as_state, holdfast.handoff])
def test_a_value_that_nobody_has_awaited_is_refused_with_the_word_that_is_missing(
    take: Callable[[Any], Any],
) -> None:
    given = no_task()
    with pytest.raises((InvalidArgumentError, holdfast.UserError), match="did you forget await"):
        take(given)
    given.close()
