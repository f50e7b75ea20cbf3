"""What an erasure takes: tasks with their child tasks and forks, sessions, turns in other ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from pydantic import ValidationError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast.archive.bytestore import key_in, record_name
from holdfast.archive.holds import (
    code_of,
    coded,
    codes_of_session,
    erased_as,
    names_in,
    names_of,
    refuse_held,
)
from holdfast.archive.segments import committing_tasks, forks_of
from holdfast.archive.session_commits import find_run
from holdfast.engine.search_attributes import SESSIONS, TASKS
from holdfast.errors import (
    ArchiveError,
    CommandRefusedError,
    ErasedError,
    InvalidArgumentError,
    NotFoundError,
    TaskNotFoundError,
)
from holdfast.reading.audit.audit import audit_events
from holdfast.reading.queries import server_errors
from holdfast.reading.reader import Reader
from holdfast.reading.visibility import children_of
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import record_digest
from holdfast.task.data.wire import ErasedTurn, Erasure, Kind
from holdfast.task.mailbox import WAITS, mailbox_id
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import as_object, as_text, data_of, is_object
from holdfast.values.checks.ids import is_nested, is_session, outermost, queue_in, session_name
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.runs.approval_rules import person_key
from holdfast.values.runs.status import CLOSED

MOST_TASKS = 5_000
"""Tasks of one erasure: they are in one message to Temporal, which takes 2 MB."""


class Seen(Value):
    """A task of a list of all.

    Attributes:
        head: Its head.
        ended: When it began to close, seconds since the epoch; 0 of one without a record.
        app: App of the worker process that has recorded it; empty if the record does not say.
    """

    head: TaskHead
    ended: float = 0.0
    app: str = ""


class Plan(NamedTuple):
    """What an erasure takes, and what is in the way.

    Attributes:
        erasure: All that goes.
        opens: Tasks of it that are open.
        forks: Forks that stay, by the task whose texts they have copies of.
    """

    erasure: Erasure
    opens: tuple[str, ...]
    forks: dict[str, list[str]]


async def all_tasks(reader: Reader, *, open_too: bool = True) -> tuple[dict[str, Seen], list[str]]:
    """Read the heads of all tasks: in the archive, and in Temporal alone.

    Args:
        reader: The reader.
        open_too: Whether to look for tasks without a record as well.

    Returns:
        The tasks by their ids, without the erased ones; and the ids of unreadable ones.

    Raises:
        EngineError: The server or the archive cannot be used.
    """
    found, unread, gone = dict[str, Seen](), list[str](), set[str]()

    async def recorded(name: str) -> None:
        task_id = key_in(name)
        try:
            data = await reader.archive.afind_record(name)
            if is_object(data) and "erased" in data:
                gone.add(task_id)
            elif data is not None:
                named = as_text(as_object(as_object(data).get("task")).get("task_id"))
                found[named or task_id] = Seen.model_validate(data)
        except (ArchiveError, ValidationError):
            unread.append(task_id)

    async def known(task_id: str) -> None:
        # Not by a query: tasks of other apps may have no worker process.
        try:
            found[task_id] = Seen(head=await reader.begun_head(task_id))
        except RPCError:
            gone.add(task_id)  # deleted since it was listed
        except (ApplicationError, ArchiveError, ValidationError):
            unread.append(task_id)

    await some_at_once(recorded, await reader.archive.alist_records("tasks"))
    if not open_too:
        return found, sorted(unread)
    with server_errors():
        ids = {each.id async for each in reader.client.list_workflows(TASKS)}
    await some_at_once(known, sorted(ids - {*found, *unread, *gone}))
    return found, sorted(unread)


async def codes_of(reader: Reader, tasks: Iterable[str]) -> set[str]:
    """Return by what tasks can be held: themselves, their sessions, the people who created them.

    Raises:
        EngineError: As for `all_tasks`.
    """
    found = set[str]()
    for each in tasks:
        found.add(await code_of(reader.archive, "task", each))
        try:
            head = await reader.head(each)
        except (TaskNotFoundError, ErasedError):
            continue
        if head.session is not None:
            found |= await codes_of_session(reader.archive, head.session.id)
        if head.asker:
            found.add(await code_of(reader.archive, "person", head.asker))
    return found


async def plan_erasure(
    reader: Reader,
    kind: Kind,
    name: str,
    *,
    by: str,
    reason: str,
    queue_for: Callable[[str], str],
    with_forks: bool = False,
) -> Plan:
    """Find all that goes with a task, a session or a person.

    Args:
        reader: The reader.
        kind: Which of them.
        name: Id of the task, workflow id of the session, or name of the person.
        by: Who asks.
        reason: Why.
        queue_for: Returns the queue of an agent, or for an empty name of any.
        with_forks: Whether forks go as well.

    Raises:
        TaskNotFoundError: There is no such task.
        NotFoundError: There is no such session, or nothing names the person.
        CommandRefusedError: Some of it is held, or the task belongs to another one.
        EngineError: As for `all_tasks`.
    """
    if kind == "task":
        await _refuse_below(reader, name)
        roots, sessions, unread = [name], list[str](), list[str]()
    else:
        roots, sessions, unread = await roots_of(reader, kind, name)
    closure = await closure_of(reader, roots, with_forks=with_forks, is_named=kind == "task")
    if len(closure.heads) > MOST_TASKS:
        msg = f"These are {len(closure.heads)} tasks; one erasure takes {MOST_TASKS}."
        raise CommandRefusedError(msg, remedy="Erase some tasks or sessions of it on their own.")
    held_by = await codes_of(reader, closure.heads)
    for each in sessions:
        held_by |= await codes_of_session(reader.archive, each)
    held_by.add(await code_of(reader.archive, kind, name))
    await refuse_held(reader.archive, held_by)
    find = reader.archive.afind_record
    names = [record_name("tasks", each) for each in closure.heads]
    read = map(as_object, await some_at_once(find, names))
    records = dict(zip(closure.heads, read, strict=True))
    turns = [await _turn_of(reader, *each) for each in closure.heads.items()]
    # Not a session's own queue: its worker process may serve sessions alone.
    first, agent = next(((each, head.agent) for each, head in closure.heads.items()), ("", ""))
    queue = await reader.presence.queue_if_known(first) if first else ""
    erasure = Erasure(
        task=await erased_as(reader.archive, kind, name),
        kind=kind,
        tasks=tuple(closure.heads),
        sessions=tuple(sessions),
        records={each: record_digest(data) for each, data in records.items() if data},
        turns=tuple(each for each in turns if each is not None and each.session not in sessions),
        mailboxes=await _mailboxes(reader, closure, records, queue_for),
        unread=tuple(unread),
        held_by=tuple(sorted(held_by)),
        by=by,
        reason=reason,
        asked=time.time(),
        queue=queue or queue_for(agent),
    )
    return Plan(erasure, tuple(closure.opens), closure.forks)


async def _mailboxes(
    reader: Reader,
    closure: _Closure,
    records: Mapping[str, Mapping[str, Json]],
    queue_for: Callable[[str], str],
) -> tuple[str, ...]:
    """Return the ids of the mailboxes whose events tasks have waited for, sorted."""
    found = set[str]()
    for each, event in closure.waits:
        own = await reader.presence.queue_if_known(each) or queue_in(
            as_text(records[each].get("app")), queue_for(closure.heads[each].agent)
        )
        with suppress(InvalidArgumentError):  # a call that was refused for it
            found.add(mailbox_id(own, event))
    return tuple(sorted(found))


class _Closure(NamedTuple):
    heads: dict[str, TaskHead]
    opens: list[str]
    forks: dict[str, list[str]]
    waits: list[tuple[str, str]]


async def closure_of(
    reader: Reader, roots: Sequence[str], *, with_forks: bool, is_named: bool
) -> _Closure:
    """Follow tasks to their child tasks and forks."""
    found, todo = _Closure({}, [], {}, []), [*roots]
    seen, forks = set[str](), dict[str, list[str]]()
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        try:
            task, head = await reader.task(each), await reader.head(each)
        except (TaskNotFoundError, ErasedError):
            if is_named and each in roots:
                raise
            continue
        found.heads[each] = head
        if task.status not in CLOSED:
            found.opens.append(each)
        forks[each] = [
            f for f in await forks_of(reader.archive, each) if await _is_there(reader, f)
        ]
        if with_forks:
            todo += forks[each]
        entries, opens = await reader.ledger(each, legible=True)
        events = audit_events(entries, opens=opens)
        waits = (as_object(data_of(event.arguments)) for event in events if event.tool == WAITS)
        found.waits.extend((each, as_text(wait.get("name"))) for wait in waits)
        # A fork's ledger has the steps that it shares, with the other task's child tasks.
        named = (event.child for event in events if event.child)
        todo += [child for child in named if outermost(child) == outermost(each)]
        todo += await children_of(reader.client, each)
    left = ((each, [fork for fork in of_it if fork not in seen]) for each, of_it in forks.items())
    found.forks.update({each: of_it for each, of_it in left if of_it})
    return found


async def roots_of(reader: Reader, kind: Kind, name: str) -> tuple[list[str], list[str], list[str]]:
    """Find the tasks and the sessions of a session or a person, and what cannot be read.

    Raises:
        NotFoundError: There are none.
    """
    tasks, unread = await all_tasks(reader)
    heads = {each: seen.head for each, seen in tasks.items()}
    sessions = {name} if kind == "session" else await _sessions_of(reader, heads, name)
    roots = {
        each
        for each, head in heads.items()
        if (head.session is not None and head.session.id in sessions)
        or (kind == "person" and head.asker and person_key(head.asker) == person_key(name))
    }
    there = set[str]()
    for each in sessions:
        with suppress(TaskNotFoundError, ErasedError):
            roots |= {*await committing_tasks(reader.archive, await reader.session(each))}
            there.add(each)
    if not (roots or there):
        what = f"session {session_name(name)!r}" if kind == "session" else f"person {name!r}"
        msg = f"There is nothing of the {what}: no task, no session. Nothing was erased."
        raise NotFoundError(msg)
    return sorted(each for each in roots if not is_nested(each)), sorted(there), unread


async def _sessions_of(reader: Reader, heads: dict[str, TaskHead], person: str) -> set[str]:
    """Find the sessions whose name is that of a person, also in a tenant, or its `hashed`.

    And the threads of the person that tasks of theirs are in: another session may begin so as well.
    """
    names = names_of(person)
    refs = [(head.session.id, person_key(head.asker)) for head in heads.values() if head.session]
    own = {id for id, by in refs if by in names & names_in(id, is_thread=True)}
    known = {id for id, _ in refs} | await _known_sessions(reader)
    return own | {each for each in known if names_in(each) & names}


async def _known_sessions(reader: Reader) -> set[str]:
    """Return the sessions that the archive or Temporal has, also erased ones."""
    known = {key_in(each) for each in await reader.archive.alist_records("sessions")}
    with server_errors():
        return known | {each.id async for each in reader.client.list_workflows(SESSIONS)}


async def with_names(reader: Reader, proof: Erasure) -> Erasure:
    """Return what a certificate is of, with the ids of its sessions as far as these are known.

    Raises:
        EngineError: As for `all_tasks`.
    """
    if all(map(is_session, proof.sessions)):
        return proof
    known = await _known_sessions(reader)
    named = {await coded(reader.archive, f"session {each}"): each for each in known}
    found = tuple(named[each] for each in proof.sessions if each in named)
    return proof.model_copy(update={"sessions": found})


async def _refuse_below(reader: Reader, task_id: str) -> None:
    """Refuse a child task: the task above it has its result.

    Raises:
        CommandRefusedError: It is one.
    """
    above = task_id.rpartition("~")[0]
    if above and await _is_there(reader, above):
        msg = f"Task {task_id!r} belongs to another task. Erase that one; nothing was erased."
        raise CommandRefusedError(msg)


async def _turn_of(reader: Reader, task_id: str, head: TaskHead) -> ErasedTurn | None:
    """Return where the turn of a task is; None if no session has one."""
    if head.session is None:
        return None
    try:
        state = await reader.session(head.session.id)
    except (TaskNotFoundError, ErasedError):
        return None
    if task_id not in await committing_tasks(reader.archive, state):
        return None
    return ErasedTurn(task=task_id, session=head.session.id, queue=head.session.queue)


async def _is_there(reader: Reader, task_id: str) -> bool:
    """Whether the archive or Temporal has a task that is not erased."""
    record = await reader.archive.afind_record(record_name("tasks", task_id))
    if record is not None:
        return "erased" not in as_object(record)
    with server_errors():
        return await find_run(reader.client, task_id) is not None
