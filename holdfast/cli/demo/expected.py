"""The expected answer of the demo, computed without models and tools."""

from __future__ import annotations

import ast
import math
import re
from fractions import Fraction

from holdfast.errors import InvalidArgumentError
from holdfast.models.offline import find_question

LARGEST_EXPONENT = 1000
LARGEST_VALUE = 10**300
_NUMBER = re.compile(r"[-\u2212]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def expected_value(question: str) -> tuple[str, float]:
    """Find the arithmetic in a question and compute it with Python's own parser.

    Returns:
        The expression and its value.

    Raises:
        InvalidArgumentError: There is no arithmetic, or it has no value; the text says why.
    """
    found = find_question(question)
    if found is None:
        raise InvalidArgumentError(
            f"There is no arithmetic in {question!r}. Ask something like 'What is (121 * 3) + 42?';"
            " the signs are + - * / ^ and parentheses."
        )
    plain = re.sub(r"(?<=\d),(?=\d)", "", found.text)
    plain = re.sub(r"(?<![\d.])0+(?=\d)", "", plain).replace("^", "**")
    try:
        value = _value(ast.parse(plain, mode="eval").body)
        size = abs(value)
    except ZeroDivisionError as cause:
        msg = f"{found.text} divides by zero and has no value. Ask another question."
        raise InvalidArgumentError(msg) from cause
    except (SyntaxError, OverflowError, ValueError, TypeError) as cause:
        msg = f"{found.text} cannot be worked out here: {cause}. Ask another question."
        raise InvalidArgumentError(msg) from cause
    if size > LARGEST_VALUE:
        msg = f"The value of {found.text} is too large for this demonstration."
        raise InvalidArgumentError(msg)
    return found.text, float(value)


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _value(left), _value(right))
        case _:
            raise ValueError(f"{ast.unparse(node)} is not arithmetic")


def _combined(op: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case _:
            raise ValueError(f"{type(op).__name__} is not one of + - * / ^")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if abs(exponent) > LARGEST_EXPONENT:
        raise ValueError(f"the exponent {float(exponent):g} is too large")
    if exponent.denominator == 1:
        return base ** int(exponent)
    if base < 0:
        raise ValueError("a root of a negative number is not a real number")
    return Fraction(math.pow(base, exponent))


def is_right(answer: str, value: float) -> bool:
    """Whether the last number of an answer is the expected value, to nine digits."""
    numbers = _NUMBER.findall(answer)
    if not numbers:
        return False
    last = float(numbers[-1].replace(",", "").replace("\u2212", "-"))
    return math.isclose(last, value, rel_tol=1e-9, abs_tol=1e-12)
