"""The offline model plans arithmetic and never calculates."""

import json
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.models import ModelRequest, ToolSpec, offline
from holdfast.models.offline import answer, find_question, number
from holdfast.values.messages import Message, user

CALCULATOR: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
}


def offer(*names: str) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(name=name, parameters={"type": "object"}) for name in names)


TOOLS = offer(*CALCULATOR)


def run(messages: list[Message], *, tools: tuple[ToolSpec, ...] = TOOLS) -> tuple[str, list[Any]]:
    """Play model and tools against each other; return the answer and the calls made."""
    made: list[Any] = []
    while True:
        said = answer(ModelRequest(model="offline", messages=tuple(messages), tools=tools))
        messages.append(said.message)
        if not said.message.calls:
            return said.text, made
        (call,) = said.message.calls
        arguments = json.loads(call.arguments)
        made.append((call.name, *arguments.values()))
        try:
            result = str(CALCULATOR[call.name](*arguments.values()))
            messages.append(Message(role="tool", call_id=call.id, content=result))
        except ZeroDivisionError as error:
            text = f"An error occurred: {error}"
            messages.append(Message(role="tool", call_id=call.id, content=text, is_error=True))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("2 plus 3 times 4", 14),
        ("What's 10 divided by 4, please?", 2.5),
        ("12 minus 5", 7),
        ("6 multiplied by 7", 42),
        ("2 to the power of 10", 1024),
        ("2 ** 3 ** 2", 512),
        ("2^-1", 0.5),
        ("100 / 10 / 5", 2),
        ("1,000 + .5", 1000.5),
        ("2 x 3", 6),
        ("2 \u00d7 3 \u00f7 4 \u2212 1", 0.5),
        ("((((1 + 1))))", 2),
        ("Invoice 7: compute 1 + 2 + 3 for me", 6),
    ],
)
def test_questions_as_people_write_them(question: str, expected: float) -> None:
    text, _ = run([user(question)])
    assert text.endswith(f" is {expected}.")


def test_what_leads_nowhere_is_read_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(text: str) -> float:
        read.append(text)
        return number(text)

    monkeypatch.setattr(offline, "number", counted)
    for text in ("(1+" * 33, "((1 + 1 / " * 15, "1 * (" * 25):
        find_question(text)
    assert len(read) <= 3 * 3 * 100
    assert find_question(f"{'9' * 5000} + 1") is None  # more digits than a number may have


@pytest.mark.parametrize(
    "text",
    ["", "Hello", "I have 5 apples", "gpt-5", "1 +", "(", "()", "7 -", "1 + " * 500, "(" * 999],
)
def test_text_without_arithmetic_is_told_apart(text: str) -> None:
    assert find_question(text) is None
    said, made = run([user(text)])
    assert made == []
    assert "no arithmetic" in said
    assert "offline" in said


def test_error_of_a_tool_is_told() -> None:
    text, made = run([user("1 + 10 / (5 - 5)")])
    assert made == [("subtract", 5, 5), ("divide", 10, 0)]
    assert "divide of 10 and 0 gave no number" in text
    assert "division by zero" in text


@pytest.mark.parametrize("result", ["3", "3.0", '{"result": 3}', '{"sum": 3.0}', " 3\n", '"3"'])
def test_results_are_read_in_usual_forms(result: str) -> None:
    first = answer(ModelRequest(model="offline", messages=(user("1 + 2"),), tools=TOOLS)).message
    tool = Message(role="tool", call_id=first.calls[0].id, content=result)
    request = ModelRequest(model="offline", messages=(user("1 + 2"), first, tool), tools=TOOLS)
    assert answer(request).text == "The result of 1 + 2 is 3."


operators = st.sampled_from("+-*")
operands = st.sampled_from(["0", "1", "2", "3", "-2", "+ 3", "- - 2"])
exponents = st.sampled_from(["0", "1", "2", "+ 3", "- - 2"])
powers = st.tuples(operands, st.lists(exponents, max_size=2)).map(
    lambda parts: " ^ ".join([parts[0], *parts[1]])
)


def larger(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(part, operators, part).map(" ".join)
    return binary | binary.map("-({})".format)


@given(st.tuples(st.recursive(powers, larger, max_leaves=4), operators, powers).map(" ".join))
@settings(max_examples=60)
def test_any_expression_comes_out_as_calculated(written: str) -> None:
    expected = eval(written.replace("^", "**"))  # the reference, on numbers and signs only
    assert run([user(f"Please compute {written} now.")])[0].endswith(f" is {expected}.")
