"""Steps that follow in the activity of the first one, as long as they are fast.

An activity costs a step three events, a workflow task and two polls; with a model and tools that
answer in milliseconds, that is most of the step's time. So an activity that has completed a step
fast runs the next one as well, and its result brings all of them. It does so only while nothing
has happened to the task since the activity was scheduled, which it asks the server before each
step: feedback, a pause or any other news is seen by the same model call as if each step had an
activity of its own. What a lost worker had completed is in the heartbeats, as for `InlineCalls`,
and a step that turns out slow has the steps before it reported to the task meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1.workflow_pb2 import (
    PENDING_ACTIVITY_STATE_STARTED,
    WORKFLOW_EXECUTION_STATUS_RUNNING,
)
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast.activities.data.cache import Ahead
from holdfast.activities.data.source import Source
from holdfast.activities.failures import check_readable, failure_in
from holdfast.activities.heartbeat import Pulse
from holdfast.activities.owning_task import OwningTask
from holdfast.activities.steps.model_call import Asking
from holdfast.activities.tools.inline import acknowledged, handed_over, is_task_leaving
from holdfast.errors import DigestMismatchError
from holdfast.task.data.records import OpenState, OpenStep
from holdfast.task.data.wire import Advanced, AdvanceInput, HandedOver, StepsDone
from holdfast.task.ledger.ledger import AT_DIGITS
from holdfast.task.ledger.references import cost_of, resolve_adds
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, canonical, extend
from holdfast.values.messages import Usage
from holdfast.values.steps import TaskStep
from holdfast.values.text.logs import log

STEP_SECONDS = 0.75
"""Longest time of a step after which its activity runs the next one. With one that is reported as
slow, see `REPORT_SECONDS`, the activity ends anyhow."""

BEGIN_SECONDS = 1.5
"""How long after its begin an activity begins steps."""

MOST_BYTES = 64 * 1024
"""Size of results at which an activity begins no further step: each heartbeat carries them."""

REPORT_SECONDS = 0.75
"""How long a further step may take before the task is told of those before it."""

REPORT_LIMIT = 10.0
"""How long the failure of a further step waits for that report, in seconds."""

OWN_EVENTS = 5
"""Most events that the workflow task which schedules a step adds to the history: its end and four
of its commands. News adds four more at least: its own event, and three of its workflow task."""

DESCRIBE_LIMIT = timedelta(seconds=5)


class StepRun:
    """The steps that one attempt of an activity runs, one after the other.

    Attributes:
        given: The input of the step that is run.
        done: Results of the completed ones, oldest first.
        asking: Makes the model call of the present step, once that is known.
        began: When the present step was begun, seconds since the epoch; 0 for the first one.
    """

    def __init__(self, given: AdvanceInput, source: Source) -> None:
        """Begin with the step that the activity was scheduled for."""
        self.given = given
        self.done: list[Advanced] = []
        self.asking: Asking | None = None
        self.began = 0.0
        self._first = given
        self._source = source
        self._written: list[Json] = []
        self._size = 0
        self._is_reported = False
        self._began_at = self._step_at = time.monotonic()
        self._late: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
        """Keep the completed steps when a later one fails, or is cancelled.

        When the server would not try again, the failure becomes a part of the result, since that of
        an activity has none: what users' code raises stops the step, and the code is not called
        once more. A failed model call counts as an attempt, so the next attempt goes on with it.
        What has failed before it and may heal gets an activity of its own; so does a step whose
        transcript this process no longer has, since the task does not know it yet.

        Raises:
            ApplicationError: The server is to try again.
        """
        try:
            yield
        except asyncio.CancelledError:
            if not self.done or not is_task_leaving():
                raise
            if self.given.n - self._first.n == len(self.done):  # that step has no result
                self._add(Advanced(result=None, unbegun=True))
        except ApplicationError as error:
            if not self.done:
                raise
            is_known = error.type != DigestMismatchError.__name__
            if _is_final(error) and (is_known or self._is_paid):
                self._add(Advanced(result=None, raised=failure_in(error)))
            elif self._is_paid:
                await self.report_soon()
                raise
        finally:
            if self._late is not None:
                self._late.cancel()
            self._source.memory().ahead.clear()

    @property
    def _is_paid(self) -> bool:
        """Whether the present step has made a model call, in this attempt or an earlier one."""
        is_known = handed_over().paid is not None
        return is_known or (self.asking is not None and self.asking.progress != "")

    def result(self) -> Advanced:
        """Return the result of the activity."""
        first, *further = self.done
        return first.model_copy(update={"further": tuple(further)}) if further else first

    def written(self) -> list[Json]:
        """Return the results of the completed steps as JSON data, which each heartbeat carries."""
        for each in self.done[len(self._written) :]:
            data = each.wire()
            self._written.append(data)
            self._size += len(canonical(data))
        return [*self._written]

    def complete(self, advanced: Advanced) -> None:
        """Take the result of the present step; one that cannot be recorded fails that step only."""
        if self._late is not None:
            self._late.cancel()
        try:
            if self.done:
                check_readable(advanced, Advanced)
        except ApplicationError as error:
            advanced = Advanced(result=None, raised=failure_in(error))
        self._add(advanced)

    def _add(self, advanced: Advanced) -> None:
        if self.done and not advanced.began:
            stamp = {"began": self.began, "at": self.given.at.digest}
            advanced = advanced.model_copy(update=stamp)
        self.done.append(advanced)

    async def goes_on(self, state: OpenState | None, pulse: Pulse) -> bool:
        """Whether the activity is to run the next step as well; it is then the present one.

        Args:
            state: The completed step with its calls, as the task will have it.
            pulse: The activity's heartbeats.
        """
        advanced = self.done[-1]
        if state is None or not self._may_go_on() or not _is_plain(advanced, state):
            return False
        try:
            if len(self.done) == 1:  # the others were checked
                check_readable(advanced, Advanced)
        except ApplicationError:
            return False  # the activity fails with it, once it ends
        began = round(time.time(), 3)
        details = {**HandedOver(runs={}, began=began).wire(), "further": self.written()}
        if self._size > MOST_BYTES or not await self._is_handed_over(pulse, details):
            return False
        self.follow(advanced, state, began)
        self._late = asyncio.create_task(self._report_late())
        return True

    def follow(self, advanced: Advanced, state: OpenState, began: float) -> None:
        """Make the step after a completed one the present one.

        Args:
            advanced: The result of the completed step.
            state: The step with its calls, as the task will have it.
            began: When the next one was begun, here or by the worker that was lost.
        """
        memory, result, given = self._source.memory(), advanced.result, self.given
        if result is None:
            msg = "a step is followed only after its result is known"
            raise RuntimeError(msg)
        outcomes = [advanced.told[i] for i in range(len(state.calls))]
        said = [each.message(call) for each, call in zip(outcomes, state.calls, strict=True)]
        adds = (*resolve_adds(result, state), *said)
        before = memory.digest_at(given.at.length) or ""
        at = ChainRef(given.at.length + len(adds), extend(before, adds)[:AT_DIGITS])
        changed, _ = merge_patch.merge(state.state, [each.patch for each in outcomes])
        cost = Usage() if advanced.answer is None else cost_of(advanced.answer)
        memory.ahead[given.n] = Ahead(cost, changed)
        following = TaskStep().after(state.open.step).placed(at.length)
        n = given.n + 1
        self.given = given.model_copy(
            update={
                "n": n,
                "at": at,
                "journal": ChainRef(),
                "open": OpenStep(
                    step=following.model_copy(update={"step_id": f"s{n}"}), state=changed
                ),
                "digest": "",
                "tried": 0,
            }
        )
        self.asking = None
        self._step_at, self.began = time.monotonic(), began

    def _may_go_on(self) -> bool:
        """Whether this attempt may run further steps, as far as is known here."""
        leave, now = self._first.further, time.monotonic()
        return (
            leave is not None
            and len(self.done) < leave.most
            and activity.info().attempt == 1
            and not self._is_reported
            and self._source.memory().holds(self.given.at)
            and not activity.is_worker_shutdown()
            and now - self._step_at < STEP_SECONDS
            and now - self._began_at < BEGIN_SECONDS
        )

    async def _is_handed_over(self, pulse: Pulse, details: dict[str, Json]) -> bool:
        """Hand what is done to the server; return whether it has it, and has no news.

        What was done lets another model call begin: no loss of this process may undo it then.
        """
        pulse.carry(lambda: details)
        # Side by side: with a fast model, waiting for the server is most of a step.
        is_there, no_news = await asyncio.gather(acknowledged(pulse), self._has_no_news())
        return is_there and no_news

    async def _has_no_news(self) -> bool:
        """Ask the server whether nothing has happened to the task since it scheduled the activity.

        News that no workflow task has handled yet has one pending; handled news has made the
        history longer. Heartbeats add nothing to it.
        """
        info, leave = activity.info(), self._first.further
        asked = DescribeWorkflowExecutionRequest(
            namespace=info.namespace,
            execution=WorkflowExecution(
                workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or ""
            ),
        )
        try:
            found = await activity.client().workflow_service.describe_workflow_execution(
                asked, timeout=DESCRIBE_LIMIT
            )
        except RPCError as error:
            log.debug("A task cannot be asked for news before its next step: %s", error.status)
            return False
        mine = [each for each in found.pending_activities if each.activity_id == info.activity_id]
        return (
            leave is not None
            and len(mine) == len(found.pending_activities) == 1
            and found.workflow_execution_info.status == WORKFLOW_EXECUTION_STATUS_RUNNING
            and mine[0].state == PENDING_ACTIVITY_STATE_STARTED
            and not found.HasField("pending_workflow_task")
            and found.workflow_execution_info.history_length <= leave.events + OWN_EVENTS
        )

    async def _report_late(self) -> None:
        await asyncio.sleep(REPORT_SECONDS)
        try:
            await self._report()
        except Exception:
            log.exception("A task is not told of the steps that are done")

    async def report_soon(self) -> None:
        """Report what is done, if the task answers: this attempt or a later one may fail."""
        try:
            async with asyncio.timeout(REPORT_LIMIT):
                await self._report()
        except TimeoutError:
            log.info("A task does not answer, and is not told of the steps that are done")

    async def _report(self) -> None:
        """Tell the task of the completed steps, once, while the next one goes on."""
        if self._is_reported:
            return
        self._is_reported = True
        first, leave, task = self._first, self._first.further, OwningTask()
        secret = await task.secret()
        if secret is not None and leave is not None:
            done = StepsDone(
                secret=secret,
                branch=first.branch,
                n=first.n,
                events=leave.events,
                done=tuple(self.done),
                began=self.began,
            )
            await task.report(done)


def _is_final(error: ApplicationError) -> bool:
    """Whether the server does not try the activity again after this failure."""
    info = activity.info()
    most = 0 if info.retry_policy is None else info.retry_policy.maximum_attempts
    return error.non_retryable or 0 < most <= info.attempt


def _is_plain(advanced: Advanced, state: OpenState) -> bool:
    """Whether a step is over with calls that were all run here, and the usual step follows."""
    result = advanced.result
    if result is None or result.last or result.quiet or result.next != (TaskStep(),):
        return False
    if not state.calls or len(advanced.told) != len(state.calls):
        return False
    if advanced.cut or advanced.going or advanced.stopped or advanced.limit or advanced.lost:
        return False
    if advanced.failure is not None or advanced.needs is not None or advanced.unbegun:
        return False
    return all(each.failure is None for each in advanced.told.values())  # as of a hook that raised
