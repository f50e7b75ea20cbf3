"""The gate: the one check of all data that enters a task.

Data enters from models (answers, with the provider's own items), from users and programs (commands,
arguments of updates, inputs, contexts, session items) and from tools (results, changes of the
state). Python can write values that no reader accepts: pydantic writes 255 levels and reads 200,
JSON has no NaN, and UTF-8 has no lone surrogates. A value that is in history and cannot be read
blocks the workflow forever, so it must be refused before it is written.

Pure, iterative, and about as fast as copying the data.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value
from holdfast.values.text.redact import redact_long
from holdfast.values.text.shown import shown, type_shown

DEEPEST = 64
"""Most levels of lists and objects in one value.

A patch of the state has up to two levels for each level of the state, and Holdfast's own envelopes
have up to fifteen; pydantic reads 200.
"""

LONGEST_KEPT = 2000
"""Characters of a foreign text that a failure keeps."""

ENVELOPE = 16
"""Most levels that Holdfast's own envelopes put around a value."""

LARGEST = 8 * 1024 * 1024
"""Most bytes of JSON in one value, roughly. A workflow must decode it well within two seconds."""

MOST_CALLS = 4000
"""Most tool calls of one answer, or of one `ctx.call_tools`: the task holds all of them at once."""

_LEAST = 8
"""Bytes that each value counts at least, because many small values cost time."""

_WIDEST = 4096
"""Most bits of an integer; far below the 4,300 digits that pydantic reads."""

_SHOWN = 40
"""Most characters of a key in an error's text."""


class _Node(NamedTuple):
    """A list or object that is still to be checked.

    Attributes:
        value: The list or object.
        depth: Its level, from 1; 0 for the tuple that wraps the whole.
        above: The node that contains it.
        place: Its key or index there.
    """

    value: Any
    depth: int = 0
    above: _Node | None = None
    place: str | int = ""

    def path(self, place: Any) -> str:
        """Return the path of a member, from the whole."""
        if self.depth == 0:
            return ""
        above = self.above.path(self.place) if self.above is not None else ""
        return above + (f"[{place}]" if isinstance(place, int) else f".{place[:_SHOWN]}")


def flaw(
    data: Json, where: str = "value", *, deepest: int = DEEPEST, largest: int = LARGEST
) -> str:
    """Return the reason why `data` may not enter a task; empty if it may.

    Args:
        data: The data.
        where: Name of the data in the text, which gives the path of the flaw from there.
        deepest: Most levels of lists and objects.
        largest: Most bytes of JSON, roughly.
    """
    left = largest
    waiting = [_Node((data,))]
    while waiting:
        node = waiting.pop()
        if node.depth > deepest:
            path = node.above.path(node.place) if node.above is not None else ""
            return (
                f"{where} is nested more than {deepest} levels deep (at {where}{path:.200}). Make"
                " it flatter, or write the deep part as a text."
            )
        is_object = isinstance(node.value, dict)
        for place, value in node.value.items() if is_object else enumerate(node.value):
            if is_object and (wrong := _wrong_key(place)):
                above = node.above.path(node.place) if node.above is not None else ""
                return f"{where}{above:.200} {wrong}"
            cost, wrong = _alone(value)
            if wrong:
                return f"{where}{node.path(place):.200} {wrong}"
            left -= cost + (len(place) if isinstance(place, str) else 0)
            if left < 0:
                return (
                    f"{where} is too large: it may take about {largest} bytes as JSON, where each"
                    f" value counts {_LEAST} bytes at least. Keep the rest elsewhere, in a file or"
                    " a database for example, and pass a reference to it."
                )
            if isinstance(value, dict | list | tuple):
                waiting.append(_Node(value, node.depth + 1, node, place))
    return ""


def check(data: Json, where: str = "value") -> None:
    """Refuse data that may not enter a task.

    Args:
        data: The data.
        where: Name of the data in the error's text.

    Raises:
        InvalidArgumentError: It is too deep or too large, or has a value that JSON in UTF-8 cannot
            represent; the text names the place and says what to do.
    """
    wrong = flaw(data, where)
    if wrong:
        raise InvalidArgumentError(wrong)


def check_value(value: Value, where: str) -> None:
    """Refuse one of Holdfast's own values if its data may not enter a task.

    Raises:
        InvalidArgumentError: As for `check`.
    """
    try:
        data = value.wire()
    except (ValueError, RecursionError):  # pydantic gives up at 255 levels
        msg = f"{where} is nested more than {DEEPEST} levels deep. Make it flatter."
        raise InvalidArgumentError(msg) from None
    check(data, where)


def read(text: str | bytes, where: str = "value", *, deepest: int = DEEPEST) -> Json:
    """Read JSON text from outside, and check it.

    Args:
        text: The JSON.
        where: Name of the data in the error's text.
        deepest: Most levels of lists and objects.

    Raises:
        InvalidArgumentError: It is not JSON, or may not enter a task, as for `check`.
    """
    if len(text) > LARGEST:
        raise InvalidArgumentError(f"{where} has {len(text)} bytes; at most {LARGEST} are read.")
    try:
        data: Json = json.loads(text)
    except RecursionError:
        raise InvalidArgumentError(
            f"{where} is nested more than {deepest} levels deep. Make it flatter."
        ) from None
    except ValueError as cause:  # also for bytes that are not UTF-8, and integers that are too long
        why = str(cause).encode("utf-8", "replace").decode()[:200]
        raise InvalidArgumentError(f"{where} is not JSON: {why}") from None
    wrong = flaw(data, where, deepest=deepest)
    if wrong:
        raise InvalidArgumentError(wrong)
    return data


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text, that is, the text has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def mended(data: Json) -> Json:
    """Return JSON data with the lone surrogates of texts and keys replaced."""
    match data:
        case str():
            return data if is_unicode(data) else clean(data)
        case list():
            return [mended(each) for each in data]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            items = cast("dict[str, Json]", data).items()
            return {mended(key): mended(value) for key, value in items}
        case _:
            return data


def clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode and so no history can store."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def safe_text(text: str) -> str:
    """Return what a failure keeps of a foreign text: its beginning, without secrets."""
    return clean(redact_long(text))[:LONGEST_KEPT]


def _alone(value: Any) -> tuple[int, str]:
    """Return the size of a value without its members, and its flaw, or an empty text."""
    match value:
        case str():
            wrong = "" if is_unicode(value) else "holds a lone surrogate, which is not text."
            return max(len(value), _LEAST), wrong
        case None | bool() | dict() | list() | tuple():
            return _LEAST, ""
        case int():
            bits = value.bit_length()
            wrong = f"is an integer of {bits} bits; at most {_WIDEST} are kept."
            return max(bits // 3, _LEAST), wrong if bits > _WIDEST else ""
        case float():
            wrong = f"is {value!r}; numbers must be finite. Write it as null or as a text."
            return _LEAST, "" if math.isfinite(value) else wrong
        case _:
            return 0, f"is of type {type_shown(value)}, which JSON cannot say."


def _wrong_key(key: Any) -> str:
    if not isinstance(key, str):
        return f"has the key {shown(key, 40)} of type {type(key).__name__}; keys are texts."
    if not is_unicode(key):
        return f"has a key with a lone surrogate, which is not text: {key!a:.60}."
    return ""
