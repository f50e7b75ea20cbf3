"""Tool calls of open steps: the state of each, which can go on, which tools to find first. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from holdfast.task.data.calls import Approval, LongCall, StandingRule
from holdfast.task.data.children import ChildState
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import ToolPolicy, called_handoff, handed_to, policy_of
from holdfast.task.data.records import OpenState
from holdfast.task.data.wire import ToolInput, ToolsInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import newest_answer
from holdfast.task.people import approvals, standing
from holdfast.task.refusals import is_verdict
from holdfast.values.messages import ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule

MOST_AT_ONCE = 300
"""Most calls of a task that are taken further at the same time; the others follow.

The server fails every workflow task that would have more than 2,000 activities on the way. Tasks in
flight depend on the number.
"""

MOST_CHILDREN_AT_ONCE = 1000
"""Most child tasks of one step at the same time; the server allows 2,000 per task."""

Running = set[tuple[int, int]]
"""The (step, position) of the calls that are being run."""


class Room:
    """Limits the calls that a task takes further at the same time, over all its steps.

    Attributes:
        taken: How many there are.
    """

    def __init__(self) -> None:
        """Begin with all of it."""
        self.taken = 0

    @property
    def left(self) -> int:
        """How many more may join them."""
        return max(MOST_AT_ONCE - self.taken, 0)


def ready_calls(
    ledger: Ledger, n: int, taking: Collection[int] = (), *, most: int = MOST_AT_ONCE
) -> list[int]:
    """List a step's open calls that can go on now.

    They wait for no person, and there are at most as many as the run allows at once, calls of
    agents in progress included.

    Args:
        ledger: The task.
        n: The step.
        taking: Positions of the calls that go on already; they are not listed.
        most: Most that are listed.
    """
    if ledger.find(n) is None:
        return []
    nested = _nested(ledger, n) if ledger.s.children else 0
    most = min(most, MOST_CHILDREN_AT_ONCE - nested)
    allowed = ledger.head.run.tool_concurrency
    if allowed:
        most = min(most, allowed - len(taking) - nested)
    can_go = (i for i in ledger.calls.missing(n) if i not in taking and _can_go(ledger, n, i))
    return list(itertools.islice(can_go, max(most, 0)))


def _can_go(ledger: Ledger, n: int, i: int) -> bool:
    """Whether an open call waits for no person, no child task and nothing outside."""
    over = ledger.at(n).waiting.get(i)
    if over is not None and over.asks is not None:
        return False
    if ledger.s.children and _awaits_child(ledger, n, i):
        return False
    approval = approvals.latest(ledger, n, i)
    return approval is None or approval.status != "open"


def _nested(ledger: Ledger, n: int) -> int:
    """Count the open calls of a step whose child tasks are in progress."""
    return sum(_awaits_child(ledger, n, i) for i in ledger.calls.missing(n))


def _awaits_child(ledger: Ledger, n: int, i: int) -> bool:
    child = ledger.child(n, i)
    return bool(child) and ledger.s.children[child].is_awaited


def awaits_children(ledger: Ledger, n: int) -> bool:
    """Whether a step waits for the child task of one of its open calls."""
    return _nested(ledger, n) > 0


def verdict_of_calls(current: OpenState) -> Failure | None:
    """Return the verdict of an open call of a step, the first in call order.

    It stays until the step stops with it: another call, or an undo that was then refused, may have
    stopped the step before.
    """
    for i in sorted(current.outcomes):
        failure = current.outcomes[i].failure
        if failure is not None and is_verdict(failure):
            return failure
    return None


def add_long(ledger: Ledger, call: LongCall) -> None:
    """Note that the task may continue as new while a call runs."""
    kept = _others(ledger, call.branch, call.n, call.i)
    ledger.s.long_calls = (*kept, call.model_copy(update={"secret": ""}))


def find_long(ledger: Ledger, n: int, i: int) -> LongCall | None:
    """Return a call with which the task may continue as new, or has."""
    return next((call for call in ledger.s.long_calls if (call.n, call.i) == (n, i)), None)


def drop_long(ledger: Ledger, branch: int, n: int, i: int) -> None:
    """Note that an attempt of a call is over."""
    others = _others(ledger, branch, n, i)
    if len(others) < len(ledger.s.long_calls):
        ledger.s.long_calls = others


def _others(ledger: Ledger, *place: int) -> tuple[LongCall, ...]:
    return tuple(c for c in ledger.s.long_calls if (c.branch, c.n, c.i) != place)


CallState = Literal[
    "over",
    "unknown_tool",
    "runs_on",
    "recalling",
    "standing",
    "gating",
    "screening",
    "to_ask",
    "asked",
    "checking",
    "rejected",
    "to_nest",
    "in_child",
    "to_pass",
    "outside",
    "to_run",
]
"""over: it has its outcome, or its step was left. unknown_tool: its agent has no such tool.
runs_on: it was begun in an earlier run of the task and goes on. gating: the tool's predicate must
say whether a person decides. recalling: its session must say which decisions it has for such calls.
standing: a decision for all calls of the tool settles it. screening: guardrails see it before a
person does. to_ask, asked: a person is to decide, or is deciding.
checking: edited arguments must be checked. rejected: the rejection must be worded for the model.
to_nest: its child task must be started. in_child: its child task is in progress. to_pass: the
provider is to run it, so the approval is its outcome. outside: its tool has ended, and the call
waits for a time or an outcome from outside. to_run: its tool must be run."""

_BY_DECISION: dict[str, CallState] = {
    "open": "asked",
    "checking": "checking",
    "rejected": "rejected",
}


class Call:
    """One call of an open step, as far as the task knows it.

    Attributes:
        n: Number of its step.
        i: Its position among the step's open calls.
        is_gated: Whether the tool's predicate has said that a person decides.
        asked_by: By which rule, if it has said that.
        is_screened: Whether guardrails have let it pass before a person is asked.
        recalled: Decisions that the task's session has for such calls; None until it was asked.
    """

    def __init__(self, ledger: Ledger, n: int, i: int) -> None:
        """Look at a call of a step in progress."""
        self.n = n
        self.i = i
        self.is_gated = False
        self.asked_by: ApprovalRule | None = None
        self.is_screened = False
        self.recalled: Sequence[StandingRule] | None = None
        self._ledger = ledger
        self._branch = ledger.s.branch

    @property
    def asked(self) -> ToolCall:
        """The call as the model made it."""
        return self._ledger.at(self.n).calls[self.i]

    @property
    def agent(self) -> str:
        """Name of the agent that made it; empty for the task's first."""
        return self._ledger.at(self.n).open.step.agent

    @property
    def policies(self) -> dict[str, ToolPolicy]:
        """Tool name to policy of the agent that made it, as the task began with them."""
        described = self._ledger.s.described
        agent = self._ledger.at(self.n).open.step.agent
        return {} if described is None else described.rules(agent).policies

    @property
    def policy(self) -> ToolPolicy:
        """The rules of its tool, and who decides about this call."""
        found = policy_of(self.policies, self.asked)
        if found is None:
            raise KeyError(self.asked.name)
        rule = self.rule
        if rule is None:
            return found
        seconds = rule.expires_seconds or found.approval_seconds
        return found.model_copy(update={"approval": rule, "approval_seconds": seconds})

    @property
    def rule(self) -> ApprovalRule | None:
        """By which people are asked about it, if the tool's predicate has said that."""
        approval = self.approval
        if approval is None or approval.status == "closed":
            return self.asked_by
        return approval.rule

    @property
    def approval(self) -> Approval | None:
        """Its newest approval, if there is one."""
        return approvals.latest(self._ledger, self.n, self.i)

    @property
    def effective(self) -> ToolCall:
        """The call as it runs: with the arguments of a person who has edited them."""
        approval = self.approval
        return approvals.effective_call(approval, self.asked) if approval else self.asked

    @property
    def edited(self) -> ToolCall | None:
        """The call as a person has edited it, if one has."""
        approval = self.approval
        effective = approvals.effective_call(approval, self.asked) if approval else None
        return None if effective == self.asked else effective

    @property
    def child(self) -> ChildState | None:
        """Its child task, for a call of an agent, once that is begun."""
        return self._ledger.s.children.get(self._ledger.child(self.n, self.i))

    @property
    def failure(self) -> Failure | None:
        """Why its outcome stops the step, if it does."""
        current = self._ledger.find(self.n)
        outcome = None if current is None else current.outcomes.get(self.i)
        return None if outcome is None else outcome.failure

    @property
    def is_left(self) -> bool:
        """Whether it has its outcome, or its step was left: later results are dropped."""
        current = self._ledger.find(self.n)
        if current is None or self._ledger.s.branch != self._branch:
            return True
        return self.i in current.outcomes or self.i >= len(current.calls)

    @property
    def state(self) -> CallState:
        """Its state: what must be done with it next."""
        if self.is_left:
            return "over"
        if policy_of(self.policies, self.asked) is None:
            return "unknown_tool"
        if self._ledger.s.long_calls and find_long(self._ledger, self.n, self.i) is not None:
            return "runs_on"
        approval = self.approval
        if approval is None or approval.status == "closed":  # closed by an end that failed: again
            return self._undecided()
        if approval.status == "approved" or approval.answers:
            return self._allowed()
        return _BY_DECISION.get(approval.status, "asked")

    def _undecided(self) -> CallState:
        """Return the state of a call without an approval."""
        policy = self.policy
        cleared = self._ledger.at(self.n).cleared
        if policy.needs_approval == "no" or self.i in cleared:
            return self._allowed()
        s = self._ledger.s
        if (s.standing or s.to_session or self.recalled) and self._standing(policy) is not None:
            return "standing"
        has_session = self._ledger.given.head.session is not None
        if has_session and self.recalled is None and not self._ledger.at(self.n).unruled:
            return "recalling"
        if policy.needs_approval == "ask" and not self.is_gated:
            return "gating"
        screens = policy.guarded and self._ledger.head.run.guards_before_approval
        return "screening" if screens and not self.is_screened else "to_ask"

    def _standing(self, policy: ToolPolicy) -> StandingRule | None:
        recalled = self.recalled or ()
        return standing.standing_rule(self._ledger, self.n, self.i, policy, recalled)

    @property
    def is_unjudged(self) -> bool:
        """Whether a standing approval waits for the tool's predicate, which may name others."""
        policy = self.policy
        if self.is_gated or policy.needs_approval != "ask":
            return False
        found = self._standing(policy)
        return found is not None and found.verb == "approve"

    def _allowed(self) -> CallState:
        """Return the state of a call that may run."""
        if self.asked.server:
            return "to_pass"
        if not self.policy.agent:
            over = self._ledger.at(self.n).waiting.get(self.i)
            return "to_run" if over is None or over.asks is None else "outside"
        child = self.child
        if child is None:
            return "to_nest"
        return "to_run" if child.is_over else "in_child"  # its activity collects the result


NEEDS_NO_TOOL: frozenset[CallState] = frozenset(
    {"over", "unknown_tool", "runs_on", "rejected", "to_pass"}
)
MAY_RUN: frozenset[CallState] = frozenset({"to_run", "to_nest"})


def tools_to_find(
    ledger: Ledger,
    n: int,
    ready: Collection[int],
    *,
    begun: Collection[int],
    found: Collection[int],
) -> ToolsInput | None:
    """Return the calls of a step to look up before its ready ones begin.

    A person may decide days after the model's answer, and the agent may have lost a tool or a
    handoff meanwhile. So all calls of the answer that have not begun are looked up first, whatever
    they wait for: else one would take effect, and the one next to it could not.

    Args:
        ledger: The task.
        n: The step.
        ready: Positions of the calls that can go on now.
        begun: Positions of the calls that are being taken further already.
        found: Positions of the calls that were looked up and could run then.

    Returns:
        None if a person has not decided on any of the ready calls, or if there is one call alone,
        which is looked up where it runs.
    """
    answers, current = ledger.head.answers_lost_calls, ledger.at(n)
    answer = newest_answer(current.journal) if current.result is None else None
    is_alone = len(current.calls) <= 1 and (answer is None or len(answer.message.calls) <= 1)
    if is_alone and not answers:
        return None
    if not any(i not in found and _takes_effect(ledger, n, i) for i in ready):
        return None
    others = [Call(ledger, n, i) for i in ledger.calls.missing(n) if i not in begun]
    calls = _one_of_a_name(call for call in others if _needs_tool(call, answers=answers))
    handoff = _handoff_after(ledger, n)
    if len(calls) + (handoff is not None) < (1 if answers else 2):
        return None
    return ToolsInput(
        n=n,
        calls=tuple(tool_to_find(ledger, call) for call in calls),
        agent=ledger.at(n).open.step.agent,
        handoff=handoff,
        head=ledger.changed_head,
    )


def tool_to_find(ledger: Ledger, call: Call) -> ToolInput:
    """Return a call to look up, with the state only where code of the run may read it."""
    given = ledger.calls.tool_input(call.n, call.i, call.edited)
    if ledger.head.answers_lost_calls and ledger.head.run.tool_error_formatter:
        return given
    left_out: dict[str, object] = {"state": {}, "big": False, "patch": {}}
    return given.model_copy(update={**left_out, "answers": {}, "resume": ""})


def that_may_run(ledger: Ledger, given: ToolsInput) -> set[int]:
    """Return the positions of those calls that wait for nothing else."""
    return {each.i for each in given.calls if Call(ledger, given.n, each.i).state in MAY_RUN}


def _one_of_a_name(calls: Iterable[Call]) -> list[Call]:
    """Leave out calls that wait for a person next to another such call of the same tool.

    A person may decide on a thousand calls of one tool one by one.
    """
    waiting: set[str] = set()
    kept: list[Call] = []
    for call in calls:
        if call.state == "asked":
            if call.asked.name in waiting:
                continue
            waiting.add(call.asked.name)
        kept.append(call)
    return kept


def _takes_effect(ledger: Ledger, n: int, i: int) -> bool:
    """Whether a call would begin now that a person has approved some time after the answer.

    A decision for later calls that holds already is applied at once.
    """
    if Call(ledger, n, i).state not in MAY_RUN:
        return False
    approval = approvals.latest(ledger, n, i)
    if approval is None or (approval.kind, approval.status) != ("tool", "approved"):
        return False
    return approval.at > approval.asked


def _needs_tool(call: Call, *, answers: bool) -> bool:
    """Whether a call that has not begun must be looked up.

    One that waits for a person is, unless the model would read of its tool after the decision.
    """
    if call.state in NEEDS_NO_TOOL:
        return False
    approval = call.approval
    if approval is None or call.state != "asked":
        return True
    return approval.kind == "tool" and not answers


def _handoff_after(ledger: Ledger, n: int) -> ToolCall | None:
    """Return the call of the answer that hands the task over after the others, if there is one."""
    current, policies = ledger.at(n), Call(ledger, n, 0).policies
    if current.result is not None:
        settled = ((current.calls[i], each) for i, each in current.outcomes.items())
        told = (call for call, each in settled if handed_to(call, each.message(call), policies))
        return next(told, None)
    answer = next((each.answer for each in reversed(current.journal) if each.answer), None)
    made = () if answer is None else answer.message.calls
    if not any(call in made for call in current.calls):
        return None
    first = next((call for call in made if called_handoff(call, policies)), None)
    return None if first in current.calls else first
