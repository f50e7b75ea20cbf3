"""Ids of tool calls that an answer has in common with an earlier turn of its task.

The rules are those of the OpenAI Agents SDK (0.22): a call that is made once more has its result
already, and an id names one call only. They hold where ids are unique: other providers count the
calls of each answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.models.base import Delta, ModelAnswer, Tell
from holdfast.models.openai.hosted_items import APPROVAL_REQUEST
from holdfast.models.openai.item_contents import kind_of
from holdfast.models.openai.items import assistant_message, shown_items
from holdfast.values.base import Json, sense
from holdfast.values.messages import Message, ToolCall


def without_repeated(answer: ModelAnswer, transcript: Sequence[Message]) -> ModelAnswer:
    """Leave out calls of earlier turns, or say why the task cannot go on with an answer.

    Args:
        answer: The answer.
        transcript: The task's messages before it.

    Returns:
        The answer; without the calls that are in the transcript, whose ids `repeated` has, and the
        reasoning that leads to them; with a `flaw` if a call has no id, or that of another call.
    """
    calls = answer.message.calls
    nameless = next((call for call in calls if not call.id), None)
    if nameless is not None:
        return _flawed(answer, f"A call of {nameless.name!r} lacks a non-empty string call ID.")
    wanted = {call.id for call in calls}
    earlier = {e.id: e for said in transcript if said.calls for e in said.calls if e.id in wanted}
    again = [call for call in calls if call.id in earlier]
    for call in again:
        if _content(call) != _content(earlier[call.id]):
            return _flawed(
                answer,
                f"A call of {call.name!r} has the id {call.id!r} of an earlier call of"
                f" {earlier[call.id].name!r}, which was another one. Each call needs a unique call"
                " ID.",
            )
    if not again:
        return answer
    repeated = tuple(dict.fromkeys(call.id for call in again))
    kept = _without(shown_items([answer.message]), repeated)
    return answer.model_copy(update={"message": assistant_message(kept), "repeated": repeated})


def unrepeated(tell: Tell, messages: Iterable[Message]) -> Tell:
    """Return a `tell` that passes on no pieces of calls that earlier messages have.

    The recorded answer lacks them, and readers compare it with the pieces that they were told.
    """
    earlier = {call.id for message in messages for call in message.calls}
    left_out: set[int] = set()

    def told(delta: Delta) -> None:
        if delta.kind == "call":
            (left_out.add if delta.id in earlier else left_out.discard)(delta.place)
        if delta.kind not in ("call", "arguments") or delta.place not in left_out:
            tell(delta)

    return told


def _flawed(answer: ModelAnswer, reason: str) -> ModelAnswer:
    return answer.model_copy(update={"flaw": f"{reason} No call of the answer was run."})


def _content(call: ToolCall) -> tuple[str, ...]:
    return (call.name, call.kind, call.server, sense(call.arguments))


def _without(items: Sequence[dict[str, Json]], ids: Sequence[str]) -> list[dict[str, Json]]:
    """Leave out calls, and the reasoning right before each: an API wants what it led to as well."""
    kept: list[dict[str, Json]] = []
    for item in items:
        if item.get("id" if kind_of(item) == APPROVAL_REQUEST else "call_id") not in ids:
            kept.append(item)
            continue
        while kept and kind_of(kept[-1]) == "reasoning":
            kept.pop()
    return kept
