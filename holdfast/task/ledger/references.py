"""References inside a step: how its result names what history holds already, and what they mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import (
    Handed,
    JournalEntry,
    OpenState,
    OpenStep,
    StepRecord,
    StepResult,
)
from holdfast.task.data.wire import Advanced
from holdfast.values.base import Json, canonical, digest
from holdfast.values.messages import (
    Blob,
    Content,
    Message,
    TextPart,
    ToolCall,
    Usage,
    shown,
    summed,
    user,
)

SAID_IN_ADDS = Message(role="tool")
"""Represents in a step record a message that its `adds` hold."""


NOTES_APART = 100
"""Most notes that a step gets as they were said; of more, neighbours of one role are joined."""


def joined(notes: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join notes when there are very many: thousands of messages are no conversation."""
    if len(notes) <= NOTES_APART:
        return notes
    groups = itertools.groupby(notes, key=lambda note: (note.role, isinstance(note.content, str)))
    found: list[Message] = []
    for (role, is_text), group in groups:
        said = list(group)
        one = [Message(role=role, content="\n\n".join(note.text for note in said))]
        found += one if is_text else said
    return tuple(found)


def resolve_adds(result: StepResult, current: OpenState) -> tuple[Message, ...]:
    """Replace references to what history holds already by the messages themselves."""
    return tuple([resolve_add(add, current) for add in result.adds])


def resolve_add(add: Message | str, current: OpenState) -> Message:
    """Replace one reference by its message."""
    if isinstance(add, Message):
        return add
    if add == "input":
        return input_message(current.open)
    if add.startswith("n"):
        return current.open.notes[int(add[1:])]
    entry, call = place_of(add)
    if call is not None:
        found = current.journal[entry]
        return found.outcomes[call].message(found.calls[call])
    return answer_of(current.journal[entry].answer).message


def input_message(opened: OpenStep) -> Message:
    """Return a step's input as the message that history holds; an empty one when it has none."""
    stored, images = opened.stored, opened.step.images
    if stored is None:
        return opened.step.message() or user("")
    text = TextPart(kind="text", text="", stored=stored)
    content: Content = (text, *images) if images else stored
    return Message(role="user", content=content)


def resolve_calls(result: StepResult, current: OpenState) -> tuple[ToolCall, ...]:
    """Replace a reference to an answer by its calls."""
    if not isinstance(result.calls, str):
        return result.calls
    return answer_of(current.journal[place_of(result.calls)[0]].answer).message.calls


def resolve_output(result: StepResult, current: OpenState) -> tuple[Json, Blob | None]:
    """Replace an echo of the newest answer by its text, or by where its text is stored."""
    if not result.echo:
        return result.output, result.stored
    message = answer_of(newest_answer(current.journal)).message
    return (None, message.content) if isinstance(message.content, Blob) else (message.text, None)


def output_of(current: OpenState) -> Handed | None:
    """Return the output of a step whose result and calls are all known."""
    result = current.result
    if result is None:
        return None
    if result.quiet:
        output, stored = output_of_calls([current.outcomes[i] for i in sorted(current.outcomes)])
    else:
        output, stored = resolve_output(result, current)
    return Handed(output=output, stored=stored)


def output_digest(record: StepRecord) -> str:
    """Digest by which a step's output is checked when it is handed to another step."""
    return record.stored.sha256 if record.stored else digest(canonical(record.output))


def results_of(
    current: OpenState, result: StepResult
) -> tuple[Json, Blob | None, tuple[Message, ...], tuple[Outcome, ...]]:
    """Return a step's output, where it is stored, its messages, and the outcomes of its calls.

    The messages of the calls have the contents of the outcomes, unless the step is quiet.
    """
    adds = resolve_adds(result, current)
    if not current.calls and not result.quiet:  # a plain answer
        return *resolve_output(result, current), adds, ()
    outcomes = tuple(current.outcomes[i] for i in range(len(current.calls)))
    if result.quiet:
        output, stored = output_of_calls(outcomes)
        return output, stored, adds, outcomes
    output, stored = resolve_output(result, current)
    said = zip(current.calls, outcomes, strict=True)
    first = len(adds)
    adds = (*adds, *(outcome.message(call) for call, outcome in said))
    emptied = tuple(
        outcome.model_copy(update={"content": "", "at": at})
        for at, outcome in enumerate(outcomes, start=first)
    )
    return output, stored, adds, emptied


def output_of_calls(outcomes: Sequence[Outcome]) -> tuple[Json, Blob | None]:
    """Make a step's output of the results of its calls."""
    if len(outcomes) == 1 and not outcomes[0].is_error:
        content = outcomes[0].content
        return (None, content) if isinstance(content, Blob) else (shown(content), None)
    results: list[Json] = [
        {"content": shown(o.content), "is_error": True} if o.is_error else shown(o.content)
        for o in outcomes
    ]
    return (results[0] if len(results) == 1 else results), None


def place_of(reference: str) -> tuple[int, int | None]:
    """Read "j<entry>" or "j<entry>.<call>"."""
    entry, _, call = reference.removeprefix("j").partition(".")
    return int(entry), int(call) if call else None


def new_entries(advanced: Advanced, *, last: bool) -> tuple[JournalEntry, ...]:
    """List what an activity adds to the journal, in the order in which it was made.

    Args:
        advanced: Its result.
        last: Whether the budget made its model call the last one.
    """
    stamp = {"attempts": advanced.attempts, "worker": advanced.worker}
    memos = advanced.memos
    if memos:
        memos = tuple(entry.model_copy(update=stamp) for entry in memos)
    if advanced.answer is None:
        return memos
    entry = JournalEntry(
        request=advanced.request,
        answer=advanced.answer,
        last=last,
        attempts=advanced.attempts,
        worker=advanced.worker,
    )
    return (*memos[: advanced.early], entry, *memos[advanced.early :])


def is_thought(advanced: Advanced, *, is_refused: bool) -> bool:
    """Whether an activity brings words of a model that are not those with which the task ends.

    Args:
        advanced: Its result.
        is_refused: Whether the step's result cannot be taken.
    """
    answer, result = advanced.answer, advanced.result
    if answer is None or not shown(answer.message.content).strip():
        return False
    return result is None or is_refused or not result.last


def without_adds(result: StepResult, current: OpenState) -> tuple[JournalEntry, ...]:
    """Leave out of the journal the messages that the record's `adds` hold."""
    journal = list(current.journal)
    for position, add in enumerate(result.adds):
        if not isinstance(add, str) or not add.startswith("j"):
            continue
        at, call = place_of(add)
        entry = journal[at]
        if call is not None:
            outcomes = list(entry.outcomes)
            outcomes[call] = outcomes[call].model_copy(update={"content": "", "at": position})
            journal[at] = entry.model_copy(update={"outcomes": tuple(outcomes)})
        elif entry.answer is not None:
            answer = entry.answer.model_copy(update={"message": SAID_IN_ADDS})
            journal[at] = entry.model_copy(update={"answer": answer})
    return tuple(journal)


def told(adds: Sequence[Message], call: ToolCall, outcome: Outcome) -> Message:
    """Return a call's result message, found by its place: providers may repeat the ids of calls.

    Args:
        adds: What the call's step adds to the transcript; empty while that is not known.
        call: The call.
        outcome: Its outcome.
    """
    return outcome.message(call) if outcome.at is None else adds[outcome.at]


def last_round(
    adds: Sequence[Message], calls: Sequence[ToolCall]
) -> tuple[dict[str, ToolCall], dict[str, str]]:
    """Find the newest message that asks for one of some calls, and the results that follow it.

    Earlier rounds of the step may have had calls of the same ids.

    Args:
        adds: What the step adds to the transcript.
        calls: The calls that were made together.

    Returns:
        The message's calls, and the texts of the results, both by id of the call.
    """
    ids = {call.id for call in calls}
    asking = [at for at, said in enumerate(adds) if any(call.id in ids for call in said.calls)]
    if not asking:
        return {}, {said.call_id: said.text for said in adds if said.role == "tool"}
    asked = {call.id: call for call in adds[asking[-1]].calls}
    after = adds[asking[-1] + 1 :]
    return asked, {said.call_id: said.text for said in after if said.role == "tool"}


def newest_answer(journal: Sequence[JournalEntry]) -> ModelAnswer | None:
    """Return the last model answer of a journal, if it has one."""
    for entry in reversed(journal):
        if entry.answer is not None:
            return entry.answer
    return None


def answer_of(answer: ModelAnswer | None) -> ModelAnswer:
    """Return the model answer of an entry that has one, or of a journal."""
    if answer is None:
        raise RuntimeError("the journal holds no model answer")
    return answer


def turns_of(journal: Sequence[JournalEntry]) -> int:
    """Count a journal's model calls."""
    return 0 if not journal else sum(entry.answer is not None for entry in journal)


def usage_of(journal: Sequence[JournalEntry], outcomes: Iterable[Outcome] = ()) -> Usage:
    """Sum the cost of a journal's model calls, and of the child tasks of its calls.

    Args:
        journal: The journal.
        outcomes: Outcomes of calls that are not in it.
    """
    costs: list[Usage] = []
    for entry in journal:
        if entry.answer is not None:
            costs.append(cost_of(entry.answer))
        if entry.outcomes:
            costs += [outcome.usage for outcome in entry.outcomes if outcome.child]
    for outcome in outcomes:
        if outcome.child:
            costs.append(outcome.usage)
    return summed(costs)


def cost_of(answer: ModelAnswer) -> Usage:
    """Return the cost of one model call; its failed attempts are requests that cost nothing."""
    failed, priced = answer.failed, answer.usage.priced
    counts = {"requests": 1 + failed, "priced": priced + failed if priced else 0}
    return answer.usage.model_copy(update=counts)
