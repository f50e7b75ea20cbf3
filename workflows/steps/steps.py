"""Steps in progress, each in a lane of its own, and how they end.

A step may end by an error that a handler of the run answers for, or wait since the task's budget
has no room for its model call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

from holdfast.task import refusals
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.failures import KIND, TURN_FOLLOWS, Failure
from holdfast.task.data.records import OpenState, StepResult
from holdfast.task.data.wire import NOTHING_DONE, Advanced, Handled, HandleInput, UsedDay
from holdfast.task.guardrails_due import Due, inputs_due, outputs_due, record_found
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.tool_calls import verdict_of_calls
from holdfast.tracing.switch import may_trace
from holdfast.values.base import Json
from holdfast.values.messages import NOTHING, Message, ToolCall, as_written
from holdfast.values.steps import TaskStep
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import IS_DONE, begin, now, quick
from holdfast.workflows.core import Core, Work

# Guardrails as the task runs them: each in an activity of its own, those of a kind at once.

ANSWER_SECONDS = 0.25
"""How long a guardrail that has stopped the step waits for the answer of the call next to it."""

CANCELLED_SECONDS = 1.0
"""How long the step waits for the end of what it has cancelled, before it goes on without."""


class Checks:
    """Guardrails that look at the same thing at the same time.

    The first that trips, or fails, cancels the others, and the turn next to them; a turn that fails
    cancels them.
    """

    def __init__(self, ledger: Ledger, n: int, due: Sequence[Due]) -> None:
        """Begin to run the due ones."""
        self._running: list[asyncio.Task[Failure | None]] = [
            begin(self._check(ledger, n, each)) for each in due
        ]
        self._failure: Failure | None = None
        self._is_over = False

    async def beside(self, work: Coroutine[Any, Any, Advanced]) -> Advanced | None:
        """Do the first turn's work meanwhile, whose tools wait for the guardrails anyway.

        Returns:
            What it gave; None when a guardrail tripped or failed first: the work is cancelled then.
            An answer that is just arriving is taken, since it has been paid for.

        Raises:
            ActivityError: The work failed first.
        """
        doing = begin(work)
        try:
            await workflow.wait_condition(lambda: doing.done() or self._has_failed())
            # If both are done in one activation, the answer was paid for: it is recorded, and the
            # guardrail stops the step behind it.
            is_first = doing.done()
            if not is_first:
                self._failure = self._first_failure()
                self._cancel()
                await workflow.wait([doing], timeout=ANSWER_SECONDS)
                doing.cancel()
                await self._end(doing)
            if _has_result(doing):
                return doing.result()
            if not is_first or self._has_failed():
                return None
            self._cancel()
            await self._end()
        except asyncio.CancelledError:  # not `finally`, as in `Steps._run_lanes`
            doing.cancel()
            self._cancel()
            await self._end()
            await asyncio.gather(doing, return_exceptions=True)
            raise
        return doing.result()

    async def failure(self) -> Failure | None:
        """Wait until all have passed, or for the first that has not."""
        waited: list[asyncio.Task[Failure | None]] = list(self._running)
        try:
            while waited and self._failure is None:
                done, _ = await workflow.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                waited = [each for each in waited if each not in done]
                ended = [each.result() for each in self._running if each in done]  # in their order
                self._failure = next((found for found in ended if found is not None), None)
        except asyncio.CancelledError:
            self._cancel()
            await self._end()
            raise
        if not self._is_over:
            self._cancel()
            await self._end()
        return self._failure

    def _has_failed(self) -> bool:
        ended = (each for each in self._running if each.done() and not each.cancelled())
        return any(each.exception() is not None or each.result() is not None for each in ended)

    def _first_failure(self) -> Failure | None:
        found = (each.result() for each in self._running if _has_result(each))
        return next((failure for failure in found if failure is not None), None)

    def _cancel(self) -> None:
        """Cancel the ones that still run."""
        for each in self._running:
            each.cancel()

    async def _end(self, *beside: asyncio.Task[Any]) -> None:
        """Wait a moment for the end of what was cancelled: activities hear of it by heartbeats.

        What they find later is not recorded.
        """
        running = [each for each in (*beside, *self._running) if not each.done()]
        if running:
            await workflow.wait(running, timeout=CANCELLED_SECONDS)
        self._is_over = True

    async def _check(self, ledger: Ledger, n: int, due: Due) -> Failure | None:
        """Run one guardrail; one that raises parks the task until its code is mended."""
        try:
            found = await calls.guard(ledger, n, due, now=now())
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return calls.failure_of(error).model_copy(update={"parks": True})
        if self._is_over or ledger.find(n) is None:  # an undo has taken the step away meanwhile
            return None
        return record_found(ledger, n, due, found, now=now())


async def check_output(ledger: Ledger, n: int) -> Failure | None:
    """Run the guardrails of a step's final output, before the step is recorded as completed."""
    due = outputs_due(ledger, n)
    return await Checks(ledger, n, due).failure() if due else None


def _has_result(each: asyncio.Task[Any]) -> bool:
    return each.done() and not each.cancelled() and each.exception() is None


async def ask_handler(ledger: Ledger, n: int, kind: str, failure: Failure) -> Handled | None:
    """Ask the run's handler for an error of an open step; None when it has none, or it declines."""
    if kind not in ledger.head.run.error_handlers:
        return None
    given = HandleInput(step=ledger.advance_input(n, now=now()), kind=kind, failure=failure)
    handled = await quick(ledger, "handle", given, Handled, summary=failure.type)
    body: dict[str, Json] = {"kind": kind, "error": failure.type, "declined": handled.declined}
    ledger.note("handled", now=now(), text=failure.text, body=body)
    return None if handled.declined else handled


def end_with(ledger: Ledger, n: int, handled: Handled) -> None:
    """Make a handler's final output the result of the step that it answered for."""
    said = () if handled.said is None else (handled.said,)
    result = StepResult(
        output=handled.output,
        stored=handled.stored,
        echo=False,
        adds=(*_adds(ledger.at(n)), *said),
        calls=(),
        next=(),
        last=True,
    )
    ledger.advanced(n, Advanced(result=result))


def take_another_turn(ledger: Ledger, n: int, failure: Failure) -> bool:
    """Let another turn follow an answer without output, if that is what the failure says."""
    if not failure.data.get(TURN_FOLLOWS):
        return False
    result = StepResult(adds=_adds(ledger.at(n)), calls=(), next=(TaskStep(),))
    ledger.advanced(n, Advanced(result=result))
    return True


def _adds(current: OpenState) -> tuple[Message | str, ...]:
    """Name what an open step has put before the model and what the model has said."""
    notes = tuple(f"n{i}" for i in range(len(current.open.notes)))
    told = ("input",) if current.open.step.message() is not None else ()
    answers = tuple(
        f"j{i}"
        for i, entry in enumerate(current.journal)
        if entry.answer is not None and _says(entry.answer.message)
    )
    return (*notes, *told, *answers)


def _says(message: Message) -> bool:
    """Whether an answer holds anything."""
    return bool(message.content or message.items or message.kept)


DAY_BEGINS_SECONDS = 2.0
"""Seconds of a tenant's next day after which its tasks go on: leases of the day before are over."""

Policy = Literal["ask", "finish", "fail"]


class Limits:
    """Applies the budget's policy."""

    def __init__(self, core: Core, fail: Callable[[Failure, int, Work], Awaitable[None]]) -> None:
        """Drive this task; with `fail` a step fails, unless a handler of the run answers for it."""
        self._core = core
        self._fail = fail

    async def reached(self, n: int, got: Advanced, work: Work) -> None:
        """Handle a model call that a limit forbids.

        Args:
            n: The step.
            got: What its activity says of that.
            work: The unit of work that this is part of.
        """
        exceeded = self._core.ledger.money.exceeded(now=now())
        if got.needs is not None:
            await self._find_money(n, got.needs, work)
        elif got.used_day is not None and workflow.patched("tenant-day"):
            self._past_day(n, got.used_day)
        elif exceeded:
            await self._exceeded(n, work, exceeded)
        else:
            await self._wait_for_siblings()

    def _past_day(self, n: int, day: UsedDay) -> None:
        """Have a person decide on a call whose tenant has used its day, or its next day come."""
        ledger = self._core.ledger
        if ledger.money.settled < ledger.s.costs.past_day:
            ledger.at(n).limit = "past"
            return
        ledger.note("limit", now=now(), text=day.what, body={"policy": "ask"})
        arguments, goes = "", "one more call"
        if day.of_dollars:
            most = ledger.money.past_day()
            arguments = json.dumps(most)
            goes = f"go on until this task has cost ${most['max_dollars']}, or another amount"
        text = (
            f"The budget is used up: {day.what}. approve: {goes}; reject: finish now. By itself"
            " the task goes on when the next day begins"
        )
        call = ToolCall(id="", name="", arguments=arguments) if arguments else None
        seconds = max(day.ends - now(), 0.0) + DAY_BEGINS_SECONDS
        approvals.ask(ledger, n, -1, "limit", now=now(), seconds=seconds, text=text, call=call)

    async def _find_money(self, n: int, needs: Decimal, work: Work) -> None:
        """Handle a model call for which too little money was reserved.

        Args:
            n: The step.
            needs: What the call can cost at most.
            work: The unit of work that this is part of.
        """
        ledger = self._core.ledger
        # Looked at now, not when the call was reserved for: siblings have paid or given back since.
        if needs <= ledger.money.free:  # its share was too small
            ledger.money.needs[n] = needs
        elif ledger.money.asking:
            await self._wait_for_siblings()
        else:
            text = f"max_dollars={as_written(ledger.money.limit or NOTHING)}"
            await self._exceeded(n, work, text, needs=needs)

    async def _wait_for_siblings(self) -> None:
        """Wait until the activity of another step, which may use up the budget, has ended.

        If it makes no model call after all, the budget has room for this step's.
        """
        money = self._core.ledger.money
        asking = frozenset(money.asking)
        if asking:  # else it has ended already
            await workflow.wait_condition(lambda: not asking <= money.asking)

    def policy(self, *, for_money: bool) -> Policy:
        """Return what is to happen when the budget is used up."""
        budget = self._core.given.budget
        if for_money:
            return self._core.ledger.money.policy
        return budget.on_exceeded if budget is not None else "ask"

    async def _exceeded(
        self, n: int, work: Work, what: str, *, needs: Decimal | None = None
    ) -> None:
        """Handle a step that wants a model call beyond the budget, by the budget's policy.

        Args:
            n: The step.
            work: The unit of work that this is part of.
            what: The part of the budget that is used up.
            needs: What the call can cost at most, when that part is the money.
        """
        core = self._core
        budget = core.given.budget
        policy = self.policy(for_money=needs is not None)
        if needs is not None and core.ledger.at(n).limit == "finish":
            policy = "fail"  # the money does not suffice for the last answer either
        core.ledger.note("limit", now=now(), text=what, body={"policy": policy})
        match policy:
            case "finish":
                core.ledger.at(n).limit = "finish"
            case "fail":
                turns = budget.max_turns if budget is not None else None
                text = f"Max turns ({turns}) exceeded" if "turns" in what else f"Budget: {what}"
                failure = Failure(type="MaxTurnsExceeded", message=text, data={KIND: "max_turns"})
                await self._fail(failure, n, work)
            case "ask" if needs is not None:
                arguments = json.dumps(core.ledger.money.proposal(needs))
                call = ToolCall(id="", name="", arguments=arguments)
                text = core.ledger.money.asked_for(needs)
                approvals.ask(core.ledger, n, -1, "limit", now=now(), text=text, call=call)
            case "ask":
                text = f"The budget is used up ({what}). approve: one more call; reject: finish now"
                approvals.ask(core.ledger, n, -1, "limit", now=now(), text=text)


NEXT = RunRequest()
"""With it the task itself begins a step."""


class Steps:
    """Takes open steps further, and begins others, until they are done or wait for a decision."""

    def __init__(self, core: Core) -> None:
        """Drive this task."""
        self._core = core
        self._limits = Limits(core, self._answer_or_judge)

    async def unit(self) -> None:
        """Advance the task until its steps are done, parked, or the history must roll."""
        core = self._core
        work = asyncio.current_task()
        try:
            # Everything below reads the tools' policies. An edit of the agent reaches a task by its
            # next description, never in between.
            while core.ledger.s.described is None and not core.ledger.s.ahead:
                core.is_called = False
                found = await calls.describe(core.ledger)
                if not found.ahead or not workflow.patched("session-line"):
                    core.ledger.described(found)
                elif not core.is_called:  # else those ahead may have ended since
                    core.ledger.s.ahead = found.ahead
            # A verdict cannot end the task while an undo is in progress; this one was refused.
            if core.ledger.s.verdict is not None:
                core.end("failed")
            if core.given.finalize and core.agenda.finalizes:
                core.end("finished")
            if core.ledger.s.closing is None and core.goes:
                await self._run_lanes(work)
        # Only a failure of an activity is a decision. Any other error fails the workflow task.
        except FailureError as error:
            if not core.is_interrupted() and not core.is_left(work):
                core.judge(calls.failure_of(error))

    async def _run_lanes(self, work: Work) -> None:
        """Run open steps side by side, each in a lane of its own, and begin others meanwhile.

        Args:
            work: The unit of work that this is part of; once it is replaced by another one, it
                changes nothing.
        """
        core = self._core
        lanes: dict[int, asyncio.Task[None]] = {}
        # A unit that ignored its cancellation may have left its numbers.
        core.lanes.clear()

        def has_news() -> bool:
            if any(map(IS_DONE, lanes.values())):
                return True
            agenda, rounds = core.agenda, core.requests.waiting["round"]
            wanted = any(self._idle(lanes)) or agenda.retries or bool(rounds and agenda.new_round)
            return (wanted or bool(agenda.next_steps())) and not core.leaves_steps()

        try:
            while not core.is_left(work):
                # Opening a step and beginning its lane happen in one activation, so that every open
                # step that can go on has exactly one lane.
                if not core.leaves_steps():
                    self._take_steps()
                    for current in [*self._idle(lanes)]:
                        lanes[current.n] = begin(self._lane(current.n, work))
                        core.lanes.add(current.n)
                if not lanes:
                    return
                # Meanwhile lanes change the ledger, people decide, requests come, an end or an undo
                # is accepted. Each is looked at again from the top.
                await workflow.wait_condition(has_news)
                for n, lane in [*lanes.items()]:
                    if lane.done():
                        core.lanes.discard(n)
                        del lanes[n]
                        await lane  # a bug in one lane must not be lost
        except asyncio.CancelledError:
            # Not in `finally`, which also runs while a worker evicts the workflow from its cache:
            # nothing may be awaited then.
            for lane in lanes.values():
                lane.cancel()
            await asyncio.gather(*lanes.values(), return_exceptions=True)
            raise

    def _idle(self, lanes: Collection[int]) -> Iterator[OpenState]:
        """Yield the open steps that can be taken further, and have no lane."""
        for current in self._core.ledger.s.opens:
            if current.n not in lanes and self._core.agenda.goes(current):
                yield current

    async def _lane(self, n: int, work: Work) -> None:
        """Take one step to its end, or to a decision or failure that it waits with."""
        core = self._core
        try:
            while not core.leaves_steps() and not core.is_left(work):
                # After each await the step may be gone (undone, finished early) or held.
                current = core.ledger.find(n)
                if current is None or not core.agenda.goes(current):
                    return
                await self._advance(n, work)
        except FailureError as error:
            if not core.is_interrupted() and not core.is_left(work):
                core.judge(calls.failure_of(error), n)

    def _take_steps(self) -> None:
        """Try again what has failed, if a request or the parent wants it; open the next steps."""
        core = self._core
        if core.agenda.retries:
            self._retry()
        ledger, rounds = core.ledger, core.requests.waiting["round"]
        if rounds and (new := core.agenda.new_round) is not None:
            core.requests.begin_round(new, core.agenda.plan())
        # Rounds first: a round that is done must answer before its request is given another step.
        if ledger.s.delivery.rounds:
            core.requests.close_rounds()
        while steps := core.agenda.next_steps():
            pending = rounds[0] if rounds else core.requests.next_for(steps, ledger.owners)
            if pending is not None and not pending.asked.round:
                ledger.begin(pending.asked, now=now(), owner=pending.id)
                return
            if pending is None and not ledger.s.automatic:
                return
            if pending is None:
                ledger.begin(NEXT, now=now(), step_id=steps[0].step_id)
                continue
            asked = RunRequest(tool_choice=pending.asked.tool_choice, stream=pending.asked.stream)
            ledger.begin(asked, now=now(), step_id=steps[0].step_id, owner=pending.id)

    def _retry(self) -> None:
        """Try again what has failed: the step that a request names, else all steps."""
        core = self._core
        ledger, failed = core.ledger, core.ledger.failed
        ledger.s.failure = None
        if not failed:
            return
        steps = tuple(current.open.step for current in failed)
        pending = core.requests.next_for(steps, ledger.owners)
        if pending is None:
            for current in failed:
                ledger.retry(current.n, RunRequest(), now=now())
            return
        wanted = core.agenda.failed(pending.asked.step) or failed[0]
        if pending.asked.restart:
            core.children.leave(wanted.n)
        ledger.retry(wanted.n, pending.asked, now=now(), owner=pending.id)

    async def _advance(self, n: int, work: Work) -> None:
        """Take an open step one activity further."""
        core, ledger = self._core, self._core.ledger
        # The order is the order of trust. A long call of an earlier run is awaited before anything
        # else. What a guardrail or a call has stopped does not go on. Input guardrails that block
        # come before the model, all others before tools run. A result ends the step only when all
        # its calls have outcomes and its output was checked.
        current = ledger.at(n)
        is_guarded = ledger.is_guarded(current)
        due = inputs_due(ledger, n) if is_guarded else ()
        stopped = verdict_of_calls(current) if current.outcomes else None
        all_due = not due or _is_answered(current)
        first = due if all_due else [each for each in due if each.rule.blocks]
        if ledger.s.long_calls and ledger.has_long_call(n):
            failure = await self._run_calls(n)
            if failure is not None and not core.is_left(work):
                core.judge(failure, n)
        elif stopped is not None:
            core.judge(stopped, n)
        elif first:
            failure = await Checks(ledger, n, first).failure()
            if failure is not None and not core.is_left(work):
                core.judge(failure, n)
        elif current.calls and ledger.calls.missing(n):
            failure = await self._run_calls(n)
            if failure is not None and not core.is_left(work):
                core.judge(failure, n)
        elif current.result is not None:
            failure = await check_output(ledger, n) if is_guarded else None
            if not core.is_left(work):
                core.judge(failure, n) if failure is not None else self._finish_step(n)
        elif current.calls:
            ledger.calls.hand_back(n)
        else:
            await self._turn(n, Checks(ledger, n, due) if due else None, work)

    async def _run_calls(self, n: int) -> Failure | None:
        """Run a step's tools; from then on a pause does not hold the step."""
        core = self._core
        # While it is in here, a pause holds back other steps, not this one: its calls may run.
        core.agenda.calling.add(n)
        try:
            return await core.tool_calls.run(n, core.leaves_steps)
        finally:
            core.agenda.calling.discard(n)

    async def _turn(self, n: int, checks: Checks | None, work: Work) -> None:
        """Have the AgentWorker take an open step further.

        The model's answer enters the ledger before anything that follows from it is decided: it was
        paid for, and a later attempt of the step runs on the recorded answer.
        """
        core, ledger = self._core, self._core.ledger
        place = object()
        # Reserved before the first await, so that steps side by side cannot spend the same money.
        if ledger.given.budget is not None and ledger.money.limit is not None:
            ledger.money.reserved[place] = ledger.money.allowance(n)
        try:
            dollars = ledger.money.reserved.get(place)
            asking = self._ask_worker(n, apart=checks is not None, dollars=dollars)
            got = await (asking if checks is None else checks.beside(asking))
            # A replaced unit must not write: the undo or end that replaced it has counted what it
            # had.
            if core.is_left(work):
                return
            failure = ledger.advanced(n, got, now=now()) if got is not None else None
        finally:
            ledger.money.reserved.pop(place, None)  # only now: what was paid is recorded
        failure = failure or (got.failure if got is not None else None)
        # The answer is recorded by now. A guardrail that trips is told in place of the answer's own
        # failure.
        if checks is not None:
            failure = await checks.failure() or failure
        if core.is_left(work):
            return
        if failure is not None:
            await self._answer_or_judge(failure, n, work)
        elif got is None or got == NOTHING_DONE:
            core.park(refusals.NO_PROGRESS, n)
        elif got.limit:
            await self._limits.reached(n, got, work)
        elif got.told or got.stopped:
            stopped = _stop_after_calls(got)
            if stopped is not None:
                core.judge(stopped, n)

    async def _ask_worker(self, n: int, *, apart: bool, dollars: Decimal | None) -> Advanced:
        """Run the AgentWorker's code; until it ends, the budget counts one model call for it.

        Args:
            n: The step.
            apart: Whether tools must not run in its activity: a guardrail may stop the step first.
            dollars: Money that is reserved for the call; None without a budget in money.
        """
        core = self._core
        began = now()
        keeps = dollars is not None and self._limits.policy(for_money=True) != "fail"
        sent = core.ledger.advance_input(n, now=began, apart=apart, dollars=dollars, keeps=keeps)
        # Until the activity ends, the budget counts a model call for it: a sibling that asks
        # meanwhile must not use the last one as well.
        core.ledger.money.asking.add(n)
        try:
            return await calls.advance(core.ledger, n, sent)
        except (asyncio.CancelledError, ActivityError) as error:
            core.ledger.s.costs.lost += calls.lost_dollars(error, dollars)
            if is_cancelled_exception(error) or calls.is_lost(error):
                core.ledger.unheard(n, began)
            raise
        finally:
            core.ledger.money.asking.discard(n)

    async def _answer_or_judge(self, failure: Failure, n: int, work: Work) -> None:
        """Let a handler of the run answer for an error, else judge it."""
        core = self._core
        kind = str(failure.data.get(KIND, ""))
        handled = await ask_handler(core.ledger, n, kind, failure)
        if core.is_left(work) or core.ledger.find(n) is None:
            return
        if handled is not None:
            end_with(core.ledger, n, handled)
        elif not take_another_turn(core.ledger, n, failure):
            core.judge(failure, n)

    def _finish_step(self, n: int) -> None:
        """Close an open step and answer the request that it was run for."""
        core, ledger = self._core, self._core.ledger
        # Read before `finish`, which takes the step out of those in progress.
        owner = ledger.at(n).owner
        record = ledger.finish(n, now=now())
        if may_trace():
            core.spans.over(record)
        core.requests.step_done(record, owner)
        if ledger.s.answered:
            ledger.s.automatic = False
            if core.given.finalize:
                core.end("finished")
        elif ledger.s.automatic and not ledger.s.opens and not ledger.queue.ready():
            queue = ledger.s.queue
            stalled = refusals.none_ready(queue) if queue else refusals.stalled(record.step.step_id)
            core.park(stalled)


def _is_answered(current: OpenState) -> bool:
    """Whether a step's first turn is over, next to which guardrails of its input may run."""
    return bool(current.journal or current.calls or current.result is not None)


def _stop_after_calls(got: Advanced) -> Failure | None:
    """Return why a step stops after a call that was run in its activity, the first in order."""
    stops = {i: each.failure for i, each in got.told.items() if each.failure is not None}
    stops |= got.stopped
    return stops[min(stops)] if stops else None
