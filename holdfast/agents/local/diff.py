"""Diffs of the V4A form, in which models write patches: hunks found by their context.

A hunk begins with `@@`, or with lines `@@ anchor`: lines of the text that precede the hunk. Its own
lines begin with a blank (kept), "-" (removed) or "+" (added). There are no line numbers, so a hunk
is searched for, from the end of the one before it: exactly, then without regard to blanks at the
ends of lines, then also at their beginnings. A hunk that ends with `*** End of File` is looked for
at the end first, which is before the line end of the last line: what it puts in becomes the last
line. (OpenAI, "apply patch" guide of the GPT-4.1 prompting cookbook.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.errors import InvalidArgumentError
from holdfast.values.checks.gate import check_arguments

_END_OF_FILE = "*** End of File"
_ENDS = ("*** End Patch", "*** Update File:", "*** Delete File:", "*** Add File:")
_LOOSER: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
"""How lines are compared, the strictest first."""


@dataclass
class _Hunk:
    """A part of a diff: lines to keep, to remove and to add."""

    anchors: list[str] = field(default_factory=list[str])
    headers: int = 0
    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    is_at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for mark, text in self.lines if mark != "+"]

    @property
    def changed(self) -> tuple[int, int]:
        """How many of its first and of its last lines stay as they are."""
        places = [i for i, (mark, _) in enumerate(self.lines) if mark != " "]
        return (places[0], len(self.lines) - 1 - places[-1]) if places else (0, len(self.lines))

    def rewritten(self, found: Sequence[str]) -> list[str]:
        """Return the new lines between those; lines that stay are as the text has them."""
        first, last = self.changed
        there = iter(found)
        made: list[str] = []
        for mark, text in self.lines[first : len(self.lines) - last]:
            if mark == "+":
                made.append(text)
                continue
            line = next(there)
            if mark == " ":
                made.append(line)
        return made


def apply_diff(input: str, diff: str, mode: Literal["default", "create"] = "default") -> str:
    r"""Apply a diff to a text.

    All lines of the new text end alike: with "\r\n" if the text has that anywhere, else with
    "\n". A text without any line end, or a new file, gets those of the diff.

    Args:
        input: The text.
        diff: The diff, with or without an envelope of `*** ...` lines after it.
        mode: "create" for a new file, all of whose lines begin with "+".

    Raises:
        InvalidArgumentError: It is not a diff, its context is not in the text, or an argument is
            not a string; it is a ValueError as well.
    """
    check_arguments(apply_diff, input=input, diff=diff, mode=mode)
    model = input if mode != "create" and "\n" in input else diff
    newline = "\r\n" if "\r\n" in model else "\n"
    lines = diff.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if mode == "create":
        return newline.join(_created(lines))
    text = input.replace("\r\n", "\n").split("\n")
    made: list[str] = []
    done = cursor = 0  # behind the last line that was changed; behind the last hunk
    for hunk in _hunks(lines):
        if cursor and not hunk.headers:
            raise _wrong(f"Invalid Line: a hunk without '@@' follows another: {hunk.lines[:1]}")
        at = _place(text, hunk, _after_anchors(text, hunk, cursor))
        cursor = at + len(hunk.old)
        first, last = hunk.changed
        begin, end = at + first, cursor - last
        if begin < done and first + last < len(hunk.lines):
            raise _wrong(f"Overlapping Hunk {begin}: an earlier one has changed its lines")
        if first + last < len(hunk.lines):
            made += text[done:begin]
            made += hunk.rewritten(text[begin:end])
            done = end
    return newline.join([*made, *text[done:]])


def _created(lines: Sequence[str]) -> list[str]:
    made: list[str] = []
    for line in lines:
        if line.startswith(_ENDS):
            break
        if not line.startswith("+"):
            raise _wrong(f"Invalid Add File Line: {line!r} does not begin with '+'")
        made.append(line[1:])
    return made


def _hunks(lines: Sequence[str]) -> list[_Hunk]:
    found: list[_Hunk] = []
    current: _Hunk | None = None
    for line in lines:
        if line.startswith(_ENDS) or line == "***":
            break
        if line == _END_OF_FILE:
            if current is None or current.is_at_end:
                break
            current.is_at_end = True
            continue
        if line.startswith("***"):
            raise _wrong(f"Invalid Line: {line!r}")
        is_header = line == "@@" or line.startswith("@@ ")
        if current is None or current.is_at_end or (is_header and current.lines):
            current = _Hunk()
            found.append(current)
        if is_header:
            current.headers += 1
            current.anchors += [line[3:]] if line[3:].strip() else []
        elif line[:1] in ("", " ", "+", "-"):
            current.lines.append((line[:1] or " ", line[1:]))
        else:
            raise _wrong(f"Invalid Line: {line!r} does not begin with ' ', '+', '-' or '@@'")
    empty = next((hunk for hunk in found if not hunk.lines and not hunk.is_at_end), None)
    if empty is not None:
        raise _wrong(f"Nothing in this section: {empty.anchors}")
    return found


def _after_anchors(text: Sequence[str], hunk: _Hunk, start: int) -> int:
    """Return the line after a hunk's anchors; one alone may be missing, several may not."""
    at = start
    for number, anchor in enumerate(hunk.anchors):
        is_passed = number == 0 and any(line.strip() == anchor.strip() for line in text[:start])
        exactly = number == 0 and anchor in text[:start]
        place = None if exactly else _find_line(text, anchor, at, is_loose=not is_passed)
        if place is not None:
            at = place + 1
        elif not is_passed and hunk.headers > 1:
            raise _wrong(f"Invalid Anchor {at}: {anchor!r} is not in the text from there on")
    return at


def _find_line(text: Sequence[str], line: str, start: int, *, is_loose: bool) -> int | None:
    for same in (_LOOSER[0], _LOOSER[2]) if is_loose else (_LOOSER[0],):
        for place in range(start, len(text)):
            if same(text[place]) == same(line):
                return place
    return None


def _place(text: Sequence[str], hunk: _Hunk, start: int) -> int:
    """Return where a hunk's old lines are: from a line on, or at the end."""
    old, there = hunk.old, text
    begins = [start]
    if hunk.is_at_end:
        there = text[:-1] if text[-1] == "" else text  # what follows the last line end is no line
        begins = [max(len(there) - len(old), 0), start]
    for begin in begins:
        place = _find(there, old, begin)
        if place is not None:
            return place
    what = "Invalid EOF Context" if hunk.is_at_end else "Invalid Context"
    shown = "\n".join(old)
    raise _wrong(f"{what} {start}: the text has no such lines from there on:\n{shown}")


def _find(text: Sequence[str], old: Sequence[str], start: int) -> int | None:
    for same in _LOOSER:
        wanted = [same(line) for line in old]
        for place in range(start, len(text) - len(old) + 1):
            if [same(line) for line in text[place : place + len(old)]] == wanted:
                return place
    return None


def _wrong(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The diff cannot be applied: {why}.")
