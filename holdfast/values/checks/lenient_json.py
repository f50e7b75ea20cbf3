r"""Reads JSON as language models write it, exactly or not at all: nothing is guessed or left out.

Besides JSON it accepts single quotes, keys without quotes, trailing commas, comments (`//`,
`/* */`, `#`), line breaks inside texts, Python's True, False, None and tuples, and JSON5's numbers.
A number without a JSON form, a text without quotes, a repeated key or a missing end is an error.

A backslash that does not begin an escape of JSON or Python is kept, so `\d` and `C:\Users` survive.
Such a text was not escaped at all, or not everywhere. If it also has `\b`, `\f`, `\n`, `\r` or
`\t`, these may be control characters or the beginning of `\beta`, `\frac` or `\tau`, so the text is
refused as ambiguous. The exception is a text that is one Windows path, from its drive or share on:
all its backslashes are kept, so `C:\Users\new` has no line break.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple, Never

from holdfast.values.base import Json

MAX_DEPTH = 100
MAX_DIGITS = 4000
"""Longest whole number; Python refuses to read more than 4300 digits."""

_QUOTED = 24
_SPACE = re.compile(r"(?:[\s\ufeff]|//[^\n]*|\#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_KEY = re.compile(r"[\w$-]+")
_WORD = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])"
)
_TEXTS = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))",
    re.DOTALL,
)
_ESCAPED = {'"': '"', "'": "'", "\\": "\\", "/": "/"} | {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_PATH = re.compile(r"(?:[A-Za-z]:|\\\\[\w.$-]+)(?:\\[^\\:\"<>|\n]+)+\\?")
_CONTROL = frozenset("bfnrt")
_CONSTANTS: dict[str, Json] = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}


class NotReadableError(ValueError):
    """The text cannot be read exactly; the message says what is wrong, and where."""


class Read(NamedTuple):
    """A value, and the position behind it in the text."""

    value: Json
    end: int


def read_value(text: str, at: int = 0) -> Read:
    """Read the value that begins at `at`, after white space and comments; text may follow it.

    Args:
        text: The text.
        at: Position where to start.

    Raises:
        NotReadableError: There is no value, or it cannot be read exactly.
    """
    reader = _Reader(text, at)
    value = reader.value(0)
    return Read(value, reader.at)


def read_keywords(text: str, at: int) -> Read:
    """Read the arguments of a call, including the closing parenthesis.

    They are one object, or `name=value` pairs, or empty.

    Args:
        text: The text.
        at: Position after the opening parenthesis.

    Raises:
        NotReadableError: They have another form, or cannot be read exactly.
    """
    reader = _Reader(text, at)
    if reader.peek() == "{":
        found = reader.value(0)
        reader.separate(")")
        if not reader.closes(")"):
            reader.fail("a ) should follow the object")
    else:
        found = reader.pairs("=", ")", 0)
    return Read(found, reader.at)


class _Reader:
    """Reads one value from its first character to its last."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.begin = at
        self.at = at

    def fail(self, problem: str) -> Never:
        near = self.text[self.at : self.at + _QUOTED]
        where = f"at {near!r}" if near else "at the end of the text"
        raise NotReadableError(f"{problem} ({where}, character {self.at - self.begin + 1})")

    def peek(self) -> str:
        """Skip white space and comments; return the next character, or an empty text at the end."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def closes(self, closer: str) -> bool:
        if self.peek() != closer:
            return False
        self.at += 1
        return True

    def separate(self, closer: str) -> None:
        """Skip the comma between two entries; the last one needs none."""
        if self.peek() == ",":
            self.at += 1
        elif self.peek() != closer:
            self.fail(f"a comma or {closer} is missing")

    def value(self, depth: int) -> Json:
        if depth > MAX_DEPTH:
            self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        match self.peek():
            case "{":
                self.at += 1
                return self.pairs(":", "}", depth)
            case "[":
                return self.entries("]", depth)[0]
            case "(":
                entries, comma = self.entries(")", depth)
                return entries[0] if len(entries) == 1 and not comma else entries
            case '"' | "'":
                return self.quoted()
            case _:
                return self.scalar()

    def pairs(self, sign: str, closer: str, depth: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        while not self.closes(closer):
            begin, key = self.at, self.key()
            if self.peek() != sign:
                self.fail(f"{sign} should follow the key {key!r}")
            if key in found:
                self.at = begin
                self.fail(f"the key {key!r} comes twice")
            self.at += 1
            found[key] = self.value(depth + 1)
            self.separate(closer)
        return found

    def key(self) -> str:
        if self.peek() in ('"', "'"):
            return self.quoted()
        word = _KEY.match(self.text, self.at)
        if word is None:
            self.fail("a key should be here")
        self.at = word.end()
        return word[0]

    def entries(self, closer: str, depth: int) -> tuple[list[Json], bool]:
        """Read a list, and whether it ends with a comma, which makes `(1,)` a tuple."""
        self.at += 1
        found: list[Json] = []
        comma = False
        while not self.closes(closer):
            found.append(self.value(depth + 1))
            comma = self.peek() == ","
            self.separate(closer)
        return found, comma

    def quoted(self) -> str:
        found = _TEXTS[self.text[self.at]].match(self.text, self.at)
        if found is None:
            self.fail("the text is not closed by a quote")
        problem = ambiguity(found[1])
        if problem:
            self.fail(problem)
        self.at = found.end()
        return unescaped(found[1])

    def scalar(self) -> Json:
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            value = self.number(number[0])
            self.at = number.end()
            return value
        word = _WORD.match(self.text, self.at)
        if word is None or word[0] not in _CONSTANTS:
            self.fail("a value should be here; a text needs quotes")
        self.at = word.end()
        return _CONSTANTS[word[0]]

    def number(self, text: str) -> int | float:
        digits = text.lstrip("+-")
        if digits[:2] in ("0x", "0X"):
            return int(text, 16)
        if not digits.isdigit():
            value = float(text)
            if not math.isfinite(value):
                self.fail("the number is too large")
            return value
        if len(digits) > 1 and digits[0] == "0":
            self.fail("a number does not begin with 0; a text needs quotes")
        if len(digits) > MAX_DIGITS:
            self.fail(f"the number has more than {MAX_DIGITS} digits")
        return int(text)


def ambiguity(raw: str) -> str:
    """Return why the backslashes in a quoted text are ambiguous; empty if they are not."""
    escapes = [] if _PATH.fullmatch(raw) else list(_ESCAPE.finditer(raw))
    literal = next((escape[0] for escape in escapes if _is_literal(escape)), "")
    control = next((escape[0] for escape in escapes if escape[4] in _CONTROL), "")
    if not literal or not control:
        return ""
    return (
        f"the text has {literal}, which is not an escape, and {control}, which is one; double every"
        r" backslash that belongs to the text, as in \\frac"
    )


def unescaped(raw: str) -> str:
    """Replace the escapes in the inside of a quoted text."""
    if "\\" not in raw:
        return raw
    if _PATH.fullmatch(raw) and any(_is_literal(escape) for escape in _ESCAPE.finditer(raw)):
        return re.sub(r"\\([\"'])", r"\1", raw)
    text = _ESCAPE.sub(_meant, raw)
    # Two escapes may stand for the two halves of one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _is_literal(escape: re.Match[str]) -> bool:
    return escape[4] is not None and escape[4] not in _ESCAPED


def _meant(escape: re.Match[str]) -> str:
    if escape[4] is not None:
        return _ESCAPED.get(escape[4], escape[0])
    return chr(int(escape[1] or escape[2] or escape[3], 16))
