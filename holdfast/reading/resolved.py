"""Steps with their archived texts put in, for those who read what was said in them."""

from __future__ import annotations

from typing import TypeVar

from holdfast.archive.contents import ReadText, resolve, resolve_message
from holdfast.task.data.records import JournalEntry, OpenState, Outcome, StepRecord
from holdfast.values.messages import Message

S = TypeVar("S", StepRecord, OpenState)


async def resolved(of: S, text: ReadText) -> S:
    """Put the archived texts of a step's messages and results into it.

    Args:
        of: The step.
        text: Reads a text of the archive, as `Reader.text`.
    """
    changes: dict[str, object] = {"journal": tuple([await _entry(e, text) for e in of.journal])}
    if isinstance(of, StepRecord):
        changes["adds"] = tuple([await _message(message, text) for message in of.adds])
        changes["outcomes"] = await _outcomes(of.outcomes, text)
        return of.model_copy(update=changes)
    known = await _outcomes(tuple(of.outcomes.values()), text)
    changes["outcomes"] = dict(zip(of.outcomes, known, strict=True))
    opened = of.open
    if opened.stored is not None:
        given = opened.step.model_copy(update={"input": await text(opened.stored)})
        changes["open"] = opened.model_copy(update={"step": given, "stored": None})
    if of.result is not None:
        adds = [a if isinstance(a, str) else await _message(a, text) for a in of.result.adds]
        changes["result"] = of.result.model_copy(update={"adds": tuple(adds)})
    return of.model_copy(update=changes)


async def _message(message: Message, text: ReadText) -> Message:
    return await resolve_message(message, text)


async def _entry(entry: JournalEntry, text: ReadText) -> JournalEntry:
    answer = entry.answer
    if answer is not None:
        answer = answer.model_copy(update={"message": await _message(answer.message, text)})
    outcomes = await _outcomes(entry.outcomes, text)
    return entry.model_copy(update={"answer": answer, "outcomes": outcomes})


async def _outcomes(outcomes: tuple[Outcome, ...], text: ReadText) -> tuple[Outcome, ...]:
    texts = [await resolve(outcome.content, text) for outcome in outcomes]
    return tuple(
        outcome.model_copy(update={"content": content})
        for outcome, content in zip(outcomes, texts, strict=True)
    )
