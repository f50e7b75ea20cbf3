"""Updates: requests to run steps, to finalize and to undo, each answered once by its id."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.engine.rests import may_rest
from holdfast.task import refusals, undo
from holdfast.task.data.commands import RunReply, RunRequest
from holdfast.task.data.failures import REMEDY, Failure
from holdfast.task.data.state import PARKED
from holdfast.task.data.undo import UndoRequest, UndoState
from holdfast.task.people import approvals
from holdfast.task.requests import phase
from holdfast.task.requests.delivery import Pending
from holdfast.task.requests.phase import ALLOWED, Update
from holdfast.values.steps import UndoReceipt
from holdfast.workflows.core import Core
from holdfast.workflows.requests.commands import Commands


def refusal(failure: Failure, *, parked: bool = False) -> ApplicationError:
    """Make the error with which an update is refused or fails.

    Args:
        failure: Why.
        parked: Whether the task waits with this failure, rather than that the request was wrong.
    """
    data = {**failure.data, REMEDY: failure.remedy} if failure.remedy else failure.data
    facts = (data,) if data else ()
    details = (PARKED, failure.step, *facts) if parked else facts
    return ApplicationError(failure.message, *details, type=failure.type, non_retryable=True)


def result_of(pending: Pending) -> RunReply:
    """Return the answer to a request.

    Raises:
        ApplicationError: The request failed; its type names the error class.
    """
    if isinstance(pending.reply, Failure):
        raise refusal(pending.reply, parked=pending.parked)
    return pending.reply


DONE = UndoReceipt()

MOST_WAITING = 6
"""Most requests to run that wait at the same time; others ask again every two seconds.

The server holds ten updates of a workflow: the others are for those who undo and finalize.
"""

MOST_UPDATES = 1900
"""Most updates that one run of a task accepts; the next run accepts more.

The server accepts 2,000, and lets the others wait without an answer.
"""


class Updates:
    """Serves the updates of a task: a check that changes nothing, then the work and its answer."""

    def __init__(self, core: Core, commands: Commands) -> None:
        """Drive this task."""
        self._core = core
        self._commands = commands
        self._waiting = 0
        self._begun_with: Pending | None = None
        if core.given.run_request:
            own = Pending(core.given.run_request, RunRequest(all=True), self._tell_of_rest)
            self._begun_with = own
            if core.ledger.s.automatic:
                core.requests.add(own)
            elif core.ledger.failure is not None:
                # It failed so in the run before. Who asks for the reply wants nothing tried again.
                own.answer(core.ledger.failure, parked=True)
            else:
                self._begun_with = None

    def _tell_of_rest(self) -> None:
        """Tell a client in this process that the request which came with the start has a reply.

        Of the end of the task it learns from the server.
        """
        if not self._core.closed:
            may_rest(workflow.info().workflow_id)

    def check_run(self, asked: RunRequest) -> None:
        """Refuse a request to run that cannot be served.

        Raises:
            ApplicationError: It cannot be served; its type names the error class.
        """
        core = self._core
        _raise(phase.refuse_unknown("run", asked))
        if self._own_request() is not None or self._is_known("run"):
            return
        if ALLOWED[core.phase]["run"] == "close":
            return
        if self._waiting >= MOST_WAITING:
            raise refusal(refusals.CROWDED)
        _raise(phase.refuse_run(core.ledger, core.agenda, asked, _request_id()))

    def check_finalize(self) -> None:
        """Refuse to finalize a task that has no answer yet.

        Raises:
            ApplicationError: It cannot be done; its type names the error class.
        """
        if not self._is_known("finalize") and ALLOWED[self._core.phase]["finalize"] == "take":
            _raise(phase.refuse_finalize(self._core.ledger))

    def check_undo(self, asked: UndoRequest) -> None:
        """Refuse an undo of steps that are not there, or not as they were seen.

        Raises:
            ApplicationError: It cannot be done; its type names the error class.
        """
        _raise(phase.refuse_unknown("undo", asked))
        undo, request = self._core.ledger.s.undo, _request_id()
        is_same = undo is not None and bool(request) and request == undo.request
        if self._is_known("undo", is_same=is_same) or is_same:
            return
        _raise(phase.refuse_undo(self._core.ledger, asked))

    def _is_known(self, request: Update, *, is_same: bool = False) -> bool:
        """Whether an update was answered before; else refuse it if the phase does not allow it.

        Args:
            request: The update.
            is_same: Whether it is the one in progress, sent again.

        Raises:
            ApplicationError: It cannot be taken in the phase that the task is in.
        """
        core = self._core
        if core.updates >= MOST_UPDATES:
            raise refusal(refusals.CROWDED)
        if request != "finalize" and _request_id() in core.ledger.s.delivery.seen:
            return True
        refused = phase.refuse_update(
            request,
            core.phase,
            core.ending,
            moves=core.moving,
            is_reading=self._commands.are_waiting,
        )
        if refused is not None and not (is_same and refused is refusals.UNDO_RUNS):
            raise refusal(refused)
        return False

    async def run(self, asked: RunRequest) -> RunReply:
        """Serve a request to run one step, or all of them.

        Raises:
            ApplicationError: It failed; its type names the error class.
        """
        # The validator has accepted it in this same workflow task; nothing has changed since.
        own = self._own_request()
        self._core.updates += 1
        self._waiting += 1
        try:
            if own is None:
                return await self._run(asked)
            if not self._core.goes:
                self._core.requests.settle()
            await workflow.wait_condition(lambda: own.done)
            return result_of(own)
        finally:
            self._waiting -= 1

    async def _run(self, asked: RunRequest) -> RunReply:
        core = self._core
        pending = Pending(_request_id(), asked)
        known = core.ledger.s.delivery.seen.get(pending.id)
        if known is not None:
            return known
        if core.phase == "stuck":
            return await self._close_for(asked)
        if core.ledger.s.children:
            # Up to ten seconds pass here: after it everything that the validator saw may have
            # changed.
            await core.children.ask()
            # Commands that wait may end the task. They are obeyed first, because an accepted
            # update is answered only once in a run.
            while self._commands.are_waiting:
                await workflow.wait_condition(lambda: not self._commands.are_waiting)
            self._refuse_when_leaving()
        # No await from here to `requests.add`: two requests that came together must not both take
        # the same finished step, or both begin the next one.
        ledger, known = core.ledger, core.requests.known(pending)
        if known is not None:
            return known
        if phase.asks_further(ledger, asked):
            ledger.queue.ask_further(asked)
        if asked.stream:
            ledger.show()
        core.unrollable = False
        # If nothing can be done now, the request is answered at once (waiting, paused, answered).
        core.requests.add(pending)
        if not core.goes:
            core.requests.settle()
        await workflow.wait_condition(lambda: pending.done)
        return result_of(pending)

    def _own_request(self) -> Pending | None:
        """Return the request that the task was begun with, if the present update asks for it."""
        own = self._begun_with
        return own if own is not None and own.id == _request_id() else None

    def _refuse_when_leaving(self) -> None:
        """Refuse a request if the task has begun to end or to continue as new meanwhile."""
        if self._core.moving:
            raise refusal(refusals.DRAINING)
        if self._core.ending.status is not None:
            raise refusal(self._core.ending.refusal())

    async def finalize(self) -> bool:
        """Commit the task to its session, once, and close it.

        Raises:
            ApplicationError: It could not be closed, or has another end.
        """
        core = self._core
        core.updates += 1
        if core.ending.status is None:
            core.ledger.s.failure = None
        core.end("finished")
        await self._until_closed()
        if core.ending.status != "finished":
            raise refusal(core.ending.failure() or refusals.CLOSED)
        return True

    async def _close_for(self, asked: RunRequest) -> RunReply:
        """Try to close a task whose end was accepted; no step is run."""
        core = self._core
        await self._until_closed()
        failure = core.ending.failure()
        if core.ending.status == "finished" and asked.all:
            return RunReply(n=core.ledger.s.steps, record=core.seal.record)
        raise refusal(failure if failure is not None else refusals.CLOSED)

    async def _until_closed(self) -> None:
        """Wait until the task is closed; fail if the next attempt to close it fails."""
        core = self._core
        # The count is read before the attempt begins: a failure from before is not its answer.
        core.ending.try_again()
        failures = core.ending.failures
        await workflow.wait_condition(lambda: core.closed or core.ending.failures > failures)
        if not core.closed:
            raise refusal(core.ledger.s.failure or refusals.CLOSED, parked=True)

    async def undo(self, asked: UndoRequest) -> UndoReceipt:
        """Move the head back; answers when done, or when a person must decide.

        Raises:
            ApplicationError: It was refused or failed, or the task is ended meanwhile.
        """
        core = self._core
        core.updates += 1
        s, request = core.ledger.s, _request_id()
        if request in s.delivery.seen:
            return self._receipt(request)
        if s.undo is None:  # else this is the request in progress, sent again by its client
            explicit = asked.model_copy(update={"to": phase.last_kept(core.ledger, asked)})
            begun = UndoState(asked=explicit, done=s.undone_effects, request=request)
            core.ledger.s.undo = begun
            # Those that wait now asked for steps that the undo takes out; later ones ask for
            # others.
            core.undone_requests = core.requests.ids
        await workflow.wait_condition(self._undo_rests)
        if core.ending.status is not None:
            raise refusal(core.ending.refusal())
        if core.ledger.s.undo is not None:
            return UndoReceipt(status="waiting")
        _raise(core.undo_failure)
        return self._receipt(request)

    def _receipt(self, request: str) -> UndoReceipt:
        """Return what an undo did; of one that is archived already, only that it is done."""
        events = (entry.event for entry in reversed(self._core.ledger.log.entries))
        return next((undo.receipt_of(e) for e in events if e and undo.is_of(e, request)), DONE)

    def _undo_rests(self) -> bool:
        """Whether the undo is over, waits for a person, or was cut short by an end of the task."""
        core = self._core
        if core.ending.status is not None:
            return core.phase in ("closed", "stuck")
        return core.ledger.s.undo is None or approvals.undo_waits(core.ledger)


def _request_id() -> str:
    """Return the id of the update that is being handled."""
    info = workflow.current_update_info()
    return info.id if info is not None else ""


def _raise(failure: Failure | None) -> None:
    """Refuse with a failure, if there is one."""
    if failure is not None:
        raise refusal(failure)
