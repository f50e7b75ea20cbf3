"""Undo in the workflow: obstacles are checked, then effects undone, then the head is moved.

The main loop takes it as far as no person must decide, then answers who asked for it.

Each undone effect is recorded before the next is begun, and the head moves last: an undo that stops
half way leaves the steps standing, and a later one does not call the same `undo=` again.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

from holdfast.task import refusals, undo
from holdfast.task.data.children import UndoAnswer
from holdfast.task.data.commands import RunReply
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import OpenState
from holdfast.task.data.undo import Obstacle, Undoable, UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.tracing.switch import may_trace
from holdfast.values.base import Json
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import PATIENT, QUICK, now
from holdfast.workflows.children.children import ChildUndos
from holdfast.workflows.core import Core
from holdfast.workflows.tools.tool_runs import begun
from holdfast.workflows.undo.effect_undo import fail_undo, note_done, stop_undo, undo_effect


async def run_undo(ledger: Ledger, children: ChildUndos) -> Failure | None:
    """Continue the undo in progress until it is done or needs a person.

    Args:
        ledger: The task; its step in progress, if any, is not being worked on any more.
        children: Undoes its child tasks.

    Returns:
        Why the undo was refused or failed; None when it is done or waits for a person.
    """
    state = ledger.s.undo
    if state is None or ledger.s.described is None:
        return None
    if state.mode == "release":
        stop_undo(ledger)
        return None
    described = ledger.s.described
    targets = await _targets(ledger, state)
    children.recall(targets)
    mine: list[tuple[Undoable, str]] = []
    stopped: list[Obstacle] = []
    if ledger.s.children:
        mine = [(target, name) for target, name in children.of(targets) if name not in state.done]
        stopped = await children.stop(name for _, name in mine)
    blocked = [
        each
        for target in targets
        for each in undo.obstacles(target, described.rules(target.step.agent).policies)
    ] + stopped
    if state.mode == "check":
        answer = UndoAnswer(number=state.number, stands=tuple(blocked))
        state.mode = "held"
        ledger.s.undo, ledger.s.undo_answer = state, answer
        return None
    if blocked and state.asked.residue == "refuse":
        stop_undo(ledger)
        lines = "\n".join(f"- {each.text}" for each in blocked)
        done = "; ".join(state.undone) or "nothing"
        text = f"The undo was refused. Undone before it: {done}. In the way:\n{lines}\n"
        remedy = 'residue="keep" undoes the rest and records that these remain.'
        return Failure(type="UndoRefusedError", message=text, remedy=remedy)
    for target in reversed(targets):
        for name in [name for step, name in reversed(mine) if step is target]:
            failure = await _undo_child(ledger, children, name)
            if failure is not None:
                return failure
        policies = described.rules(target.step.agent).policies
        for i, _ in undo.to_undo(target, policies, state):
            failure = await undo_effect(ledger, target, i)
            if failure is not None:
                return failure
            if approvals.undo_waits(ledger):
                return None
    _leave(ledger, children, targets, blocked)
    return None


async def _targets(ledger: Ledger, state: UndoState) -> list[Undoable]:
    """List the steps to be undone, oldest first; the step in progress is the last of them."""
    wanted = range(state.asked.to + 1, ledger.s.steps + 1)
    known = {
        record.n: undo.undoable(record)
        for record in undo.active_steps(ledger.log.entries)
        if record.n in wanted
    }
    if len(known) < len(wanted):
        missing = [n for n in wanted if n not in known]
        recalled: list[Undoable] = await workflow.execute_activity(
            "recall",
            missing,
            result_type=list[Undoable],
            start_to_close_timeout=QUICK,
            heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
            retry_policy=PATIENT,
            summary=f"{len(missing)} steps",
        )
        known |= {target.n: target for target in recalled}
    targets = [known[n] for n in wanted]
    if not ledger.s.opens:
        return targets
    asked = [a for a in approvals.pending(ledger) if a.kind == "unknown"]
    cut = {*state.cut, *((approval.n, approval.i) for approval in asked), *begun(ledger)}
    for k, current in enumerate(ledger.s.opens, start=ledger.s.steps + 1):
        mine = {i for n, i in cut if n == current.n}
        targets.append(_of_open(current, mine, n=k, branch=ledger.s.branch))
    return targets


def _of_open(current: OpenState, cut: set[int], *, n: int, branch: int) -> Undoable:
    return Undoable(
        n=n,
        key=current.n,
        step=current.open.step,
        before=current.before,
        effects=undo.effects_of_open(current, cut),
        branch=branch,
    )


async def _undo_child(ledger: Ledger, children: ChildUndos, name: str) -> Failure | None:
    """Have a child task undo all that it did; it closes then."""
    state = ledger.s.undo
    if state is None or children.is_gone(name):
        return None
    failure = await children.undo(name, state.asked)
    state = ledger.s.undo or state
    if failure:
        what = f"task {name!r}"
        return fail_undo(ledger, state, what, failure, {"effect": what, "task": name})
    what = children.words(name)
    body: dict[str, Json] = {"effect": what, "task": name}
    ledger.note("effect_undone", now=now(), by=state.asked.by, body=body)
    note_done(ledger, state, name, what)
    return None


def answer_parent(ledger: Ledger, state: UndoState, failure: Failure | None) -> None:
    """Answer the parent that requested an undo with its result."""
    if state.mode == "release":
        return
    last = ledger.log.entries[-1].event if ledger.log.entries else None
    body = last.body if last is not None and failure is None else {}
    answer = UndoAnswer(
        number=state.number,
        undone=tuple(body.get("undone", ())),
        remains=tuple(body.get("remains", ())),
        failure=failure.message.rstrip() if failure is not None else "",
    )
    ledger.s.undo_answer = answer


def _leave(
    ledger: Ledger, children: ChildUndos, targets: list[Undoable], blocked: list[Obstacle]
) -> None:
    """Move the head, and record what was done."""
    state = ledger.s.undo
    if state is None:
        return
    known = {
        undo.effect_key(target, i): undo.in_words(effect)
        for target in targets
        for i, effect in enumerate(target.effects)
    }
    if ledger.s.children:
        known |= {name: children.words(name) for name in children.all_of(targets)}
        children.forget(targets)
    approvals.close_open(ledger, now=now())
    undo.leave_open_steps(ledger, now=now(), by=state.asked.by)
    for target in reversed(targets):
        if target.n <= ledger.s.steps:
            undo.leave_step(ledger, target)
    state.undone = tuple(known[key] for key in state.done if key in known)
    state.remains = tuple(each.text for each in blocked)
    state.check = tuple(each.text for each in blocked if each.is_unknown)
    state.steps = tuple(target.step.step_id for target in targets)
    undo.finish_undo(ledger, known, now=now())


class Undos:
    """Takes the undo in progress to its end, or to a person."""

    def __init__(self, core: Core) -> None:
        """Drive this task."""
        self._core = core
        self._children = ChildUndos(core.ledger, core.children)

    async def unit(self) -> None:
        """Take the undo further; when it is over, answer the requests that it concerns."""
        core = self._core
        s, state = core.ledger.s, core.ledger.s.undo
        if state is None:
            return
        # The steps' unit was cancelled before this one began. Calls that it left running may have
        # taken effect, so they count as cut until a probe or a person says more.
        opens, branch = s.opens, s.branch
        state.cut = tuple(sorted({*state.cut, *core.running}))
        s.long_calls = ()
        try:
            if core.ledger.s.described is None:
                core.ledger.described(await calls.describe(core.ledger))
            core.undo_failure = await run_undo(core.ledger, self._children)
        except FailureError as error:
            core.undo_failure = calls.failure_of(error)
            core.ledger.note("undo_failed", now=now(), text=core.undo_failure.text)
            stop_undo(core.ledger)
        # It still waits for a person. `cut` is in the ledger, for the unit that goes on later.
        if core.ledger.s.undo is not None:
            return
        if core.ledger.s.children:
            self._children.release()
        core.running.clear()
        if core.undo_failure is None and may_trace():
            core.spans.left(opens, branch, at=now())
        await self._over(state)

    async def _over(self, state: UndoState) -> None:
        """Answer the parent or the requests, and go on: with the steps, or with the end."""
        core = self._core
        if state.number:
            answer_parent(core.ledger, state, core.undo_failure)
        if core.undo_failure is not None or state.mode == "release":
            await core.tool_calls.ask_about_cut(state.cut)
        elif state.number:
            core.ending.abandon(f"{state.asked.by or 'its parent'}: undone")
        else:
            core.requests.remember(state.request, RunReply(n=core.ledger.s.steps))
            # The requests whose steps were undone fail; later requests stay.
            if core.undone_requests:
                core.requests.fail_some(core.undone_requests, refusals.UNDONE)
            waiting = core.requests.waiting
            if waiting["all"] and not waiting["step"]:
                core.ledger.s.automatic = not core.ledger.s.answered
