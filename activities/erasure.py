"""Erasing tasks for good: each attempt does what is left to do, and looks whether anything is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.heartbeat import heartbeats
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import CONTENTS_SCOPE, record_name, writing_for
from holdfast.archive.holds import (
    ERASURE,
    certificate_name,
    mark_name,
    refuse_held,
    without_names,
)
from holdfast.archive.kept_answers import drop_rest
from holdfast.archive.segments import write_messages
from holdfast.archive.session_commits import commit_turn, find_run
from holdfast.errors import (
    DAMAGED,
    CommandRefusedError,
    ErasedError,
    SessionClosedError,
    TaskNotFoundError,
)
from holdfast.reading.erasable import all_tasks, plan_erasure
from holdfast.reading.queries import server_errors
from holdfast.reading.reader import Reader
from holdfast.reading.visibility import delete_runs
from holdfast.task.data.records import record_digest, signed
from holdfast.task.data.state import CommitRef
from holdfast.task.data.wire import Erasure, Retention
from holdfast.values.base import Json, pauses
from holdfast.values.checks.gate import as_object, is_object
from holdfast.values.checks.ids import is_nested
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Message
from holdfast.values.text.logs import log

PLACE = "This part of the conversation was erased."
REMAINS = (
    "Backups of Temporal's database and of the archive, until they end.",
    "What logs, traces and notifications have, and what models and tools were sent.",
    "What processes have in memory, until they end.",
    "A session that the caller keeps.",
    "Forks that Temporal had forgotten.",
    "Sessions with a hashed name, if who asked had no HOLDFAST_NAMES_KEY.",
    "Tasks that began meanwhile, until it is asked again.",
    "Events that other tasks have had, or none, for up to 30 days.",
    "Names in holds/ and locks/, and in the history of the erasure.",
    "Texts of other tasks that tell of these, and schedules.",
)
WITH_KEYS = (
    "The archive's folder keys/ in backups: what they have cannot be read without it.",
    "Values that were written before tasks had data keys of their own.",
    "Names of sessions in certificates of tasks; in keys/ hashes of them, which confirm guesses.",
)
WITHOUT_KEYS = (
    "Names of sessions in sessions/, and here unless a person was erased.",
    "Values in the archive's blobs/, and late answers: `holdfast gc` deletes what no task names.",
)


MAILBOX_SECONDS = 300.0
"""How long a mailbox has to answer: it tries to deliver events for two minutes."""


class ErasingActivities:
    """Erases tasks and sessions for the workers of a namespace."""

    def __init__(self, archive: Archive) -> None:
        """Erase in this archive."""
        self._archive = archive

    @activity.defn(name="erase")
    async def erase(self, given: Erasure) -> str:
        """Erase; return the digest of the certificate, which is written once all is gone.

        Raises:
            ApplicationError: One of the tasks is open, or held; nothing was erased.
        """
        client, name = activity.client(), certificate_name(given)
        async with heartbeats():
            with writing_for(CONTENTS_SCOPE):
                try:
                    is_begun = await self._is_begun(given, name)
                    if not is_begun:
                        await self._refuse(client, given, name)
                    await self._replace_turns(client, given, is_begun=is_begun)
                except CommandRefusedError as error:
                    raise ApplicationError(
                        str(error), type=CommandRefusedError.__name__, non_retryable=True
                    ) from None
                done = await self._erased(client, given, name)
        return record_digest(done)

    @activity.defn(name="expired")
    async def expired(self, rule: Retention) -> list[tuple[float, str]]:
        """Return the tasks that a rule ends and when they closed, the longest closed first."""
        reader, until = Reader(activity.client(), self._archive), time.time() - rule.days * 86_400
        async with heartbeats():
            tasks, _ = await all_tasks(reader, open_too=False)
        found = [
            (seen.ended, each)
            for each, seen in tasks.items()
            if (seen.app, seen.head.agent) == (rule.app, rule.agent)
            and not is_nested(each)
            and rule.after < (seen.ended, each) < (until, "")
        ]
        return sorted(found)[: rule.batch]

    @activity.defn(name="plan_expired")
    async def plan_expired(self, rule: Retention, task_id: str) -> list[Erasure]:
        """Return what goes with a task; nothing while a hold, or a fork that is kept, keeps it."""
        reader = Reader(activity.client(), self._archive)
        async with heartbeats():
            try:
                plan = await plan_erasure(
                    reader,
                    "task",
                    task_id,
                    by=f"retention, set by {rule.by}",
                    reason=f"closed for {rule.days:g} days",
                    queue_for=lambda _: activity.info().task_queue,
                )
            except (CommandRefusedError, TaskNotFoundError, *DAMAGED) as error:
                log.info("Task %r is not erased: %s", task_id, error)
                return []
        return [] if plan.opens or plan.forks else [plan.erasure]

    async def _is_begun(self, given: Erasure, name: str) -> bool:
        """Whether this erasure has erased anything: then it must come to an end."""
        for _, each in await self._places(given):
            data = await self._archive.afind_record(each)
            if is_object(data) and "erased" in data and data.get("by") == name:
                return True
        return False

    async def _places(self, given: Erasure) -> list[tuple[str, str]]:
        """Return the names of the records that an erasure takes, and of what takes their place."""
        tasks = [record_name("tasks", each) for each in given.tasks]
        marks = [await mark_name(self._archive, each) for each in given.sessions]
        sessions = [record_name("sessions", each) for each in given.sessions]
        return [*zip(tasks, tasks, strict=True), *zip(sessions, marks, strict=True)]

    async def _refuse(self, client: Client, given: Erasure, name: str) -> None:
        """Refuse while a task is open or held; what is erased again may be open.

        Raises:
            CommandRefusedError: One is.
        """
        is_again = await self._archive.ahas_record(name)
        for each in () if is_again else given.tasks:
            newest = await find_run(client, each)
            if newest is not None and newest.close_time is None:
                msg = f"Task {each!r} is open. Finalize or abandon it; nothing was erased."
                raise CommandRefusedError(msg)
        await refuse_held(self._archive, given.held_by)

    async def _replace_turns(self, client: Client, given: Erasure, *, is_begun: bool) -> None:
        """Have a sentence take the place of turns in sessions that stay.

        Raises:
            CommandRefusedError: Such a session takes no turns any more.
        """
        archive, replaced = self._archive, list[str]()
        for turn in given.turns:
            with writing_for(turn.session):
                message = Message(role="assistant", content=PLACE)
                sha256 = await write_messages(archive, [message])
            ref = CommitRef(task=f"-erased {turn.task}", sha256=sha256, count=1, erases=turn.task)
            try:
                await commit_turn(client, archive, turn.session, turn.queue or given.queue, ref)
            except ErasedError:
                continue  # with all of its turns
            except SessionClosedError as error:
                if is_begun:  # the rest goes on: what the turn says goes with the task
                    log.warning("The turn of task %r stays: %s", turn.task, error)
                    continue
                tasks = ", ".join(map(repr, replaced)) or "none"
                remedy = "Or erase the session, with all of its turns. No task was erased"
                remedy += f"; tasks whose turns are replaced already: {tasks}."
                raise CommandRefusedError(str(error), remedy=remedy) from None
            replaced.append(turn.task)

    async def _erased(self, client: Client, given: Erasure, name: str) -> dict[str, Json]:
        archive = self._archive
        values, scopes = 0, (*given.tasks, *given.sessions)
        # In keys/ all is in plain text: no reason, which may name a person.
        what = f"{given.kind.capitalize()} {given.task!r} was erased"
        told = f"{what}: {name!r} of the archive says by whom and why."
        left = [*zip(scopes, await self._places(given), strict=True)]
        while left:
            for each, (record, place) in left:
                # In place of the record, and first: the id stays taken, and from now on all goes.
                why = f"{each!r}" if place == record else "This session"
                why += f" was erased by {given.by}: {given.reason}"
                await archive.aput_record(place, {"erased": why, "by": name})
                if place != record:
                    await archive.adelete_record(record)
            while found := await archive.aerase_scopes(scopes, told):
                values += found
            for each in scopes:
                await _forgotten(client, each)
            await drop_rest(archive, given.tasks)
            # An activity of a session that was open may have written its record meanwhile.
            left = [
                (each, (record, place))
                for each, (record, place) in left
                if "erased" not in as_object(await archive.afind_record(place))
                or (place != record and await archive.ahas_record(record))
                or await find_run(client, each) is not None
            ]
        boxes = given.mailboxes
        emptied = await some_at_once(lambda each: _emptied(client, each, given.tasks), boxes)
        full = [each for each, is_done in zip(boxes, emptied, strict=True) if not is_done]
        certificate: dict[str, Json] = {
            **(await without_names(archive, given)).model_dump(mode="json"),
            "values": values,
            "done": time.time(),
            "remains": list[Json](
                REMAINS
                + (WITHOUT_KEYS if archive.encrypted is None else WITH_KEYS)
                + tuple(f"Events of the mailbox {each!r}, which did not answer." for each in full)
            ),
        }
        made = signed(certificate, given.task, ERASURE)
        there = await archive.acreate_record(name, made)  # of two attempts one decides
        return as_object(there)


async def _forgotten(client: Client, workflow_id: str, closed: str | None = None) -> None:
    """Have Temporal delete all runs of a workflow, or the closed ones."""
    for pause in pauses(0.05, 2.0):
        if not await delete_runs(client, workflow_id, closed=closed):
            return
        await asyncio.sleep(pause)


async def _emptied(client: Client, mailbox: str, tasks: Sequence[str]) -> bool:
    """Have a mailbox forget what only these tasks have had, in its closed runs as well.

    Returns:
        Whether it has. One that no worker process serves has not.
    """
    asked, until = "", time.time() + MAILBOX_SECONDS
    for pause in pauses(0.05, 1.0):
        run = await find_run(client, mailbox)
        if run is None or run.close_time is not None or asked not in ("", run.run_id):
            break
        if time.time() > until:
            return False
        if not asked:  # this run goes on as another one, without these events
            handle = client.get_workflow_handle(mailbox, run_id=run.run_id)
            with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):
                await handle.signal("erase", [*tasks])
                asked = run.run_id
        await asyncio.sleep(pause)
    await _forgotten(client, mailbox, closed=asked)
    return True
