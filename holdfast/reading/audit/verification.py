"""Verifying tasks and sessions: whether the archive has what was recorded, and what proves it.

A session's workflow names the turns that the archive must have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from pydantic import ValidationError
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError

from holdfast.archive.archive import Archive, record_name
from holdfast.archive.named_values import Named, named
from holdfast.archive.segments import check_erased, read_messages, read_segment, turns_in_force
from holdfast.archive.session_commits import find_run
from holdfast.errors import (
    DAMAGED,
    ArchiveError,
    NoWorkerError,
    QueryFailedError,
    TaskClosedError,
    TaskNotFoundError,
    is_torn,
)
from holdfast.reading.audit.audit import Finding, verify
from holdfast.reading.queries import server_errors
from holdfast.reading.reader import Reader
from holdfast.reading.records import seal_of
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.records import (
    KEY_VARIABLE,
    Entry,
    OpenState,
    Seal,
    SegmentRef,
    check_signature,
    has_key,
    is_sealed,
    record_digest,
)
from holdfast.task.data.state import CommitRef, SessionState, TaskRecord
from holdfast.task.ledger.recording import CLOSED_EVENT
from holdfast.values.base import ChainRef, Json, extend, extend_json
from holdfast.values.checks.gate import as_object
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import Task

VALUES_AT_ONCE = 16

END_SECONDS = 60.0
"""Longest wait for the run of a closed task, which has but signals to send."""


class Verification(list[Finding]):
    """What is wrong with a record, nothing if it is intact, and what that rests on.

    Attributes:
        proved: What was proven, in sentences.
        unproved: What could not be, in sentences.
        checked: Values of the archive that were looked at, each once.
    """

    def __init__(self) -> None:
        """Begin with nothing found and nothing proven."""
        super().__init__()
        self.proved: list[str] = []
        self.unproved: list[str] = []
        self.checked: set[Named] = set()

    def add(self, text: str, *, step: str = "", branch: int = 0) -> None:
        """Add something that is wrong."""
        self.append(Finding(step=step, branch=branch, text=text))

    def cannot_read(self, what: str, error: Exception) -> None:
        """Add something that has the right digest and does not say what it has to."""
        self.add(f"{what} cannot be read: {type(error).__name__}: {str(error)[:300]}")


async def check_named(archive: Archive, values: Iterable[object], found: Verification) -> None:
    """Check that the archive has each value that recorded data names, unchanged.

    Lists of messages are read, because they name other values: texts and images.
    """
    todo = sorted(set(named(list(values))) - found.checked)
    while todo:
        found.checked.update(todo)
        check = partial(_check_one, archive, found)
        more = set[Named]().union(*await some_at_once(check, todo, VALUES_AT_ONCE))
        todo = sorted(more - found.checked)


async def _check_one(archive: Archive, found: Verification, name: Named) -> set[Named]:
    """Check one value of the archive; return what it names itself."""
    try:
        if name.holds_messages:
            return set(named(await read_messages(archive, name.sha256)))
        await archive.aget(name.sha256)
    except DAMAGED as error:
        found.add(f"a value that the record names is damaged: {error}")
    except (ValueError, TypeError) as error:
        found.cannot_read(f"the list of messages {name.sha256}", error)
    return set()


TURNS = "The turns of the session are those whose digests its workflow has, which Temporal keeps."
ANSWER_SECONDS = 10.0
"""How long the verification of a task waits for its session: there may be no worker process."""

NO_SESSION = "Temporal knows no session of this name: it has no turns, or was deleted."
SEEN = "What the task saw of its session, and what the session got of it, is as the session has it."

OTHER = "Session {!r} has other turns than the task saw: it was begun again."


class _Turn(NamedTuple):
    """A turn, or a reset, of a session.

    Attributes:
        number: Counted from 1.
        commit: The turn; None when the list that names it is damaged.
    """

    number: int
    commit: CommitRef | None


async def verified_session(reader: Reader, session_id: str) -> Verification:
    """Verify a session: its lists of turns, the turns in force, and the values that they name.

    Raises:
        NoWorkerError: No worker process is up to answer.
        ConnectError: The server could not be reached.
    """
    found = Verification()
    try:
        state = await reader.session(session_id)
    except TaskNotFoundError:
        found.unproved.append(NO_SESSION)
        return found
    turns = await _turns(reader.archive, state, found)
    await _check_turns(reader.archive, _in_force(turns), found)
    with server_errors():
        run = await find_run(reader.client, session_id)
    if run is None or run.status is WorkflowExecutionStatus.COMPLETED:
        await _check_resting(reader, session_id, run, found)
    elif not found:
        found.proved.append(TURNS)
    return found


async def _check_resting(
    reader: Reader, session_id: str, run: WorkflowExecution | None, found: Verification
) -> None:
    """Compare the record of a session that rests with the digest that its run has left."""
    record = as_object(await reader.archive.afind_record(record_name("sessions", session_id)))
    proven = False
    if run is None:
        found.unproved.append(FORGOTTEN)
    else:
        handle = reader.client.get_workflow_handle(session_id, run_id=run.run_id, result_type=str)
        proven = is_sealed(record, await handle.result(follow_runs=False))
        if not proven:
            found.add("the session's record is not the one that its run has left: it was rewritten")
        elif not found:
            found.proved.append(TURNS)
    _check_signature(record, session_id, found, proven=proven)


async def check_session(
    reader: Reader, head: TaskHead, turn: CommitRef | None, task_id: str, found: Verification
) -> None:
    """Verify what a task saw of sessions, and what its session got of it.

    Args:
        reader: Reads them.
        head: The task's head: agent, session and rules, fixed when it began.
        turn: What its record says that the session got.
        task_id: The task.
        found: Gets what is wrong, and what is proven.
    """
    before = len(found)
    await check_named(reader.archive, [turn], found)
    asked = [ref for ref in (head.session, head.reads) if ref is not None]
    asked = [ref for ref in asked if ref.commits or (ref is head.session and turn is not None)]
    for ref in asked:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                state = await reader.session(ref.id)
        except TimeoutError:
            text = f"Session {ref.name!r} gave no answer in {ANSWER_SECONDS:g} seconds."
            found.unproved.append(text)
            return
        except (NoWorkerError, QueryFailedError, TaskNotFoundError) as error:
            found.unproved.append(f"Session {ref.name!r} cannot be asked now: {error}")
            return
        turns = await _turns(reader.archive, state, found)
        seen = turns[: ref.commits]
        if len(found) == before and _digest(seen) != ref.digest:
            found.unproved.append(OTHER.format(ref.name))
            return
        await _check_turns(reader.archive, _in_force(turns, ref.commits), found)
        if ref is head.session and turn is not None:
            _check_commit(ref, turns, turn, task_id, found)
    if asked and len(found) == before:
        found.proved.append(SEEN)


def _digest(turns: Sequence[_Turn]) -> str:
    return extend("", [turn.commit for turn in turns if turn.commit is not None])


def _check_commit(
    ref: SessionRef, turns: Sequence[_Turn], turn: CommitRef, task_id: str, found: Verification
) -> None:
    """Compare what a task's record says that its session got with what the session has."""
    got = [each.commit for each in turns if each.commit and each.commit.task == task_id]
    if not got:
        found.unproved.append(f"Session {ref.name!r} has no turn of the task: it was begun again.")
    elif got[0].sha256 != turn.sha256:
        found.add(
            f"session {ref.name!r} got the turn {got[0].sha256} of the task, and its record says"
            f" {turn.sha256}"
        )


async def _turns(archive: Archive, state: SessionState, found: Verification) -> list[_Turn]:
    """Read the lists of a session's turns, oldest first; add the damaged ones."""
    commits: list[CommitRef | None] = []
    for k, sha256 in enumerate(state.older, start=1):
        try:
            data = json.loads(await archive.aget(sha256))
            commits += [CommitRef.model_validate(each) for each in data]
        except DAMAGED as error:
            found.add(f"list {k} of {len(state.older)} of the session's turns is damaged: {error}")
            commits += [None] * state.index_size
        except (ValueError, TypeError) as error:
            found.cannot_read(f"list {k} of the session's turns", error)
            commits += [None] * state.index_size
    return [_Turn(n, c) for n, c in enumerate([*commits, *state.commits], start=1)]


def _in_force(turns: Sequence[_Turn], upto: int | None = None) -> list[_Turn]:
    """Return of the first turns those after the last reset that no later one has replaced."""
    erased = {each.commit.erases: each for each in turns if each.commit and each.commit.erases}
    return turns_in_force(turns[:upto], erased, lambda turn: turn.commit)


async def _check_turns(archive: Archive, turns: Sequence[_Turn], found: Verification) -> None:
    """Check the messages of turns, and the values that they name."""
    for number, commit in turns:
        if commit is None:
            continue
        by = f", of task {commit.task!r}," if commit.task[:1] != "-" else ""
        try:
            messages = await read_messages(archive, commit.sha256)
        except DAMAGED as error:
            found.add(f"turn {number} of the session{by} is damaged: {error}")
            continue
        except (ValueError, TypeError) as error:
            found.cannot_read(f"turn {number} of the session", error)
            continue
        if len(messages) != commit.count:
            text = f"has {len(messages)} messages, and {commit.count} were committed"
            found.add(f"turn {number} of the session{by} {text}")
        await check_named(archive, messages, found)


CONSISTENT = "The steps, events, arguments, results and decisions fit the digest of the ledger."
OPEN = "The ledger is the one that the task itself has, which is still open."
IN_RUN = "The record is the one whose digest Temporal keeps with the closed run."
SIGNED = "The record has a valid signature."

FORGOTTEN = "Temporal has forgotten the run, or never knew it: it has nothing to compare with."
UNSEALED = "Temporal knows the run, but it did not end by storing this record."
ENDED_OUTSIDE = "The run was ended with Temporal's own tools: its history alone tells of it."
UNSIGNED = "The record has no signature."
NO_KEY = f"The record is signed, and no key to check that is known: set {KEY_VARIABLE}."
SELF_ONLY = (
    "Only that the record is consistent with itself is proven: anyone who can write to the"
    " archive could have rewritten it."
)


class Kept(NamedTuple):
    """What there is of a task, as it is stored.

    Attributes:
        segment: Newest segment of the archived part of the ledger.
        entries: The rest of it, which the task itself has.
        opens: Its steps in progress, now or at its end.
        ledger: Length and digest that the ledger must have.
        head: The task's head: agent, session and rules, fixed when it began.
        record: The record of a closed task, None of an open one.
        turn: What its record says that its session got.
        is_open: Whether the task is open.
    """

    segment: SegmentRef | None
    entries: list[Json]
    opens: tuple[OpenState, ...]
    ledger: ChainRef
    head: TaskHead
    record: dict[str, Json] | None = None
    turn: CommitRef | None = None
    is_open: bool = False


async def verified(reader: Reader, task_id: str) -> Verification:
    """Verify a task: its segments, its chain, its blobs, and what is kept of it elsewhere.

    Raises:
        TaskNotFoundError: No task has this id.
    """
    return (await evidence(reader, task_id))[1]


async def evidence(reader: Reader, task_id: str) -> tuple[Kept | None, Verification]:
    """Verify a task, and return what is stored of it; None when that cannot be read.

    Each value of the archive that belongs to the task is read once.

    Raises:
        TaskNotFoundError: No task has this id.
    """
    found = Verification()
    kept = await _kept(reader, task_id, found)
    if kept is None:
        return None, found
    entries = await _check_ledger(reader.archive, kept, found)
    await check_named(reader.archive, [kept.head, *entries, *kept.opens], found)
    for current in kept.opens:
        if current.chain != ChainRef(len(current.journal), extend("", current.journal)):
            text = "its recorded answers do not give their digest"
            found.add(text, step=current.open.step.step_id)
    await check_session(reader, kept.head, kept.turn, task_id, found)
    if kept.record is not None:
        await _check_record(reader, task_id, kept.record, found)
    elif kept.is_open:
        found.proved.append(OPEN)
    else:
        found.unproved.append(ENDED_OUTSIDE)
    return kept, found


async def _kept(reader: Reader, task_id: str, found: Verification) -> Kept | None:
    """Read what there is, open tasks from themselves; None when nothing can be compared.

    Raises:
        TaskNotFoundError: There is nothing.
    """
    try:
        kept = await _of_task(reader, task_id, even_closed=False)
        await _see_end(reader, task_id, kept)
    except (TaskClosedError, TaskNotFoundError) as closed:
        name = record_name("tasks", task_id)
        try:
            data = await reader.records.found(task_id)
        except ArchiveError as error:
            if not is_torn(error):
                raise
            found.cannot_read("the record", error)
            return None
        if data is not None and not await _is_left(reader, task_id, data):
            return _of_record(data, found)
        if isinstance(closed, TaskNotFoundError):
            raise
        if data is None and isinstance(await sealed(reader, task_id), Seal):
            found.add(f"the task ended by storing its record, and the archive has no {name!r}")
            return None
        return await _of_task(reader, task_id, even_closed=True)
    return kept


async def _see_end(reader: Reader, task_id: str, kept: Kept) -> None:
    """Wait for the end of a run whose task is closed, and so says everywhere: only it has the seal.

    The last signals of the task go out before it. If they cannot, the task is read as an open one.

    Raises:
        TaskClosedError: The run has ended.
        ConnectError: The server could not be reached.
    """
    events = [as_object(as_object(each).get("event")) for each in kept.entries]
    if all(event.get("kind") != CLOSED_EVENT for event in events):
        return
    if (await reader.query(task_id, "task_value", Task)).status not in CLOSED:
        return  # it could not be closed, and waits for another attempt
    with suppress(TimeoutError), server_errors():
        async with asyncio.timeout(END_SECONDS):
            with suppress(WorkflowFailureError):
                await reader.client.get_workflow_handle(task_id).result()
            raise TaskClosedError(f"Task {task_id!r} is closed.")


async def _is_left(reader: Reader, task_id: str, data: Json) -> bool:
    """Whether a record was prepared for an end that the task did not come to."""
    is_prepared = bool(as_object(data).get("prepared"))
    return is_prepared and await sealed(reader, task_id) == UNSEALED


async def _of_task(reader: Reader, task_id: str, *, even_closed: bool) -> Kept:
    page, entries = await reader.pages(task_id, even_closed=even_closed)
    data: list[Json] = [entry.wire() for entry in entries]
    head = await reader.head(task_id)
    return Kept(page.segment, data, page.opens, page.ledger, head, is_open=not even_closed)


def _of_record(data: Json, found: Verification) -> Kept | None:
    check_erased(data)
    try:
        record = TaskRecord.model_validate(data)
    except ValidationError as error:
        found.cannot_read("the record", error)
        return None
    whole = cast("dict[str, Json]", data)
    return Kept(record.segment, [], record.opens, record.ledger, record.head, whole, record.turn)


async def _check_ledger(archive: Archive, kept: Kept, found: Verification) -> list[Entry]:
    """Check segments, chain and steps; return the entries, as far as they can be read."""
    archived = await _archived(archive, kept.segment, found)
    if archived is None:
        return []
    data = [*archived, *kept.entries]
    actual = ChainRef(len(data), extend_json("", data))
    if actual == kept.ledger:
        found.proved.append(CONSISTENT)
    else:
        found.add(
            f"the ledger has {actual.length} entries with the digest {actual.digest}, but"
            f" {kept.ledger.length} with the digest {kept.ledger.digest} were recorded"
        )
    try:
        entries = [Entry.model_validate(entry) for entry in data]
    except ValidationError as error:
        found.cannot_read("an entry of the ledger", error)
        return []
    found.extend(verify(entries))
    return entries


async def _archived(
    archive: Archive, newest: SegmentRef | None, found: Verification
) -> list[Json] | None:
    """Read the archived part of a ledger, the newest segment first; None when one is damaged.

    Only a segment names the one before it: those before a damaged one cannot be found.
    """
    parts: list[list[Json]] = []
    segment = newest
    while segment is not None:
        first, last = segment.start + 1, segment.start + segment.entries
        where = f"entries {first} to {last} of the ledger (segment {segment.number})"
        try:
            data = await read_segment(archive, segment)
        except DAMAGED as error:
            found.add(f"{where} are damaged: {error}")
            if segment.start:
                found.add(
                    f"entries 1 to {segment.start} of the ledger cannot be found: segment"
                    f" {segment.number}, which names them, is damaged"
                )
            return None
        except (ValueError, TypeError, KeyError) as error:
            found.cannot_read(where, error)
            return None
        parts.append(data.entries)
        segment = data.before
    return [entry for part in reversed(parts) for entry in part]


async def _check_record(
    reader: Reader, task_id: str, record: dict[str, Json], found: Verification
) -> None:
    """Compare a closed task's record with what is kept elsewhere, and check its signature."""
    await _check_task(reader.archive, task_id, record, found)
    outside = await sealed(reader, task_id)
    proven = False
    if isinstance(outside, str):
        found.unproved.append(outside)
    elif is_sealed(record, outside.record):
        found.proved.append(IN_RUN)
        proven = True
    else:
        found.add(
            f"the record has the digest {record_digest(record)}, but the task ended with"
            f" {outside.record}: it was rewritten"
        )
    _check_signature(record, task_id, found, proven=proven)


def _check_signature(
    record: dict[str, Json], task_id: str, found: Verification, *, proven: bool
) -> None:
    match check_signature(record, task_id):
        case True:
            found.proved.append(SIGNED)
            proven = True
        case False:
            found.add("the record's signature is not that of a known key over this record")
        case None if record.get("signature"):
            found.unproved.append(NO_KEY)
        case None:
            found.unproved.append(UNSIGNED)
            if has_key() and not proven:
                found.add("a key is known, but the record has no signature, nor any other proof")
    if not proven:
        found.unproved.append(SELF_ONLY)


async def _check_task(
    archive: Archive, task_id: str, data: dict[str, Json], found: Verification
) -> None:
    """Check that a record is that of this task, and the values that it names itself."""
    record = TaskRecord.model_validate(data)
    try:
        task = Task.model_validate(record.task)
    except ValidationError as error:
        found.cannot_read("the task of the record", error)
        return
    if task.task_id != task_id:
        found.add(f"the record is that of task {task.task_id!r}")
    await check_named(archive, [task, record.stored], found)


async def sealed(reader: Reader, task_id: str) -> Seal | str:
    """Return what Temporal keeps of a closed task, or say why it has nothing."""
    with server_errors():
        run = await find_run(reader.client, task_id)
    return FORGOTTEN if run is None else await seal_of(reader.client, run) or UNSEALED
