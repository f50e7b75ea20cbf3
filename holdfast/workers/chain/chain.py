"""Read a chain of abstraction: a text with calls in it, whose results have names.

Pure. A call is written `[FUNC add(3, y1) = y2]`: the tool, its arguments and the name of its
result. Other calls, and the text around them, refer to it by that name.

Source: chain-of-abstraction reasoning, arXiv:2401.17464.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.models.base import ToolSpec
from holdfast.values.base import Json, Value
from holdfast.values.checks.json_shapes import is_array, is_object
from holdfast.workers.compiler.arguments import ArgumentsError, read_arguments
from holdfast.workers.compiler.binding import bind, parameter_names
from holdfast.workers.compiler.plan import MOST_CALLS, Call, Plan, PlanError, plan_of
from holdfast.workers.compiler.references import LONGEST_ID, references

_BEGIN = re.compile(r"\[\s*FUNC\s+([^\W\d][\w.-]*)\s*(\()", re.IGNORECASE)
_END = re.compile(rf"\s*(?:=|->)\s*\$?[yY]_?([0-9]{{1,{LONGEST_ID}}})\s*\]")
_NAME = re.compile(rf"(?<![\w$])[yY]_?([0-9]{{1,{LONGEST_ID}}})(?!\w)")


class Chain(Value):
    """A chain that can be run.

    Attributes:
        text: What the model wrote, each call replaced by the name of its result: `{y1}`.
        plan: The calls.
    """

    text: str = ""
    plan: Plan = Plan()

    def filled(self, results: Mapping[int, str]) -> str:
        """Return the text with results instead of their names.

        Args:
            results: Number of the name to result.
        """
        return re.sub(
            r"\{y([0-9]+)\}", lambda found: results.get(int(found[1]), found[0]), self.text
        )


def parse_chain(text: str, tools: Sequence[ToolSpec]) -> Chain:
    """Read a chain; a text without calls is one as well.

    Args:
        text: The model's text.
        tools: The tools on offer; arguments without names take theirs from the order of the schema.

    Raises:
        PlanError: A call cannot be read or run; each problem quotes what was written.
    """
    specs = {tool.name: tool for tool in tools}
    found: list[tuple[int, int, str, dict[str, Json], int]] = []  # begin, end, tool, arguments, id
    problems: list[str] = []
    at = 0
    while (head := _BEGIN.search(text, at)) is not None:
        at = head.end()
        try:
            spec = specs.get(head[1])
            given = read_arguments(text, head.start(2), parameter_names(spec))
            tail = _END.match(text, given.end)
            if tail is None:
                raise ArgumentsError("a call ends with the name of its result, as in = y1]")
            arguments = bind(given, spec, specs)
        except ArgumentsError as error:
            problems.append(f"{text[head.start() : head.start() + 80]!r}: {error}")
            continue
        at = tail.end()
        found.append((head.start(), tail.end(), head[1], arguments, int(tail[1])))
    problems += [f"there is no tool {tool!r}" for _, _, tool, _, _ in found if tool not in specs]
    if len(found) > MOST_CALLS:
        problems.append(f"it has more than {MOST_CALLS} calls")
    if problems:
        raise PlanError(problems)
    known = {number for *_, number in found}
    calls = [
        _call(number, tool, _referring(arguments, known)) for _, _, tool, arguments, number in found
    ]
    return Chain(text=_named(text, found, known), plan=plan_of(calls))


def _call(number: int, tool: str, arguments: Json) -> Call:
    needs = sorted({int(each) for each in references(arguments)})
    given = arguments if is_object(arguments) else {}
    return Call(id=number, tool=tool, arguments={**given}, needs=tuple(needs))


def _referring(value: Json, known: set[int]) -> Json:
    """Write names of results as references, `$1`; other dollar signs are escaped."""
    if isinstance(value, str):
        return _NAME.sub(
            lambda found: f"${{{int(found[1])}}}" if int(found[1]) in known else found[0],
            value.replace("$", "$$"),
        )
    if is_array(value):
        return [_referring(each, known) for each in value]
    if is_object(value):
        return {key: _referring(each, known) for key, each in value.items()}
    return value


def _named(
    text: str, found: Sequence[tuple[int, int, str, dict[str, Json], int]], known: set[int]
) -> str:
    """Replace each call, and each name of a result, by `{y1}`."""
    parts: list[str] = []
    at = 0
    for begin, end, _, _, number in found:
        parts += [_braced(text[at:begin], known), f"{{y{number}}}"]
        at = end
    return "".join((*parts, _braced(text[at:], known)))


def _braced(text: str, known: set[int]) -> str:
    return _NAME.sub(
        lambda found: f"{{y{int(found[1])}}}" if int(found[1]) in known else found[0], text
    )
