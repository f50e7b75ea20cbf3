"""Steps with their archived texts put in, for readers of their messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.archive.contents import ReadText, resolve_message
from holdfast.task.step_body import JournalPart, StepBody, StepCall
from holdfast.values.messages import Message

PartT = TypeVar("PartT", StepBody, JournalPart)


async def resolved(body: StepBody, text: ReadText) -> StepBody:
    """Put the archived texts of a step's messages and results into it.

    Args:
        body: The step.
        text: Reads a text of the archive, as `Reader.text`.
    """
    given = body.input
    adds = tuple([await resolve_message(message, text) for message in body.adds])
    return _with(
        body,
        input=None if given is None else await resolve_message(given, text),
        adds=adds,
        journal=tuple([await _part(part, adds, text) for part in body.journal]),
        calls=await _calls(body.calls, adds, text),
    )


async def _part(part: JournalPart, adds: Sequence[Message], text: ReadText) -> JournalPart:
    answer = part.answer
    if answer is not None:
        said = adds[part.at] if part.at is not None else await resolve_message(answer.message, text)
        if said is not answer.message:
            answer = answer.model_copy(update={"message": said})
    return _with(part, answer=answer, calls=await _calls(part.calls, adds, text))


async def _calls(
    calls: Sequence[StepCall], adds: Sequence[Message], text: ReadText
) -> tuple[StepCall, ...]:
    return tuple([await _call(call, adds, text) for call in calls])


async def _call(call: StepCall, adds: Sequence[Message], text: ReadText) -> StepCall:
    outcome, message = call.outcome, call.message
    if outcome is None or message is None:
        return call
    said = adds[outcome.at] if outcome.at is not None else await resolve_message(message, text)
    if said is call.said and said.content is outcome.content:
        return call
    whole = outcome.model_copy(update={"content": said.content})
    return replace(call, outcome=whole, said=said)


def _with(of: PartT, **found: Any) -> PartT:
    """Return a part of the record with these fields: itself, as in most steps, if it has them."""
    mine = vars(of)
    is_same = all(mine[name] == each for name, each in found.items())  # mostly the same objects
    return of if is_same else replace(of, **found)
