"""What a task can do now: by its ledger, and by the requests that wait for it. Pure."""

from __future__ import annotations

from holdfast.task import approvals
from holdfast.task.data.records import OpenState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.run_requests import Pending, RunRequests
from holdfast.task.tool_calls import awaits_children, ready_calls, verdict_of_calls
from holdfast.values.steps import TaskStep

MOST_LANES = 64
"""Most steps of one task that are open at the same time; the rest of a round follows."""


class Agenda:
    """Says which steps can be begun, tried again or taken further, and whether an undo can.

    Attributes:
        calling: Numbers of the steps whose tool calls are being taken further: a pause does not
            hold these.
        holds_back: Whether no step may be begun, because commands are to be read first.
    """

    def __init__(self, ledger: Ledger, requests: RunRequests) -> None:
        """Read this ledger and these requests."""
        self.calling: set[int] = set()
        self.holds_back = False
        self._ledger = ledger
        self._requests = requests

    @property
    def undo_goes(self) -> bool:
        """Whether an undo is in progress that waits for nobody."""
        undo = self._ledger.s.undo
        if undo is None or undo.mode == "held":
            return False
        return not approvals.undo_waits(self._ledger)

    @property
    def steps_go(self) -> bool:
        """Whether there is something to do for the steps, or for the end, that waits for nobody."""
        s = self._ledger.s
        if s.verdict is not None or self.finalizes:
            return True
        if s.described is None and self._ledger.failure is None:
            return True
        return self.retries or self.begins or any(map(self.goes, s.opens))

    @property
    def finalizes(self) -> bool:
        """Whether the task has its answer and was to be finalized by itself."""
        ledger = self._ledger
        return ledger.given.finalize and ledger.s.answered and ledger.failure is None

    def goes(self, current: OpenState) -> bool:
        """Whether an open step can be taken further."""
        n = current.n
        if any(call.n == n for call in self._ledger.s.long_calls):
            return True
        if current.failure is not None or self._ledger.s.failure is not None:
            return False
        if verdict_of_calls(current) is not None:
            return True
        if self._ledger.is_held(current):
            return n in self.calling
        waits = approvals.waits(self._ledger, n) or awaits_children(self._ledger, n)
        return not waits or bool(ready_calls(self._ledger, n, most=1))

    @property
    def retries(self) -> bool:
        """Whether a failure is to be tried again, for a request or for the parent task."""
        if self._ledger.failure is None or self._ledger.paused:
            return False
        return self._ledger.s.tries_again or self._requests.ask_anew(self._ledger.owners)

    @property
    def begins(self) -> bool:
        """Whether a queued step is to be begun now."""
        s, ledger = self._ledger.s, self._ledger
        if (
            self.holds_back
            or ledger.paused
            or not s.queue
            or ledger.failure is not None
            or (s.lasts and s.opens)
        ):
            return False
        if len(s.opens) >= self._most_open():
            return False
        return bool(self.next_steps())

    def _most_open(self) -> int:
        """Return how many steps may be open at the same time."""
        s = self._ledger.s
        if self._requests.round is not None:
            return MOST_LANES
        if self._requests.want_a_step:
            return 1
        if s.described is None or not s.automatic:
            return 1
        return min(s.described.parallel, MOST_LANES)

    def next_steps(self) -> tuple[TaskStep, ...]:
        """List the steps that may be begun for the requests that wait, or by the task itself."""
        s, all_ready = self._ledger.s, self._requests.round
        ready = self._ledger.ready()
        if all_ready is not None:
            known = s.rounds.get(all_ready.id)
            return ready if known is None else tuple(r for r in ready if r.step_id in known)
        wanted = self._requests.want_a_step or (s.automatic and not s.answered)
        return ready if wanted else ()

    @property
    def new_round(self) -> Pending | None:
        """The request for all ready steps that has no plan yet."""
        wanted = self._requests.round
        known = wanted is None or wanted.id in self._ledger.s.rounds
        if known or self._ledger.failure is not None or not self.plan():
            return None
        return wanted

    def plan(self) -> tuple[TaskStep, ...]:
        """List the steps of a round that would begin now: those open without a request, and ready.

        A round waits for the join of last steps, which comes alone.
        """
        s = self._ledger.s
        free = tuple(current.open.step for current in s.opens if not current.owner)
        return free if s.lasts and s.opens else (*free, *self._ledger.ready())

    @property
    def has_new_requests(self) -> bool:
        """Whether a request wants more than the steps in progress."""
        return self.retries or self.new_round is not None or self.begins

    def failed(self, step_id: str) -> OpenState | None:
        """Return the failed step that a request would try again; any, for an empty id."""
        failed = self._ledger.failed
        return next((c for c in failed if step_id in ("", c.open.step.step_id)), None)
