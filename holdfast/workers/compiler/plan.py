"""Read the LLMCompiler's plans: from the model's text to a graph of calls that can be run.

Pure. A plan has one call per line, `3. search(query="$1")`, and ends with `join()`. It is read as a
whole before anything runs: every line must be readable, ids are unique, references lead to calls of
the plan, above or below, and there is no cycle.

Source: LLMCompiler, arXiv:2312.04511.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from holdfast.errors import HoldfastError
from holdfast.models.base import ToolSpec
from holdfast.values.base import Json, Value
from holdfast.values.steps import circle, in_order
from holdfast.workers.compiler.arguments import (
    Arguments,
    ArgumentsError,
    bind,
    parameter_names,
    read_arguments,
    written,
)
from holdfast.workers.compiler.references import LONGEST_ID, references

MOST_CALLS = 100
"""Most calls of one plan; a model that writes more is caught in a loop."""

JOIN = "join"
_DOLLAR = "a dollar sign in a text is written $$"
_LONGEST_QUOTE = 200
_LONGEST_CALL = 200
"""Most lines of one call."""

_CALL = re.compile(
    rf"\s*(?:[-*+]\s+)?[*`]*([0-9]{{1,{LONGEST_ID}}})\s*[.):][\s*`]*([^\W\d][\w.-]*)[*`]*\s*(\()"
)
_JOIN = re.compile(
    rf"\s*(?:[-*+]\s+)?[*`]*(?:[0-9]+\s*[.):][\s*`]*)?{JOIN}[*`]*\s*"
    r"(?:\((?P<given>.*)|[\s.;,`*]*(?:#.*|//.*|<[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>\s*)?)",
    re.IGNORECASE,
)
_END = re.compile(r"\s*</?[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>\s*", re.IGNORECASE)
_NO_CALL = re.compile(r"(?:```.*|#.*|thought\s*:.*|\W*(?:the )?plan\W*|)", re.IGNORECASE)
_AFTER_CALL = re.compile(
    r"[\s.,;`*]*(?:(?:#|//).*|<[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>\s*)?", re.IGNORECASE
)


class PlanError(HoldfastError):
    """A text that cannot be read as a plan. The model gets the problems and may write another.

    Attributes:
        problems: What is wrong, one line each, quoting what was written.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        """Join the problems to a text."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Call(Value):
    """One call of a plan.

    Attributes:
        id: Its number, from 0.
        tool: Tool name, as the model wrote it; the tool may not exist.
        arguments: Arguments by name; texts in them hold references.
        needs: Ids of the calls whose results it refers to, ascending.
    """

    id: int
    tool: str
    arguments: dict[str, Json] = Field(default_factory=dict)
    needs: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Write the call as a line of a plan."""
        given = ", ".join(f"{name}={written(value)}" for name, value in self.arguments.items())
        return f"{self.id}. {self.tool}({given})"


class Plan(Value):
    """A plan that can be run.

    Attributes:
        calls: The calls, each after the calls that it needs, otherwise in the order written.
        is_joined: Whether `join()` was written; without it, the text may have been cut off.
    """

    calls: tuple[Call, ...] = ()
    is_joined: bool = True

    def __str__(self) -> str:
        """Write the plan as a model would."""
        return "\n".join((*map(str, self.calls), f"{JOIN}()"))


class _Found(NamedTuple):
    """A call as it was written, before its tool and its references are resolved."""

    id: int
    tool: str
    given: Arguments
    line: str


def parse_plan(text: str, tools: Sequence[ToolSpec]) -> Plan:
    """Read a plan.

    `Thought:` lines, comments that begin with `#`, code fences and the text behind `join()` are
    skipped. `join()` alone is a plan without calls.

    Args:
        text: The model's text.
        tools: The tools on offer; arguments without names take theirs from the order of
            `properties` in a tool's schema. A call of any other tool stays in the plan: the task
            answers it, like every call of an unknown tool.

    Raises:
        PlanError: Something is wrong with it.
    """
    specs = {tool.name: tool for tool in tools}
    problems: list[str] = []
    found, is_joined = _read(text, specs, problems)
    calls: list[Call] = []
    for each in found:
        try:
            calls.append(_call(each, specs))
        except ArgumentsError as error:
            problems.append(f"{_quote(each.line)}: {error}")
    if not (calls or is_joined or problems):
        problems.append(f"there is no call in it; if no tool is needed, write only {JOIN}()")
    if problems:
        raise PlanError(problems)
    return plan_of(calls, is_joined=is_joined)


def plan_of(calls: Sequence[Call], *, is_joined: bool = True) -> Plan:
    """Make a plan of calls, each put behind the calls that it needs.

    Raises:
        PlanError: An id is used twice, a reference leads to no call, or calls wait for each other.
    """
    problems = list(_problems(calls))
    if problems:
        raise PlanError(problems)
    known = {call.id: call for call in calls}
    order = in_order({call.id: call.needs for call in calls})
    return Plan(calls=tuple(known[id] for id in order), is_joined=is_joined)


def _read(
    text: str, specs: Mapping[str, ToolSpec], problems: list[str]
) -> tuple[list[_Found], bool]:
    """Read line by line up to `join()`; return the calls, and whether there was a `join()`."""
    lines = text.replace("\r\n", "\n").split("\n")
    found: list[_Found] = []
    k = 0
    while k < len(lines):
        line = lines[k]
        k += 1
        if _is_join(line, specs):
            return found, True
        if _END.fullmatch(line):
            break
        if _NO_CALL.fullmatch(line.strip()):
            continue
        if len(found) >= MOST_CALLS:
            problems.append(f"it has more than {MOST_CALLS} calls")
            break
        try:
            each, used = _read_call(lines, k - 1, specs)
        except ArgumentsError as error:
            problems.append(f"{_quote(line)}: {error}")
            while error.is_open and k < len(lines) and not _begins(lines[k]):
                k += 1  # the lines of the unreadable call are not problems of their own
        else:
            found.append(each)
            k += used - 1
    return found, False


def _is_join(line: str, specs: Mapping[str, ToolSpec]) -> bool:
    """Whether a line ends the plan; with arguments it calls the tool `join`, if there is one."""
    found = _JOIN.fullmatch(line)
    if found is None:
        return False
    given = (found["given"] or "").strip()
    return JOIN not in specs or not given or given.startswith(")")


def _read_call(lines: Sequence[str], k: int, specs: Mapping[str, ToolSpec]) -> tuple[_Found, int]:
    """Read the call that begins in a line; return it and the number of its lines.

    Raises:
        ArgumentsError: The line is not a call, or the call is open when the next one begins.
    """
    head = _CALL.match(lines[k])
    if head is None:
        raise ArgumentsError('this is not a call; write it like 1. tool(name="value")')
    names = parameter_names(specs.get(head[2]))
    text = lines[k]
    for used in range(1, _LONGEST_CALL):
        try:
            given = read_arguments(text, head.start(3), names)
        except ArgumentsError as error:
            if not _goes_on(error, lines[k + used :]):
                raise
            text += "\n" + lines[k + used]
            continue
        if not _AFTER_CALL.fullmatch(text[given.end :]):
            raise ArgumentsError(f"there is more behind the call: {_quote(text[given.end :])}")
        return _Found(int(head[1]), head[2], given, lines[k]), used
    raise ArgumentsError(f"it goes on for more than {_LONGEST_CALL} lines", is_open=True)


def _goes_on(error: ArgumentsError, following: Sequence[str]) -> bool:
    """Whether the lines behind an incomplete call may belong to it.

    A text in triple quotes may hold lines that look like calls, such as a numbered list.
    """
    if not error.is_open or not following:
        return False
    if error.closer:
        return any(error.closer in line for line in following)
    return not _begins(following[0])


def _begins(line: str) -> bool:
    """Whether a line begins something new, so that an open call above it cannot go on."""
    if _CALL.match(line) or _JOIN.fullmatch(line) or _END.fullmatch(line):
        return True
    return bool(line.strip()) and _NO_CALL.fullmatch(line.strip()) is not None


def _call(found: _Found, specs: Mapping[str, ToolSpec]) -> Call:
    """Name a call's arguments, and find the calls that they refer to.

    Raises:
        ArgumentsError: The tool does not take these arguments, or a reference has too many digits.
    """
    arguments = bind(found.given, specs.get(found.tool), specs)
    needs: set[int] = set()
    for each in references(arguments):
        if len(each) > LONGEST_ID:
            raise ArgumentsError(_unknown(each))
        needs.add(int(each))
    return Call(id=found.id, tool=found.tool, arguments=arguments, needs=tuple(sorted(needs)))


def _problems(calls: Sequence[Call]) -> Iterator[str]:
    """Yield the graph's problems: ids used twice, unknown references, cycles."""
    ids = [call.id for call in calls]
    for id in sorted({id for id in ids if ids.count(id) > 1}):
        yield f"the id {id} is used {ids.count(id)} times; every call needs its own"
    for call in calls:
        for need in call.needs:
            if need not in ids:
                yield f"{_quote(str(call))}: {_unknown(need)}"
        if call.id in call.needs:
            yield f"{_quote(str(call))}: it needs its own result, ${call.id}; {_DOLLAR}"
    others = {call.id: set(call.needs) - {call.id} for call in calls}
    if ring := circle(others):
        waits = " needs ".join(f"${id}" for id in ring)
        yield f"the calls wait for each other: {waits}; {_DOLLAR}"


def _unknown(id: int | str) -> str:
    return f"there is no call ${id} in this plan; {_DOLLAR}"


def _quote(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")
