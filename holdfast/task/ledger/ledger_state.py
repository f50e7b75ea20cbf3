"""The state of one task as it is read: status, queue, steps in progress, budget."""

from __future__ import annotations

import itertools

from holdfast.task.data.children import ChildState, child_ids
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, EventRecord, OpenState, SegmentRef
from holdfast.task.data.state import Carried, TaskInput, head_digest, known_head
from holdfast.task.data.undo import Newest
from holdfast.task.ledger.recording import CLOSED_EVENT, CREATED, NUMBERED, Asked, Log, answer_of
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import TaskStep

INLINE_BYTES = 512
"""Up to this size a step's input travels with the activity; beyond, the activity asks for it."""


class LedgerState:
    """One task's state.

    Attributes:
        s: What it carries, but for what its parts own.
        log: Its entries.
        asked: Its approvals.
        questioned: Approvals that do not expire now: a decision may be in time for them.
        messages: Messages that the entries added to the transcript.
    """

    def __init__(self, given: TaskInput, *, task_id: str, now: float) -> None:
        """Begin a task, or go on with one that continued as new.

        Args:
            given: The workflow's input.
            task_id: The task's id.
            now: Time in seconds since the epoch.
        """
        self.given = given
        self.task_id = task_id
        carried = given.carried
        has_images_only = given.images and not given.head.history
        first = given.input if given.input or given.stored or has_images_only else None
        self.s = carried or Carried(
            created=now,
            queue=(TaskStep(step_id="s1", input=first, images=given.images),),
            extra_state=given.extra_state,
            automatic=given.automatic,
            serial=1,
            held=given.held,
            paused=given.paused,
            paused_until=given.start_at,
        )
        # From here on `s.log` is what the run began with, and the log itself what is known now.
        self.log = Log(self.s.log)
        self.questioned: frozenset[str] = frozenset()
        if given.described is not None:
            self.s.described = given.described
        self.messages: list[Message] = []
        self.asked = Asked(self.s)
        self.base = self.s.transcript.length
        if carried is None:
            self.note(CREATED, now=now, body={"extra_state": given.extra_state})

    def note(
        self,
        kind: str,
        *,
        now: float,
        by: str = "",
        text: str = "",
        body: dict[str, Json] | None = None,
    ) -> None:
        """Append an event."""
        # "closed" has the last number. A follower that has it stops, so what comes later gets none.
        closing = self.s.closing is not None and self.s.closing.is_prepared
        counts = kind == CLOSED_EVENT or (kind in NUMBERED and not closing)
        number = self.log.next_number() if counts else 0
        event = EventRecord(kind=kind, at=now, by=by, text=text, body=body or {}, number=number)
        self.log.append(Entry(event=event))

    @property
    def head(self) -> TaskHead:
        """The task's head, with the settings that its run was given since."""
        changed = self.s.changed
        return self.given.head if changed is None else changed.applied(self.given.head)

    @property
    def takes_settings(self) -> bool:
        """Whether its run may be given other settings: those of a nested one may be its own."""
        return self.given.parent is None or self.given.head.run.inherits

    @property
    def changed_head(self) -> str:
        """Digest of the head if it has changed since the task began; else empty.

        A process that knows the task must be told that it has another head by now.
        """
        return "" if self.s.changed is None else self.head_digest

    @property
    def head_digest(self) -> str:
        """Digest of the completed head."""
        return head_digest(known_head(self.head, self.s.described))

    @property
    def status(self) -> TaskStatus:
        """The task's status while it is open."""
        # The first that holds: a person who can decide something is told so before anything else.
        for approval in self.s.approvals:
            if approval.status == "open":
                return "waiting"
        for child in self.s.children.values():
            if child.approvals:
                return "waiting"
        if self.failure is not None:
            return "needs_attention"
        if self.paused:
            return "paused"
        return "answered" if self.s.answered else "running"

    @property
    def failure(self) -> Failure | None:
        """The failure with which the task waits: of a step, or of closing."""
        if self.s.closing is not None and self.s.failure is not None:
            return self.s.failure
        for current in self.s.opens:
            if current.failure is not None:
                return current.failure
        return self.s.failure

    @property
    def failed(self) -> list[OpenState]:
        """The steps in progress that have failed."""
        return [current for current in self.s.opens if current.failure is not None]

    @property
    def last_opened(self) -> int:
        """Number of the step that was opened last: each is completed, or open still."""
        return self.s.steps + len(self.s.opens)

    @property
    def owners(self) -> set[str]:
        """Ids of the requests that steps in progress are run for."""
        owners = {current.owner for current in self.s.opens}
        return owners - {""}

    def branch_of(self, n: int) -> int:
        """Return the branch on which a completed step of the present one was run."""
        begun = [branch for branch, first in self.s.path if first <= n]
        return begun[-1] if begun else 0

    @property
    def newest(self) -> Newest:
        """The steps in progress, else the last completed one: what an undo of the newest undoes."""
        s = self.s
        last = next((e.step for e in reversed(self.log.entries) if e.step is not None), None)
        open_ = tuple(current.open.step.step_id for current in s.opens) if s.opens else ()
        done = (last.step.step_id,) if last is not None and last.n == s.steps else ()
        to = s.steps if open_ else max(s.steps - 1, 0)
        return Newest(branch=s.branch, opened=self.last_opened, to=to, steps=open_ or done)

    def others(self, n: int) -> tuple[OpenState, ...]:
        """Return the steps in progress next to one of this number."""
        opens = self.s.opens
        return tuple(each for each in opens if each.n != n) if len(opens) > 1 else ()

    def find(self, n: int) -> OpenState | None:
        """Return the step in progress of this number, or None."""
        for current in self.s.opens:
            if current.n == n:
                return current
        return None

    def at(self, n: int) -> OpenState:
        """Return the step in progress of this number.

        Raises:
            RuntimeError: It is not open.
        """
        current = self.find(n)
        if current is None:
            raise RuntimeError(f"step {n} is not open")
        return current

    def child(self, n: int, i: int) -> str:
        """Return the id of the task that an open call of an agent as a tool began, or empty."""
        if not self.s.children:
            return ""
        place = (self.s.branch, n, self.at(n).batch, i)
        # A call that is begun again has another child. The ids are counted up, and the first child
        # that was not left is the call's own.
        found = itertools.takewhile(self.s.children.__contains__, child_ids(self.task_id, place))
        return next((id for id in found if not self.s.children[id].left), "")

    @property
    def paused(self) -> str:
        """Who has paused the task or its parent, and why; else empty."""
        return self.s.paused or self.s.held

    def has_long_call(self, n: int) -> bool:
        """Whether a call of a step goes on with which the task may continue as new."""
        return any(call.n == n for call in self.s.long_calls)

    def is_held(self, current: OpenState) -> bool:
        """Whether a pause keeps a step in progress from its tools: it began after the event named.

        One that has no tool to run, or outcomes of its calls, is finished all the same.
        """
        if current.unbegun and self.s.paused:
            return True
        # A step that has any outcome began its calls before the pause: it may end what it began.
        after = self.s.paused_after if self.s.paused else 0
        began = current.marks[0].number if current.marks else 0
        is_ending = current.result is not None and not current.calls
        return 0 < after < began and not is_ending and not current.outcomes

    @property
    def child_paused(self) -> str:
        """Id of a child task that is paused, or empty."""
        for id, child in self.s.children.items():
            if child.status == "paused" and not child.left:
                return id
        return ""

    def put_child(self, id: str, child: ChildState) -> None:
        """Store the state of a child task: in place, because there may be thousands."""
        self.s.children[id] = child

    @property
    def answer(self) -> Json:
        """The output of the newest step; a large one is named. None for none that is known."""
        for entry in reversed(self.log.entries):  # of one ordinal the newest stands
            if entry.step is not None and entry.step.n == self.s.steps:
                return answer_of(entry.step)
        return self.s.answer

    def archived(self, segment: SegmentRef) -> None:
        """Forget entries that are now in the archive; no step was completed meanwhile."""
        newest = self.log.archived(segment, self.s.steps)
        if newest is not None:
            self.s.answer = answer_of(newest) if newest.last else None
        self.messages.clear()
        self.base = self.s.transcript.length
