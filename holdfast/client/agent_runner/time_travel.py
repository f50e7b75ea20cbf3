"""Undo and rewind of a task's steps, and forks of a task."""

from __future__ import annotations

import time
from typing import Literal, cast

from holdfast.archive.bytestore import FORKS, folder_of, record_name, writing_for
from holdfast.archive.segments import write_segment
from holdfast.client.agent_runner.base import (
    Images,
    StepLike,
    TaskLike,
    id_of,
    new_id,
    no_completed_step,
    step_id_of,
)
from holdfast.client.agent_runner.creation import TaskCreation
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.task_client.task_client import request_id_of
from holdfast.errors import InvalidArgumentError, StepNotFoundError, TaskClosedError
from holdfast.task.data.commands import LONGEST_REASON
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.records import DEPARTED, Entry, EventRecord, ForkOf, InputRef, StepRecord
from holdfast.task.data.state import Carried
from holdfast.task.data.undo import Newest, UndoRequest
from holdfast.task.data.wire import INLINE_BYTES
from holdfast.task.ledger.queue import DONE_KEPT, with_queue
from holdfast.task.ledger.recording import CREATED, answer_of, lines_after, output_digest
from holdfast.task.undo import active_steps, departure, is_of, path_to, receipt_of, undone_meanwhile
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, extend
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import DEFAULT_APP, check_by, check_name, check_new_id, is_of_agent
from holdfast.values.messages import ImagePart, Message
from holdfast.values.steps import Task, TaskStepOutput, UndoReceipt
from holdfast.values.text.shown import shown

LEFT = (
    "This task departs from step {} of task {}, which was undone there: what its tools did may have"
    " been taken back. Check before you rely on it."
)

Residue = Literal["refuse", "keep"]


class TimeTravel(TaskCreation):
    """The part of AgentRunner that undoes steps and forks tasks."""

    async def undo_step(
        self,
        task: TaskLike,
        residue: Residue = "refuse",
        *,
        by: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> UndoReceipt:
        """Undo the step in progress, else the last completed one.

        Queue, state, transcript and budget are as they were before it. Effects are undone newest
        first by their tools' `undo=`; the undone branch stays in the ledger.

        Args:
            task: The task, not finalized.
            residue: "refuse": refuse when an effect cannot be undone. "keep": undo the rest and
                record the effects that remain.
            by: Who asks.
            reason: Why; the model sees it.
            request_id: Names this request: sent again with the same id, one step is undone.

        Raises:
            UndoRefusedError: Effects are in the way; the text lists them. Nothing was changed.
            UndoFailedError: An `undo=` failed. What was undone before stays undone; ask again.
            CommandRefusedError: Since this was called, another step has begun or steps were undone.
                Nothing was changed.
            TaskClosedError: The task is closed; fork it.
            NoWorkerError: No worker process serves the task; the error names the request.
        """
        check_arguments(TimeTravel.undo_step, residue=residue, reason=reason)
        check_by(by)
        task_id, request_id = id_of(task), request_id_of(request_id)
        await self._tasks.expect_worker(task_id, request_id)
        try:
            newest = await self._read.query(task_id, "newest", Newest)
        except TaskClosedError:
            raise await self._tasks.closed_error(task_id) from None
        to = newest.to if newest.opened else -1
        asked = UndoRequest(to=to, newest=newest, residue=residue, by=by, reason=reason)
        return await self._undo(task_id, asked, request_id)

    async def rewind(
        self,
        task: TaskLike,
        to: StepLike,
        residue: Residue = "refuse",
        *,
        by: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> UndoReceipt:
        """Undo all steps after one.

        Args:
            task: The task, not finalized.
            to: The last step to keep: its output, the step, or its id.
            residue: As for undo_step.
            by: Who asks.
            reason: Why; the model sees it.
            request_id: As for undo_step.

        Raises:
            StepNotFoundError: No such step is completed on the present branch; it may have been
                undone meanwhile. Nothing was changed.
            UndoRefusedError: As for undo_step.
            UndoFailedError: As for undo_step.
        """
        check_arguments(TimeTravel.rewind, residue=residue, reason=reason)
        check_by(by)
        step_id_of(to)
        task_id, request_id = id_of(task), request_id_of(request_id)
        kept = _kept(await self._read.entries(task_id), to)
        asked = UndoRequest(
            to=kept.n,
            step=kept.step.step_id,
            branch=kept.branch,
            residue=residue,
            by=by,
            reason=reason,
        )
        return await self._undo(task_id, asked, request_id)

    async def fork(
        self,
        task: TaskLike,
        at: StepLike,
        input: str | None = None,
        *,
        agent: str | None = None,
        feedback: str | None = None,
        task_id: str | None = None,
        session: str | Session | None = None,
        by: str = "",
        reason: str = "",
        images: Images = (),
    ) -> Task:
        """Start a new task from a step of this one, open or closed, on any branch.

        The new task has the steps up to and including that one in its ledger. None of them runs
        again, and the old task is not touched. Its budget and the rules of its run (guardrails,
        filters, error handlers, the class of the context) hold for the fork as well; the budget
        counts what the fork itself spends.

        Args:
            task: The task to depart from.
            at: The last step that both share: its output (which knows its branch), the step or its
                id on the present branch.
            input: New user input, at most 16 KB, for the agent whose turn it was at that step;
                without it the fork goes on with the steps queued there.
            agent: Another agent to go on with; it sees what the original one would have seen.
            feedback: Message to the model before its next call.
            task_id: Id of the new task.
            session: Session of the new task. By default it commits to none, but its model still
                sees the history that the old task read from its session.
            by: Who asks.
            reason: Why; it is in the audit of the new task, cut to 2,000 characters.
            images: Images of the new input, which may consist of images alone.

        Raises:
            InvalidArgumentError: The input is empty or too large, or an image is not one; nothing
                was written.
            TaskNotFoundError: There is no such task.
            StepNotFoundError: There is no such step.
            TaskExistsError: There is a task of the new id.
        """
        _check_input(input)
        check_arguments(TimeTravel.fork, feedback=feedback, reason=reason)
        check_by(by)
        step_id_of(at)
        if task_id is not None:
            check_new_id(task_id)
        if agent is not None:
            self._require_agent(check_name("agent", agent))
        old = await self._read.task(id_of(task))
        entries = await self._read.entries(old.task_id)
        path = path_to(entries, _find_anywhere(entries, at))
        known = await self._read.head(old.task_id)
        of_engine, session = self._of_tenant(known.tenant, session)
        head = _head_of_fork(known, agent, self._session_ref(session))
        head = head.model_copy(update={"asker": by or head.asker})
        queue = await self._queue_of_fork(old.task_id, head.agent, is_other=agent is not None)
        shared: dict[str, Json] = {"from": old.task_id, "at": path[-1].n}
        said = reason[:LONGEST_REASON]
        mark = EventRecord(kind="forked", at=time.time(), by=by, text=said, body=shared)
        new = new_id(head.agent) if task_id is None else task_id
        with writing_for(new):
            _, _, parts = await self._input(None, images, task=new)
            if parts and input is None:
                input = ""  # the step's input is the images
            carried = await self._departure(
                entries, path, mark, text=input, feedback=feedback, images=parts
            )
            given = await self._task_input(head, old.input or None, task=new, budget=old.budget)
        if agent is not None:
            carried = _handed_to_first(carried)
        given = given.model_copy(update={"images": old.images, "carried": carried})
        origin = (old.task_id, path[-1].n)
        # Before the fork exists: an erasure of this task must find all copies of its texts.
        name = record_name(folder_of(FORKS, old.task_id), new)
        await self.archive.aput_record(name, {"task": new, "at": path[-1].n})
        await self._tasks.start(new, given, queue, old.input, origin=origin, priority=of_engine)
        return Task(
            task_id=new,
            input=old.input,
            agent=head.agent,
            session=head.session.name if head.session else "",
            extra_state=carried.extra_state,
            created=carried.created,
            steps=len(path),
            images=old.images,
            budget=old.budget,
        )

    async def _queue_of_fork(self, task_id: str, agent: str, *, is_other: bool) -> str:
        """Return the task queue of a fork.

        In the default app an agent that is a tool of another has no queue of its own: its tasks and
        their forks are in the calling agent's queue.

        Args:
            task_id: The task that is forked.
            agent: The agent of the fork.
            is_other: Whether it is not the one of that task.

        Raises:
            InvalidArgumentError: This runner serves its own agents, and this is another one.
        """
        if self.app == DEFAULT_APP and not is_other and not self._queue:
            queue = await self._read.presence.queue_if_known(task_id)
            engine = self._engine
            if is_of_agent(queue) and (engine is None or engine.polls(queue)):
                return queue
        self._require_agent(agent)
        return self._queue_for(agent)

    async def _departure(
        self,
        entries: list[Entry],
        path: list[StepRecord],
        mark: EventRecord,
        *,
        text: str | None,
        feedback: str | None,
        images: tuple[ImagePart, ...],
    ) -> Carried:
        """Archive the steps that both tasks share; return the state in which the fork begins."""
        was_undone = path[-1] not in active_steps(entries)
        origin = next((e for e in entries if e.event is not None and e.event.kind == CREATED), None)
        path = [record.model_copy(update={"opened": 0}) for record in path]
        kept = [*((origin,) if origin else ()), *(Entry(step=record) for record in path)]
        kept.append(Entry(event=mark))
        segment = await write_segment(self.archive, kept)
        body = origin.event.body if origin and origin.event else {}
        state: dict[str, Json] = dict(body.get("extra_state", {}))
        for record in path:
            state = merge_patch.apply(state, record.patch)
        said = LEFT.format(path[-1].step.step_id, mark.body["from"])
        left = Message(role="system", content=said, call_id=DEPARTED)
        begun = departure(
            path,
            state,
            segment,
            ledger=ChainRef(len(kept), extend("", kept)),
            fork=ForkOf(task=str(mark.body["from"]), n=path[-1].n),
            text=text,
            feedback=feedback,
            notes=(left,) if was_undone else (),
            images=images,
        )
        # Never below those of the shared steps: branch and id identify a step after undos, too.
        branch = max(record.branch for record in path)
        done = {r.step.step_id: InputRef(r.n, output_digest(r)) for r in path[-DONE_KEPT:]}
        known: dict[int, int] = {}
        for record in path:
            known.setdefault(record.branch, record.n)
        changes: dict[str, object] = {
            "created": mark.at,
            "branch": branch,
            "done": done,
            "path": tuple(known.items()),
            "log": begun.log.model_copy(update={"lines": lines_after((), kept, path[-1].n)}),
            "answer": answer_of(path[-1]) if begun.answered else None,
        }
        return begun.model_copy(update=changes)

    async def _undo(self, task_id: str, asked: UndoRequest, request_id: str) -> UndoReceipt:
        begins = f"undo:{asked.step}:"  # else the answer to another request of this id would come
        request_id = begins + request_id.removeprefix(begins)
        receipt = await self._tasks.undo(task_id, asked, request_id)
        if receipt.steps:
            return receipt
        # It waits, or did when the server kept this reply; or what it did is in the archive.
        events = [entry.event for entry in await self._read.entries(task_id)]
        own = [event for event in events if event is not None and is_of(event, request_id)]
        return receipt_of(own[-1]) if own else receipt


def _check_input(text: str | None) -> None:
    """Refuse an input that a fork cannot carry, before anything is read or written.

    Raises:
        InvalidArgumentError: It is empty, or larger than 16 KB.
    """
    if text is None:
        return
    if not isinstance(cast("object", text), str) or not text.strip():
        msg = f"The input must be a text that says something; it was {shown(text)}."
        raise InvalidArgumentError(msg)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > INLINE_BYTES:
        raise InvalidArgumentError(
            f"The input of a fork may have at most 16 KB; this has {size} bytes. Fork without an"
            " input and give it with run_step(fork, input=...)."
        )


def _head_of_fork(known: TaskHead, agent: str | None, session: SessionRef | None) -> TaskHead:
    """Return the head of a fork; the rules of the old task's run hold for it as well."""
    return TaskHead(
        agent=agent or known.agent,
        session=session,
        reads=known.session or known.reads if session is None else None,
        history=known.history,
        dialect=known.dialect,
        model=known.model,
        settings=known.settings,
        run=known.run.forked(),
        asker=known.asker,
        follows=known.follows,
        tenant=known.tenant,
    )


def _handed_to_first(carried: Carried) -> Carried:
    """Give all queued steps to the first agent of the fork."""
    first = {"agent": "", "enters": True}
    queue = tuple(step.model_copy(update=first) for step in carried.queue)
    return with_queue(carried, queue).model_copy(update={"last_step": None})


def _find(steps: list[StepRecord], wanted: StepLike) -> StepRecord:
    """Find a step by its id; an output must be of the same branch as well.

    Ids are reused after an undo: an undone step and a standing one may have the same id.
    """
    step_id = step_id_of(wanted)
    for record in reversed(steps):
        same = not isinstance(wanted, TaskStepOutput) or wanted.branch == record.branch
        if same and record.step.step_id == step_id:
            return record
    raise no_completed_step(step_id, [record.step.step_id for record in steps])


def _kept(entries: list[Entry], wanted: StepLike) -> StepRecord:
    """Find the step that a rewind keeps.

    Raises:
        StepNotFoundError: It does not exist, or it was undone.
    """
    if isinstance(wanted, TaskStepOutput):
        step = wanted.task_step.step_id
        for record in (entry.step for entry in entries if entry.step is not None):
            is_it = (record.branch, record.step.step_id) == (wanted.branch, step)
            if is_it and record not in active_steps(entries):
                raise StepNotFoundError(undone_meanwhile(step, record.n, record.branch))
    return _find(active_steps(entries), wanted)


def _find_anywhere(entries: list[Entry], wanted: StepLike) -> StepRecord:
    """Find a step by its output, which knows its branch, or on the present branch by its id."""
    if not isinstance(wanted, TaskStepOutput):
        return _find(active_steps(entries), wanted)
    return _find([entry.step for entry in entries if entry.step is not None], wanted)
