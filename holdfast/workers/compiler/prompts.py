"""Prompts of LLMCompilerAgentWorker, for the planner and for the joiner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.models.base import ToolSpec
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text, is_array
from holdfast.workers.compiler.arguments import written
from holdfast.workers.compiler.references import Schema, wanted_types

PLANNER = """\
Plan the tool calls that are needed for the user's latest request. You do not run them: a scheduler
does, and starts each call as soon as the results that it refers to are there. Calls that do not
refer to each other run at the same time, so refer to a result only where it is really needed.

The tools:
{tools}

How a plan is written:
- One call per line: its number, a full stop, the tool's name, the arguments in parentheses. Nothing
  else stands on the line. Every number is used once.
- Arguments are given by name or in the order shown, as JSON or Python values; texts are quoted.
- $1 or ${{1}} stands for the result of call 1, alone or inside a text. A real dollar sign is
  written $$. Calls are not put into each other, and values are not computed on the line.
- You may write a line that begins with "Thought:" before a call.
- The last call is join(), without arguments: after it, what the calls gave is turned into an
  answer. If no tool can help, join() is the only call.
- The line behind join() is <END_OF_PLAN>.

For example, with tools measure(place, unit) and compare(left, right):
1. measure(place="the north tower", unit="m")
2. measure(place="the south tower", unit="m")
3. compare(left="$1", right="$2")
4. join()
<END_OF_PLAN>"""

JOINER = """\
Tool calls were made for the user's latest request, and their results are below. Decide whether
they are enough, and reply in exactly one of these two forms:

Thought: what the results say
Action: finish(the whole answer to the user)

Thought: what is missing
Action: replan(what the next tool calls should find out or do)

Rest the answer on the results only; do not make up what they do not say. A call that failed may be
worth another plan with other arguments, but not the same call again. The answer is written for the
user, who sees neither the plan nor the results."""

LAST_ROUND = """
No further plan can be made for this request: finish, and say what could not be found out."""

RESULTS = "What the tool calls for this request gave so far:"

PLAN_ON = """\
Plan only what is still needed. Numbers begin anew and the results above cannot be referred to:
write what you need of them into the arguments."""

USER_SAID_MORE = "The user has said more since it was made."

NO_RESULTS = "No tool was called."

UNREADABLE_PLAN = """\
This plan cannot be run, so none of it was:
{problems}
Write the whole plan again."""

NOT_OFFERED = "{call}: there is no such tool; the tools are: {names}"

CUT_OFF = "it was cut off before join(); plan fewer calls, or write less"

NO_PLAN = "No plan could be read from what the planner wrote, so no tool was called."

UNREADABLE_DECISION = """\
That was neither of the two forms. Reply with a line that begins with "Action: finish(" or with
"Action: replan("."""

MUST_FINISH = """\
No further plan can be made. Reply with a line that begins with "Action: finish(" and holds the best
answer that the results allow."""

NOT_RUN = "Not run: it needs the result of {ids}, which failed."

DROPPED = "Not run: the step was taken out of the queue."


def planner_instructions(own: str, tools: Sequence[ToolSpec]) -> str:
    """Append the planner's rules to the agent's own instructions."""
    return _behind(own, PLANNER.format(tools="\n".join(described(tool) for tool in tools)))


def joiner_instructions(own: str, *, is_last: bool) -> str:
    """Append the joiner's rules to the agent's own instructions."""
    return _behind(own, JOINER + (LAST_ROUND if is_last else ""))


def _behind(own: str, rules: str) -> str:
    return f"{own.strip()}\n\n{rules}" if own.strip() else rules


def described(tool: ToolSpec) -> str:
    """Describe a tool as the planner sees it: how it is called, then what it does."""
    properties = as_object(tool.parameters.get("properties"))
    required: Json = tool.parameters.get("required")
    needed = required if is_array(required) else []
    lines = [f"- {tool.name}({', '.join(_parameters(properties, needed, tool.parameters))})"]
    lines += [f"  {line}" for line in tool.description.strip().splitlines()]
    for name, schema in properties.items():
        about = as_text(as_object(schema).get("description"))
        if about:
            lines.append(f"  {name}: {about}")
    if _is_nested(properties):
        lines.append(f"  JSON Schema of the arguments: {written(tool.parameters)}")
    return "\n".join(lines)


def _parameters(properties: dict[str, Json], needed: Sequence[str], root: Schema) -> Iterable[str]:
    for name, given in properties.items():
        schema = as_object(given)
        types = " | ".join(sorted(wanted_types(schema, root))) or "any"
        default = f" = {written(schema['default'])}" if "default" in schema else ""
        mark = "" if name in needed or default else "?"
        yield f"{name}{mark}: {types}{default}"


def _is_nested(properties: dict[str, Json]) -> bool:
    """Whether the arguments need their JSON Schema, because names and types do not suffice."""
    text = written(list(properties.values()))
    return any(word in text for word in ('"$ref"', '"items"', '"properties"', '"enum"'))
