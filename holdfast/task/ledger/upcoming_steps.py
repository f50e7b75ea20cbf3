"""Steps to come: what a finished step hands on to them, joins of last outputs, new input. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.task.data.commands import RunRequest
from holdfast.task.data.records import InputRef, OpenState, StepRecord
from holdfast.task.data.state import TaskInput
from holdfast.task.data.undo import FollowUp
from holdfast.task.ledger.open_steps import OpenSteps
from holdfast.task.ledger.queue import queued_with, ready_steps, serial_of
from holdfast.task.ledger.queue_changes import join_of, lasts_after
from holdfast.task.ledger.references import output_digest
from holdfast.values.base import ChainRef, Json
from holdfast.values.messages import ImagePart
from holdfast.values.steps import TaskStep

DONE_KEPT = 1000
"""Most completed steps, of those with a name of their own, that later steps can be linked to."""


class UpcomingSteps(OpenSteps):
    """The part of the ledger that queues steps."""

    def __init__(self, given: TaskInput, *, task_id: str, now: float) -> None:
        """Begin a task, or go on with one that continued as new.

        Args:
            given: The workflow's input.
            task_id: The task's id.
            now: Time in seconds since the epoch.
        """
        super().__init__(given, task_id=task_id, now=now)
        self._ready = (self.s.opens, self.s.queue, self._ready_now())

    def ready(self) -> tuple[TaskStep, ...]:
        """List the queued steps that wait for no other."""
        opens, queue = self.s.opens, self.s.queue
        if self._ready[0] is not opens or self._ready[1] is not queue:
            self._ready = (opens, queue, self._ready_now())
        return self._ready[2]

    def _ready_now(self) -> tuple[TaskStep, ...]:
        # A join runs alone: it makes one answer of what all the others have left.
        if any(c.open.step.is_join for c in self.s.opens):
            return ()
        ready = ready_steps(self.s.queue, [c.open.step.step_id for c in self.s.opens])
        return tuple(step for step in ready if step.is_join) or ready

    def _move_head(
        self,
        record: StepRecord,
        current: OpenState,
        *,
        state: dict[str, Json],
        transcript: ChainRef,
    ) -> None:
        """Let the task go on from a step that is recorded, with its state and transcript."""
        # Of several steps side by side no single one has the answer; a join makes it.
        answered = record.last and current.alone
        if not self.s.path or self.s.path[-1][0] != self.s.branch:
            self.change(path=(*self.s.path, (self.s.branch, record.n)))
        self.change(
            opens=tuple(other for other in self.s.opens if other.n != current.n),
            steps=record.n,
            queue=queued_with(self.s.queue, record.next),
            extra_state=state,
            transcript=transcript,
            answered=answered,
            concluded=answered,
            last_step=record.step if answered and record.step.agent else None,
            lasts=lasts_after(self.s.lasts, record),
        )
        self._hand_on(record)
        if answered:
            self.follow_up(is_over=bool(self.exceeded(now=record.ended)))

    def _hand_on(self, record: StepRecord) -> None:
        """Keep a step's output for the steps that wait for it; join last outputs.

        Steps with an id that a worker gave are kept as well: later steps may name them in
        `prev_steps`.
        """
        step_id = record.step.step_id
        waited = {id for step in self.s.queue for id in step.prev_steps}
        waited |= {last.step_id for last in self.s.lasts}
        if step_id in waited or not serial_of(step_id):
            done = {**self.s.done, step_id: InputRef(record.n, output_digest(record))}
            extra = [id for id in done if id not in waited]
            for id in extra[: max(len(extra) - DONE_KEPT, 0)]:
                del done[id]
            self.change(done=done)
        if not self.s.opens:
            self.join_lasts()

    def join_lasts(self) -> None:
        """Queue a step that makes one answer of several last outputs, if there are any."""
        if not self.s.lasts:
            return
        [join] = self._number([join_of(self.s.lasts)])
        self.change(queue=(join, *self.s.queue), lasts=())

    def follow_up(self, *, is_over: bool = False) -> None:
        """Queue what people have said that the answer does not know yet, or what waited for it.

        Args:
            is_over: Whether the budget is used up. The answer then stands without what was said: a
                word must not turn it into a failure.
        """
        # In one activation with the step's end: words that came during its model call begin the
        # next step, and no client sees an answer in between that lacks them.
        said = [] if is_over else self.unread[: -len(self.s.followups) or None]
        if said:
            self.change(notes=tuple(note for note in self.s.notes if note.role != "user"))
            self._enter("\n\n".join(said))
        elif self.s.followups:
            first, *rest = self.s.followups
            self.change(followups=tuple(rest))
            self._enter(first)

    @property
    def unread(self) -> list[str]:
        """What people have said to the model that no call of it has read."""
        said = (note.text for note in self.s.notes if note.role == "user")
        return [*said, *self.s.followups]

    def ask_further(self, asked: RunRequest) -> None:
        """Queue the follow-up that a request to run a step brings."""
        step_id = self._enter(asked.input or None, asked.images)
        self.change(further=FollowUp(step=step_id, stored=asked.stored))

    def _enter(self, text: str | None, images: tuple[ImagePart, ...] = ()) -> str:
        """Queue a new input of the user; the agent that gave the answer goes on with it.

        Returns:
            The id of the step.
        """
        serial = self.s.serial + 1
        step = TaskStep(
            step_id=f"s{serial}",
            input=text,
            images=images,
            enters=True,
            behind=len(self.s.notes),
        )
        if self.s.last_step is not None:
            step = step.after(self.s.last_step)
        # The caller that asks further has seen the answer.
        self.change(queue=(*self.s.queue, step), serial=serial, answered=False, given=())
        return step.step_id

    def _number(self, steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
        """Give ids to the steps that came without one."""
        serial = self.s.serial
        numbered: list[TaskStep] = []
        for step in steps:
            serial += 1
            numbered.append(
                step.model_copy(update={"step_id": step.step_id or f"s{serial}", "task_id": ""})
            )
        self.change(serial=serial)
        return tuple(numbered)
