"""Read the argument list of a call as a model writes it: Python or JSON literals, and plain words.

Pure. Strings may have single, double or triple quotes; `true`, `True`, `null` and `None` are
known; lists, tuples and objects nest. Anything else is plain text up to the next comma or closing
bracket, so `weather(Rome, today)` has two texts. Plain text does not begin with a quote.

A model that forgets to escape writes `"he said "hi" to me"`, and one that takes a plan for a
program writes `"a" + "b"`. Passed to a tool as they are, both would be wrong without any error:
quoted texts are read where that is safe, and refused elsewhere. Then the arguments get their
parameters' names.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, cast

from holdfast.models.base import ToolSpec
from holdfast.values.base import Json
from holdfast.values.checks.gate import clean, is_array
from holdfast.workers.compiler.references import property_schema, wanted_types

_QUOTED = re.compile(r"[rRbBuUfF]{0,2}[\"']")
_SUM = re.compile(r"\$(?:[0-9]+|\{\s*[0-9]+\s*\})\s*\+\s*[\"']")
_SHOWN = 60


def is_code(text: str) -> bool:
    """Whether unquoted text looks like a quoted text, or like a sum of texts."""
    return _QUOTED.match(text) is not None or _SUM.match(text) is not None


def refusal(text: str) -> str:
    """Make the message that says why such a text is not a value, and how to write it."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return (
        f"{shown} is not a value: write a text in one pair of quotes, with \\ before such a quote"
        " inside it, and without prefix or +; $1 may be inside the text"
    )


def escaped(text: str) -> str | None:
    """Return a quoted text with the quotes inside it escaped.

    Quotes inside must be apostrophes between letters, or pairs around words; anything else, as in
    `"a" + "b"`, may be several texts.

    Args:
        text: A text that begins with a quote.

    Returns:
        The text with both its outer quotes; None when it is uncertain which quotes those are.
    """
    quote, last = text[0], len(text) - 1
    if text[last] != quote or quote not in "\"'":
        return None
    parts, is_inside = [quote], False
    for at in range(1, last):
        letter, before, after = text[at], text[at - 1], text[at + 1]
        if letter != quote or before == "\\":
            parts.append(letter)
            continue
        if quote == "'" and before.isalnum() and after.isalnum():
            pass  # what's
        elif is_inside and _may_end(before) and not after.isalnum():
            is_inside = False
        elif not is_inside and (before.isspace() or before in "([{") and _may_begin(after):
            is_inside = True
        else:
            return None
        parts.append("\\" + quote)
    return None if is_inside else "".join((*parts, quote))


def _may_begin(letter: str) -> bool:
    return letter.isalnum() or letter == "$"


def _may_end(letter: str) -> bool:
    return letter.isalnum() or letter in ".!?,;:)}…"


DEEPEST = 40
"""Brackets may nest this deep: far beyond what a plan needs, and well within Python's stack."""

_NONE = object()
"""Stands for "no value", because None is a value."""

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_NAMED = re.compile(r"([^\W\d][\w-]*)\s*(=(?!=)|:)")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{0,300})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS: dict[str, Json] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "0": "\0",
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
}
_HEX = {"x": 2, "u": 4, "U": 8}


class ArgumentsError(ValueError):
    """An argument list that cannot be read.

    Attributes:
        is_open: Whether more text could still complete it.
        closer: The triple quotes that would close an open text; empty for anything else.
    """

    def __init__(self, reason: str, *, is_open: bool = False, closer: str = "") -> None:
        """Take the reason, and whether more text could help."""
        self.is_open = is_open
        self.closer = closer
        super().__init__(reason)


class Plain(str):
    """Text that was written without quotes."""

    __slots__ = ()


class Arguments(NamedTuple):
    """One argument list.

    Attributes:
        positional: Values in order; texts without quotes are `Plain`.
        named: Values by name.
        raw: The text between the brackets.
        end: Position behind the closing bracket.
    """

    positional: Sequence[Json]
    named: dict[str, Json]
    raw: str
    end: int


def read_arguments(text: str, at: int, names: Collection[str] = ()) -> Arguments:
    """Read an argument list.

    Args:
        text: The text that holds it.
        at: Position of its opening parenthesis.
        names: Parameter names: `name: value` is read as `name=value` for these.

    Raises:
        ArgumentsError: It is not closed, a name is given twice, or a value is missing.
    """
    return _Reader(text, names).arguments(at)


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text = text
        self.names = names
        self.at = 0

    def arguments(self, at: int) -> Arguments:
        self.at = at + 1
        positional: list[Json] = []
        named: dict[str, Json] = {}
        while not self._closes(")"):
            name = self._name()
            value = self._value(")", 1)
            if not name and named:
                raise ArgumentsError("an argument without a name follows one with a name")
            if name in named:
                raise ArgumentsError(f"the argument {name!r} is given twice")
            if name:
                named[name] = value
            else:
                positional.append(value)
            self._comma(")")
        return Arguments(positional, named, self.text[at + 1 : self.at - 1], self.at)

    def _name(self) -> str:
        """Read `name=` if it is next."""
        found = _NAMED.match(self.text, self.at)
        if found is None or (found[2] == ":" and found[1] not in self.names):
            return ""
        self.at = found.end()
        return found[1]

    def _space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _closes(self, close: str) -> bool:
        """Skip white space, and the closing bracket if it is next."""
        self._space()
        if self.text[self.at : self.at + 1] != close:
            return False
        self.at += 1
        return True

    def _stops(self, close: str) -> bool:
        """Whether the next character ends a value: a comma or the closing bracket."""
        self._space()
        return self.text[self.at : self.at + 1] in (",", close)

    def _comma(self, close: str) -> bool:
        """Skip the comma behind a value, and return whether there was one."""
        self._space()
        if self.at >= len(self.text):
            raise ArgumentsError(f"{close!r} is missing", is_open=True)
        if self.text[self.at] != ",":
            return False
        self.at += 1
        return True

    def _value(self, close: str, depth: int) -> Json:
        """Read a value up to a comma or the closing bracket, which is not consumed."""
        if depth > DEEPEST:
            raise ArgumentsError(f"brackets nest deeper than {DEEPEST}")
        self._space()
        start = self.at
        value = self._literal(depth)
        if value is not _NONE and self._stops(close):
            return value
        self.at = start
        plain = self._plain(close)
        return _requoted(plain) if isinstance(plain, Plain) and is_code(plain) else plain

    def _literal(self, depth: int) -> Json:
        """Read a quoted string, a list, a tuple or an object; _NONE without one."""
        match self.text[self.at : self.at + 1]:
            case "'" | '"' as quote:
                return self._closed_string(quote)
            case "[":
                return self._items("]", depth)[0]
            case "(":
                items, commas = self._items(")", depth)
                if commas or not items:
                    return items
                return _NONE if isinstance(items[0], Plain) else items[0]
            case "{":
                made = self._object(depth)
                return _NONE if made is None else made
            case _:
                return _NONE

    def _items(self, close: str, depth: int) -> tuple[list[Json], bool]:
        """Read a list or tuple, and whether it has commas."""
        self.at += 1
        items: list[Json] = []
        commas = False
        while not self._closes(close):
            items.append(self._value(close, depth + 1))
            commas = self._comma(close) or commas
        if len(items) == 1 and not commas:
            return items, False  # may be a value in parentheses instead of a list
        return [unmarked(item) for item in items], commas

    def _object(self, depth: int) -> dict[str, Json] | None:
        """Read an object; None for other text in braces, such as a template."""
        self.at += 1
        made: dict[str, Json] = {}
        while not self._closes("}"):
            key = self._key()
            if key is None:
                return None
            made[key] = unmarked(self._value("}", depth + 1))
            self._comma("}")
        return made

    def _key(self) -> str | None:
        """Read an object's key and its colon."""
        first = self.text[self.at : self.at + 1]
        if first in {"'", '"'}:
            key = self.string(first)
        else:
            found = re.compile(r"[^\s:,{}\[\]()'\"]+").match(self.text, self.at)
            key = found[0] if found else None
            self.at = found.end() if found else self.at
        self._space()
        if self.at >= len(self.text):
            raise ArgumentsError("'}' is missing", is_open=True)
        if key is None or self.text[self.at] != ":":
            return None
        self.at += 1
        return key

    def _closed_string(self, quote: str) -> str:
        """Read a quoted string that is a value.

        Raises:
            ArgumentsError: Its quotes never close.
        """
        text = self.string(quote)
        if text is None:
            triple = quote * 3 if self.text.startswith(quote * 3, self.at) else ""
            msg = (
                f"the closing {triple or quote} of a text is missing; a text that begins with a"
                " quote ends with one"
            )
            raise ArgumentsError(msg, is_open=True, closer=triple)
        return text

    def string(self, quote: str) -> str | None:
        """Read a quoted string; None when its quotes never close."""
        if self.text.startswith(quote * 3, self.at):
            quote *= 3
        at = self.at + len(quote)
        parts: list[str] = []
        while at < len(self.text):
            if self.text.startswith(quote, at):
                self.at = at + len(quote)
                return clean("".join(parts))
            if self.text[at] == "\\" and at + 1 < len(self.text):
                part, at = self._escape(at + 1)
            else:
                part, at = self.text[at], at + 1
            parts.append(part)
        return None

    def _escape(self, at: int) -> tuple[str, int]:
        """Read the escape behind a backslash; an unknown one keeps its backslash."""
        letter = self.text[at]
        if letter in _HEX:
            digits = self.text[at + 1 : at + 1 + _HEX[letter]]
            if re.fullmatch(r"[0-9a-fA-F]+", digits) and len(digits) == _HEX[letter]:
                code = int(digits, 16)
                return chr(code) if code <= sys.maxunicode else "\ufffd", at + 1 + len(digits)
        return _ESCAPES.get(letter, "\\" + letter), at + 1

    def _plain(self, close: str) -> Json:
        """Read unquoted text; commas inside of its brackets and quotes do not end it."""
        start, waits = self.at, 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if not waits and letter in (",", close):
                return _word(self.text[start : self.at].strip())
            if letter in _PAIRS:
                waits += 1
            elif waits and letter in ")]}":
                waits -= 1
            self.at = self._quoted(self.at) if letter in "'\"" else self.at + 1
        raise ArgumentsError(f"{close!r} or a quote is missing", is_open=True)

    def _quoted(self, at: int) -> int:
        """Return the position behind a quoted run, or behind a quote that is only a letter."""
        quote = self.text[at]
        if at and self.text[at - 1].isalnum():  # what's, 5" pipe
            return at + 1
        end = self.text.find(quote, at + 1)
        if end < 0 or "\n" in self.text[at:end]:
            return at + 1
        return end + 1


def _word(text: str) -> Json:
    if not text:
        raise ArgumentsError("a value is missing between two commas or before a bracket")
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        number = float(text) if re.search(r"[.eE]", text) else int(text)
        if abs(number) != float("inf"):
            return number
    return Plain(text)


def _requoted(text: str) -> str:
    """Read a quoted text whose inner quotes are not escaped.

    Raises:
        ArgumentsError: The text can be read in more than one way.
    """
    whole = escaped(text)
    reader = _Reader(whole or "", ())
    inside = None if whole is None else reader.string(whole[0])
    if inside is None or reader.at != len(reader.text):
        raise ArgumentsError(refusal(text))
    return inside


def unmarked(value: Json) -> Json:
    """Return a value with `Plain` texts turned into ordinary ones."""
    if isinstance(value, Plain):
        return str(value)
    if is_array(value):
        return [unmarked(item) for item in value]
    return value


def written(value: Json) -> str:
    """Write a value so that reading it back gives the same value."""
    return json.dumps(value, ensure_ascii=False)


UNNAMED = "arguments"
"""Name under which the unnamed arguments of a call of an unknown tool are kept, as a list."""


def parameter_names(spec: ToolSpec | None) -> tuple[str, ...]:
    """List a tool's parameters in the order of its schema."""
    properties = None if spec is None else spec.parameters.get("properties")
    return tuple(cast("dict[str, Json]", properties)) if isinstance(properties, dict) else ()


def bind(given: Arguments, spec: ToolSpec | None, tools: Collection[str]) -> dict[str, Json]:
    """Return a call's arguments by name.

    Values without a name take the names in the order of the schema. A single object whose keys are
    parameter names is read as the arguments. For a tool with one parameter, unquoted text with
    commas is one text.

    Args:
        given: The arguments, as written.
        spec: The tool; None without one of that name.
        tools: Names of all tools.

    Raises:
        ArgumentsError: The tool does not take these arguments.
    """
    for value in (*given.positional, *given.named.values()):
        inner = re.match(r"([\w.-]+)\(", value) if isinstance(value, Plain) else None
        if inner is not None and inner[1] in tools:
            msg = f"calls do not nest: give {inner[1]} a line of its own and refer to it by $id"
            raise ArgumentsError(msg)
    if spec is not None:
        return {name: unmarked(value) for name, value in _bound(given, spec)}
    arguments = {name: unmarked(value) for name, value in given.named.items()}
    if given.positional:
        arguments[UNNAMED] = [unmarked(value) for value in given.positional]
    return arguments


def _bound(given: Arguments, spec: ToolSpec) -> Iterator[tuple[str, Json]]:
    """Pair a tool's parameters with the arguments."""
    names = parameter_names(spec)
    listed = f"the parameters of {spec.name} are: {', '.join(names) or 'none'}"
    by_name = _one_object(given, names, spec)
    if by_name is not None:
        yield from by_name.items()
        return
    positional = _one_text(given, names)
    if len(positional) > len(names):
        raise ArgumentsError(f"there are {len(positional)} arguments, but {listed}")
    yield from zip(names, positional, strict=False)
    other: Json = spec.parameters.get("additionalProperties", not names)
    for name, value in given.named.items():
        if name in names[: len(positional)]:
            raise ArgumentsError(f"the argument {name!r} is given twice")
        if name not in names and other is False:
            raise ArgumentsError(f"there is no parameter {name!r}; {listed}")
        yield name, value


def _one_object(given: Arguments, names: Sequence[str], spec: ToolSpec) -> dict[str, Json] | None:
    """Return the arguments by name when they were written as one JSON object."""
    only = given.positional[0] if len(given.positional) == 1 and not given.named else None
    if not isinstance(only, dict) or not only:
        return None
    by_name = cast("dict[str, Json]", only)
    if not set(by_name) <= set(names):
        return None
    root = spec.parameters
    is_wanted = "object" in wanted_types(property_schema(root, root, names[0]), root)
    return None if is_wanted else by_name


def _one_text(given: Arguments, names: Sequence[str]) -> Sequence[Json]:
    """Return the unnamed values; for a tool with one parameter, unquoted text is one value."""
    values = given.positional
    is_text = len(values) > 1 and any(isinstance(value, Plain) for value in values)
    if is_text and len(names) == 1 and not given.named:
        return [given.raw.strip()]
    return values
