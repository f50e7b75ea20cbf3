"""Steps to come: what a finished step hands on to them, joins of last outputs, new input. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.task.data.commands import RunRequest
from holdfast.task.data.records import InputRef, StepRecord
from holdfast.task.data.undo import FollowUp
from holdfast.task.ledger.open_steps import OpenSteps
from holdfast.task.ledger.queue import serial_of
from holdfast.task.ledger.queue_changes import join_of
from holdfast.task.ledger.references import output_digest
from holdfast.values.messages import ImagePart
from holdfast.values.steps import TaskStep

DONE_KEPT = 1000
"""Most completed steps, of those with a name of their own, that later steps can be linked to."""


class UpcomingSteps(OpenSteps):
    """The part of the ledger that queues steps."""

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

    def follow_up(self) -> None:
        """Queue the first input that waited for the answer."""
        first, *rest = self.s.followups
        self.change(followups=tuple(rest))
        self._enter(first)

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
        step = TaskStep(step_id=f"s{serial}", input=text, images=images, enters=True)
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
