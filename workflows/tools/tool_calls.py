"""Tool calls in the workflow: approvals, runs, and questions about calls of unknown outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import cast

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast.models.openai.hosted_items import APPROVED
from holdfast.task import waits
from holdfast.task.data.calls import ApprovalKind, Asks, Outcome, StandingRule, Wait
from holdfast.task.data.failures import (
    AGENT_MISSING,
    INTERRUPTED,
    NOT_REPEATABLE,
    NOT_STARTED,
    TIMED_OUT,
    Failure,
)
from holdfast.task.data.head import SessionRef, ToolPolicy
from holdfast.task.data.state import MOST_LOST
from holdfast.task.data.wire import KeepInput, Nesting, Probed, RecallInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, decisions, standing
from holdfast.task.people.questions import question_text
from holdfast.task.tool_calls import MOST_AT_ONCE, Call, Room, Running, ready_calls
from holdfast.values.messages import Content, ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.workflows.activity_calls import (
    IS_DONE,
    LONGEST_TOOL,
    PATIENT,
    failure_of,
    is_certain,
    is_lost,
    now,
    quick,
)
from holdfast.workflows.children.children import Children
from holdfast.workflows.tools.tool_runs import (
    CallsTaken,
    cut_text,
    lost_text,
    may_begin,
    not_known_text,
    run_tool,
    too_deep,
    tool_is_lost,
    unknown_tool,
)

ONE_ATTEMPT = timedelta(seconds=30)
LONGEST_RECALL = timedelta(minutes=1)
"""How long to ask the session before a person: without an answer a call never runs."""


async def recall(ledger: Ledger, n: int, i: int) -> Sequence[StandingRule]:
    """Ask the task's session for its decisions on such a call; none when it cannot answer."""
    session = ledger.given.head.session
    if session is None:
        return ()
    wanted = RecallInput(
        session=session.id, tool=ledger.at(n).calls[i].name, agent=standing.agent_of(ledger, n)
    )
    try:
        found: list[StandingRule] = await workflow.execute_activity(
            "session_rules",
            wanted,
            result_type=list[StandingRule],
            start_to_close_timeout=ONE_ATTEMPT,
            schedule_to_close_timeout=LONGEST_RECALL,
            retry_policy=PATIENT,
            summary=wanted.tool,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.warning("%s has not said its rules: %s", session.id, error.cause)
        return ()
    return [rule for rule in found if rule.stands(now())]


async def hand_over(ledger: Ledger, session: SessionRef) -> None:
    """Bring decisions that hold in a session to it, one by one. Runs until it is cancelled.

    A decision that is revoked in transit is brought once more, with who has revoked it.
    """
    while True:
        await workflow.wait_condition(lambda: bool(ledger.s.to_session))
        rule, is_taken = ledger.s.to_session[0], True
        try:
            await workflow.execute_activity(
                "keep_rule",
                KeepInput(session=session, rule=rule),
                start_to_close_timeout=ONE_ATTEMPT,
                retry_policy=PATIENT,
                summary=f"{rule.verb} {rule.tool}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            text = f"The session has not taken the rule, which ends here: {failure_of(error).text}"
            ledger.note("refused", now=now(), by=rule.by, text=text, body={"rule": rule.id})
            is_taken = False
        left = tuple(
            each
            for each in ledger.s.to_session
            if each.id != rule.id or (is_taken and each != rule)
        )
        ledger.s.to_session = left


BLOCKED = "Blocked"
"""Type of the failure of a call that blocks the event loop of its worker."""

BREATH = timedelta(milliseconds=1)
"""After as many calls as may go at once, the next ones wait for another workflow task."""

OF_CALLS = frozenset({"tool", "rejoin"})
"""Types of the activities in which a tool runs."""

_ASKED = cast("type[bool | ApprovalRule]", bool | ApprovalRule)

NOT_HAPPENED = "It did not take effect: so says the probe of its tool."


class ToolCalls:
    """Takes tool calls of open steps as far as they go without a person."""

    def __init__(self, ledger: Ledger, children: Children, running: Running, room: Room) -> None:
        """Drive the calls of a task.

        Args:
            ledger: The task.
            children: Starts the tasks that calls of agents are.
            running: Gets the calls that are being run. A call that is cancelled stays in it: its
                tool may have taken effect, so an undo or an end counts it as unknown.
            room: Room for calls, shared by all steps.
        """
        self._ledger = ledger
        self._children = children
        self._running = running
        self._room = room

    async def run(self, n: int, leaves: Callable[[], bool]) -> Failure | None:
        """Take a step's open calls as far as they go; return their first failure.

        First in the order of the calls. As many run at once as the task has room for and the run
        allows; one that is approved meanwhile joins them. Outcomes are recorded as they come, so
        that a call that is done is never repeated because of a sibling that failed. Where a person
        has decided on one, none begins before the tools of all were found.

        Args:
            n: The step.
            leaves: Whether no further call may begin now: the task is about to continue as new.
        """
        ledger, room = self._ledger, self._room
        # `ready_calls` looks at the ledger at each turn. So a call that a person approves meanwhile
        # begins, and one that an undo has taken out does not.
        taken = CallsTaken(self.take, ledger, n, room, ended={**ledger.at(n).stops})

        def fresh(most: int) -> list[int]:
            if taken.ended or leaves():
                return []
            return ready_calls(ledger, n, taken.tasks, most=most)

        def is_over() -> bool:
            return not taken.tasks and not fresh(1)

        def has_news() -> bool:
            has_ended = any(map(IS_DONE, taken.tasks.values()))
            return has_ended or bool(room.left and fresh(1)) or is_over()

        try:
            if ledger.s.long_calls:  # they run already
                taken.take(call.i for call in ledger.s.long_calls if call.n == n)
            while True:
                # `may_begin` awaits an activity: what was ready before it is looked up again after
                # it.
                ready = fresh(room.left)
                if ready and not await may_begin(ledger, n, ready, taken):
                    taken.settle()
                    continue
                taken.take(ready)
                # An error is raised after all calls have ended: else some would go on without a
                # task that records their outcomes.
                if is_over():
                    break
                await workflow.wait_condition(has_news)
                taken.settle()
                if len(ready) >= MOST_AT_ONCE:  # thousands of questions are no single workflow task
                    await workflow.sleep(BREATH, summary="more calls follow")
        except (asyncio.CancelledError, ActivityError):  # not `finally`, as in `Steps._run_lanes`
            await taken.cancel()
            raise
        return taken.failure() if taken.ended else None

    async def take(self, call: Call) -> Failure | None:
        """Take one call to its outcome, to its child task, or to a person.

        Returns:
            Why its step stops, if it does.
        """
        try:
            return await self._take(call)
        except ActivityError as error:
            if is_cancelled_exception(error) or call.is_left:
                raise
            return failure_of(error)

    async def _take(self, call: Call) -> Failure | None:
        while True:
            match call.state:
                case "over" | "asked" | "outside":
                    return call.failure
                case "unknown_tool":
                    return self._refuse(call)
                case "in_child":
                    return await self._in_child(call)
                case "to_nest":
                    return await self._nest(call)
                case "to_pass":
                    self._pass(call)
                case "to_run" | "runs_on":
                    return await self._run(call)
                case "to_ask":
                    self._ask(call, "tool", call.asked, seconds=call.policy.approval_seconds)
                case "standing":
                    await self._stand(call)
                case "checking":
                    await self._look(call)
                    return None  # it is approved now, and `run` takes it anew
                case "gating" | "recalling" | "screening" | "rejected":
                    await self._look(call)

    async def _look(self, call: Call) -> None:
        """Run the activity that asks the user's code about a call, and record its answer.

        Raises:
            ActivityError: It failed; the call waits as it is.
        """
        ledger, n, i = self._ledger, call.n, call.i
        match call.state:
            case "recalling":
                # During each of these awaits the step may be undone or ended: `is_left` then, and
                # the answer changes nothing.
                call.recalled = await recall(ledger, n, i)
            case "gating":
                await self._gate(call)
            case "screening":
                stopped = await quick(ledger, "screen", ledger.calls.tool_input(n, i), Outcome)
                call.is_screened = True
                if stopped != Outcome() and not call.is_left:
                    ledger.calls.outcome(n, i, stopped)
            case "checking":
                await self._check(call)
            case "rejected":
                text = await quick(ledger, "rejected", ledger.calls.tool_input(n, i), str)
                if not call.is_left:
                    decisions.rejected(ledger, n, i, text)
            case _:
                pass

    async def _stand(self, call: Call) -> None:
        """Apply a decision for later calls, once the predicate has said whose it is to approve."""
        # The predicate may name others for this call than for the one that was decided.
        if call.is_unjudged and workflow.patched("ask-predicate-first"):
            await self._gate(call)
            return
        found = call.recalled or ()
        standing.stands(self._ledger, call.n, call.i, call.policy, found, now=now())

    async def _gate(self, call: Call) -> None:
        """Ask the tool's predicate whether a person decides, and by which rule."""
        ledger, n, i = self._ledger, call.n, call.i
        said = await quick(ledger, "gate", ledger.calls.tool_input(n, i), _ASKED)
        call.is_gated = said is not False
        call.asked_by = said if isinstance(said, ApprovalRule) else None
        if not call.is_gated and not call.is_left:
            ledger.calls.clear(n, i)

    def _ask(
        self,
        call: Call,
        kind: ApprovalKind,
        made: ToolCall,
        *,
        text: str = "",
        seconds: float = 0,
        asks: Asks | None = None,
        after: Content = "",
    ) -> None:
        """Open an approval about a call, as it was made or as it runs."""
        approvals.ask(
            self._ledger,
            call.n,
            call.i,
            kind,
            now=now(),
            seconds=seconds,
            text=text,
            call=made,
            asks=asks,
            after=after,
            rule=call.rule,
        )

    async def _check(self, call: Call) -> None:
        """Check edited arguments; where that fails, as without the tool, a person decides again.

        Raises:
            ActivityError: The check was cancelled.
        """
        ledger, approval = self._ledger, call.approval
        given = ledger.calls.tool_input(call.n, call.i, call.effective)
        given = given.model_copy(update={"rule": call.rule})
        try:
            refused = await quick(ledger, "check", given, str)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            if approval is not None and not call.is_left:
                why = f"The edited arguments could not be checked: {failure_of(error).text}"
                decisions.open_again(ledger, approval, why, now=now())
            return
        if approval is not None and not call.is_left:
            decisions.checked(ledger, approval, refused, now=now())

    async def _in_child(self, call: Call) -> Failure | None:
        """Let the child task of a call go on, or return why the step stops.

        Where a worker process lacks the child's agent, the calling agent may have lost its tool.
        """
        failure = self._children.take(call.n, call.i)
        if failure is None or failure.type != AGENT_MISSING:
            return failure
        return await tool_is_lost(self._ledger, call) or failure

    def _refuse(self, call: Call) -> Failure | None:
        """Tell the model that there is no such tool, or end the run where its rules say so."""
        head, name = self._ledger.given.head, call.asked.name
        if head.dialect.unknown_tool == "raise" and head.run.tool_not_found == "raise_error":
            text = f"Tool {name} not found in agent {call.agent or head.agent}"
            return Failure(type="ModelBehaviorError", message=text)
        self._ledger.calls.outcome(call.n, call.i, unknown_tool(call.asked, list(call.policies)))
        return None

    def _pass(self, call: Call) -> None:
        """Record that a call may be run by the provider, inside the next model call."""
        self._ledger.calls.outcome(call.n, call.i, Outcome(content=APPROVED, attempts=0))

    async def _nest(self, call: Call) -> Failure | None:
        """Start the task that a call of an agent is, unless the call has its outcome before."""
        ledger, n, i, edited = self._ledger, call.n, call.i, call.edited
        depth = 0 if ledger.given.parent is None else ledger.given.parent.depth
        if depth >= call.policy.max_depth:
            ledger.calls.outcome(n, i, too_deep(call.asked, depth))
            return None
        given = ledger.calls.tool_input(n, i, edited)
        plan = await quick(ledger, "nest", given, Nesting, longest=LONGEST_TOOL)
        if call.is_left:
            return None
        said = edited.arguments if edited is not None else ""
        if plan.outcome is None:
            # No await between the two: a child that runs always has its call, and an undo of the
            # call always finds the child.
            child = self._children.start(n, i, plan)
            ledger.calls.begins(n, i, now=now(), edited=said, child=child)
            return None
        changed = {"edited": said} if said else {}
        ledger.calls.outcome(n, i, plan.outcome.model_copy(update=changed))
        return plan.outcome.failure

    async def _run(self, call: Call) -> Failure | None:
        """Run the tool; if it may have taken effect without an outcome, clarify that.

        The outcome is recorded before the call leaves `running`: in between, an end or undo must
        find it in one of the two.
        """
        ledger, n, i, policy = self._ledger, call.n, call.i, call.policy
        edited = call.edited
        # Before the activity is scheduled: from here on an end or undo counts the call as unknown.
        self._running.add((n, i))  # it stays there when the call is cancelled; see `__init__`
        try:
            outcome = await run_tool(ledger, n, i, edited, policy)
            if call.is_left:
                return None
            if outcome.asks is not None or i in ledger.at(n).waiting:
                self._ask_person(call, outcome, outcome.asks)
                return None
            if edited is not None:
                outcome = outcome.model_copy(update={"edited": edited.arguments})
            if ledger.s.children:
                self._children.done(n, i, outcome)
            ledger.calls.outcome(n, i, outcome)
            approvals.settle(ledger, n, i, now=now())
            self._running.discard((n, i))
            return outcome.failure
        except ActivityError as error:
            if is_cancelled_exception(error) or call.is_left:
                raise
            self._running.discard((n, i))
            failure = failure_of(error)
            # In doubt the call counts as having happened: to ask a person costs less than to pay
            # twice.
            if i not in ledger.at(n).waiting and not may_have_happened(error, policy):
                self._record_failure(call, error, failure)
                return failure
            return await self._ask_about(call, _unknown_text(error, call, policy), failure)

    def _ask_person(self, call: Call, outcome: Outcome, asks: Asks | Wait | None) -> None:
        """Ask a person what the tool wants to know; the call goes on with the answer.

        No one is asked for a call that waits for something outside, or has its outcome from there.
        """
        ledger, n, i = self._ledger, call.n, call.i
        self._running.discard((n, i))
        if not isinstance(asks, Asks):
            waits.begin(ledger, n, i, outcome)
            workflow.instance().core.watch_clock()
            return
        if not asks.repeats or call.policy.repeatable:
            ledger.calls.failed(n, i, "It waits for an answer.", now=now())
        text = question_text(asks, call.asked.name, outcome.content)
        self._ask(
            call,
            "question",
            call.effective,
            text=text,
            seconds=call.policy.approval_seconds,
            asks=asks,
            after=outcome.content,
        )

    def _record_failure(self, call: Call, error: ActivityError, failure: Failure) -> None:
        """Record that a call which stops its step took no effect, if that is certain.

        Only then may it be begun again. The last attempt proves nothing about earlier ones.
        """
        is_known = isinstance(error.cause, ApplicationError) and is_certain(error.cause)
        if not (is_known or call.policy.effect == "read"):
            return
        if failure.type == NOT_STARTED:
            self._ledger.calls.not_begun(call.n, call.i)
        elif error.activity_type in OF_CALLS:
            self._ledger.calls.failed(call.n, call.i, failure.text, now=now())

    async def ask_about_cut(self, cut: Iterable[tuple[int, int]]) -> None:
        """Ask about calls that an undo has cancelled which was then refused or has failed."""
        if self._ledger.s.described is None:
            return
        for n, i in cut:
            call = Call(self._ledger, n, i)
            if not call.is_left and not call.policy.repeatable:
                await self._ask_about(call, cut_text(call.asked))

    async def _ask_about(
        self, call: Call, text: str, failure: Failure | None = None
    ) -> Failure | None:
        """Clarify whether a call took effect: by its tool's probe, else by asking a person.

        Args:
            call: The call.
            text: What is known, for a person.
            failure: How its activity failed, if it did.

        Returns:
            Why the step stops, if the call is now known not to have happened.
        """
        ledger, n, i = self._ledger, call.n, call.i
        edited, early = call.edited, ledger.at(n).waiting.get(i)
        # Its tool has handed its token out before it failed, and who has it knows better.
        if early is not None:
            waits.begin(ledger, n, i, early)
            return None
        if not call.policy.has_probe:
            self._ask(call, "unknown", call.effective, text=text)
            return None
        try:
            # A probe only reads, so it may be repeated. If it cannot tell, a person is asked.
            probed = await quick(ledger, "probe", ledger.calls.tool_input(n, i, edited), Probed)
        except ActivityError as error:
            text += f" Its probe failed: {failure_of(error).text}"
            self._ask(call, "unknown", call.effective, text=text)
            return None
        about = {"tool": call.asked.name, "call_id": call.asked.id}
        step = ledger.at(n).open.step.step_id
        ledger.note("probed", now=now(), body={**about, "step": step, "happened": probed.happened})
        if probed.happened:
            known = Outcome(content=probed.content, edited=edited.arguments if edited else "")
            ledger.calls.settled(n, i, known, now=now())
        elif failure is not None and failure.type == TIMED_OUT:
            return self._timed_out(call, failure)
        else:
            ledger.calls.failed(n, i, NOT_HAPPENED, now=now())
            ledger.calls.clear(n, i)  # it did not happen, so it is run: it was approved before
        return None

    def _timed_out(self, call: Call, failure: Failure) -> Failure | None:
        """End a call that took too long and has not happened: another run might take as long."""
        if call.policy.timeout_behavior == "raise_exception":
            self._ledger.calls.failed(call.n, call.i, failure.text, now=now())
            return failure
        outcome = Outcome(content=failure.text, is_error=True, status="failed")
        self._ledger.calls.outcome(call.n, call.i, outcome)
        return None


def may_have_happened(error: ActivityError, policy: ToolPolicy) -> bool:
    """Whether a call may have taken effect although its activity failed.

    It may after every failure, except for types that are known to hide no effect. An unknown type
    may hide one. A repeatable call counts as such only when its worker was lost too often: the tool
    may be what ends the worker.
    """
    if error.activity_type not in OF_CALLS:  # questions about a call are asked before it runs
        return False
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type in (BLOCKED, NOT_REPEATABLE):
        return True
    if not policy.may_have_happened:
        return is_lost(error)
    return not (isinstance(cause, ApplicationError) and is_certain(cause))


def _unknown_text(error: ActivityError, call: Call, policy: ToolPolicy) -> str:
    """Say to a person why it is not known whether a call took effect."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return lost_text(call.asked, MOST_LOST if policy.repeatable else 1)
    if cause.type in (INTERRUPTED, BLOCKED):
        return failure_of(error).text
    return not_known_text(cause.message)
