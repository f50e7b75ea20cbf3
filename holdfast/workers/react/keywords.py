"""Find the keywords of a ReAct reply, and the one that decides what kind of reply it is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

KeywordKind = Literal["thought", "action", "input", "answer", "observation"]


class Keyword(NamedTuple):
    """A keyword in a text.

    Attributes:
        kind: Which keyword.
        start: Position of its line or, inside of a line, of the keyword itself.
        end: Position of the text after it.
        mark: Markdown mark that was opened before it and not closed right after it, or empty.
    """

    kind: KeywordKind
    start: int
    end: int
    mark: str = ""


_COLON = "[:\N{FULLWIDTH COLON}]"
_AT_LINE = re.compile(
    r"^(?u:[^\S\n]|[>#+-])*(?:(?:\*[ \t]|•|[0-9]{1,3}[.)])[ \t]*)?(?P<mark>\*{1,3}|_{1,2}|`|)"
    r"(?P<word>(?:thought|action[ \t_]*input|action)(?:[ \t]*[0-9]+)?"
    r"|(?:final[ \t]+)?answer|observation)"
    rf"(?P<shut>(?P=mark))?[ \t]*{_COLON}(?(shut)|(?P<late>[ \t]*(?P=mark))?)",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_IN_LINE = re.compile(r"(?<=[\s.!?;,])(?P<word>Action|(?:Final )?Answer):")
INPUT_IN_LINE = re.compile(
    rf"[*_`]*Action[ \t_]*Input[*_`]*[ \t]*{_COLON}[*_`]*", re.IGNORECASE | re.ASCII
)
_THINK = "<think>"
_FENCE = re.compile(r"\s*```[^\n`]*\n")


def keywords(text: str, at: int = 0) -> Iterator[Keyword]:
    """Find the keywords that start a line, from `at` on."""
    for found in _AT_LINE.finditer(text, at):
        word = found["word"].lower()
        kind: KeywordKind = "observation"
        if "answer" in word:
            kind = "answer"
        elif "action" in word:
            kind = "input" if "input" in word else "action"
        elif "thought" in word:
            kind = "thought"
        closed = found["shut"] is not None or found["late"] is not None
        yield Keyword(kind, found.start(), found.end(), "" if closed else found["mark"])


def first_keyword(body: str) -> Keyword | None:
    """Find the keyword that decides the reply's kind; the thought, if there is no other keyword.

    Only a reply that begins with a thought and has no other keyword at a line's start may have one
    inside a line: models write "Thought: I know it. Answer: 42".
    """
    thought: Keyword | None = None
    for key in keywords(body):
        if key.kind != "thought":
            return key
        thought = thought or key
    if thought is None or body[: thought.start].strip():
        return thought
    return _inside_line(body, thought.end) or thought


def _inside_line(body: str, at: int) -> Keyword | None:
    for found in _IN_LINE.finditer(body, at):
        if found["word"] != "Action":
            return Keyword("answer", found.start(), found.end())
        if INPUT_IN_LINE.search(body, found.end(), line_end(body, found.end())):
            return Keyword("action", found.start(), found.end())
    return None


def after_thinking(text: str) -> str | None:
    """Remove the `<think>` blocks at a reply's beginning; None if the last one is still open."""
    while text.lstrip().startswith(_THINK):
        _, closed, text = text.partition("</think>")
        if not closed:
            return None
    return text


def may_be_thinking(text: str) -> bool:
    """Whether this text may be an incomplete `<think>` at a reply's beginning."""
    return _THINK.startswith(text.lstrip())


def after_echo(body: str) -> str:
    """Remove the observations at a reply's beginning, if another keyword follows.

    Some models repeat the observation that they got before they go on.
    """
    found = list(itertools.takewhile(lambda key: key.kind == "observation", keywords(body)))
    if not found or body[: found[0].start].strip():
        return body
    following = next(keywords(body, found[-1].end), None)
    return body if following is None else body[following.start :]


def is_wrapped(text: str) -> bool:
    """Whether a code fence is opened around the whole reply, rather than inside of an answer."""
    fence = _FENCE.match(text)
    if fence is None:
        return False
    key = next(keywords(text, fence.end()), None)
    return key is not None and not text[fence.end() : key.start].strip()


def unwrapped(text: str) -> str:
    """Remove a code fence around the whole reply."""
    fence = _FENCE.match(text)
    if fence is None or not is_wrapped(text):
        return text
    body = text[fence.end() :].rstrip()
    fences = re.findall(r"^[ \t]*```", body, re.MULTILINE)
    last = body.rpartition("\n")[2].strip()
    return body[: -len(last)] if last == "```" and len(fences) % 2 else body


def line_end(body: str, at: int) -> int:
    """Return the end of the line that `at` is on."""
    end = body.find("\n", at)
    return len(body) if end < 0 else end
