"""Steps in progress, each in a lane of its own, and what becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task import approvals
from holdfast.task.data.records import KIND, Failure, OpenState, StepRecord
from holdfast.task.data.state import RunReply
from holdfast.task.data.wire import Advanced, RunRequest
from holdfast.task.guardrails_due import inputs_due
from holdfast.task.requests import refusals
from holdfast.task.requests.run_requests import Pending
from holdfast.task.tool_calls import verdict_of_calls
from holdfast.values.steps import TaskStep
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now
from holdfast.workflows.handlers import TaskDesk
from holdfast.workflows.steps.error_handlers import ask_handler, end_with, take_another_turn
from holdfast.workflows.steps.guardrails import Checks, check_output
from holdfast.workflows.tools.tool_calls import run_tools

FEWEST_EVENTS = 50
"""A run that rolled sooner would do nothing but roll."""

UPDATES_PER_RUN = 1500

Work = asyncio.Task[Any] | None
"""A unit of work of the task's main loop."""


class StepLanes(TaskDesk):
    """Takes open steps further, and begins others, until they are done or need somebody."""

    async def _run_lanes(self, work: Work) -> None:
        """Run open steps side by side, each in a lane of its own, and begin others meanwhile.

        Args:
            work: The unit of work that this is part of; once another one has taken its place, this
                one touches nothing any more.
        """
        lanes: dict[int, asyncio.Task[None]] = {}
        self.lanes.clear()

        def idle() -> list[OpenState]:
            return [c for c in self.ledger.s.opens if c.n not in lanes and self._goes(c)]

        def has_news() -> bool:
            if any(lane.done() for lane in lanes.values()):
                return True
            return (bool(idle()) or self._has_new_requests()) and not self._leaves()

        try:
            while not self._is_left(work):
                if not self._leaves():
                    self._take_steps()
                    for current in idle():
                        lanes[current.n] = asyncio.create_task(self._lane(current.n, work))
                        self.lanes.add(current.n)
                if not lanes:
                    return
                await workflow.wait_condition(has_news)
                for n in [n for n, lane in lanes.items() if lane.done()]:
                    self.lanes.discard(n)
                    await lanes.pop(n)
        except asyncio.CancelledError:  # not `finally`: an evicted task may await nothing
            for lane in lanes.values():
                lane.cancel()
            await asyncio.gather(*lanes.values(), return_exceptions=True)
            raise

    async def _lane(self, n: int, work: Work) -> None:
        """Take one step to its end, or to where it needs somebody."""
        try:
            while not self._leaves() and not self._is_left(work):
                current = self.ledger.find(n)
                if current is None or not self._goes(current):
                    return
                await self._advance(n, work)
        except Exception as error:  # noqa: BLE001  as for the unit
            if not self._interrupted(undoing=False) and not self._is_left(work):
                self._judge(calls.failure_of(error), n)

    def _leaves(self) -> bool:
        """Whether no open step may be taken further now, whatever its state."""
        return self._interrupted(undoing=False) or self._rolls()

    def _is_left(self, work: Work) -> bool:
        """Whether a unit did not heed its cancellation, and another has taken over."""
        return work is None or work is not self.work

    def _has_new_requests(self) -> bool:
        """Whether somebody wants more than what the lanes are doing."""
        return self._retries() or self._new_round() is not None or self._begins()

    def _new_round(self) -> Pending | None:
        """Return the request for all ready steps that has not been looked at yet."""
        wanted = self.requests.round
        known = wanted is None or wanted.id in self.ledger.s.rounds
        if known or self.ledger.failure is not None or not self._plan():
            return None
        return wanted

    def _plan(self) -> tuple[TaskStep, ...]:
        """List the steps of a round that would begin now: those open for nobody, and the ready."""
        s = self.ledger.s
        free = tuple(current.open.step for current in s.opens if not current.owner)
        return free if s.lasts and s.opens else (*free, *self.ledger.ready())

    def _take_steps(self) -> None:
        """Try again what has failed, if somebody wants that; open the next steps."""
        if self._retries():
            self._retry()
        ledger, new = self.ledger, self._new_round()
        if new is not None:
            plan = {step.step_id: 0 for step in self._plan()}
            ledger.own(new.id)
            ledger.change(rounds={**ledger.s.rounds, new.id: plan})
        self._close_rounds()
        while self._begins():
            steps = self._next_steps()
            pending = self.requests.round or self.requests.next_for(steps, ledger.owners)
            if pending is not None and not pending.asked.round:
                ledger.begin(pending.asked, now=now(), owner=pending.id)
                return
            if pending is None and not ledger.s.automatic:
                return
            asked = RunRequest(
                step=steps[0].step_id,
                tool_choice=pending.asked.tool_choice if pending else "",
                stream=pending is not None and pending.asked.stream,
            )
            ledger.begin(asked, now=now(), owner=pending.id if pending else "")

    def _retry(self) -> None:
        """Try again what has failed: all of it, or the step that somebody asks for."""
        ledger, failed = self.ledger, self.ledger.failed
        ledger.change(failure=None)
        if not failed:
            return
        steps = tuple(current.open.step for current in failed)
        pending = self.requests.next_for(steps, ledger.owners)
        if pending is None:
            for current in failed:
                ledger.retry(current.n, RunRequest(), now=now())
            return
        wanted = self._failed(pending.asked.step) or failed[0]
        if pending.asked.restart:
            self.children.leave(wanted.n)
        ledger.retry(wanted.n, pending.asked, now=now(), owner=pending.id)

    async def _advance(self, n: int, work: Work) -> None:
        """Take an open step one activity further."""
        ledger = self.ledger
        current, due = ledger.at(n), inputs_due(ledger, n)
        stopped = verdict_of_calls(current)
        first = due if _is_answered(current) else [each for each in due if each.rule.blocks]
        if any(call.n == n for call in ledger.s.long_calls):
            failure = await self._run_calls(n)
            if not self._is_left(work):
                self._judge(failure, n)
        elif stopped is not None:
            self._judge(stopped, n)
        elif first:
            failure = await Checks(ledger, n, first).failure()
            if not self._is_left(work):
                self._judge(failure, n)
        elif ledger.missing_calls(n):
            failure = await self._run_calls(n)
            if not self._is_left(work):
                self._judge(failure, n)
        elif current.result is not None:
            failure = await check_output(ledger, n)
            if not self._is_left(work):
                self._judge(failure, n) if failure is not None else self._finish_step(n)
        elif current.calls:
            ledger.answer_calls(n)
        else:
            await self._turn(n, Checks(ledger, n, due), work)

    async def _run_calls(self, n: int) -> Failure | None:
        """Run a step's tools; from then on a pause does not hold the step."""
        self.calling.add(n)
        try:
            return await run_tools(
                self.ledger, n, self.running, self.children, room=self.room, leaves=self._leaves
            )
        finally:
            self.calling.discard(n)

    async def _turn(self, n: int, checks: Checks, work: Work) -> None:
        """Have the AgentWorker take an open step further; an answer is recorded at once."""
        ledger = self.ledger
        got = await checks.beside(self._ask_worker(n))
        if self._is_left(work):
            return
        failure = (ledger.advanced(n, got) or got.failure) if got is not None else None
        failure = await checks.failure() or failure
        if self._is_left(work):
            return
        if failure is not None:
            await self._answer_or_judge(failure, n, work)
        elif got is None or got == Advanced():
            self._park(refusals.NO_PROGRESS, n)
        elif got.limit and not ledger.exceeded(now=now()):
            await self._wait_for_siblings()
        elif got.limit:
            await self._limit(n, work)

    async def _wait_for_siblings(self) -> None:
        """Wait until a call that may be using up the budget has come to its end.

        It may turn out to be no model call, and leave room for this step's.
        """
        asking = frozenset(self.ledger.asking)
        if asking:  # else it has ended already
            await workflow.wait_condition(lambda: not asking <= self.ledger.asking)

    async def _ask_worker(self, n: int) -> Advanced:
        """Run the AgentWorker's code; meanwhile the budget counts one call more."""
        began = now()
        sent = calls.advance(self.ledger, n, now=began)
        self.ledger.asking.add(n)
        try:
            return await sent
        except (asyncio.CancelledError, ActivityError) as error:
            if is_cancelled_exception(error):
                self.ledger.unheard(n, began)
            raise
        finally:
            self.ledger.asking.discard(n)

    def _judge(self, failure: Failure | None, n: int = 0) -> None:
        """End the task when a tool call was a verdict, park it when a call failed."""
        if failure is None:
            return
        if refusals.is_verdict(failure) and self.given.parent is None:
            self.ledger.change(verdict=failure)
            self._end("failed")
        else:
            self._park(failure, n)

    async def _answer_or_judge(self, failure: Failure, n: int, work: Work) -> None:
        """Let a handler of the run answer for an error, else judge it."""
        kind = str(failure.data.get(KIND, ""))
        handled = await ask_handler(self.ledger, n, kind, failure)
        if self._is_left(work) or self.ledger.find(n) is None:
            return
        if handled is not None:
            end_with(self.ledger, n, handled)
        elif not take_another_turn(self.ledger, n, failure):
            self._judge(failure, n)

    async def _limit(self, n: int, work: Work) -> None:
        """A step wants a model call beyond the budget."""
        budget = self.given.budget
        policy = budget.on_exceeded if budget is not None else "ask"
        what = self.ledger.exceeded(now=now())
        self.ledger.note("limit", now=now(), text=what, body={"policy": policy})
        match policy:
            case "finish":
                self.ledger.finish_early(n)
            case "fail":
                turns = budget.max_turns if budget is not None else None
                text = f"Max turns ({turns}) exceeded" if "turns" in what else f"Budget: {what}"
                failure = Failure(type="MaxTurnsExceeded", message=text, data={KIND: "max_turns"})
                await self._answer_or_judge(failure, n, work)
            case "ask":
                text = f"The budget is used up ({what}). approve: one more call; reject: finish now"
                approvals.ask(self.ledger, n, -1, "limit", now=now(), text=text)

    def _finish_step(self, n: int) -> None:
        """Close an open step and answer whoever waits for it."""
        ledger = self.ledger
        owner = ledger.at(n).owner
        record = ledger.finish(n, now=now())
        self.spans.over(record)
        if owner in ledger.s.rounds:
            self._finish_in_round(owner, record)
        else:
            reply = RunReply(n=record.n)
            answered = self.requests.deliver(owner, reply, ledger.owners)
            if answered:
                ledger.remember(answered, reply)
            elif not ledger.s.automatic and ledger.failure is None:
                ledger.change(undelivered=(*ledger.s.undelivered, record.n))
        if ledger.s.answered:
            ledger.change(automatic=False)
            if self.given.finalize:
                self._end("finished")
        elif ledger.s.automatic and not ledger.s.opens and not ledger.ready():
            queue = ledger.s.queue
            stalled = refusals.none_ready(queue) if queue else refusals.stalled(record.step.step_id)
            self._park(stalled)

    def _finish_in_round(self, owner: str, record: StepRecord) -> None:
        """Note that one of several steps is done; answer when all of them are."""
        done = {**self.ledger.s.rounds[owner], record.step.step_id: record.n}
        self.ledger.change(rounds={**self.ledger.s.rounds, owner: done})
        self._close_rounds()

    def _close_rounds(self) -> None:
        """Answer the rounds that are done; forget of the others what will not begin any more.

        A planned step may have been dropped, or a join has come between.
        """
        s = self.ledger.s
        ready = () if s.lasts and s.opens else self.ledger.ready()
        there = {step.step_id for step in (*ready, *(current.open.step for current in s.opens))}
        left: dict[str, dict[str, int]] = {}
        for owner, planned in s.rounds.items():
            plan = {step: n for step, n in planned.items() if n or step in there}
            if plan and all(plan.values()):
                reply = RunReply(n=max(plan.values()), round=tuple(plan.values()))
                self.requests.deliver(owner, reply)
                self.ledger.remember(owner, reply)
            elif plan:
                left[owner] = plan
        if left != s.rounds:
            self.ledger.change(rounds=left)

    def _park(self, failure: Failure, n: int = 0) -> None:
        """Leave a step first in the queue with its error; whoever waits is told.

        Steps beside it are taken to their end first.
        """
        current = self.ledger.find(n)
        if current is not None:
            failure = failure.model_copy(update={"step": current.open.step.step_id})
        self.ledger.fail(failure, now=now(), n=n)
        self.ledger.change(automatic=False, rounds={}, tries_again=False)
        self.ledger.disown()
        self.requests.fail_later(failure)

    def _rolls(self) -> bool:
        if self.unrollable:
            return False
        info = workflow.info()
        return (
            info.get_current_history_length() >= max(self.given.roll_events, FEWEST_EVENTS)
            or info.is_continue_as_new_suggested()
            or self.updates >= UPDATES_PER_RUN
        )

    def _lets_go(self) -> bool:
        """Whether the task may continue as new although steps are being taken further.

        It may when they wait for nothing but calls that go on meanwhile.
        """
        long_calls = self.ledger.s.long_calls
        if not long_calls or not self._rolls() or self._interrupted(undoing=False):
            return False
        return self.lanes == self.calling and self.room.taken == len(long_calls)

    def _interrupted(self, undoing: bool) -> bool:  # noqa: FBT001
        return self.closing is not None or (self.ledger.s.undo is not None and not undoing)


def _is_answered(current: OpenState) -> bool:
    """Whether a step's first turn is over, beside which guardrails of its input may run."""
    return bool(current.journal or current.calls or current.result is not None)
