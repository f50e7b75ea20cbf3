"""Holds: what must stay, because a court or an authority may ask for it. None is ever deleted.

And the names by which holds and certificates of erasures know tasks, sessions and persons.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from urllib.parse import unquote

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import ERASURES, HOLDS, folder_of, key_in, record_name
from holdfast.errors import CommandRefusedError, NotFoundError
from holdfast.task.data.records import check_signature, signed
from holdfast.task.data.wire import Erasure, Kind
from holdfast.values.base import Value
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import MADE, outermost, session_name
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.runs.approval_rules import person_key
from holdfast.values.text.shown import time_shown

_ENDED = ".ended"
HOLD, HOLD_END = "holdfast hold", "holdfast hold end"
"""What the signatures of a hold, and of its end, are of."""
ERASURE = "holdfast erasure"
"""What that of a certificate is of."""


class Hold(Value):
    """What is held for a case.

    Attributes:
        id: Its id in the archive's `holds/`.
        kind: What is held: a task with its child tasks and the tasks above it, a session with its
            tasks, or all tasks and sessions of a person.
        name: Id of the task, name of the session, or name of the person.
        code: What the guards compare: see `code_of`.
        case: The case.
        by: Who holds it.
        at: Since when, seconds since the epoch.
        reason: Why.
        ended_by: Who has ended it; empty while it holds.
        ended_at: When.
        ended_reason: Why.
        locked: How many files `hold` has locked in the archive's bucket; None without Object Lock.
    """

    id: str
    kind: Kind
    name: str
    code: str
    case: str
    by: str
    at: float
    reason: str = ""
    ended_by: str = ""
    ended_at: float = 0.0
    ended_reason: str = ""
    locked: int | None = None


async def code_of(archive: Archive, kind: Kind, name: str) -> str:
    """Return what names a task, a session or a person in holds and certificates.

    Args:
        archive: The archive.
        kind: Which of them.
        name: Id of the task, workflow id of the session, or name of the person.

    Returns:
        A text that does not tell who a person is.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    match kind:
        case "person":
            name = await archive.amac(person_key(name))
        case "task":
            name = outermost(name)
        case "session":
            pass
    return f"{kind} {name}"


def names_of(person: str) -> set[str]:
    """Return the names of sessions that are a person's: theirs, and its `hashed`.

    The latter is known to processes with `HOLDFAST_NAMES_KEY` alone.
    """
    names = {person_key(person)}
    if os.environ.get("HOLDFAST_NAMES_KEY"):
        from holdfast.archive.encryption.keys import hashed  # others have no such package

        names |= {hashed(person), hashed(person_key(person))}
    return names


def names_in(session: str, *, is_thread: bool = False) -> set[str]:
    """Return the names of people that the id of a session may have: with a tenant, or without.

    Args:
        session: The id.
        is_thread: Whether the session may be a thread of a person, as `contrib.threads` names it.
    """
    name = session_name(session)
    owner, slash, _ = name.partition("/")
    of_thread = [unquote(owner.rpartition(MADE)[2])] if is_thread and slash else []
    return {*map(person_key, (name, name.rpartition(MADE)[2], *of_thread))}


async def coded(archive: Archive, code: str) -> str:
    """Return the code of a session so that it does not tell the name; other codes as they are.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    kind, _, name = code.partition(" ")
    return f"{kind} {await archive.amac(name)}" if kind == "session" else code


async def erased_as(archive: Archive, kind: Kind, name: str) -> str:
    """Return what a certificate calls what was erased; with keys, a session by its code.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    if kind == "task" or (kind == "session" and archive.encrypted is None):
        return name
    return await coded(archive, await code_of(archive, kind, name))


async def mark_name(archive: Archive, session: str) -> str:
    """Return the name of the record that says that a session was erased.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    return record_name("sessions", await erased_as(archive, "session", session))


async def without_names(archive: Archive, given: Erasure) -> Erasure:
    """Return what a certificate keeps: one that has a code in place of a name has no names.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    if given.kind == "task" or given.task in given.sessions:
        return given
    sessions = [await coded(archive, f"session {each}") for each in given.sessions]
    held_by = sorted([await coded(archive, each) for each in given.held_by])
    return given.model_copy(update={"sessions": tuple(sessions), "held_by": tuple(held_by)})


async def codes_of_session(archive: Archive, session: str) -> set[str]:
    """Return by what a session can be held: itself, or the person whose name it has.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    named = names_in(session, is_thread=True)
    people = {await code_of(archive, "person", each) for each in named}
    return {await code_of(archive, "session", session), *people}


def certificate_name(given: Erasure) -> str:
    """Return the name of the record of a certificate. Only a task is erased once for all."""
    if given.kind == "task":
        return record_name(ERASURES, given.task)
    return f"{certificates_of(given.kind, given.task)}/{int(given.asked * 1000)}.json"


def certificates_of(kind: Kind, code: str) -> str:
    """Return the folder of the certificates of a session or a person."""
    return folder_of(f"{ERASURES}/{kind}s", code)


async def read_holds(archive: Archive, *, ended: bool = False) -> list[Hold]:
    """Read the holds, oldest first; with `ended` also the ended ones.

    Raises:
        ArchiveError: One of them cannot be read: then it is not known what is held.
    """
    names = await archive.alist_records(HOLDS)
    read = dict(zip(names, await some_at_once(archive.aget_record, names), strict=True))
    found: list[Hold] = []
    for name, data in read.items():
        if name.endswith(f"{_ENDED}.json"):
            continue
        end = as_object(read.get(record_name(HOLDS, f"{as_object(data).get('id')}{_ENDED}")))
        if ended or not end:
            found.append(Hold.model_validate({**as_object(data), **end}))
    return sorted(found, key=lambda each: each.at)


async def broken_signatures(archive: Archive) -> list[str]:
    """Return the certificates, holds and ends of holds whose signature is wrong.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    found: list[str] = []
    for name in await archive.alist_records(ERASURES):
        data = as_object(await archive.afind_record(name))
        if check_signature(data, str(data.get("task")), ERASURE) is False:
            found.append(name)
    for name in await archive.alist_records(HOLDS):
        data, id = as_object(await archive.afind_record(name)), key_in(name)
        what = HOLD_END if id.endswith(_ENDED) else HOLD
        if check_signature(data, id.removesuffix(_ENDED), what) is False:
            found.append(name)
    return found


async def add_hold(
    archive: Archive, kind: Kind, name: str, code: str, *, case: str, by: str, reason: str
) -> Hold:
    """Hold something for a case; again for the same case, return the hold that there is.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    for each in await read_holds(archive):
        if (each.code, each.case) == (code, case):
            return each
    made = Hold(
        id=uuid.uuid4().hex,
        kind=kind,
        name=name,
        code=code,
        case=case,
        by=by,
        at=time.time(),
        reason=reason,
    )
    await archive.acreate_record(record_name(HOLDS, made.id), signed(made.wire(), made.id, HOLD))
    return made


async def find_hold(archive: Archive, code: str, *, case: str) -> Hold:
    """Return what is held for a case; or was, if it is not held again: its end can be repeated.

    Raises:
        NotFoundError: Nothing of that name was ever held for that case.
        ArchiveError: The archive cannot be used.
    """
    there = [each for each in await read_holds(archive, ended=True) if each.code == code]
    of_case = [each for each in there if each.case == case]
    held = max(of_case, key=lambda each: (not each.ended_by, each.at), default=None)
    if held is None:
        cases = ", ".join(repr(each.case) for each in there if not each.ended_by) or "none"
        raise NotFoundError(f"That is not held for the case {case!r}; it is held for: {cases}.")
    return held


async def end_hold(archive: Archive, held: Hold, *, by: str, reason: str) -> Hold:
    """End a hold. Its record stays, and says who has ended it.

    Raises:
        ArchiveError: The archive cannot be used.
    """
    end = {"ended_by": by, "ended_at": time.time(), "ended_reason": reason}
    name = record_name(HOLDS, f"{held.id}{_ENDED}")
    there_now = as_object(await archive.acreate_record(name, signed(dict(end), held.id, HOLD_END)))
    return Hold.model_validate({**held.wire(), **there_now})


async def refuse_held(archive: Archive, codes: Iterable[str]) -> None:
    """Refuse to delete what is held.

    Raises:
        CommandRefusedError: One of these is held.
        ArchiveError: The archive cannot be used.
    """
    holds = await read_holds(archive)
    wanted = set(codes)
    for each in holds:
        mine = {each.code, await coded(archive, each.code)}
        if each.kind == "person":  # a session may have the `hashed` of the name
            mine |= {await code_of(archive, "person", name) for name in names_of(each.name)}
        if mine & wanted:
            said = f", because: {each.reason}" if each.reason else ""
            msg = (
                f"The {each.kind} {each.name!r} is held for the case {each.case!r} by {each.by}"
                f" since {time_shown(each.at)}{said}. Nothing was erased or deleted."
            )
            ends = f"holdfast hold end {each.kind}:{each.name} --case {each.case}"
            raise CommandRefusedError(msg, remedy=f"Once the case is over: `{ends}`.")
