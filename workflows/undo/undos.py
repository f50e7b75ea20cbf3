"""Undos as the main loop drives them: taken as far as they go, then answered."""

from __future__ import annotations

from temporalio.exceptions import FailureError

from holdfast.task import refusals
from holdfast.task.data.commands import RunReply
from holdfast.task.data.undo import UndoState
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now
from holdfast.workflows.core import Core
from holdfast.workflows.undo.undo import answer_parent, run_undo
from holdfast.workflows.undo.undo_progress import stop_undo


class Undos:
    """Takes the undo in progress to its end, or to a person."""

    def __init__(self, core: Core) -> None:
        """Drive this task."""
        self._core = core

    async def unit(self) -> None:
        """Take the undo further; when it is over, answer the requests that it concerns."""
        core = self._core
        state = core.ledger.s.undo
        if state is None:
            return
        # The steps' unit was cancelled before this one began. Calls that it left running may have
        # taken effect, so they count as cut until a probe or a person says more.
        opens, branch = core.ledger.s.opens, core.ledger.s.branch
        cut = tuple(sorted({*state.cut, *core.running}))
        core.ledger.change(undo=state.model_copy(update={"cut": cut}), long_calls=())
        try:
            if core.ledger.s.described is None:
                core.ledger.described(await calls.describe(core.ledger))
            core.undo_failure = await run_undo(core.ledger, core.child_undos)
        except FailureError as error:
            core.undo_failure = calls.failure_of(error)
            core.ledger.note("undo_failed", now=now(), text=core.undo_failure.text)
            stop_undo(core.ledger)
        # It still waits for a person. `cut` is in the ledger, for the unit that goes on later.
        if core.ledger.s.undo is not None:
            return
        core.child_undos.release()
        core.running.clear()
        if core.undo_failure is None:
            core.spans.left(opens, branch, at=now())
        await self._over(state, cut)

    async def _over(self, state: UndoState, cut: tuple[tuple[int, int], ...]) -> None:
        """Answer the parent or the requests, and go on: with the steps, or with the end.

        Args:
            state: The undo, as it was before this attempt.
            cut: (step, position) of the calls that were running when the steps were stopped.
        """
        core = self._core
        if state.number:
            answer_parent(core.ledger, state, core.undo_failure)
        if core.undo_failure is not None or state.mode == "release":
            await core.tool_calls.ask_about_cut(cut)
        elif state.number:
            core.ending.abandon(f"{state.asked.by or 'its parent'}: undone")
        else:
            core.ledger.remember(state.request, RunReply(n=core.ledger.s.steps))
            self._start_over()

    def _start_over(self) -> None:
        """Fail the requests whose steps were undone; later requests stand."""
        core = self._core
        core.requests.fail_some(core.undone_requests, refusals.UNDONE)
        if core.requests.want_all and not core.requests.want_a_step:
            core.ledger.change(automatic=not core.ledger.s.answered)
