"""Read a model's ReAct reply: an action, an answer, or the reason why it cannot be read.

    reply  := action | answer | bare
    action := [thought] "Action:" name "Action Input:" object
            | [thought] "Action:" name "(" object or name=value pairs ")"
    answer := [thought] "Answer:" text
    bare   := text without any keyword: all of it is the answer

A keyword counts at the start of a line, in any case, with markdown around it. The first one decides
between action and answer. An answer goes on to the end of the reply. Any text behind an action's
arguments was made up by the model and is cut off, and so are a `<think>` block and observations at
the reply's beginning. After an action named "None", an answer that follows it counts.

Source: the reply format of ReAct, arXiv:2210.03629, with arguments as JSON.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Literal, NamedTuple

from holdfast.values.base import Json, Value
from holdfast.values.checks.lenient_json import NotReadableError, Read, read_keywords, read_value
from holdfast.values.messages import clean
from holdfast.workers.react.keywords import (
    INPUT_IN_LINE,
    Keyword,
    after_echo,
    after_thinking,
    first_keyword,
    keywords,
    line_end,
    unwrapped,
)

LONGEST_QUOTE = 80
QUOTED_AFTER = 24
LONGEST_LEAD_IN = 200
"""Most characters between "Action Input:" and its object, as in "the arguments are: {...}"."""

NO_INPUT = 'there is no "Action Input:" line; it is needed also by a tool without arguments: {}'


class Action(Value):
    """The model wants to use a tool.

    Attributes:
        thought: The reasoning before; may be empty.
        tool: Tool name as written, without markdown.
        arguments: The arguments as the text of a JSON object.
        said: The part of the reply that was read; the rest is discarded.
    """

    kind: Literal["action"] = "action"
    thought: str = ""
    tool: str
    arguments: str
    said: str = ""


class Answer(Value):
    """The model has its answer.

    Attributes:
        thought: The reasoning before; may be empty.
        text: The answer, never empty.
        said: The part of the reply that was read.
    """

    kind: Literal["answer"] = "answer"
    thought: str = ""
    text: str
    said: str = ""


class ParseFailure(Value):
    """The reply is neither action nor answer, or its arguments cannot be read exactly.

    Attributes:
        text: What is wrong, as a message for the model.
        said: The reply up to the first observation that the model made up.
    """

    kind: Literal["failure"] = "failure"
    text: str
    said: str = ""


Parsed = Action | Answer | ParseFailure

_BEFORE_OBJECT = re.compile(
    r"(?:\s|\*|`+(?:json[5c]?|python|py|javascript|js)?(?=[\s{`]))*(?:json(?=\s*\{))?\s*",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(r"[^\"'\[\]{}()0-9]*[:=][\s`*]*(?:json)?\s*", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?:^|[\n,])[\s`*>•-]*(?P<name>[\w$.-]+)[\s`*]*[:=]")
_INPUT_NAMES = {"json", "input", "arguments", "args", "parameters"}
_GOES_ON = re.compile(r"[ \t`*]*[,:}\"']|\s*,")
_AROUND_NAME = " \t\r\N{NO-BREAK SPACE}*`\"'"
_NOTHING = {"", "none", "null", "n/a", "{}"}
"""Words of models for "no action", and for its input and observation, in lower case."""


def parse(text: str) -> Parsed:
    """Read a model's reply. Pure, and never raises."""
    reply = after_thinking(clean(text))
    if reply is None:
        return ParseFailure(text="the reply ends before its </think>")
    body = after_echo(unwrapped(reply))
    if not body.strip():
        return ParseFailure(text="the reply is empty")
    key = first_keyword(body)
    if key is None:
        return Answer(text=body.strip(), said=body.strip())
    match key.kind:
        case "action":
            return _action(body, key)
        case "answer":
            return _answer(body, key, key.start)
        case "input":
            return _failure(body, 'there is an "Action Input:" without an "Action:" before it')
        case "observation" | "thought":
            return _failure(body, 'there is neither an "Action:" nor an "Answer:"')


def _thought(before: str) -> str:
    """Return the reasoning before a keyword, without its own keyword."""
    text = before.strip()
    key = next(keywords(text), None)
    if key is None or key.start:
        return text
    text = text[key.end :].strip()
    return text.replace(key.mark, "", 1) if key.mark else text


def _failure(body: str, problem: str, at: int = 0) -> ParseFailure:
    made_up = next((k.start for k in keywords(body, at) if k.kind == "observation"), len(body))
    return ParseFailure(text=problem, said=body[:made_up].strip())


def _answer(body: str, key: Keyword, thought_end: int) -> Parsed:
    text = body[key.end :].strip()
    if key.mark:
        text = text.replace(key.mark, "", 1).strip()
    if not text:
        return _failure(body, 'there is nothing after "Answer:"')
    return Answer(thought=_thought(body[:thought_end]), text=text, said=body.strip())


# ---- actions


class _Unreadable(NamedTuple):
    """Arguments next to a tool name that cannot be read.

    Attributes:
        text: What is wrong with them.
    """

    text: str


class _Head(NamedTuple):
    """The line of "Action:".

    Attributes:
        tool: The tool's name.
        inline: The arguments in parentheses or braces next to the name, or None.
        end: Position where an "Action Input:" line may begin.
        input: Position of an input on the same line, or -1.
    """

    tool: str
    inline: Read | _Unreadable | None
    end: int
    input: int


def _action(body: str, key: Keyword) -> Parsed:
    head = _head(body, key)
    if not head.tool:
        return _failure(body, 'there is no tool name after "Action:"')
    answer = _answer_instead(body, head)
    if answer is not None:
        return _answer(body, answer, key.start)
    at = head.input
    if at < 0:
        following = next(keywords(body, head.end), None)
        at = following.end if following is not None and following.kind == "input" else -1
    given = _input(body, at) if at >= 0 else None
    arguments = _chosen(head.inline, given)
    if isinstance(arguments, str):
        return _failure(body, arguments, max(at, head.end))
    return Action(
        thought=_thought(body[: key.start]),
        tool=head.tool,
        arguments=_as_json(arguments.value),
        said=body[: _after_fence(body, arguments.end)].strip(),
    )


def _answer_instead(body: str, head: _Head) -> Keyword | None:
    """Find the answer after an action such as "None", if only thoughts are in between."""
    given = isinstance(head.inline, Read) and head.inline.value
    if head.tool.lower() not in _NOTHING or head.input >= 0 or given:
        return None
    following = list(keywords(body, head.end))
    for key, then in itertools.pairwise([*following, None]):
        if key is None or key.kind in ("answer", "action"):
            return key if key and key.kind == "answer" else None
        section = body[key.end : then.start if then else len(body)].strip(" \t\r\n*`.")
        if key.kind != "thought" and section.lower() not in _NOTHING:
            return None
    return None


def _chosen(inline: Read | _Unreadable | None, given: Read | str | None) -> Read | str:
    """Choose between the arguments next to the name and those of the input, or return the problem.

    If the input has arguments, a parenthesis that cannot be read is a remark, as in
    `add (adds numbers)`; if the input is empty, the parenthesis may be the arguments.
    """
    if given is None:
        match inline:
            case None:
                return NO_INPUT
            case _Unreadable(text=text):
                return text
            case _:
                return inline
    if isinstance(given, str) or inline is None:
        return given
    if isinstance(inline, _Unreadable):
        return given if given.value else inline.text
    if inline.value and given.value and inline.value != given.value:
        return "the arguments are given twice, next to the tool name and as input, and differ"
    return given._replace(value=given.value or inline.value)


def _head(body: str, key: Keyword) -> _Head:
    begin = _name_start(body, key.end)
    end = line_end(body, begin)
    same_line = INPUT_IN_LINE.search(body, begin, end)
    stop = same_line.start() if same_line else end
    opening = re.compile(r"[({]").search(body, begin, stop)
    name = body[begin : opening.start() if opening else stop]
    inline = _inline(body, opening.start()) if opening else None
    if isinstance(inline, Read) and not same_line:
        end = max(end, inline.end)
    return _Head(_tool(name), inline, end, same_line.end() if same_line else -1)


def _tool(name: str) -> str:
    """Remove markdown, quotes and other marks around a tool name."""
    name = name.strip(_AROUND_NAME).rstrip(".,:;\N{IDEOGRAPHIC FULL STOP}" + _AROUND_NAME)
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1].strip(_AROUND_NAME)
    return name.removeprefix("functions.")


def _name_start(body: str, at: int) -> int:
    """Find the line of the name: the keyword's own, or the next line that is not blank."""
    while at < len(body):
        end = line_end(body, at)
        line = body[at:end]
        if line.strip(_AROUND_NAME):
            following = next(keywords(body[:end], at), None)
            return len(body) if following is not None and following.start == at else at
        at = end + 1
    return len(body)


def _inline(body: str, at: int) -> Read | _Unreadable:
    try:
        return _object(body, at) if body[at] == "{" else read_keywords(body, at + 1)
    except NotReadableError as problem:
        return _Unreadable(f"the arguments next to the tool name cannot be read: {problem}")


def _object(body: str, at: int) -> Read:
    """Read an object, and refuse one that goes on after its last brace, or a part would be lost."""
    found = read_value(body, at)
    after = _GOES_ON.match(body, found.end)
    if after is not None:
        msg = f"it goes on after its last brace with {body[after.end() - 1 :][:QUOTED_AFTER]!r}"
        raise NotReadableError(msg)
    return found


def _input(body: str, at: int) -> Read | str:
    """Read the object after "Action Input:", or return the problem."""
    before = _BEFORE_OBJECT.match(body, at)
    begin = before.end() if before else at
    if body[begin : begin + 1] != "{":
        next_key = next(keywords(body, at), None)
        section = body[at : next_key.start if next_key else len(body)]
        brace = section.find("{")
        if not 0 <= brace <= LONGEST_LEAD_IN or not _is_lead_in(section[:brace]):
            return _not_an_object(section.strip())
        begin = at + brace
    try:
        return _object(body, begin)
    except NotReadableError as problem:
        return f"the action input is not a readable JSON object: {problem}"


def _is_lead_in(text: str) -> bool:
    """Distinguish a lead-in ("the arguments are:") from the name of one argument ("trip =")."""
    names = (found["name"].lower() for found in _ASSIGNED.finditer(text))
    return _LEAD_IN.fullmatch(text) is not None and all(name in _INPUT_NAMES for name in names)


def _not_an_object(section: str) -> str:
    if not section:
        return "the action input is empty; write {} if the tool needs no arguments"
    shown = section if len(section) <= LONGEST_QUOTE else f"{section[:LONGEST_QUOTE]}…"
    return (
        "the action input must be one JSON object that names each argument, as in"
        f' {{"argument": "value"}}, but it begins with: {shown}'
    )


def _after_fence(body: str, at: int) -> int:
    """Return the position behind the marks that close a fence or a parenthesis."""
    closing = re.compile(r"[\s`)*]*").match(body, at)
    return closing.end() if closing else at


def _as_json(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Half of a character has no UTF-8 form: only its escape can be stored.
    return json.dumps(value) if any("\ud800" <= c <= "\udfff" for c in text) else text
