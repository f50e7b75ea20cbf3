"""Model calls of a step: settings, tool choice, the digest of a request, checks of answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

from holdfast.errors import HoldfastError, ModelBehaviorError, StalledTaskError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.openai.item_checks import kind_of
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.head import Dialect, TaskHead
from holdfast.values.base import ChainRef, Json, canonical, digest
from holdfast.values.messages import Message, ToolCall, system
from holdfast.values.settings import ModelSettings
from holdfast.values.steps import HistoryRef

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


LAST_CALL = system(
    "The budget of this task is used up. Answer now, without tools: say what is known, what is"
    " missing, and that the budget ended the work."
)
"""Message of the last call that the budget allows."""


def settings_within(agent: AgentSnapshot, head: TaskHead, tokens: int) -> ModelSettings:
    """Return the agent's settings, with no more output tokens than the budget has left.

    Args:
        agent: The agent.
        head: The task's head, whose settings lie over the agent's.
        tokens: Output tokens that are left; 0 for no limit.
    """
    settings = agent.settings.resolve(head.settings)
    if not tokens:
        return settings
    most = min(tokens, settings.max_tokens or tokens)
    return settings.model_copy(update={"max_tokens": most})


def own_choice(agent: AgentSnapshot, head: TaskHead, *, used_tools: bool) -> str | None:
    """Return the tool choice of an agent's settings, for as long as it stands."""
    if used_tools and not agent.keeps_tool_choice:
        return None
    return agent.settings.resolve(head.settings).tool_choice


def request_digest(
    request: ModelRequest,
    *,
    agent: AgentSnapshot,
    head: TaskHead,
    at: ChainRef | None,
    view: HistoryRef | None,
    adds: Sequence[Message],
) -> str:
    """Digest of all that decides the answer to a request.

    The transcript enters by the digest of its chain, so that the cost of a call does not grow with
    the conversation; messages that the AgentWorker chose itself enter whole.

    Args:
        request: The request.
        agent: The agent, whose instructions and tools are not repeated.
        head: The task's head.
        at: The transcript before the step; None when the AgentWorker chose the messages.
        view: The conversation that a handoff made, if one did.
        adds: Messages that the step has added.
    """
    asked: dict[str, Json] = {
        "agent": head.snapshot,
        "model": request.model,
        "choice": request.tool_choice,
        "messages": [m.wire() for m in (request.messages if at is None else adds)],
    }
    if at is not None:
        asked["at"] = at.digest
    if at is not None and view is not None:
        asked["history"] = view.wire()
    if request.instructions != agent.instructions:
        asked["instructions"] = request.instructions
    if request.tools != agent.tools:
        asked["tools"] = [tool.wire() for tool in request.tools]
    if request.output is not None:
        asked["output"] = request.output.wire()
    return digest(canonical(asked))[:16]
