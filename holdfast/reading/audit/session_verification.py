"""Verifying sessions: whether the archive has the turns that a session's workflow names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.archive.archive import Archive
from holdfast.archive.segments import read_messages
from holdfast.errors import (
    DAMAGED,
    NoWorkerError,
    QueryFailedError,
    TaskNotFoundError,
)
from holdfast.reading.audit.verification import Verification, check_named
from holdfast.reading.reader import Reader
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.state import CommitRef, SessionState
from holdfast.values.base import extend

TURNS = "The turns of the session are those whose digests its workflow has, which Temporal keeps."
ANSWER_SECONDS = 10.0
"""How long the verification of a task waits for its session: there may be no worker process."""

NO_SESSION = "Temporal knows no session of this name: it has no turns, or was deleted."
SEEN = "What the task saw of its session, and what the session got of it, is as the session has it."

OTHER = "Session {!r} has other turns than those that the task saw: it was begun again."


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
    try:  # also of one that was ended from outside: its memory is still there
        state = await reader.query(session_id, "state", SessionState, even_closed=True)
    except TaskNotFoundError:
        found.unproved.append(NO_SESSION)
        return found
    turns = await _turns(reader.archive, state, found)
    await _check_turns(reader.archive, _in_force(turns), found)
    if not found:
        found.proved.append(TURNS)
    return found


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
                state = await reader.query(ref.id, "state", SessionState, even_closed=True)
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
        await _check_turns(reader.archive, _in_force(seen), found)
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
    """Read the lists of a session's turns, oldest first; add those that are damaged."""
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


def _in_force(turns: Sequence[_Turn]) -> list[_Turn]:
    """Return the turns after the last reset that no later one has replaced."""
    found: list[_Turn] = []
    for turn in turns:
        if turn.commit is not None and not turn.commit.sha256:
            found.clear()
            continue
        if turn.commit is not None and turn.commit.replaces:
            del found[-turn.commit.replaces :]
        found.append(turn)
    return found


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
