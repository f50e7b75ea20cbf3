"""Steps that one activity runs, one after the other, as the task records them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.task.data.commands import RunRequest
from holdfast.task.data.failures import Failure, facts
from holdfast.task.data.records import OpenState
from holdfast.task.data.state import Described
from holdfast.task.data.wire import UNBEGUN, Advanced, AdvanceInput, Further
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.background import begin
from holdfast.workflows.core import Core, StepRun, Work

NEXT = RunRequest()
"""With it the task itself begins a step."""

FEWEST = 2
"""Fewest steps that make it worth while to let an activity run more than one."""


class Finish(Protocol):
    """Closes a step that is complete."""

    def __call__(self, n: int, ended: float) -> None:
        """Close the step; it ended then, in seconds since the epoch."""
        ...


class FurtherSteps:
    """Lets an activity run several steps, and records each as if it had one of its own.

    An activity goes on with the next step only while nothing has happened to the task. What has
    happened since such a step was begun counts as after its begin: the task records first what the
    activity did, all at once, and only then looks at requests, a pause or its budget.

    An activity may outlive the unit of work that it is part of, as when its worker was lost before
    an undo. So the units are told apart: what the one knows of its activity is not the other's.
    """

    def __init__(self, core: Core, finish: Finish) -> None:
        """Drive this task; `finish` closes a step."""
        self._core = core
        self._finish = finish
        self._places: dict[tuple[Work, int], int] = {}

    def at(self, n: int, work: Work) -> int:
        """Return the step that the activity which began with this one has got to."""
        return self._places.get((work, n), n)

    def taken(self, work: Work) -> list[int]:
        """List the steps, beyond those with which they began, that activities have got to."""
        return [n for (unit, _), n in self._places.items() if unit is work]

    def forget(self, n: int, work: Work) -> None:
        """Forget what is known of the activity that began with a step: it is over, or is left."""
        self._places.pop((work, n), None)

    def leave(self, n: int) -> Further | None:
        """Return the leave that a step's activity has to go on with the next; None for none.

        It has none where the task must decide something between two steps: whether a request wants
        no more than one, whether the budget has tokens, time or money left, what runs side by side.
        Nor where someone follows the run: who streams it may stop it after each turn.
        """
        core, ledger, s = self._core, self._core.ledger, self._core.ledger.s
        current, budget, rules = ledger.at(n), ledger.given.budget, ledger.head.run
        described = s.described or Described(snapshot="")
        most = described.rules(current.open.step.agent).per_activity
        if budget is not None and budget.max_turns is not None:
            most = min(most, budget.max_turns - s.turns)
        if most < FEWEST or not self._is_plain(current) or core.requests.want_a_step:
            return None
        if rules.streams or rules.tool_concurrency or ledger.paused or not s.automatic:
            return None
        if s.queue or s.lasts or s.followups or core.requests.round is not None:
            return None
        if budget is not None and (budget.max_tokens, budget.max_seconds) != (None, None):
            return None
        return Further(most=most, events=workflow.info().get_current_history_length())

    def _is_plain(self, current: OpenState) -> bool:
        """Whether a step is the usual one of its number, and begins."""
        serial, n = self._core.ledger.s.serial, current.n
        usual = current.alone and serial == n and current.open.step.step_id == f"s{n}"
        return usual and not current.journal and not current.limit and not current.stream

    async def run(self, n: int, sent: AdvanceInput, work: Work) -> Advanced:
        """Run an activity; record all steps that it completes but the last.

        Args:
            n: The step with which it begins.
            sent: Its input.
            work: The unit of work that this is part of.

        Returns:
            The result of the step that it has got to, see `at`.

        Raises:
            ActivityError: The activity failed.
            ApplicationError: The step that it has got to failed.
            CancelledError: The step that it has got to was cut off.
        """
        core = self._core
        run, is_cut = StepRun(sent, work), False
        core.step_run = run
        asked = begin(calls.advance(core.ledger, n, sent))
        try:
            await workflow.wait_condition(lambda: asked.done() or run.said is not None)
            if run.said is not None and not core.is_left(work):
                begins = (*(each.began for each in run.said.done[1:]), run.said.began)
                for each, began in zip(run.said.done, begins, strict=True):
                    self._record(run, each, began)
            await workflow.wait([asked])
        except asyncio.CancelledError:  # not `finally`, as in `Steps._run_lanes`
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            if asked.cancelled() or asked.exception() is not None:
                raise
            is_cut = True
        finally:
            if core.step_run is run:  # else another unit has replaced this one
                core.step_run = None
        got = asked.result()
        if core.is_left(work):
            return got
        found = (got.model_copy(update={"further": ()}), *got.further)[run.recorded :]
        for each, following in itertools.pairwise(found):
            self._record(run, each, following.began)
        last = found[-1] if found else UNBEGUN
        self._check(run, last)
        if last.raised is not None:
            raise _error_of(last.raised)
        if is_cut and last.unbegun:
            raise asyncio.CancelledError
        return last

    def _check(self, run: StepRun, got: Advanced) -> None:
        """Check that the activity has run the step that is open, on the same transcript.

        Raises:
            RuntimeError: It has not, which is a defect.
        """
        if not self._core.ledger.s.transcript.digest.startswith(got.at):
            msg = f"step {run.at} of the activity is not the one that the task has opened"
            raise RuntimeError(msg)

    def _record(self, run: StepRun, got: Advanced, began: float) -> None:
        """Record a completed step, and open the one after it.

        Args:
            run: The activity.
            got: The result of the step.
            began: When the step after it was begun, by the clock of the worker.
        """
        ledger, n = self._core.ledger, run.at
        self._check(run, got)
        began = min(max(began, ledger.at(n).started), now())
        failure = ledger.advanced(n, got, now=began)
        current = ledger.at(n)
        if failure is not None or current.result is None or ledger.missing_calls(n):
            msg = f"step {n} is not complete, and the activity has gone on"
            raise RuntimeError(msg)
        self._finish(n, began)
        ledger.begin(NEXT, now=began, is_running=True)
        ledger.asking.discard(n)
        self._places[run.work, run.first] = run.at = n + 1
        ledger.asking.add(run.at)
        run.recorded += 1


def _error_of(failure: Failure) -> ApplicationError:
    """Return the error that an activity of the step's own would have failed with."""
    known = facts(remedy=failure.remedy, parks=failure.parks)
    return ApplicationError(failure.message, *known, type=failure.type, non_retryable=True)
