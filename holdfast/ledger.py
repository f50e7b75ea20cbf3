"""The state of one task: a pure machine that the workflow drives and every replay drives again.

It decides nothing by clock or chance and does no I/O: times come in as arguments. Everything it
knows fits into a `Carried`, plus the entries since the last segment that went to the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holdfast import merge_patch
from holdfast.chain import ChainRef, extend
from holdfast.messages import Message, ToolCall
from holdfast.records import (
    Before,
    Entry,
    EventRecord,
    Failure,
    JournalEntry,
    OpenState,
    OpenStep,
    Outcome,
    SegmentRef,
    StepRecord,
    call_digest,
    usual_step,
)
from holdfast.references import (
    new_entries,
    queue_after,
    resolve_adds,
    resolve_calls,
    resolve_output,
    usage_of,
    with_entry,
    without_adds,
)
from holdfast.state import Carried, Described, Receipt, RunReply, TaskInput
from holdfast.steps import Task, TaskStatus, TaskStep
from holdfast.values import Json, canonical, digest
from holdfast.wire import Advanced, AdvanceInput, RunRequest, ToolInput

INLINE_BYTES = 512
"""Up to this size a step's input travels with the activity; beyond, the activity asks for it."""

AT_DIGITS = 16
"""Digits of the transcript digest that an activity gets; 64 bits tell transcripts apart and
the ledger keeps all of them."""

CREATED = "created"
SEEN_KEPT = 200
RECEIPTS_KEPT = 200


class Ledger:
    """One task's state. Methods are called in the order in which things happened.

    Attributes:
        entries: Records since the last archived segment, oldest first.
        messages: Messages that those records added to the transcript.
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
        first = None if given.head.history and not (given.input or given.stored) else given.input
        self.s = carried or Carried(
            created=now,
            queue=(TaskStep(step_id="s1", input=first),),
            extra_state=given.extra_state,
            automatic=given.automatic,
            serial=1,
        )
        self.entries: list[Entry] = []
        self.messages: list[Message] = []
        self.base = self.s.transcript.length
        if carried is None:
            self.note(CREATED, now=now, body={"extra_state": given.extra_state})

    def change(self, **fields: object) -> None:
        """Replace fields of the carried state."""
        self.s = self.s.model_copy(update=fields)

    # ---- reading

    @property
    def status(self) -> TaskStatus:
        """The task's status while it is open."""
        if any(approval.status in ("open", "checking") for approval in self.s.approvals):
            return "waiting"
        if self.failure is not None:
            return "needs_attention"
        if self.s.paused:
            return "paused"
        return "answered" if self.s.answered else "running"

    @property
    def failure(self) -> Failure | None:
        """What stands in the way of the next step."""
        if self.s.current is not None and self.s.current.failure is not None:
            return self.s.current.failure
        return self.s.failure

    def task(self) -> Task:
        """Describe the task."""
        head = self.given.head
        return Task(
            task_id=self.task_id,
            input=self.given.input,
            agent=head.agent,
            session=head.session.name if head.session else "",
            extra_state=self.s.extra_state,
            status=self.status,
            created=self.s.created,
            steps=self.s.steps,
            usage=self.s.usage,
            stored=self.given.stored,
            paused=self.s.paused,
            error=f"{self.failure.type}: {self.failure.message}" if self.failure else "",
        )

    def upcoming(self) -> tuple[TaskStep, ...]:
        """The step in progress, then the queued ones."""
        current = self.s.current
        steps = (*((current.open.step,) if current else ()), *self.s.queue)
        return tuple(step.model_copy(update={"task_id": self.task_id}) for step in steps)

    # ---- a step's life

    def described(self, result: Described) -> None:
        """Take over what the worker process knows of the agent."""
        self.change(described=result, failure=None)
        if result.step != TaskStep() and self.s.steps == 0 and self.s.queue:
            first = self.s.queue[0]
            custom = result.step.model_copy(
                update={"task_id": "", "step_id": result.step.step_id or first.step_id}
            )
            self.change(queue=(custom, *self.s.queue[1:]))

    def begin(self, asked: RunRequest, *, now: float, owner: str = "") -> None:
        """Open a queued step, for the request with this id."""
        queue = list(self.s.queue)
        at = next((k for k, step in enumerate(queue) if step.step_id == asked.step), 0)
        step = queue.pop(at)
        if asked.input is not None:
            step = step.model_copy(update={"input": asked.input})
        opened = OpenStep(
            step=step,
            state=self.s.extra_state,
            tool_choice=asked.tool_choice,
            stored=asked.stored or (self.given.stored if self._is_original(step) else None),
            notes=self.s.notes,
        )
        before = self.before()
        self.change(
            queue=tuple(queue),
            notes=(),
            answered=False,
            failure=None,
            current=OpenState(
                open=opened, n=self.s.steps + 1, started=now, owner=owner, before=before
            ),
        )

    def _is_original(self, step: TaskStep) -> bool:
        """Whether a step has the task's own input, which the archive keeps when it is large."""
        return step.step_id == "s1" and step.input == "" and self.s.steps == 0

    def before(self) -> Before:
        """Keep what a step finds and an undo brings back."""
        s = self.s
        return Before(
            queue=s.queue,
            notes=s.notes,
            followups=s.followups,
            serial=s.serial,
            turns=s.turns,
            usage=s.usage,
            answered=s.answered,
            concluded=s.concluded,
            transcript=s.transcript,
        )

    def retry(self, asked: RunRequest, *, now: float, owner: str = "") -> None:
        """Try the step that failed again, from its journal or, when asked to, from nothing."""
        current = self._open()
        opened = current.open
        if asked.input is not None or asked.stored is not None:
            step = opened.step.model_copy(update={"input": asked.input})
            opened = opened.model_copy(update={"step": step, "stored": asked.stored})
        if asked.tool_choice:
            opened = opened.model_copy(update={"tool_choice": asked.tool_choice})
        if asked.restart:
            dropped = [f"{current.calls[i].name}: {o.status}" for i, o in current.outcomes.items()]
            body: dict[str, Json] = {"answers": len(current.journal), "calls": dropped}
            self.note("restarted", now=now, body=body)
            mine = f"{current.n}."
            undone = tuple(k for k in self.s.undone_effects if not k.startswith(mine))
            self.change(approvals=(), undone_effects=undone)  # they were of the calls dropped here
            current = OpenState(
                open=opened, n=current.n, started=current.started, before=current.before
            )
        changes: dict[str, object] = {"open": opened, "failure": None}
        self.change(current=current.model_copy(update={**changes, "owner": owner}), failure=None)

    def advance_input(self, *, now: float) -> AdvanceInput:
        """Say to the step activity what is next."""
        current = self._open()
        budget = self.given.budget
        tokens = 0
        if budget is not None and budget.max_tokens is not None:
            tokens = max(1, budget.max_tokens - self.s.usage.total_tokens)
        usual = current.open == usual_step(current.n)
        data = canonical(current.open.wire())
        small = len(data) <= INLINE_BYTES
        journal = ChainRef(length=len(current.journal), digest=current.chain)
        return AdvanceInput(
            n=current.n,
            at=self.s.transcript._replace(digest=self.s.transcript.digest[:AT_DIGITS]),
            journal=journal,
            open=current.open if small and not usual else None,
            digest="" if small else digest(data),
            limit=self._limit(current, now=now),
            tokens=tokens,
        )

    def advanced(self, got: Advanced) -> None:
        """Record what the step activity gave: an answer, a result, a wish for tools."""
        current = self._open()
        if got.answer is not None:
            if current.limit == "allow":
                current = current.model_copy(update={"limit": ""})
            usage = got.answer.usage.model_copy(update={"requests": 1})
            self.change(turns=self.s.turns + 1, usage=self.s.usage + usage)
        for entry in new_entries(got, last=current.limit == "finish"):
            current = with_entry(current, entry)
        if got.result is not None:
            calls = resolve_calls(got.result, current)
            state = merge_patch.apply(current.open.state, got.result.patch)
            current = current.model_copy(
                update={"result": got.result, "calls": calls, "state": state}
            )
        elif got.calls:
            state = merge_patch.apply(current.open.state, got.patch)
            current = current.model_copy(
                update={"calls": got.calls, "asked": got.asked, "state": state}
            )
        self.change(current=current)

    def missing_calls(self) -> list[int]:
        """Positions of the open calls that have no outcome yet."""
        current = self._open()
        return [i for i in range(len(current.calls)) if i not in current.outcomes]

    def tool_input(self, i: int, edited: ToolCall | None = None) -> ToolInput:
        """Say to the tool activity which call to run, as a person edited it if one did."""
        current = self._open()
        big = len(canonical(current.state)) > INLINE_BYTES
        return ToolInput(
            n=current.n,
            i=i,
            digest=call_digest(edited or current.calls[i]),
            call=edited,
            branch=self.s.branch,
            batch=sum(bool(entry.calls) for entry in current.journal),
            step="" if current.open.step.step_id == f"s{current.n}" else current.open.step.step_id,
            state={} if big else current.state,
            big=big,
        )

    def clear(self, i: int) -> None:
        """Record that an open call turned out to need no approval."""
        current = self._open()
        self.change(current=current.model_copy(update={"cleared": (*current.cleared, i)}))

    def outcome(self, i: int, got: Outcome) -> None:
        """Record what became of an open call."""
        current = self._open()
        self.change(current=current.model_copy(update={"outcomes": {**current.outcomes, i: got}}))

    def answer_calls(self) -> None:
        """Hand the outcomes of calls made in the middle of a step to its journal."""
        current = self._open()
        outcomes = tuple(current.outcomes[i] for i in range(len(current.calls)))
        entry = JournalEntry(request=current.asked, calls=current.calls, outcomes=outcomes)
        cleared: dict[str, object] = {
            "calls": (),
            "asked": "",
            "outcomes": {},
            "state": {},
            "cleared": (),
        }
        current = with_entry(current, entry).model_copy(update=cleared)
        self.change(current=current, approvals=())  # used: later calls at these places ask anew

    def finish(self, *, now: float) -> StepRecord:
        """Close the step: append its record, move the head, queue its next steps."""
        current = self._open()
        result = current.result
        if result is None:
            msg = "a step is finished only after its result is known"
            raise RuntimeError(msg)
        outcomes = tuple(current.outcomes[i] for i in range(len(current.calls)))
        said = (o.message(call) for call, o in zip(current.calls, outcomes, strict=True))
        adds = (*resolve_adds(result, current), *said)
        state, conflicts = merge_patch.merge(current.state, [o.patch for o in outcomes])
        patch = merge_patch.diff(self.s.extra_state, state)
        transcript = ChainRef(
            length=self.s.transcript.length + len(adds),
            digest=extend(self.s.transcript.digest, adds),
        )
        steps = self._number(result.next)
        output, stored = resolve_output(result, current)
        record = StepRecord(
            n=current.n,
            step=current.open.step,
            output=output,
            stored=stored,
            last=result.last,
            next=steps,
            adds=adds,
            calls=current.calls,
            outcomes=tuple(o.model_copy(update={"content": ""}) for o in outcomes),
            journal=without_adds(result, current),
            usage=usage_of(current.journal),
            patch=patch,
            inverse=merge_patch.inverse(self.s.extra_state, patch),
            conflicts=tuple(conflicts),
            started=current.started,
            ended=now,
            digest=transcript.digest,
            branch=self.s.branch,
            before=current.before,
            queue=self._unforeseen(current, steps),
        )
        self.messages.extend(adds)
        self.entries.append(Entry(step=record))
        self.change(
            current=None,
            steps=current.n,
            queue=(*self.s.queue, *steps),
            extra_state=state,
            transcript=transcript,
            answered=result.last,
            concluded=result.last,
            approvals=(),
        )
        if result.last and self.s.followups:
            self.follow_up()
        return record

    def _unforeseen(
        self, current: OpenState, steps: Sequence[TaskStep]
    ) -> tuple[TaskStep, ...] | None:
        """Return the queue after a step if it is not what the step found and added."""
        queue = (*self.s.queue, *steps)
        return None if queue == queue_after(current.before, current.open.step, steps) else queue

    def follow_up(self) -> None:
        """Queue the first input that waited for the answer."""
        serial = self.s.serial + 1
        step = TaskStep(step_id=f"s{serial}", input=self.s.followups[0])
        self.change(
            queue=(*self.s.queue, step),
            followups=self.s.followups[1:],
            serial=serial,
            answered=False,
        )

    def fail(self, failure: Failure, *, now: float) -> None:
        """Leave the step first in the queue, with its error."""
        if self.s.current is None:
            self.change(failure=failure)
        else:
            self.change(current=self.s.current.model_copy(update={"failure": failure}))
        self.note("failed", now=now, text=f"{failure.type}: {failure.message}")

    def disown(self) -> None:
        """Forget whose request the open step is run for: it has been answered."""
        if self.s.current is not None and self.s.current.owner:
            self.change(current=self.s.current.model_copy(update={"owner": ""}))

    def finish_early(self) -> None:
        """Make the open step's next model call the last one, without tools."""
        self.change(current=self._open().model_copy(update={"limit": "finish"}))

    def allow_one_more(self) -> None:
        """Let the open step's next model call pass the budget."""
        self.change(current=self._open().model_copy(update={"limit": "allow"}))

    # ---- the rest

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
        event = EventRecord(kind=kind, at=now, by=by, text=text, body=body or {})
        self.entries.append(Entry(event=event))

    def receipt(self, receipt: Receipt) -> None:
        """Keep what became of a command."""
        self.change(receipts=(*self.s.receipts, receipt)[-RECEIPTS_KEPT:])

    def remember(self, request_id: str, reply: RunReply) -> None:
        """Keep the reply to a request, so that the same request gets it again."""
        seen = {**self.s.seen, request_id: reply}
        self.change(seen=dict(list(seen.items())[-SEEN_KEPT:]))

    def archived(self, segment: SegmentRef) -> None:
        """Forget entries that are now in the archive; no step was completed meanwhile."""
        del self.entries[: segment.entries]
        self.messages.clear()
        self.base = self.s.transcript.length
        self.change(segments=(*self.s.segments, segment))

    def _open(self) -> OpenState:
        if self.s.current is None:
            msg = "no step is open"
            raise RuntimeError(msg)
        return self.s.current

    def exceeded(self, *, now: float) -> str:
        """Say which part of the budget is used up, or empty."""
        budget = self.given.budget
        if budget is None:
            return ""
        if budget.max_turns is not None and self.s.turns >= budget.max_turns:
            return f"max_turns={budget.max_turns}"
        if budget.max_tokens is not None and self.s.usage.total_tokens >= budget.max_tokens:
            return f"max_tokens={budget.max_tokens}"
        if budget.max_seconds is not None and now - self.s.created >= budget.max_seconds:
            return f"max_seconds={budget.max_seconds:g}"
        return ""

    def _limit(self, current: OpenState, *, now: float) -> Literal["", "stop", "finish"]:
        if current.limit == "finish":
            return "finish"
        return "stop" if self.exceeded(now=now) and current.limit != "allow" else ""

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
