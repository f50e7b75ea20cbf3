"""Steps with their archived texts put in, for readers of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.archive.contents import ReadText, resolve_message
from holdfast.task.data.records import OpenState, StepRecord
from holdfast.task.step_body import JournalPart, StepBody, StepCall, body_of
from holdfast.values.code.collection import uncollected
from holdfast.values.messages import Message
from holdfast.values.runs.usage import CallCost

PartT = TypeVar("PartT", StepBody, JournalPart)

AT_ONCE = 32
"""Steps whose texts are read before other work of the event loop has its turn."""

LONG_STEPS = 64
"""A run of more steps is long: to make its result takes more than 10 ms."""


class Steps:
    """The steps of a task, of which the bodies are made when they are first asked for.

    Attributes:
        records: The steps as the ledger has them.
        whole: The same, if their bodies can be made of them alone, and that is little work; else
            empty.
    """

    def __init__(
        self,
        records: Sequence[StepRecord | OpenState],
        *,
        whole: Sequence[StepRecord] = (),
        bodies: list[StepBody] | None = None,
    ) -> None:
        """Take the steps.

        Args:
            records: The steps as the ledger has them.
            whole: The same, if they are completed, without archived texts, and not many.
            bodies: Their bodies with the archived texts put in, of other steps.
        """
        self.records = tuple(records)
        self.whole = tuple(whole)
        self._bodies = bodies

    def costs(self) -> Iterator[CallCost]:
        """Yield the cost of each model call that was answered in them, oldest first."""
        for of in self.records:
            for entry in of.journal:
                if entry.answer is not None:
                    yield CallCost(entry.answer.usage, entry.answer.failed)

    @property
    def bodies(self) -> list[StepBody]:
        """The steps as readers see them, archived texts put in."""
        if self._bodies is None:
            self._bodies = [body_of(of) for of in self.records]
        return self._bodies


async def resolved_steps(records: Sequence[StepRecord | OpenState], text: ReadText) -> Steps:
    """Put the archived texts into steps; what need not be made at once is left for later.

    Args:
        records: The steps as the ledger has them.
        text: Reads a text of the archive, as `Reader.text`.
    """
    whole = [of for of in records[:LONG_STEPS] if _is_whole(of)]
    if len(whole) == len(records):
        return Steps(records, whole=[of for of in whole if isinstance(of, StepRecord)])
    is_long = len(records) > LONG_STEPS
    made = await asyncio.to_thread(_bodies, records) if is_long else _bodies(records)
    bodies, unread = made
    for k, place in enumerate(unread, 1):
        bodies[place] = await resolved(bodies[place], text)
        if k % AT_ONCE == 0:
            await asyncio.sleep(0)
    return Steps(records, bodies=bodies)


def _bodies(records: Sequence[StepRecord | OpenState]) -> tuple[list[StepBody], list[int]]:
    """Make the bodies of steps; say which of them may have texts in the archive."""
    with uncollected():
        unread = [k for k, of in enumerate(records) if not _is_whole(of)]
        return [body_of(of) for of in records], unread


def _is_whole(of: StepRecord | OpenState) -> bool:
    """Whether this is a completed step in which there is nothing that `resolved` has to read."""
    if not isinstance(of, StepRecord):
        return False
    answers = (entry.answer for entry in of.journal if entry.answer is not None)
    said = (*of.adds, *(answer.message for answer in answers))
    if any(message.kept is not None for message in said):
        return False
    outcomes = (*of.outcomes, *(each for entry in of.journal for each in entry.outcomes))
    contents = (*(each.content for each in said), *(each.content for each in outcomes))
    return all(isinstance(content, str) for content in contents)


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
