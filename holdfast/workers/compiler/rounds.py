"""Results of the plans made for one request, round by round, and their text for the model."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.values.base import Value
from holdfast.workers.compiler.prompts import NO_PLAN, NO_RESULTS, RESULTS


class CallResult(Value):
    """Result of one call of a plan.

    Attributes:
        call: The call, as a line of the plan.
        content: Its result as text.
        is_error: Whether the result is an error.
    """

    call: str
    content: str = ""
    is_error: bool = False


class Round(Value):
    """One plan and its results.

    Attributes:
        version: Number of the plan in its task, from 1.
        results: The results of its calls, in the order of the plan.
        problems: Why no plan could be read; empty when one could.
        reason: Why another plan was wanted after it.
    """

    version: int
    results: tuple[CallResult, ...] = ()
    problems: tuple[str, ...] = ()
    reason: str = ""


def results_text(rounds: Sequence[Round]) -> str:
    """List the results of all rounds for the model, oldest first."""
    return "\n\n".join((RESULTS, *map(_round_text, rounds)))


def _round_text(each: Round) -> str:
    lines = [f"Plan {each.version}:"]
    for result in each.results:
        lines += [result.call, f"{'error' if result.is_error else 'result'}: {result.content}"]
    if not each.results:
        lines += [NO_PLAN, *each.problems] if each.problems else [NO_RESULTS]
    if each.reason:
        lines.append(f"Why another plan was wanted: {each.reason}")
    return "\n".join(lines)
