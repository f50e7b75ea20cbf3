"""Guardrails and hooks as values: what is refused, how they are named, how results are read."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, UserError, tool
from holdfast.activities.task_end import WITHHELD, after_block
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput,
    OutputGuardrail,
    input_guardrail,
    output_guardrail,
)
from holdfast.agents.hooks import AgentHooks, RunHooks, check_run_hooks
from holdfast.agents.runs.guardrail_results import (
    Known,
    guardrail_results,
    tripped_result,
    with_known,
)
from holdfast.errors import OutputGuardrailTripwireTriggered
from holdfast.models.base import ModelAnswer
from holdfast.reading.queries import to_error
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    JournalEntry,
    OpenState,
    OpenStep,
    StepResult,
)
from holdfast.values.messages import Message, ToolCall, assistant
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.steps import TaskStep


@input_guardrail
def checked(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(given, tripwire_triggered=False)


@output_guardrail(name="other name")
async def wrong(ctx: Any, agent: Any, output: Any) -> Any:
    return output


async def test_a_guardrail_must_return_its_finding() -> None:
    context = RunContextWrapper(context=None)
    assert (await checked.run("agent", "text", context)).output.output_info == "text"
    with pytest.raises(UserError, match="'other name' returned str"):
        await wrong.run(context, "agent", "text")
    undecided: Any = GuardrailFunctionOutput("info", tripwire_triggered=None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="tripwire_triggered=None, neither True nor False"):
        await wrong.run(context, "agent", undecided)
    with pytest.raises(UserError, match="tripwire_triggered=None, neither True nor False"):
        await input_guardrail(lambda *_: undecided).run("agent", "text", context)


def test_agents_and_tools_refuse_what_is_no_guardrail() -> None:
    with pytest.raises(UserError, match="Decorate the function with @input_guardrail"):
        Agent(name="a", input_guardrails=[print])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="tool_output_guardrails of tool 'len' has"):
        tool(tool_output_guardrails=[checked])(len)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_hooks_of_an_agent_are_no_hooks_of_a_run() -> None:
    check_run_hooks(RunHooks())
    with pytest.raises(TypeError, match="AgentHooks"):
        check_run_hooks(AgentHooks())
    with pytest.raises(TypeError, match="is not a RunHooks"):
        check_run_hooks(asyncio)
    with pytest.raises(TypeError, match=r"Runner.run\(hooks=...\)"):
        Agent(name="a", hooks=RunHooks())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def event(**body: Any) -> Entry:
    return Entry(event=EventRecord(kind="guardrail", at=1.0, body=body))


def test_results_are_read_from_the_ledger() -> None:
    agent = Agent(name="a", input_guardrails=[checked])
    entries = [
        event(kind="input", name="checked", agent="a", info={"x": 1}),
        event(kind="output", name="gone", agent="a", tripped=True),
    ]
    results = guardrail_results(entries, first="a", known=Known.of(agent), output="secret")
    assert results.input[0].guardrail is checked
    assert results.input[0].output == GuardrailFunctionOutput({"x": 1}, tripwire_triggered=False)
    assert results.output[0].guardrail.get_name() == "gone"
    assert results.output[0].agent is agent
    assert results.output[0].agent_output == "secret"
    undone = [*entries, Entry(event=EventRecord(kind="undone", at=2.0, body={"n": 1}))]
    assert guardrail_results(undone, first="a").output == []
    assert len(guardrail_results(undone, first="a").input) == 1


def test_the_error_of_a_trip_has_the_result() -> None:
    facts = {"kind": "output", "name": "g", "agent": "a", "tripped": True, "output": [1]}
    failure = Failure(type="OutputGuardrailTripwireTriggered", message="m", data=facts)
    error = to_error(failure, task_id="t")
    assert isinstance(error, OutputGuardrailTripwireTriggered)
    assert isinstance(error.guardrail_result.guardrail, OutputGuardrail)
    assert error.guardrail_result.agent_output == [1]


class Party(BaseModel):
    name: str


def test_the_result_of_a_trip_gets_the_output_type_that_this_process_has() -> None:
    facts = {"kind": "output", "name": "g", "agent": "a", "tripped": True, "output": {"name": "x"}}
    failure = Failure(type="OutputGuardrailTripwireTriggered", message="m", data=facts)
    result: Any = tripped_result(failure)
    known = Known.of(Agent("a", output_type=Party))
    typed: Any = with_known(result, known)
    assert (typed.agent_output, with_known(typed, known)) == (Party(name="x"), typed)
    elsewhere: Any = with_known(result, Known.of(Agent("b", output_type=Party)))
    assert elsewhere.agent_output == {"name": "x"}
    large = Failure(type=failure.type, message="m", data={**facts, "output": None})
    found: Any = with_known(tripped_result(large), known, [typed])
    assert found.agent_output == Party(name="x")


def test_a_blocked_step_keeps_the_question_and_withholds_the_answer() -> None:
    call = ToolCall(id="c", name="act")
    reasoning: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": []}
    asks = Message(role="assistant", content="secret", calls=(call,), items=(reasoning,))
    current = OpenState(
        open=OpenStep(step=TaskStep(step_id="s1", input="hi")),
        n=1,
        started=0.0,
        journal=(
            JournalEntry(request="", answer=ModelAnswer(message=asks)),
            JournalEntry(request="", calls=(call,), outcomes=(Outcome(content="secret"),)),
        ),
        result=StepResult(
            adds=("input", "j0", "j1.0", assistant("secret")), calls=(), last=True, output="secret"
        ),
    )
    kept = after_block(current)
    assert [message.role for message in kept] == ["user", "assistant", "tool"]
    assert (kept[1], kept[-1].content) == (assistant("", calls=(call,)), WITHHELD)
    assert after_block(current, "gone")[-1].content == "gone"
