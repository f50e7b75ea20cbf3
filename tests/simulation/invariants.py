"""What must hold after each workflow task, and whenever nothing can happen by itself."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure

from holdfast.archive.archive import record_name
from holdfast.engine.search_attributes import AGENT_TASK, SEAL_MEMO
from holdfast.reading.audit.audit import verify
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.records import Entry, Seal, is_sealed
from holdfast.task.data.state import TaskRecord
from holdfast.task.data.undo import UndoRequest
from holdfast.task.data.wire import ViewRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import queue_after
from holdfast.task.people import approvals
from holdfast.task.requests.phase import refuse_finalize, refuse_run, refuse_undo
from holdfast.task.undo import active_steps
from holdfast.values.base import extend
from tests.simulation.effects import Effects
from tests.simulation.run import Run, ViolationError

if TYPE_CHECKING:
    from tests.simulation.play import Simulation

WAITS = ("waiting", "paused", "needs_attention")
"""Status of a task that nothing but somebody else can move."""

OF_CLOCKS = ("at", "ended", "took", "started", "worker", "digest", "marks", "chain")
TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
"""What differs from one clock to another."""


class Invariants:
    """Looks at the state of all tasks of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        self._ends: dict[str, str] = {}
        self._folded: dict[str, object] = {}
        self._told: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._effects = Effects(simulation.world)

    # ---- after each workflow task

    def after(self, run: Run) -> None:
        """Check what must hold after a workflow task.

        Raises:
            ViolationError: Something does not.
        """
        if run.begin.kind != AGENT_TASK or run.code is None:
            return
        core = run.code.core
        self._follow(run.id, core)
        self._check_end(run.id, core)
        self._check_closed(run)
        self._check_folds(run.id, core.ledger)
        self._effects.check_counts()
        if not run.is_open and run.status not in ("continued", "terminated"):
            self._check_record(run)

    def _follow(self, id: str, core: Any) -> None:
        """Keep the whole ledger: the task forgets what it has archived."""
        known, ledger = self._entries[id], core.ledger
        new = ledger.log.chain.length - len(known)
        if new > len(ledger.log.entries):
            raise ViolationError(f"{id} has archived entries of its ledger that nobody has seen")
        for entry in ledger.log.entries[len(ledger.log.entries) - new :] if new else ():
            known.append(entry)
            self._effects.read(id, entry)

    def _check_end(self, id: str, core: Any) -> None:
        """An accepted end stays accepted; only an abandon may take its place."""
        before, now = self._ends.get(id, ""), core.ending.status or ""
        if before and now not in {before, "abandoned"}:
            raise ViolationError(f"{id} was to be {before}, and now {now or 'goes on'}")
        self._ends[id] = now
        closing, shown = core.ledger.s.closing, core.ledger.s.published
        is_first = closing is not None and closing.is_prepared and not closing.failures
        if is_first and now == "abandoned" and core.ledger.s.children and shown != now:
            raise ViolationError(f"{id} is abandoned, and its nested tasks cannot see that")

    def _check_closed(self, run: Run) -> None:
        """A closed task says how it has ended while its workflow still sends signals."""
        core = run.code.core
        if core.closed and (end := core.ending.failure()) is not None:
            failure = run.code.view_query(ViewRequest(failure=True)).failure
            if failure != end or run.code.task_value_query().status != core.ending.status:
                raise ViolationError(f"{run.id} is closed, and does not say how it has ended")
        is_finished = core.closed and core.ending.status == "finished"
        if is_finished and core.ledger.queue.unread and not core.ledger.money.exceeded(now=0):
            raise ViolationError(f"{run.id} is finished, and no model has read what was said")

    def _check_folds(self, id: str, ledger: Any) -> None:
        """The queue, the transcript and the number of steps are folds of the records."""
        entries, s = self._entries[id], ledger.s
        state = (len(entries), s.steps, s.transcript, ledger.queue.recorded)
        if self._folded.get(id) == state:
            return
        self._folded[id] = state
        active = active_steps(entries)
        if len(active) != s.steps:
            raise ViolationError(f"{id} counts {s.steps} steps, and its ledger has {len(active)}")
        said = [message for step in active for message in step.adds]
        if (len(said), extend("", said)) != tuple(s.transcript):
            raise ViolationError(f"the transcript of {id} is not that of its steps")
        if ledger.queue.recorded != queue_after(active):
            raise ViolationError(f"the queue of {id} is not the fold of its records")

    def check_chains(self) -> None:
        """The digest chains fit; what does not fit in a ledger stays in it, so once is enough.

        Raises:
            ViolationError: One does not.
        """
        for id, entries in self._entries.items():
            if findings := verify(entries):
                raise ViolationError(f"the ledger of {id} does not fit: {findings}")

    def _check_record(self, run: Run) -> None:
        """A closed task has a record, and the run its seal."""
        found = self._sim.archive.find_record(record_name("tasks", run.id))
        if found is None:
            raise ViolationError(f"{run.id} is closed, and the archive has no record of it")
        record = TaskRecord.model_validate(found)
        if record.prepared and not is_sealed(found, _seal_of(run).record):
            raise ViolationError(f"{run.id} is closed, and its record is not the sealed one")
        if record.task["status"] != self._ends[run.id]:
            raise ViolationError(f"{run.id} has a record of another end")

    # ---- whenever nothing can happen by itself

    def look(self) -> None:
        """Check what must hold when nothing can happen by itself; do nothing else.

        Raises:
            ViolationError: Something does not.
        """
        server = self._sim.server
        if not server.rests:
            return
        self._check_answers()
        if server.due is None:
            waiting = [u for u in server.updates if not u.answers and self._rests(u.run)]
            if waiting:
                what = f"{waiting[0].name} {waiting[0].id}"
                raise ViolationError(f"nothing will answer the update {what}")
        runs = [run for id in self._sim.tasks if (run := server.newest(id)) and run.code]
        self._effects.check((run.id, run.code.core.ledger.s) for run in runs)
        for run in runs:
            if run.is_open and not run.timers:
                self._check_rest(run)

    def _check_rest(self, run: Run) -> None:
        """Somebody can end each wait, and lists show what is."""
        core, id = run.code.core, run.id
        ledger = core.ledger
        if not self._sim.server.is_unseen:
            self._check_ends(run)
        for each in ledger.s.approvals:
            if not _is_about_something(ledger, each):
                raise ViolationError(f"{id} keeps a question that is over: {each.id} ({each.kind})")
        if not self._can_move(run):
            raise ViolationError(f"nobody can move {id}: {self.state_of(id)}")
        shown = json.loads(run.attributes.indexed_fields["HfStatus"].data)
        if shown != ledger.status:
            raise ViolationError(f"lists show {id} as {shown}; it is {ledger.status}")

    def _check_ends(self, run: Run) -> None:
        """A task knows which of those that it waits for have ended."""
        s, newest = run.code.core.ledger.s, self._sim.server.newest
        for name, child in s.children.items():
            there = newest(name)
            waits = not (child.closed or child.left or child.is_over)
            if waits and there is not None and not there.is_open:
                raise ViolationError(f"{run.id} has not noticed that its child {name} has ended")
        parent = newest(run.begin.parent[0]) if run.begin.parent else None
        waits = s.closing is None and run.code.core.ledger.status in WAITS
        if waits and parent is not None and not parent.is_open:
            raise ViolationError(f"{run.id} has not noticed that its parent {parent.id} has ended")

    def _check_answers(self) -> None:
        """A request that is sent once more is answered as it was, also by a later run."""
        for update in self._sim.server.updates:
            last = update.answers[-1] if update.answers else None
            if not isinstance(last, Payload):
                continue
            reply: Any = json.loads(last.data)
            if update.name == "finalize" or reply.get("status", "done") != "done":
                continue
            told = self._told.setdefault((update.run.id, update.name, update.id), reply)
            if told.get("n") != reply.get("n"):
                raise ViolationError(f"{update.name} {update.id} is answered {told}, then {reply}")

    def _can_move(self, run: Run) -> bool:
        """Whether a request, a person or another task can move a task that rests."""
        core = run.code.core
        ledger, s = core.ledger, core.ledger.s
        if core.phase == "undoing":
            held_by_parent = s.undo is not None and s.undo.mode == "held"
            return held_by_parent or approvals.undo_waits(ledger)
        match ledger.status:
            case "waiting":
                return bool(self.asked(run))
            case "paused":
                return bool(s.paused) or bool(s.held)
            case "answered":
                return refuse_finalize(ledger) is None
            case "needs_attention":
                again = refuse_run(ledger, core.agenda, RunRequest(all=True), "probe")
                anew = refuse_run(ledger, core.agenda, RunRequest(restart=True), "probe")
                is_stalled = getattr(ledger.failure, "type", "") in {
                    "StalledTaskError",
                    "UnfitAnswerError",
                }
                undoes = is_stalled and refuse_undo(ledger, UndoRequest()) is None
                return again is None or anew is None or undoes or run.begin.parent is not None
            case _:
                waits_for = [n for n, c in s.children.items() if not (c.closed or c.left)]
                is_asked = refuse_run(ledger, core.agenda, RunRequest(), "probe") is None
                # Who has dropped the last queued step may take a step back, or end the task.
                is_dropped = not s.queue and not s.opens
                return bool(waits_for) or ((is_asked or is_dropped) and not core.agenda.steps_go)

    def _rests(self, run: Run) -> bool:
        """Whether a task rests, and nobody else is to go on: requests to it are answered then.

        Who takes steps of a nested task back runs it again: its calling task waits for that.
        """
        return run.is_open and not self._idle_child(run)

    def _idle_child(self, run: Run) -> bool:
        """Whether a child that a task waits for rests: who took its steps back has to run it."""
        for name in run.code.core.ledger.s.children:
            child = self._sim.server.newest(name)
            if child is not None and child.is_open and child.code is not None:
                core = child.code.core
                is_idle = core.ledger.status == "running" and not core.ledger.s.automatic
                if is_idle or self._idle_child(child):
                    return True
        return False

    def asked(self, run: Run) -> list[Approval]:
        """List the approvals of a task, and of its children, that somebody can decide."""
        found: list[Approval] = []
        for each in approvals.asked_everywhere(run.code.core.ledger):
            owner = self._sim.server.newest(each.id.rpartition(":")[0])
            if owner is not None and owner.is_open and owner.code is not None:
                known = owner.code.core.ledger.asked.find(each.id)
                if known is not None and known.status == "open":
                    found.append(each)
        return found

    # ---- words

    def state_of(self, id: str) -> str:
        """Describe a task for a person."""
        run = self._sim.server.newest(id)
        if run is None or run.code is None:
            return "there is no such task"
        core = run.code.core
        s = core.ledger.s
        return (
            f"{core.ledger.status} ({core.phase}); approvals"
            f" {[(a.id, a.kind, a.status) for a in s.approvals]}; failure {core.ledger.failure};"
            f" steps {s.steps}, open {[c.n for c in s.opens]}, queued {len(s.queue)}; children"
            f" {[(n, c.status, c.closed) for n, c in s.children.items()]}; undo {s.undo}"
        )

    def ledger_of(self, id: str) -> list[str]:
        """Return a task's ledger without what differs from one clock to another."""
        return [told(entry) for entry in self._entries[id]]


def _seal_of(run: Run) -> Seal:
    """Return the seal that a run has left in its memo, its failure or its result."""
    kept: Payload | None = run.memo.get(SEAL_MEMO)
    if kept is not None:
        return Seal.model_validate_json(kept.data)
    if isinstance(run.result, Failure):
        [facts] = run.result.application_failure_info.details.payloads
        return Seal.model_validate(json.loads(facts.data)[SEAL_MEMO])
    return Seal.model_validate(json.loads(run.result.data)["seal"])


def _is_about_something(ledger: Ledger, approval: Approval) -> bool:
    """Whether an approval is of an undo in progress, or an open one of a call that is open."""
    if approval.kind == "undo":
        return ledger.s.undo is not None
    if approval.status != "open" or approval.i < 0:
        return True
    return ledger.calls.is_missing(approval.n, approval.i)


def told(entry: Entry) -> str:
    """Say what an entry of a ledger holds, without times, digests and ids made of them."""
    return TIMES.sub("<time>", json.dumps(_without(entry.wire(), OF_CLOCKS), sort_keys=True))


def _without(data: Any, names: tuple[str, ...]) -> Any:
    match data:
        case dict():
            members = cast("dict[str, Any]", data).items()
            return {k: _without(v, names) for k, v in members if k not in names}
        case list():
            return [_without(each, names) for each in data]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return data
