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

Of a stream of such text the answer is shown once it is certain to be the answer.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import clean
from holdfast.values.checks.lenient_json import NotReadableError, Read, read_keywords, read_value

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


class AnswerFilter:
    """Takes a model's reply in pieces, and returns the pieces that certainly belong to the answer.

    The returned pieces, joined, are the text of the `Answer` that `parse` reads from the whole
    reply; for any other reply they are empty. So a thought, or a polite opening before an action,
    is never shown as the answer. A reply without keywords is known to be the answer only at its
    end, and is returned there in one piece; so is an answer after a repeated observation, or after
    an action such as "None".

    It sees the reply only: an answer that a tool returns directly, or that a worker makes at its
    limit, does not pass through it.
    """

    def __init__(self) -> None:
        """Begin a reply."""
        self._pieces: list[str] = []
        self._held = ""  # before the answer: from the last line's start; in it: not yet let through
        self._sent = 0
        self._state = "begin"

    def feed(self, delta: str) -> str:
        """Take the next piece of the reply; return the next certain piece of the answer.

        Args:
            delta: Text of any length, also empty.
        """
        self._pieces.append(delta)
        if self._state == "closed":
            return ""
        self._held += delta
        if self._state == "begin":
            self._pass_thinking()
        if self._state == "before":
            self._look_for_answer()
        return self._let_through() if self._state == "answer" else ""

    def finish(self) -> str:
        """End the reply; return the rest of the answer."""
        self._state = "closed"
        match parse("".join(self._pieces)):
            case Answer(text=text):
                return text[self._sent :]
            case _:
                return ""

    def _pass_thinking(self) -> None:
        """Wait until it is certain that no `<think>` block is open or about to begin."""
        rest = after_thinking(self._held)
        if rest is not None and not may_be_thinking(rest):
            self._held = rest
            self._state = "before"

    def _look_for_answer(self) -> None:
        """Search the new lines for the keyword that decides the reply's kind."""
        key = next((k for k in keywords(self._held) if k.kind != "thought"), None)
        if key is None:
            self._held = self._held[self._held.rfind("\n") + 1 :]
        elif key.kind != "answer":
            self._state = "closed"
        elif self._is_settled(key):
            self._held = self._held[key.end :]
            reply = after_thinking("".join(self._pieces)) or ""
            certain = not key.mark and not is_wrapped(reply)
            self._state = "answer" if certain else "closed"

    def _is_settled(self, key: Keyword) -> bool:
        """Whether the text behind the keyword can no longer be a part of its markdown."""
        rest = self._held[key.end :].lstrip()
        return bool(rest) and not (key.mark and key.mark.startswith(rest))

    def _let_through(self) -> str:
        """Return the held text without white space at its end, where the reply may end."""
        certain = self._held.rstrip()
        self._held = self._held[len(certain) :]
        certain = certain if self._sent else certain.lstrip()
        self._sent += len(certain)
        return certain
