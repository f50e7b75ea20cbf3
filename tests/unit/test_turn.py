"""What follows a model's answer, and structured outputs, without a server."""

import asyncio
import dataclasses
from functools import partial
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from holdfast import Agent, ModelBehaviorError, UserError, tool
from holdfast.activities.task_end import WITHHELD, after_block
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput,
    OutputGuardrail,
    input_guardrail,
    output_guardrail,
)
from holdfast.agents.hooks import AgentHooks, RunHooks, check_run_hooks
from holdfast.agents.output_type import AgentOutputSchema
from holdfast.agents.runs.guardrail_results import (
    Known,
    guardrail_results,
    tripped_result,
    with_known,
)
from holdfast.agents.runs.teams import check_agents
from holdfast.errors import OutputGuardrailTripwireTriggered
from holdfast.models.base import ModelAnswer, OutputSpec
from holdfast.models.openai.items import assistant_message
from holdfast.reading.queries import to_error
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import AgentSnapshot, ToolPolicy
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    JournalEntry,
    OpenState,
    OpenStep,
    StepResult,
)
from holdfast.values.messages import Message, ToolCall, assistant, last_text
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.steps import TaskStep, ToolOutput
from holdfast.workers import function_calling


def call(name: str, id: str = "c1") -> ToolCall:
    return ToolCall(id=id, name=name)


SEARCH = {"type": "web_search_call", "id": "ws_1"}
TEXT = AgentSnapshot(name="a")
TYPED = AgentSnapshot(name="a", output=OutputSpec(name="o", json_schema={}))


@pytest.mark.parametrize(
    ("answer", "agent", "may_refuse", "expected"),
    [
        (ModelAnswer(message=assistant("hi")), TEXT, False, "answer"),
        (ModelAnswer(message=assistant("")), TEXT, False, "answer"),
        (ModelAnswer(message=assistant("")), TYPED, False, "nothing"),
        (ModelAnswer(message=assistant("hi")), TYPED, False, "answer"),
        (ModelAnswer(message=Message(role="assistant", items=(SEARCH,))), TEXT, True, "work"),
        (ModelAnswer(message=Message(role="assistant", items=(SEARCH,))), TYPED, True, "work"),
        (
            ModelAnswer(message=Message(role="assistant", content="hi", items=(SEARCH,))),
            TEXT,
            False,
            "answer",
        ),
        (ModelAnswer(message=assistant("hi", calls=(call("x"),))), TYPED, False, "tools"),
        (ModelAnswer(message=assistant("no"), refusal="no"), TYPED, False, "refusal"),
        (ModelAnswer(message=assistant("no"), refusal="no"), TYPED, True, "answer"),
        (
            ModelAnswer(message=assistant("no", calls=(call("x"),)), refusal="no"),
            TEXT,
            False,
            "tools",
        ),
    ],
)
def test_what_an_answer_is(
    answer: ModelAnswer, agent: AgentSnapshot, may_refuse: bool, expected: str
) -> None:
    assert function_calling.follows(answer, agent, may_refuse=may_refuse) == expected


@pytest.mark.parametrize(
    ("behavior", "called", "may_end", "final"),
    [
        ("", ["x", "y"], False, None),
        ("first", ["x", "y"], True, "x"),
        ("first", [], False, None),
        ("y,", ["x", "y"], True, "y"),
        ("z,y,", ["y", "z"], True, "y"),
        ("z,", ["x", "y"], False, None),
        ("first,", ["x"], False, None),
        ("ask", ["x"], True, None),
    ],
)
def test_when_tool_results_are_the_end(
    behavior: str, called: list[str], may_end: bool, final: str | None
) -> None:
    assert function_calling.may_end([call(name) for name in called], behavior) is may_end
    if called:
        found = function_calling.final_result(
            [ToolOutput(tool_name=name) for name in called], behavior
        )
        assert (found and found.tool_name) == final


@pytest.mark.parametrize(
    ("left", "parallel", "run", "reasons"),
    [
        (None, True, 3, []),
        (2, True, 2, [function_calling.BUDGET_REACHED]),
        (0, True, 0, [function_calling.BUDGET_REACHED] * 3),
        (None, False, 1, [function_calling.ONE_AT_A_TIME] * 2),
        (0, False, 0, [function_calling.BUDGET_REACHED] * 3),
    ],
)
def test_which_calls_are_run(
    left: int | None, parallel: bool, run: int, reasons: list[str]
) -> None:
    calls = tuple(call("x", f"c{i}") for i in range(3))
    assert function_calling.allot(calls, left=left, parallel=parallel) == (
        calls[:run],
        [(c.id, reason) for c, reason in zip(calls[run:], reasons, strict=True)],
    )


def test_who_has_used_tools_follows_handoffs() -> None:
    first = AgentSnapshot(
        name="a",
        policies={"look": ToolPolicy(), "to_b": ToolPolicy(handoff="b")},
        team=(AgentSnapshot(name="b", policies={"look": ToolPolicy()}),),
    )
    handed = [
        assistant("", calls=(call("to_b"),)),
        Message(role="tool", call_id="c1", content='{"assistant":"b"}'),
    ]
    used = [assistant("", calls=(call("look", "c2"),)), Message(role="tool", call_id="c2")]
    used_by = partial(function_calling.has_used_tools, first=first)
    assert not used_by("a", transcript=[assistant("hi")])
    assert [used_by(name, transcript=handed) for name in "ab"] == [True, False]
    assert [used_by(name, transcript=[*handed, *used]) for name in "ab"] == [True, True]
    rest = iter([*handed, *used])
    assert used_by("a", transcript=rest)
    assert len([*rest]) == len(handed) + len(used) - 1


# ---- several messages


def said(text: str, kind: str = "output_text") -> dict[str, Any]:
    part = {"type": kind, "text" if kind == "output_text" else "refusal": text}
    return {"type": "message", "id": "m", "role": "assistant", "content": [part]}


REASONING: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": []}


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([said("one")], "one"),
        ([said("one"), said("two")], "two"),
        ([said("one"), said("")], ""),
        ([REASONING, said("one"), said("two")], "two"),
        ([said("one"), said("no", "refusal")], "no"),
        ([], ""),
    ],
)
def test_the_text_of_an_answer_is_its_last_message(items: list[Any], text: str) -> None:
    assert last_text(assistant_message(items)) == text


# ---- structured outputs


class City(BaseModel):
    name: str
    people: int = 0


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("kind", "value", "data", "text"),
    [
        (City, City(name="R"), {"name": "R", "people": 0}, '{"name":"R","people":0}'),
        (City, {"name": "R", "people": 1}, {"name": "R", "people": 1}, '{"name":"R","people":1}'),
        (int, 5, 5, '{"response":5}'),
        (list[City], [City(name="R")], [{"name": "R", "people": 0}], None),
        (Point, Point(3), {"x": 3}, '{"response":{"x":3}}'),
        (Literal["a", "b"], "b", "b", '{"response":"b"}'),
        (int | None, {"response": None}, None, '{"response":null}'),
    ],
)
def test_outputs_of_code_become_what_a_model_would_say(
    kind: Any, value: Any, data: Any, text: str | None
) -> None:
    schema = AgentOutputSchema(kind)
    assert schema.spec().json_schema["type"] == "object"
    got, said_text = schema.dump(value)
    assert got == data
    assert said_text == text or text is None
    assert schema.read(said_text) == data
    assert schema.dump(schema.load(data)) == (data, said_text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (City, "{"),
        (City, "5"),
        (City, '{"name": 5, "people": 1}'),
        (int, "5"),
        (int, '{"response": "5"}'),
        (float, '{"response": NaN}'),
        (int, '{"answer": 5}'),
        (int, "null"),
    ],
)
def test_answers_that_do_not_fit_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(ModelBehaviorError, match="Invalid JSON"):
        AgentOutputSchema(kind).read(text)


def test_a_type_that_strict_mode_cannot_express_is_refused_with_the_remedy() -> None:
    agent = Agent(name="a", output_type=dict[str, int])  # a program may assign another one yet
    with pytest.raises(UserError, match="strict_json_schema=False"):
        check_agents([agent], "warn")
    agent.output_type = AgentOutputSchema(dict[str, int], strict_json_schema=False)
    check_agents([agent], "warn")
    assert agent.snapshot("m").output == AgentOutputSchema(dict[str, int], False).spec()


# ---- guardrails and hooks as values: what is refused, how they are named, how results are read


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
