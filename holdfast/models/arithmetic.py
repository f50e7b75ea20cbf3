"""Arithmetic as people write it: find an expression in a text, and the order to work it out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

OperationName = Literal["add", "subtract", "multiply", "divide", "power"]
Number = int | float

_OPERATIONS: dict[str, OperationName] = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "^": "power",
}
# With the signs for times, divided by and minus, and the dash, that word processors write.
_WORDS = (
    (r"\bto\s+the\s+power\s+of\b|\*\*", "^"),
    (r"\b(?:multiplied\s+by|times)\b|[\u00d7\u00b7]|(?<=[\d)])\s*x\s*(?=[\d(])", "*"),
    (r"\bdivided\s+by\b|\u00f7", "/"),
    (r"\bplus\b", "+"),
    (r"\bminus\b|[\u2212\u2013]", "-"),
)
_LONGEST_RUN = 100
"""Tokens of the longest expression read: the parser's depth is bounded by it."""

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
        found: list[Operation] = []
        _collect(self.root, found)
        return found


def find_question(text: str) -> Question | None:
    """Return the longest expression with at least one operation in `text`, or None."""
    for word, sign in _WORDS:
        text = re.sub(word, sign, text, flags=re.IGNORECASE)
    best: Question | None = None
    for run in _runs(text):
        start = 0
        while start < len(run) <= _LONGEST_RUN:
            question, length = _parse(run[start:])
            if question and (best is None or len(question.text) > len(best.text)):
                best = question
            start += length
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


def _parse(tokens: Sequence[str]) -> tuple[Question | None, int]:
    """Return the question that the tokens begin with, and how many tokens that took."""
    parser = _Parser(tokens)
    try:
        root = parser.sum()
    except _NoExpressionError:
        return None, 1
    if not isinstance(root, Operation):
        return None, parser.place
    return Question(text=_shown(tokens[: parser.place]), root=root), parser.place


def _shown(tokens: Sequence[str]) -> str:
    text = " ".join(tokens).replace("( ", "(").replace(" )", ")").replace(" ^ ", "^")
    return re.sub(r"(^|[-+*/^(] ?)- ", r"\1-", text)


def _collect(expression: Expression, found: list[Operation]) -> None:
    if isinstance(expression, Operation):
        _collect(expression.left, found)
        _collect(expression.right, found)
        found.append(expression)


class _NoExpressionError(Exception):
    """The tokens do not begin with an expression."""


class _Parser:
    """Recursive descent; reads as much as makes an expression and leaves the rest.

    sum = product (("+" | "-") product)*; product = signed (("*" | "/") signed)*;
    signed = "-" signed | power; power = atom ("^" signed)?; atom = number | "(" sum ")"
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self.place = 0

    def sum(self) -> Expression:
        return self._chain("+-", self._product)

    def _product(self) -> Expression:
        return self._chain("*/", self._signed)

    def _chain(self, signs: str, operand: Callable[[], Expression]) -> Expression:
        left = operand()
        while self._next() and self._next() in signs:
            before = self.place
            sign = self._take()
            try:
                left = Operation(_OPERATIONS[sign], left, operand())
            except _NoExpressionError:
                self.place = before
                break
        return left

    def _signed(self) -> Expression:
        if self._next() == "+":
            self._take()
            return self._signed()
        if self._next() != "-":
            return self._power()
        self._take()
        value = self._signed()
        return Operation("subtract", 0, value) if isinstance(value, Operation) else -value

    def _power(self) -> Expression:
        base = self._atom()
        if self._next() != "^":
            return base
        before = self.place
        self._take()
        try:
            return Operation("power", base, self._signed())
        except _NoExpressionError:
            self.place = before
            return base

    def _atom(self) -> Expression:
        taken = self._take()
        if taken == "(":
            inside = self.sum()
            if self._take() != ")":
                raise _NoExpressionError
            return inside
        if not taken[-1:].isdigit():
            raise _NoExpressionError
        return number(taken)

    def _next(self) -> str:
        return self._tokens[self.place] if self.place < len(self._tokens) else ""

    def _take(self) -> str:
        taken = self._next()
        self.place += 1
        return taken


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
