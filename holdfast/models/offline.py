"""A model that needs neither key nor network: it plans arithmetic and lets the tools do it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Literal

from holdfast.models.base import ModelAnswer, ModelRequest, Tell, ToolSpec
from holdfast.models.draft import deltas_of
from holdfast.values.base import Json, canonical, digest
from holdfast.values.checks.gate import is_object
from holdfast.values.messages import Message, ToolCall, Usage

OperationName = Literal["add", "subtract", "multiply", "divide", "power"]
Number = int | float

_OPERATIONS: dict[str, tuple[OperationName, int, int]] = {
    "+": ("add", 1, 2),
    "-": ("subtract", 1, 2),
    "*": ("multiply", 2, 3),
    "/": ("divide", 2, 3),
    "^": ("power", 4, 3),
}
"""Signs, with how strongly they bind, and what is to their right: 2 ^ -3 ^ 4 is 2 ^ (-(3 ^ 4))."""

_SIGNS = frozenset("+-(")
"""Tokens before an expression."""

_SIGN_BINDS = 3
"""How strongly a sign before a number binds: -2 ^ 2 is -(2 ^ 2)."""

# With the signs for times, divided by and minus, and the dash, that word processors write.
_WORDS = (
    (r"\bto\s+the\s+power\s+of\b|\*\*", "^"),
    (r"\b(?:multiplied\s+by|times)\b|[\u00d7\u00b7]|(?<=[\d)])\s*x\s*(?=[\d(])", "*"),
    (r"\bdivided\s+by\b|\u00f7", "/"),
    (r"\bplus\b", "+"),
    (r"\bminus\b|[\u2212\u2013]", "-"),
)
_LONGEST_RUN = 100
"""Tokens of the longest expression read, which bounds the time and the depth of parsing."""

_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"|(?P<sign>[-+*/^()])|(?P<space>\s+)|(?P<other>[^\W\d]\w*|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Operation:
    """Two operands and what to do with them."""

    name: OperationName
    left: Expression
    right: Expression


Expression = Number | Operation


@dataclass(frozen=True)
class Question:
    """An expression found in a text.

    Attributes:
        text: The expression as it was written, words replaced by signs.
        root: The expression.
    """

    text: str
    root: Operation

    def operations(self) -> list[Operation]:
        """List the operations, innermost and leftmost first: each after its operands."""
        return [*_collected(self.root)]


def find_question(text: str) -> Question | None:
    """Return the longest expression with at least one operation in `text`, or None."""
    for word, sign in _WORDS:
        text = re.sub(word, sign, text, flags=re.IGNORECASE)
    best: Question | None = None
    for run in _runs(text):
        start, read = 0, _reader(run)
        while start < len(run) <= _LONGEST_RUN:
            root, end = read(start, 0) or (0, start + 1)
            if isinstance(root, Operation):
                shown = _result_shown(run[start:end])
                if best is None or len(shown) > len(best.text):
                    best = Question(shown, root)
            start = end
    return best


def _runs(text: str) -> list[list[str]]:
    """Split a text into runs of numbers and signs; anything else ends a run."""
    runs: list[list[str]] = [[]]
    for match in _TOKEN.finditer(text):
        if match["other"]:
            runs.append([])
        elif not match["space"]:
            runs[-1].append(match[0])
    return runs


def _reader(tokens: Sequence[str]) -> Callable[[int, int], tuple[Expression, int] | None]:
    """Return what reads an expression: called with its first token, and how strongly it binds.

    It returns the expression and where it ends, or None. What it has read it does not read again,
    so that the time does not grow with the number of parentheses and signs that lead nowhere.
    """

    @cache
    def read(at: int, least: int) -> tuple[Expression, int] | None:
        first = tokens[at] if at < len(tokens) else ""
        if first in _SIGNS:
            is_open = first == "("
            found = read(at + 1, 0 if is_open else _SIGN_BINDS)
            if found is None or (is_open and tokens[found[1] : found[1] + 1] != [")"]):
                return None
            left, end = found[0], found[1] + is_open
            if first == "-":
                left = Operation("subtract", 0, left) if isinstance(left, Operation) else -left
        else:
            try:
                left, end = number(first), at + 1
            except ValueError:  # another sign, nothing, or more digits than a number has
                return None
        while end < len(tokens) and tokens[end] in _OPERATIONS:
            name, binds, to_right = _OPERATIONS[tokens[end]]
            right = read(end + 1, to_right) if binds >= least else None
            if right is None:
                break
            left, end = Operation(name, left, right[0]), right[1]
        return left, end

    return read


def _result_shown(tokens: Sequence[str]) -> str:
    text = " ".join(tokens).replace("( ", "(").replace(" )", ")").replace(" ^ ", "^")
    return re.sub(r"(^|[-+*/^(] ?)- ", r"\1-", text)


def _collected(expression: Expression) -> Iterator[Operation]:
    if isinstance(expression, Operation):
        yield from (*_collected(expression.left), *_collected(expression.right), expression)


def number(text: str) -> Number:
    """Read a number; thousands may be parted by commas.

    Raises:
        ValueError: It is not a number.
    """
    plain = text.strip().replace(",", "")
    try:
        return int(plain)
    except ValueError:
        value = float(plain)
        if not isfinite(value):
            raise ValueError(f"{text!r} is not a finite number") from None
        return int(value) if value.is_integer() else value


_ABILITY = (
    "I am the built-in offline model. I work out arithmetic such as (121 * 3) + 42, one tool call"
    " at a time, with tools named add, subtract, multiply, divide and power."
)
_PIECE = 6
"""Characters of a delta."""


class OfflineModel:
    """A small deterministic planner for arithmetic questions.

    It never calculates: each operation is a call of one of the agent's tools, innermost first, one
    call per answer, and the result is what the tools said. Equal requests give equal answers.

    Args:
        latency: Seconds to wait before each answer, so that a demonstration can be watched.
    """

    provider = "holdfast"
    """As traces name it."""

    def __init__(self, *, latency: float = 0.0) -> None:
        """Keep the latency."""
        self._latency = latency

    @property
    def name(self) -> str:
        """Always "offline"."""
        return "offline"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; never fails."""
        if self._latency > 0:
            await asyncio.sleep(self._latency)
        return answer(request)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request word by word; the latency is spread over the words."""
        said = answer(request)
        deltas = deltas_of(said, size=_PIECE)
        for delta in deltas:
            await asyncio.sleep(self._latency / len(deltas))
            tell(delta)
        return said


def answer(request: ModelRequest) -> ModelAnswer:
    """Plan the next call, or say the result. Pure."""
    said = _next_words(request)
    if isinstance(said, ToolCall):
        message = Message(role="assistant", calls=(said,))
    else:
        message = Message(role="assistant", content=said)
    asked = len(canonical(request.wire()))
    return ModelAnswer(
        message=message,
        usage=Usage(
            requests=1, input_tokens=asked // 4, output_tokens=len(canonical(message.wire())) // 4
        ),
        model="offline",
        response_id=f"offline_{_mark(request)}",
        finish="tool_calls" if message.calls else "stop",
    )


def _next_words(request: ModelRequest) -> ToolCall | str:
    asked = _open_question(request.messages)
    if asked is None:
        return f"I found no arithmetic in your message. {_ABILITY}"
    question, results = asked
    values: dict[int, Number] = {}
    for place, operation in enumerate(question.operations()):
        if place >= len(results):
            return _call(request, question, operation, values)
        result = results[place]
        if isinstance(result, str):
            return (
                f"I could not work out {question.text}: {operation.name} of"
                f" {_shown(operation.left, values)} and {_shown(operation.right, values)} gave no"
                f" number. The tool said: {result}"
            )
        values[id(operation)] = result
    return f"The result of {question.text} is {values[id(question.root)]}."


def _open_question(messages: Sequence[Message]) -> tuple[Question, list[Number | str]] | None:
    """Return the latest question without an answer, and the tools' results for it so far.

    A user message without arithmetic in the middle of the work, feedback for example, leaves the
    question as it is.
    """
    found: Question | None = None
    results: list[Number | str] = []
    for message in messages:
        if message.role == "user":
            question = find_question(message.text)
            if question is not None:
                found, results = question, []
        elif message.role == "assistant" and not message.calls:
            found = None
        elif message.role == "tool":
            results.append(_read_result(message))
    return None if found is None else (found, results)


def _call(
    request: ModelRequest, question: Question, operation: Operation, values: dict[int, Number]
) -> ToolCall | str:
    offered = {tool.name: tool for tool in request.tools}
    if request.tool_choice == "none":
        offered = {}
    needed = {each.name for each in question.operations()}
    missing = sorted(needed - offered.keys())
    if missing:
        return (
            f"To work out {question.text} I need tools that I was not given:"
            f" {', '.join(missing)}. {_ABILITY}"
        )
    first, second = _parameters(offered[operation.name])
    arguments = {first: _value(operation.left, values), second: _value(operation.right, values)}
    return ToolCall(
        id=f"call_{_mark(request)}", name=operation.name, arguments=json.dumps(arguments)
    )


def _parameters(tool: ToolSpec) -> tuple[str, str]:
    """Return the names of the two operands: a and b, unless the schema has two other names."""
    properties: Json = tool.parameters.get("properties")
    if is_object(properties) and not {"a", "b"} <= properties.keys() and len(properties) > 1:
        first, second, *_ = properties
        return first, second
    return "a", "b"


def _value(expression: Expression, values: dict[int, Number]) -> Number:
    return values[id(expression)] if isinstance(expression, Operation) else expression


def _shown(expression: Expression, values: dict[int, Number]) -> str:
    return str(_value(expression, values))


def _read_result(message: Message) -> Number | str:
    """Read a number out of a tool message, or return its words."""
    text = message.text.strip()
    if message.is_error:
        return text
    try:
        data: Json = json.loads(text)
    except ValueError:
        data = text
    if is_object(data):
        data = data.get("result", next(iter(data.values()))) if data else text
    try:
        return number(str(data))
    except (ValueError, OverflowError):
        return text


def _mark(request: ModelRequest) -> str:
    """Return a short mark of the conversation: each call of it gets an id of its own."""
    return digest(canonical([message.wire() for message in request.messages]))[:12]
