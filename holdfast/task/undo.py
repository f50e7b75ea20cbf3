"""Undo on the ledger: the move of the head back, the branches that it leaves, and forks of them.

Pure. The undone branch stays in the ledger; only the head moves, and state is restored from what
was recorded, never computed again.

The effects of a step are what its calls have done; some of it can be taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from holdfast.models.openai.hosted_items import calls_of_servers
from holdfast.task.data.calls import Called, Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import ToolPolicy, policy_of
from holdfast.task.data.records import (
    DEPARTED,
    Entry,
    EventRecord,
    ForkOf,
    OpenState,
    SegmentRef,
    StepRecord,
    effect_place,
)
from holdfast.task.data.state import Carried, Recorded
from holdfast.task.data.undo import (
    UNCHANGED,
    Before,
    EffectRef,
    FollowUp,
    Obstacle,
    QueueChange,
    Undoable,
    UndoRequest,
    UndoState,
    Waiting,
    WaitingChange,
)
from holdfast.task.happenings import StepsUndone, noted_of
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import (
    STEP_ID,
    join_of,
    lasts_after,
    pending,
    queue_after,
    queue_before,
    serial_of,
    waiting,
    waiting_at,
)
from holdfast.task.ledger.recording import told
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json
from holdfast.values.messages import ImagePart, Message, ToolCall, user
from holdfast.values.steps import TaskStep, UndoReceipt


def undoable(record: StepRecord) -> Undoable:
    """Reduce a completed step to what its undo needs."""
    answers = [entry.answer.message for entry in record.journal if entry.answer is not None]
    made = [
        _effect(record.adds, call, outcome, batch, i) for batch, i, call, outcome in record.made()
    ]
    return Undoable(
        n=record.n,
        key=record.key,
        step=record.step,
        added=len(record.adds),
        inverse=record.inverse,
        before=record.before,
        taken=record.taken,
        queued=len(record.next),
        effects=(*made, *_effects_at_provider((*record.adds, *answers))),
        branch=record.branch,
    )


def _effects_at_provider(messages: Iterable[Message]) -> Iterator[EffectRef]:
    """Yield the calls that MCP servers of the provider have run inside model calls."""
    for message in messages:
        for call, is_error in calls_of_servers(message) if message.items else ():
            yield EffectRef(call=call, status="failed" if is_error else "done", batch=-1)


def effects_of_open(current: OpenState, running: Iterable[int]) -> tuple[EffectRef, ...]:
    """List what a step in progress has done; calls that were running count as unknown."""
    done = [entry for entry in current.journal if entry.calls]
    effects = [
        _effect((), call, outcome, batch, i)
        for batch, entry in enumerate(done)
        for i, (call, outcome) in enumerate(zip(entry.calls, entry.outcomes, strict=True))
    ]
    cut = set(running)
    for i, call in enumerate(current.calls):
        # The tool of a call that waits has run to its end, so its effect is known to be there.
        outcome = current.outcomes.get(i) or current.waiting.get(i)
        if outcome is not None:
            effects.append(_effect((), call, outcome, len(done), i))
        elif i in cut:
            begun = current.called.get(i, Called(at=0.0))
            ran = {"status": "unknown", "edited": begun.edited, "decided": begun.decided}
            effects.append(_effect((), call, Outcome().model_copy(update=ran), len(done), i))
    answers = (entry.answer.message for entry in current.journal if entry.answer is not None)
    return (*effects, *_effects_at_provider(answers))


def _effect(
    adds: Sequence[Message], call: ToolCall, outcome: Outcome, batch: int, i: int
) -> EffectRef:
    return EffectRef(
        call=call.model_copy(update={"arguments": outcome.edited}) if outcome.edited else call,
        content=told(adds, call, outcome).content,
        status=outcome.status,
        ran=outcome.attempts > 0 or outcome.status == "unknown",
        batch=batch,
        i=i,
        child=outcome.child,
        # By which people were asked about it, if its tool's predicate gave one.
        rule=next((each.rule for each in outcome.decided if each.rule is not None), None),
    )


def obstacles(target: Undoable, policies: Mapping[str, ToolPolicy]) -> list[Obstacle]:
    """List the effects of a step that an undo cannot take back."""
    found: list[Obstacle] = []
    for effect in target.effects:
        policy = policy_of(policies, effect.call)
        if policy is None or policy.effect == "read" or not effect.ran:
            continue
        if effect.status == "done" and policy.has_undo and not effect.call.server:
            continue
        what = step_words(target.n, effect.call.name, effect.call.arguments)
        if effect.status == "unknown":
            text = f"{what} may have happened: its outcome is unknown"
            found.append(Obstacle(text=text, is_unknown=True))
        elif effect.status == "done" and effect.call.server:
            text = (
                f"{what} was run by the provider, which has no undo; as long as it is approved, the"
                " next model call lets the provider run it again"
            )
            found.append(Obstacle(text=text))
        elif effect.status == "done":
            found.append(Obstacle(text=f"{what} was done and has no undo="))
    return found


def to_undo(
    target: Undoable, policies: Mapping[str, ToolPolicy], state: UndoState
) -> list[tuple[int, EffectRef]]:
    """List the effects of a step to be undone now, newest first, with their positions."""
    found = [
        (i, effect)
        for i, effect in enumerate(target.effects)
        if effect.status == "done"
        and effect.ran
        and (policy := policy_of(policies, effect.call)) is not None
        and policy.has_undo
        and effect_key(target, i) not in state.done
    ]
    return found[::-1]


def effect_key(target: Undoable, i: int) -> str:
    """Name one effect of one step, the same while the step is open and when it is done."""
    effect = target.effects[i]
    return effect_place(target.branch, target.key, effect.batch, effect.i)


def step_words(n: int, tool: str, arguments: str) -> str:
    """Name an effect of a step for people."""
    return f"step {n}: {tool}({arguments})"


def in_words(effect: EffectRef) -> str:
    """Name an effect for people."""
    return f"{effect.call.name}({effect.call.arguments})"


UNDONE = "undone"
"""Kind of the event, and mark of the note to the model, which keeps it out of sessions."""

RESIDUE_KEPT = 100
"""Most remaining effects in the note to the model; the ledger has all of them."""
NO_LEDGER = ChainRef()


def active_steps(entries: Iterable[Entry]) -> list[StepRecord]:
    """Fold a ledger: the completed steps of the present branch, oldest first."""
    # A fold beside `happenings`, because undo, fork and the archive need the records themselves
    # (patch, queue, digest), which a step's body leaves out. What an undo took is read there.
    steps: list[StepRecord] = []
    for entry in entries:
        if entry.step is not None:
            steps.append(entry.step)
        elif entry.event is not None and entry.event.kind == UNDONE:
            noted = noted_of(entry.event)
            first = noted.first if isinstance(noted, StepsUndone) else 0
            steps = [step for step in steps if step.n < first]
    return steps


def path_to(entries: Iterable[Entry], wanted: StepRecord) -> list[StepRecord]:
    """Fold a ledger up to one step: the branch that ends in it, oldest first."""
    seen: list[Entry] = []
    for entry in entries:
        seen.append(entry)
        if entry.step is wanted:
            break
    return active_steps(seen)


def without_undo_notes(messages: Iterable[Message]) -> list[Message]:
    """Leave out the notes about undos, which concern their task alone."""
    marks = (UNDONE, DEPARTED)
    return [said for said in messages if said.role != "system" or said.call_id not in marks]


def is_of(event: EventRecord, request: str) -> bool:
    """Whether an event is of the undo that a request asked for."""
    return event.kind == UNDONE and event.body.get("request") == request


def receipt_of(event: EventRecord) -> UndoReceipt:
    """Return what an undo did, of its event."""
    return UndoReceipt.model_validate(event.body)


def departure(
    path: Sequence[StepRecord],
    state: dict[str, Json],
    segment: SegmentRef,
    *,
    ledger: ChainRef = NO_LEDGER,
    fork: ForkOf,
    text: str | None,
    feedback: str | None,
    notes: tuple[Message, ...] = (),
    images: tuple[ImagePart, ...] = (),
) -> Carried:
    """Return the state in which a fork begins: as it was right after a step.

    Args:
        path: The steps that both tasks share, oldest first.
        state: The extra_state after it.
        segment: The archived ledger up to it.
        ledger: Length and digest of its chain.
        fork: Where it comes from.
        text: New user input in place of the steps that were queued, or None.
        feedback: Message to the model before its next call, or None.
        notes: Messages before that one.
        images: Images of the new input.
    """
    record = path[-1]
    before = record.before
    recorded = queue = queue_after(path)
    found = waiting_at(path)
    serial = before.serial + len(record.next)
    lasts = lasts_after(found.lasts, record)
    if lasts and not before.beside:
        serial += 1
        queue = (join_of(lasts, step_id=f"s{serial}"), *queue)
        lasts = ()
    if text is not None:
        serial += 1
        step = TaskStep(step_id=f"s{serial}", input=text, images=images, enters=True)
        queue = (step.after(record.next[0] if record.next else record.step),)
    begun = Carried(
        created=record.ended,
        queue=queue,
        since=QueueChange.if_any(recorded, queue, STEP_ID),
        extra_state=state,
        transcript=ChainRef(before.transcript.length + len(record.adds), record.digest),
        steps=record.n,
        answered=record.last and record.alone and text is None,
        concluded=record.last and record.alone,
        notes=(*notes, *((user(feedback),) if feedback else ())),
        serial=serial,
        lasts=lasts,
        last_step=record.step if record.last and record.alone and record.step.agent else None,
        fork=fork,
        log=Recorded(
            segment=segment, ledger=ledger, marks=record.marks[-1].number if record.marks else 0
        ),
    )
    return begun.model_copy(update={"waits_since": WaitingChange.between(found, waiting(begun))})


def undone_meanwhile(step_id: str, n: int, branch: int) -> str:
    """Return the text for a named step that is not on the present branch any more."""
    return (
        f"Step {step_id!r}, number {n} of branch {branch}, was undone meanwhile, and nothing was"
        " changed now. get_completed_steps shows the present steps."
    )


def outdated(ledger: Ledger, asked: UndoRequest) -> Failure | None:
    """Say why an undo is not for the steps that there are now, or return None."""
    if asked.branch >= 0:
        is_gone = asked.to > ledger.s.steps
        if is_gone or (asked.to > 0 and ledger.branch_of(asked.to) != asked.branch):
            text = undone_meanwhile(asked.step, asked.to, asked.branch)
            return Failure(type="StepNotFoundError", message=text)
    seen, newest = asked.newest, ledger.newest
    if seen is None or (seen.branch, seen.opened) == (newest.branch, newest.opened):
        return None
    wanted = ", ".join(map(repr, seen.steps)) or f"number {seen.opened}"
    there = ", ".join(map(repr, newest.steps)) or f"number {newest.opened}"
    what = (
        "another step has begun since"
        if seen.branch == newest.branch
        else "someone has undone steps meanwhile"
    )
    text = (
        f"Step {wanted} of branch {seen.branch} was to be undone, but {what}: the newest is"
        f" {there} of branch {newest.branch}. Nothing was changed. Look at the present steps and"
        " ask again."
    )
    return Failure(type="CommandRefusedError", message=text)


def active_messages(entries: Iterable[Entry]) -> list[Message]:
    """Fold a ledger: the transcript of the present branch, oldest first."""
    return [message for step in active_steps(entries) for message in step.adds]


def leave_open_steps(ledger: Ledger, *, now: float, by: str = "") -> None:
    """Drop the steps in progress: the queue has them first again, the ledger what they did."""
    opens = ledger.s.opens
    for current in opens:
        ledger.leave(current.n, "undone", now=now, by=by)
    if len(opens) == 1 and opens[0].alone:
        before = opens[0].before
        queue = ledger.queue.recorded
        queue = queue if before.found is None else before.found.forward(queue)
        waits = before.waiting.forward(ledger.queue.found)
    else:
        before = ledger.queue.before()
        queue, waits = pending(opens, ledger.s.queue), waiting(ledger.s)
    _restore(ledger, before, queue, waits)
    ledger.s.opens = ()


def leave_step(ledger: Ledger, target: Undoable) -> None:
    """Move the head to the parent of the last completed step."""
    before = target.before
    kept = max(len(ledger.messages) - target.added, 0)
    del ledger.messages[kept:]
    ledger.base = min(ledger.base, before.transcript.length)
    queue = queue_before(target, ledger.queue.recorded)
    ledger.queue.recorded = queue if before.found is None else before.found.backward(queue)
    _restore(ledger, before, queue, ledger.queue.found)
    if before.waiting != UNCHANGED:
        ledger.queue.found = before.waiting.backward(ledger.queue.found)
    ledger.s.steps = target.n - 1
    if target.inverse:
        ledger.s.extra_state = merge_patch.apply(ledger.s.extra_state, target.inverse)
    ledger.s.transcript = before.transcript
    ledger.s.path = tuple(each for each in ledger.s.path if each[1] < target.n)
    delivery = ledger.s.delivery
    delivery.undelivered = ()
    delivery.given = delivery.given and tuple(e for e in delivery.given if e[0] < target.n)
    if ledger.s.done:
        ledger.s.done = {id: ref for id, ref in ledger.s.done.items() if ref.n != target.n}
    ledger.s.answer = before.answer


def _restore(ledger: Ledger, before: Before, queue: tuple[TaskStep, ...], waits: Waiting) -> None:
    """Restore the state before a step, and drop all approvals of the task."""
    further = before.further
    if further:
        queue = tuple(step for step in queue if step.step_id != further)
    ledger.s.queue = queue
    ledger.s.notes = waits.notes
    ledger.s.followups = waits.followups
    ledger.s.further = FollowUp()
    ledger.s.serial = serial_of(further) - 1 if further else before.serial
    ledger.s.costs.turns = before.turns
    ledger.s.costs.usage = before.usage
    ledger.s.answered = before.answered or bool(further)
    ledger.s.concluded = before.concluded
    ledger.s.lasts = waits.lasts
    ledger.s.last_step = before.last_step
    if ledger.s.approvals:
        ledger.asked.keep(())
    ledger.s.failure = None
    ledger.s.verdict = None


def finish_undo(ledger: Ledger, left: Collection[str], *, now: float) -> None:
    """Open a new branch, record the receipt, and leave a note for the model.

    Args:
        ledger: The task.
        left: Keys of the effects of the steps that were left.
        now: Time, seconds since the epoch.
    """
    state = ledger.s.undo
    if state is None:
        return
    asked = state.asked
    body = {
        "n": asked.to + 1,
        "steps": list(state.steps),
        "undone": list(state.undone),
        "remains": list(state.remains),
        "check": list(state.check),
        "branch": ledger.s.branch,
        "request": state.request,
    }
    ledger.note(UNDONE, now=now, by=asked.by, text=asked.reason, body=body)
    lines = [f"Steps after number {asked.to} were undone{f' by {asked.by}' if asked.by else ''}."]
    if asked.reason:
        lines.append(f"Reason: {asked.reason}")
    lines += [f"Undone: {text}" for text in state.undone]
    residue = (*ledger.s.residue, *state.remains)[-RESIDUE_KEPT:]  # also what earlier undos left
    if residue:
        lines += [f"Still in the world: {text}" for text in residue]
    note = Message(role="system", content="\n".join(lines), call_id=UNDONE)
    stays = asked.reason or state.undone  # else a later undo says all that this one says
    ledger.s.undo = None
    ledger.s.undone_effects = tuple(key for key in state.done if key not in left)
    if unclear := ledger.s.unclear_undos:
        ledger.s.unclear_undos = {k: v for k, v in unclear.items() if k not in left}
    ledger.s.residue = residue
    ledger.s.branch = ledger.s.branch + 1
    ledger.s.notes = (*ledger.s.notes, *ledger.s.undo_notes, note)
    ledger.s.undo_notes = (*ledger.s.undo_notes, *((note,) if stays else ()))
    ledger.s.automatic = False
