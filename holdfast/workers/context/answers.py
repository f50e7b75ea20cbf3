"""What a model's answer is read as before an AgentWorker gets it. Pure decisions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

from holdfast.errors import HoldfastError, ModelBehaviorError, StalledTaskError
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.item_checks import kind_of
from holdfast.task.data.head import Dialect
from holdfast.values.base import canonical
from holdfast.values.messages import ToolCall

UNANSWERED = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "local_shell_call",
        "mcp_approval_request",
        "program",
        "shell_call",
    }
)
"""Items that a provider refuses to go on without an answer to, and that nobody answers here."""


def read(answer: ModelAnswer, dialect: Dialect) -> ModelAnswer:
    """Leave out calls that are said twice, so that none is run twice.

    Providers take no conversation with two calls of one id. Where the model is told of what it does
    wrong, different calls of one id get ids of their own; elsewhere they stay, for the verdict.

    Args:
        answer: The answer as it came.
        dialect: The rules of the task.
    """
    calls = answer.message.calls
    if len({call.id for call in calls}) == len(calls):
        return answer
    apart = tuple(_apart(calls, renames=dialect.unknown_tool == "tell"))
    message = answer.message.model_copy(update={"calls": apart})
    return answer.model_copy(update={"message": message})


def usable(answer: ModelAnswer, dialect: Dialect, *, last: bool) -> ModelAnswer:
    """Return an answer with which the task can go on.

    Args:
        answer: The answer.
        dialect: Which API's rules apply.
        last: Whether it is the last one that the budget allows; that may be any.

    Raises:
        ModelBehaviorError: The task cannot go on with it, by the rules of the Agents SDK.
        StalledTaskError: It cannot, in the step API.
    """
    error = None if last else verdict(answer, dialect)
    if error is not None:
        raise error
    return answer


def verdict(answer: ModelAnswer, dialect: Dialect) -> HoldfastError | None:
    """Say why there is no going on with an answer, if there is none.

    By the rules of the Agents SDK that ends the run. In the step API the step waits to be started
    anew, and an answer that was cut off is one all the same if it says anything; its calls are not
    run.
    """
    raises = dialect.unknown_tool == "raise"
    reason = _reason(answer, raises=raises)
    if not reason:
        return None
    if raises:
        return ModelBehaviorError(reason)
    return StalledTaskError(f'{reason} run_step(task, restart="step") asks the model again.')


def _reason(answer: ModelAnswer, *, raises: bool) -> str:
    calls = answer.message.calls
    kinds = [kind_of(item) for item in answer.message.items]
    pending = next((kind for kind in kinds if kind in UNANSWERED), None)
    if pending is not None:
        return (
            f"The model's answer holds an item {pending!r}, which must be answered before the"
            " conversation goes on; agents here answer calls of functions."
        )
    if answer.is_incomplete and (raises or not (answer.text or calls)):
        remedy = (
            " Allow more in ModelSettings(max_tokens=...)." if answer.finish == "length" else ""
        )
        return f"The model's answer is incomplete: it was cut off ({answer.finish}).{remedy}"
    if len({call.id for call in calls}) < len(calls):
        return (
            "The model's answer holds different calls of one id, so their results could not be told"
            " apart. None was run."
        )
    return ""


def _apart(calls: Sequence[ToolCall], *, renames: bool) -> Iterator[ToolCall]:
    """Give each call once, those of a taken id with an id of their own if so wished."""
    said: set[tuple[str, str, str]] = set()
    taken = {call.id for call in calls}
    first = set(taken)
    for call in calls:
        content = (call.id, call.name, _sense(call.arguments))
        if content in said:
            continue
        said.add(content)
        if call.id in first or not renames:
            first.discard(call.id)
            yield call
            continue
        name = next(each for n in itertools.count(2) if (each := f"{call.id}_{n}") not in taken)
        taken.add(name)
        yield call.model_copy(update={"id": name})


def _sense(arguments: str) -> str:
    """Write arguments so that spaces and the order of members do not matter."""
    try:
        return canonical(json.loads(arguments)).decode()
    except (ValueError, RecursionError):
        return arguments
