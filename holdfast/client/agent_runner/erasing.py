"""Erasing tasks, sessions and people for good; and holds, which keep them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Literal

from pydantic import ValidationError
from temporalio.client import WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCStatusCode

from holdfast.archive.bytestore import ERASURES, record_name
from holdfast.archive.holds import (
    Hold,
    add_hold,
    certificate_name,
    certificates_of,
    code_of,
    end_hold,
    erased_as,
    find_hold,
    read_holds,
    refuse_held,
)
from holdfast.archive.session_commits import find_run
from holdfast.client.agent_runner.base import RunnerBase, TaskLike, id_of
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.task_client.task_client import unique_id
from holdfast.errors import CommandRefusedError, InvalidArgumentError, NotFoundError
from holdfast.reading.erasable import Plan, plan_erasure, with_names
from holdfast.reading.locks import lock, unlock
from holdfast.reading.queries import server_errors
from holdfast.reading.visibility import origin_of
from holdfast.task.data.undo import UndoRequest
from holdfast.task.data.wire import Erasure, Kind
from holdfast.values.base import Json, pauses
from holdfast.values.checks.gate import as_object, check_arguments
from holdfast.values.checks.ids import check_by, check_name
from holdfast.values.text.shown import shown

SELECTOR = re.compile(r"(task|session|person):(.+)", re.DOTALL)


class TaskErasing(RunnerBase):
    """The part of AgentRunner that erases tasks."""

    async def erase(
        self,
        task: TaskLike | None = None,
        *,
        session: str | Session | None = None,
        person: str | None = None,
        by: str,
        reason: str,
        forks: Literal["refuse", "erase"] = "refuse",
        open_tasks: Literal["refuse", "abandon"] = "refuse",
    ) -> dict[str, Json]:
        """Erase a task, a session or a person: histories, records, values, turns in sessions.

        A workflow does it, and goes on whatever is killed. Of an encrypted archive the data keys
        are deleted, so that a backup without the folder `keys/` has nothing that can be read.
        Asked again, it returns the same certificate, and erases what there is again.

        Args:
            task: A task, with its child tasks.
            session: A session with its tasks, in place of a task. Its name stays taken.
            person: In place of a task, the tasks that a person has created (`by` of
                `create_task`), and the sessions that have their name or its `hashed`. Texts that
                name the person are not looked for.
            by: Who asks.
            reason: Why.
            forks: Whether tasks that were forked from these are erased as well. They have copies.
            open_tasks: "abandon": what open tasks did in the world is undone first as far as their
                tools can, and they are abandoned. An undo may wait for a person.

        Returns:
            The certificate, as the archive keeps it in `erasures/`: what was erased, for whom and
            why, and what remains where. Signed, if the worker process has a signing key.

        Raises:
            CommandRefusedError: One of the tasks is open, has forks, is held, or is a child task.
                Nothing was erased.
            NotFoundError: There is nothing of that name.
            NoWorkerError: No worker process serves the queue.
            ConnectError: The server could not be reached.
        """
        check_arguments(TaskErasing.erase, reason=reason, forks=forks, open_tasks=open_tasks)
        kind, name = self._selected(task, session, person)
        who = check_by(by)
        if not who or not reason.strip():
            raise CommandRefusedError("An erasure has a person and a reason: by=..., reason=...")
        code = await erased_as(self.archive, kind, name)
        done = as_object(await self._certificate(kind, code))
        if done and kind == "task":
            if not await self._tasks.is_known(name):
                return done
            return await self.erase_again(done)  # a database of before was restored
        with server_errors():
            begun = await find_run(self.client, f"{code}~erasure")
        if begun is not None and begun.close_time is None:
            await self._ended(code)
            return as_object(await self._certificate(kind, code))
        planned = partial(
            self.plan_erasure,
            task,
            session=session,
            person=person,
            by=who,
            reason=reason,
            forks=forks,
        )
        try:
            plan = await planned()
        except NotFoundError:
            if done:
                return done
            raise
        ended = plan.opens
        if ended and open_tasks == "abandon" and not plan.forks:
            for each in ended:
                await self._abandoned(each, who, reason)
            plan = await planned()
        _refuse(plan)
        return await self._erased(plan.erasure.model_copy(update={"abandoned": ended}))

    async def erase_again(self, certificate: Mapping[str, Json]) -> dict[str, Json]:
        """Erase what a certificate names, as when a restored database has brought it back.

        Returns:
            The certificate, which stays as it is.

        Raises:
            InvalidArgumentError: It is not a certificate.
            CommandRefusedError: Some of it is held by now.
            NoWorkerError: As for `erase`.
            ConnectError: As for `erase`.
        """
        try:
            given = Erasure.model_validate(certificate)
        except ValidationError as error:
            msg = f"This does not hold the certificate of an erasure: {shown(certificate)}."
            raise InvalidArgumentError(msg, remedy="`erase` returns one.") from error
        await refuse_held(self.archive, given.held_by)
        return await self._erased(await with_names(self._read, given))

    async def plan_erasure(
        self,
        task: TaskLike | None = None,
        *,
        session: str | Session | None = None,
        person: str | None = None,
        by: str = "",
        reason: str = "",
        forks: Literal["refuse", "erase"] = "refuse",
    ) -> Plan:
        """List what `erase` would erase, and what is in its way. Nothing is changed.

        To find what belongs to a session or a person, it reads the records of all tasks.

        Raises:
            CommandRefusedError: Some of it is held, or it is a child task.
            NotFoundError: There is nothing of that name.
            NoWorkerError: A task is open, and no worker process serves it.
            ConnectError: The server could not be reached.
        """
        check_arguments(TaskErasing.plan_erasure, reason=reason, forks=forks)
        kind, name = self._selected(task, session, person)
        return await plan_erasure(
            self._read,
            kind,
            name,
            by=by,
            reason=reason,
            queue_for=lambda agent: self._queue_for(agent or self.agent),
            with_forks=forks == "erase",
        )

    async def hold(self, selector: str, *, case: str, by: str, reason: str = "") -> Hold:
        """Keep a task, a session or a person's data: erase and delete refuse it from now on.

        An erasure that has begun goes on. In a bucket with Object Lock, what there is gets a legal
        hold of S3; what is written later gets it when this is called again.

        Args:
            selector: "task:ID", "session:NAME" or "person:NAME".
            case: The case that it is held for; something can be held for several.
            by: Who holds it.
            reason: Why.

        Raises:
            InvalidArgumentError: The selector names nothing, or a name is missing.
            ArchiveError: The archive cannot be used; or it is held, and not all is locked in its
                bucket, as the text says.
        """
        kind, name, code = await self._held(selector, case, by, reason)
        held = await add_hold(self.archive, kind, name, code, case=case, by=by, reason=reason)
        return await lock(self._read, held)

    async def end_hold(self, selector: str, *, case: str, by: str, reason: str = "") -> Hold:
        """End a hold. Its record stays.

        Raises:
            NotFoundError: Nothing of that name was ever held for that case.
            InvalidArgumentError: As for `hold`.
            ArchiveError: The archive cannot be used. Repeat it: some files may be locked still.
        """
        _, _, code = await self._held(selector, case, by, reason)
        held = await find_hold(self.archive, code, case=case)
        await unlock(self.archive, held)
        ended = await end_hold(self.archive, held, by=by, reason=reason)
        await unlock(self.archive, held)  # what a hold that has ended meanwhile had locked as well
        return ended

    async def list_holds(self, *, ended: bool = False) -> list[Hold]:
        """List what is held, oldest first; with `ended` also what is not any more.

        Raises:
            ArchiveError: The archive cannot be used.
        """
        return await read_holds(self.archive, ended=ended)

    async def _held(self, selector: str, case: str, by: str, reason: str) -> tuple[Kind, str, str]:
        check_arguments(TaskErasing.hold, selector=selector, reason=reason)
        check_name("case", case)
        if not check_by(by):
            raise InvalidArgumentError("A hold has a person who sets or ends it: by=...")
        found = SELECTOR.fullmatch(selector)
        if found is None:
            msg = f"{selector!r} names nothing: say task:ID, session:NAME or person:NAME."
            raise InvalidArgumentError(msg)
        kind, name = self._selected(**{found[1]: found[2]})
        return kind, found[2], await code_of(self.archive, kind, name)

    def _selected(
        self,
        task: TaskLike | None = None,
        session: str | Session | None = None,
        person: str | None = None,
    ) -> tuple[Kind, str]:
        """Return which of these is given, and its name.

        Raises:
            InvalidArgumentError: None or several are.
        """
        if task is not None and session is None and person is None:
            return "task", id_of(task)
        if session is not None and task is None and person is None:
            return "session", self.session(session).id
        if person is not None and task is None and session is None:
            return "person", check_name("person", person)
        raise InvalidArgumentError("Name one of these: a task, session=... or person=...")

    async def _certificate(self, kind: Kind, code: str) -> Json | None:
        """Read the newest certificate; None without one."""
        if kind == "task":
            return await self.archive.afind_record(record_name(ERASURES, code))
        names = await self.archive.alist_records(certificates_of(kind, code))
        return await self.archive.afind_record(names[-1]) if names else None

    async def _erased(self, given: Erasure) -> dict[str, Json]:
        """Have a workflow erase; return the certificate.

        Raises:
            CommandRefusedError: Something is in the way; nothing was erased.
        """
        await self._read.presence.expect(given.queue, task_id=given.task)
        with server_errors():
            await self.client.start_workflow(
                "Erasure",
                given,
                id=f"{given.task}~erasure",
                task_queue=given.queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )
        for each in given.tasks:
            self._read.records.forget(each)
        await self._ended(given.task)
        own = await self.archive.afind_record(certificate_name(given))
        return as_object(own or await self._certificate(given.kind, given.task))  # of one before

    async def _ended(self, code: str) -> None:
        """Wait for the end of an erasure.

        Raises:
            CommandRefusedError: Something is in the way; nothing was erased.
        """
        handle = self.client.get_workflow_handle(f"{code}~erasure", result_type=str)
        try:
            with server_errors(RPCStatusCode.NOT_FOUND):
                await handle.result()
        except WorkflowFailureError as error:
            cause = getattr(error.cause, "cause", None)
            if not isinstance(cause, ApplicationError):
                raise
            raise CommandRefusedError(cause.message) from None

    async def _abandoned(self, task_id: str, by: str, reason: str) -> None:
        """Undo what a task did as far as its tools can, abandon it, and wait for its end.

        Raises:
            UndoFailedError: An `undo=` failed. Nothing was erased.
        """
        with server_errors(RPCStatusCode.NOT_FOUND):
            run = await find_run(self.client, task_id)
        if run is None or run.close_time is not None:
            return
        origin = await origin_of(run)
        asked = UndoRequest(
            to=origin[1] if origin else 0, residue="keep", by=by, reason=f"erased: {reason}"
        )
        task = await self._read.task(task_id)
        upcoming = await self._read.upcoming(task_id)
        if task.steps > asked.to or upcoming:
            with suppress(InvalidArgumentError):  # it has nothing to undo
                await self._tasks.undo(task_id, asked, unique_id())
        await self._tasks.command(task_id, "abandon", by=by, body={"reason": reason})
        for pause in pauses(0.05, 1.0):
            run = await find_run(self.client, task_id)
            if run is None or run.close_time is not None:
                return
            await asyncio.sleep(pause)


def _refuse(plan: Plan) -> None:
    """Refuse a plan that something is in the way of.

    Raises:
        CommandRefusedError: Tasks are open, or have forks.
    """
    if plan.opens:
        named = ", ".join(map(repr, plan.opens))
        is_one = len(plan.opens) == 1
        subject = f"Task {named} is" if is_one else f"Tasks {named} are"
        msg = f"{subject} open; nothing was erased."
        remedy = "Finalize or abandon first, or: open_tasks='abandon', --abandon-open."
        raise CommandRefusedError(msg, remedy=remedy)
    for task, forks in plan.forks.items():
        msg = (
            f"Task {task!r} has forks, which have copies of its texts: {', '.join(forks)}. Nothing"
            " was erased."
        )
        remedy = "Name them as well: forks='erase', --with-forks."
        raise CommandRefusedError(msg, remedy=remedy)
