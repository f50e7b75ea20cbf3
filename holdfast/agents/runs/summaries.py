"""What `print` shows of a run: a few lines, whatever the run has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import AgentsException
from holdfast.values.text.terminal import printable

LONGEST_OUTPUT = 500
"""Characters of a final output that are shown."""

LONGEST_WAIT = 200
MOST_WAITS = 5
"""Descriptions of what the run waits for that are shown."""


def summary(data: Any, title: str) -> str:
    """Return a short description of a run, of one line for each fact.

    Args:
        data: The run: a RunResult, or the RunData of an error, which have no final output.
        title: What it is.
    """
    output: Any = getattr(data, "final_output", None)
    asked = [f"{each.qualified_name} {each.arguments or ''}" for each in data.interruptions]
    waits: Sequence[str] = getattr(data, "waiting_for", ()) or asked
    lines = [
        f"{title}:",
        f"task: {data.task_id or 'none'}",
        f"last agent: {_last_agent(data)}",
        f"final output{_type(output)}: {_beginning(output, LONGEST_OUTPUT)}",
        f"new items: {len(data.new_items)}",
        f"raw responses: {len(data.raw_responses)}",
        f"guardrail results: {_guardrails(data)}",
    ]
    if data.interruptions:
        lines.append(f"interruptions: {len(data.interruptions)}")
    lines += [f"waits for: {_beginning(each, LONGEST_WAIT)}" for each in waits[:MOST_WAITS]]
    if len(waits) > MOST_WAITS:
        lines.append(f"waits for: {len(waits) - MOST_WAITS} more")
    return "\n  ".join(lines)


def _last_agent(data: Any) -> str:
    try:
        return str(data.last_agent.name)
    except AgentsException:
        return "released"
    except AttributeError:  # a result made by hand may have none
        return "none"


def _type(output: Any) -> str:
    return "" if output is None else f" ({type(output).__name__})"


def _beginning(value: Any, longest: int) -> str:
    """Return the beginning of a value's text on one line, as a terminal can show it."""
    try:
        text = "none" if value is None else str(value)
    except Exception:  # noqa: BLE001  the __str__ of a user's class may raise anything
        return "it cannot be shown"
    line = " ".join(text[: 2 * longest].split())
    if len(line) > longest or len(text) > 2 * longest:
        line = f"{line[:longest]}… [{len(text)} characters]"
    return printable(line)


def _guardrails(data: Any) -> str:
    counts: dict[str, list[Any]] = {
        "input": data.input_guardrail_results,
        "output": data.output_guardrail_results,
        "tool input": data.tool_input_guardrail_results,
        "tool output": data.tool_output_guardrail_results,
    }
    return ", ".join(f"{len(each)} {kind}" for kind, each in counts.items() if each) or "none"
