"""Queries that tasks answer themselves, and what Temporal says of their workflows and workers.

That worker processes are up is checked before a request is sent, and while it is awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

from temporalio.api.common.v1 import WorkflowExecution as Run
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure as ServerFailure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError, FailureError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.service import RPCError, RPCStatusCode

from holdfast import errors
from holdfast.agents.runs.guardrail_results import tripped_result
from holdfast.engine.cluster import has_workers
from holdfast.engine.runtime import forked
from holdfast.engine.search_attributes import AGENT_TASK, HF_STATUS, SPLIT
from holdfast.errors import (
    ConnectError,
    EngineError,
    GuardrailTripwireTriggered,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    NoWorkerError,
    QueryFailedError,
    StepFailedError,
    StuckTaskError,
    TaskClosedError,
    TaskNotFoundError,
    UserError,
)
from holdfast.task.data.children import ENDED
from holdfast.task.data.failures import CLOSING, REMEDY, Failure
from holdfast.task.data.state import PARKED
from holdfast.task.refusals import verdict_of
from holdfast.values.base import Json, pauses
from holdfast.values.checks.gate import is_object
from holdfast.values.checks.ids import no_worker
from holdfast.values.code import raised
from holdfast.values.code.user_calls import heard
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import time_shown

# From what Temporal reports to the errors of this package.

REFUSALS = frozenset(
    {
        "NoUpcomingStepsError",
        "InvalidArgumentError",
        "TaskClosedError",
        "StepNotFoundError",
        "StalledTaskError",
        "UnfitAnswerError",
        "CommandRefusedError",
        "UndoRefusedError",
        "UndoFailedError",
    }
)


@contextmanager
def server_errors(*passing: RPCStatusCode) -> Generator[None]:
    """Turn what a call to the Temporal server raises into our errors.

    Args:
        passing: Statuses whose RPCError is passed on: what is not found, the caller knows best.

    Raises:
        InvalidArgumentError: The server refused a value, such as an id that is too long.
        ConnectError: The server could not be reached, or did not do it.
    """
    try:
        yield
    except RPCError as error:
        if error.status in passing:
            raise
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise InvalidArgumentError(
                f"The Temporal server refused the request: {error.message}"
            ) from error
        raise ConnectError(
            f"The Temporal server did not do as asked: {error.status.name}: {error.message}.",
            remedy="Check that it runs and can be reached, and that you have the rights; then ask"
            " again.",
        ) from error
    except RPCTimeoutOrCancelledError as error:
        raise ConnectError(
            f"The Temporal server did not answer in time: {error}.", remedy="Ask again."
        ) from error
    except AssertionError as error:
        raise forked(error) from error


def failure_in(error: BaseException | None) -> Failure | None:
    """Return the failure that a Temporal error carries, or None."""
    while error is not None:
        if isinstance(error, ApplicationError):
            parked = PARKED in error.details
            step = str(error.details[1]) if parked and len(error.details) > 1 else ""
            data = dict(_facts(error))
            return Failure(
                type=error.type or "ApplicationError",
                message=error.message,
                remedy=str(data.pop(REMEDY, "")),
                step=step,
                data=data,
            )
        error = error.__cause__
    return None


def _facts(error: ApplicationError) -> dict[str, Json]:
    """Return the facts that an error carries, or none."""
    facts = [cast("dict[str, Json]", each) for each in error.details if isinstance(each, dict)]
    return facts[0] if facts else {}


def is_parked(error: BaseException | None) -> bool:
    """Whether a Temporal error says that the task waits with this failure."""
    while error is not None:
        if isinstance(error, ApplicationError):
            return PARKED in error.details
        error = error.__cause__
    return False


def to_error(
    failure: Failure, *, task_id: str, step_id: str = "", parked: bool = False
) -> HoldfastError:
    """Make the error that a client raises for a failure of a task.

    Args:
        failure: What the task said.
        task_id: The task.
        step_id: The step, when it is known.
        parked: Whether the task waits with this failure, rather than that it has ended with it or
            that the request was wrong.
    """
    kind = getattr(errors, failure.type, None)
    if parked and failure.type not in {"StalledTaskError", "UnfitAnswerError"}:
        return _step_failed(failure, task_id=task_id, step_id=step_id or failure.step)
    verdict = verdict_of(failure)
    if verdict is not None:
        if isinstance(verdict, GuardrailTripwireTriggered):
            verdict.guardrail_result = tripped_result(failure)
        return verdict
    if failure.type == TaskClosedError.__name__:
        return TaskClosedError(f"Task {task_id!r} is closed: it can be read, not changed.")
    if failure.type in REFUSALS and isinstance(kind, type):
        refused: HoldfastError = kind(failure.message, remedy=failure.remedy)
        return refused
    return _step_failed(failure, task_id=task_id, step_id=step_id)


def _step_failed(failure: Failure, *, task_id: str, step_id: str) -> StepFailedError:
    if failure.type == errors.StepCodeChangedError.__name__:
        return errors.StepCodeChangedError(
            failure.message,
            task_id=task_id,
            step_id=step_id,
            cause_type=failure.type,
            remedy=failure.remedy,
        )
    if CLOSING in failure.data:
        text = f"Task {task_id!r} could not be closed: {failure.type}: {failure.message}"
        return StepFailedError(
            text, task_id=task_id, step_id="", cause_type=failure.type, remedy=failure.remedy
        )
    text = (
        f"{f'Step {step_id!r}' if step_id else 'A step'} of task {task_id!r} failed:"
        f" {failure.type}: {failure.message}\n"
        "The step stays first in the queue and nothing it had done is lost."
    )
    again = f"run_step(task), Runner.run(agent, RunState.of({task_id!r})), or holdfast step."
    remedy = f"Fix the cause, then run the step again: {again}"
    if failure.remedy:  # it knows the cause; only how to run the step is not known there
        remedy = f"{failure.remedy} To run the step: {again}"
    error = StepFailedError(
        text, task_id=task_id, step_id=step_id, cause_type=failure.type, remedy=remedy
    )
    cause = raised.take(task_id, failure.type, text)
    if cause is None or isinstance(cause, ApplicationError | NotFoundError | UserError):
        return error
    return raised.also_of(error, cause)


def has_begun(found: WorkflowExecution) -> bool:
    """Whether a closed run has ever been a task: one with an input that cannot be read has not.

    No one can query such a run: a worker process that replays it fails as the run did.
    """
    is_failed = found.status is WorkflowExecutionStatus.FAILED
    is_task = found.workflow_type == AGENT_TASK
    return not (is_task and is_failed) or found.typed_search_attributes.get(HF_STATUS) is not None


async def why_ended(client: Client, found: WorkflowExecution) -> str:
    """Return what the server says on why a closed run ended; empty for an answer.

    It is also empty when the server does not say it now, or has deleted the run's history.
    """
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    try:
        with server_errors():
            await handle.result(follow_runs=False)
    except EngineError as error:
        log.warning("Why run %r of %r has ended cannot be read: %s", found.run_id, found.id, error)
    except WorkflowFailureError as error:
        return said_by(error.cause)
    return ""


WORKER_LOST = "worker lost"

WAITS = "waits"
"""Member of a heartbeat's details: what a model call waits for before it is made."""

LOOKED_AT = 30
"""Newest events among which the failure of a workflow task is: it is the last but for requests."""

PASSING_ATTEMPTS = 4
"""Attempts by which a workflow task that came in two parts has come whole."""


async def why_blocked(client: Client, found: WorkflowExecutionDescription) -> str:
    """Say what an open task waits for that has failed and is tried again, each in a line.

    Args:
        client: Temporal client; it is asked once more if the workflow task fails.
        found: What the server says of the task.

    Raises:
        ConnectError: The server could not be reached.
    """
    if stuck := await why_stuck(client, found):
        return stuck
    lines: list[str] = []
    for each in activities_of(found):
        if each.HasField("last_failure"):
            name, why = each.activity_type.name, await cause_of(client, each.last_failure)
            due = each.next_attempt_schedule_time.seconds
            when = f" begins at {time_shown(due)}" if due else " is under way"
            lines.append(f"Attempt {each.attempt} of activity {name!r}{when}. {why}")
        elif each.HasField("heartbeat_details"):
            lines += await _waits(client, each)
    return "\n".join(lines)


async def _waits(client: Client, pending: PendingActivityInfo) -> list[str]:
    """Return what a model call waits for that has not been made, in at most one line."""
    try:
        said = await client.data_converter.decode(pending.heartbeat_details.payloads)
    except Exception as error:  # noqa: BLE001  of a codec; shown
        return [f"What it waits for cannot be read here: {said_by(error)}"]
    return [str(each[WAITS]) for each in said if is_object(each) and WAITS in each]


async def why_stuck(client: Client, found: WorkflowExecutionDescription) -> str:
    """Say why workflow code fails in an open task, and since when; nothing if it does not.

    Args:
        client: As for `why_blocked`.
        found: As there.

    Raises:
        ConnectError: As there.
    """
    attempt = found.raw_description.pending_workflow_task.attempt
    if attempt <= 1:
        return ""
    asked = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=Run(workflow_id=found.id, run_id=found.run_id),
        maximum_page_size=LOOKED_AT,
    )
    with server_errors():
        page = await client.workflow_service.get_workflow_execution_history_reverse(asked)
    since, causes = 0, list[str]()
    for event in page.history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            break
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            since = event.event_time.seconds
            causes.append(
                await cause_of(client, event.workflow_task_failed_event_attributes.failure)
            )
    # The server records the first failure, and later ones when there are new events alone.
    lasting = [each for each in causes if SPLIT not in each]
    if not causes or (not lasting and attempt < PASSING_ATTEMPTS):
        return ""
    why = lasting[0] if lasting else "the log of the worker says why"
    return f"Workflow code fails, attempt {attempt}, since {time_shown(since)}: {why}"


def activities_of(found: WorkflowExecutionDescription) -> list[PendingActivityInfo]:
    """List the pending activities of a task, but for watches, whose attempts fail as a rule."""
    every = found.raw_description.pending_activities
    return [each for each in every if each.activity_type.name != ENDED]


async def cause_of(client: Client, failure: ServerFailure) -> str:
    """Name a failure by its innermost cause, decoded, without secrets."""
    try:
        cause: BaseException = await client.data_converter.decode_failure(failure)
    except Exception as error:  # noqa: BLE001  of a codec; shown
        return f"why cannot be read here: {said_by(error)}"
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ActivityTimeout):
        return WORKER_LOST if cause.type is TimeoutType.HEARTBEAT else "it took too long"
    return said_by(cause)


def said_by(cause: BaseException | None) -> str:
    """Return the type of a failure and what it says."""
    kind = (cause.type if isinstance(cause, ApplicationError) else "") or type(cause).__name__
    said = cause.message if isinstance(cause, FailureError) else str(cause)
    return redact(f"{kind}: {said}")


PATIENCE_SECONDS = 5.0
"""How long to wait for a worker process: one that has just been started is seen after a moment."""

FRESH_SECONDS = 30.0
"""How long a queue counts as served after a worker was seen there."""

SILENCE_SECONDS = 60.0
"""How long the server may fail to answer which workers poll a queue before a wait ends."""

QUEUES_KEPT = 10_000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Presence:
    """Finds the queues of tasks, and remembers for a while which of them worker processes poll."""

    def __init__(self, client: Client) -> None:
        """Ask this client's server."""
        self._client = client
        self._queues: dict[str, str] = {}
        self._seen: dict[str, float] = {}
        self._silent_since: float | None = None
        self._asking: dict[str, asyncio.Task[bool]] = {}

    def started(self, task_id: str, queue: str) -> None:
        """Remember the queue of a task."""
        self._queues[task_id] = queue
        while len(self._queues) > QUEUES_KEPT:
            del self._queues[next(iter(self._queues))]

    def forget(self, task_id: str) -> None:
        """Forget a task that was deleted."""
        self._queues.pop(task_id, None)

    async def queue_of(self, workflow_id: str) -> str:
        """Return a workflow's queue, which never changes.

        Raises:
            RPCError: The server knows no workflow of this id.
            ConnectError: The server could not be asked.
        """
        queue = self._queues.get(workflow_id)
        if queue is None:
            with server_errors(RPCStatusCode.NOT_FOUND):
                queue = (await self._client.get_workflow_handle(workflow_id).describe()).task_queue
            self.started(workflow_id, queue)
        return queue

    async def queue_if_known(self, workflow_id: str) -> str:
        """Return a workflow's queue, or nothing when Temporal does not know the workflow any more.

        Raises:
            ConnectError: The server could not be asked.
        """
        try:
            return await self.queue_of(workflow_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return ""

    def is_fresh(self, queue: str) -> bool:
        """Whether a worker process was seen there a moment ago."""
        seen = self._seen.get(queue)
        return seen is not None and time.monotonic() - seen < FRESH_SECONDS

    async def is_served(self, queue: str) -> bool:
        """Say whether a worker process polls a queue. True may be 70 s old, False is current."""
        asking = self._asking.get(queue)
        if asking is None:  # one request for all who ask at once
            asking = self._asking[queue] = asyncio.create_task(has_workers(self._client, queue))
            asking.add_done_callback(heard)
            asking.add_done_callback(lambda _: self._asking.pop(queue, None))
        if not await asyncio.shield(asking):
            self._seen.pop(queue, None)
            return False
        self._seen[queue] = time.monotonic()
        return True

    async def require(self, workflow_id: str, request_id: str = "") -> None:
        """Check, while a request waits, that a worker process may answer it.

        Args:
            workflow_id: The task.
            request_id: Id of the request, when it has been sent and may be carried out later.

        Raises:
            NoWorkerError: No worker process polls the task's queue, or begins to within 5 s.
            ConnectError: The server has failed to answer for a minute.
        """
        queue = await self.queue_of(workflow_id)
        # A server that was started again knows of no worker process until one asks it for work.
        missing = no_worker(
            queue, task_id=workflow_id, request_id=request_id, is_sent=bool(request_id)
        )
        await self._until(self._may_be_served, queue, missing)

    async def _may_be_served(self, queue: str) -> bool:
        """Whether a queue is polled, as far as is known: a busy server does not end the wait."""
        try:
            served = await self.is_served(queue)
        except ConnectError:
            now = time.monotonic()
            self._silent_since = now if self._silent_since is None else self._silent_since
            if now - self._silent_since >= SILENCE_SECONDS:
                raise
            return True
        self._silent_since = None
        return served

    async def expect(
        self, queue: str, *, task_id: str, request_id: str = "", seconds: float | None = None
    ) -> None:
        """Check, before a request is sent, that a worker process will carry it out soon.

        Args:
            queue: The task's queue.
            task_id: The task, for the error.
            request_id: Id of the request, for the error.
            seconds: How long to wait for a worker process; PATIENCE_SECONDS by default.

        Raises:
            NoWorkerError: No worker process polls the queue, or begins to within that time.
        """
        if self.is_fresh(queue):
            return
        missing = no_worker(queue, task_id=task_id, request_id=request_id)
        await self._until(self.is_served, queue, missing, seconds)

    async def _until(
        self,
        is_served: Callable[[str], Awaitable[bool]],
        queue: str,
        missing: NoWorkerError,
        seconds: float | None = None,
    ) -> None:
        deadline = time.monotonic() + (PATIENCE_SECONDS if seconds is None else seconds)
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            if await is_served(queue):
                return
            if time.monotonic() + pause > deadline:
                raise missing
            await asyncio.sleep(pause)


T = TypeVar("T")

QUESTIONS = 3
"""How often a task is asked the same while no answer comes. A worker drops the questions that wait
behind another when it evicts the task's run from its cache (temporalio/sdk-rust#672 is similar);
the server then holds the caller until the request times out."""

FIRST_SECONDS = 1.0
"""How long an answer may take before it is asked whether workflow code fails in the task."""

BUSY_PAUSES = (0.05, 0.1, 0.2, 0.5, *(1.0,) * 30)
"""Waits between the attempts to query a task while the server refuses: it is busy with others."""

_LOST = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
_PASSING = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, *_LOST)


class TaskQueries:
    """Queries the tasks of one namespace.

    Attributes:
        client: Temporal client.
        presence: Which worker processes serve which task.
    """

    def __init__(self, client: Client) -> None:
        """Use this client."""
        self.client = client
        self.presence = Presence(client)

    async def describe(self, task_id: str) -> WorkflowExecutionDescription:
        """Describe the newest run of a task.

        Raises:
            TaskNotFoundError: Temporal does not know this id.
            ConnectError: The server could not be reached.
        """
        try:
            with server_errors(RPCStatusCode.NOT_FOUND):
                return await self.client.get_workflow_handle(task_id).describe()
        except RPCError as error:
            raise TaskNotFoundError(task_id) from error

    async def query(
        self,
        task_id: str,
        name: str,
        kind: type[T],
        *args: object,
        even_closed: bool | WorkflowExecution | None = None,
    ) -> T:
        """Ask a task.

        Args:
            task_id: The task.
            name: Name of the query.
            kind: Type of the answer.
            args: Arguments of the query.
            even_closed: Whether to ask a closed task too: it is replayed for that. Of one that is
                known to be closed, what the server says of it, which is not asked for again then.

        Raises:
            TaskClosedError: It is closed; the archive has it.
            TaskNotFoundError: Temporal does not know this id.
            NoWorkerError: No worker process is up to answer.
            QueryFailedError: It could not answer, or never began.
            ConnectError: The server could not be reached.
        """
        ended = even_closed
        if ended is None or isinstance(ended, bool):
            try:
                return await self._query(task_id, name, kind, args, is_ended=False)
            except TaskClosedError:
                if not ended:
                    raise
            ended = await self.describe(task_id)
        if not has_begun(ended):  # a worker process would fail to replay it
            msg = f"{task_id!r} has nothing to tell: its input could not be read, it never began."
            raise QueryFailedError(msg)
        return await self._query(task_id, name, kind, args, is_ended=True)

    async def _query(
        self,
        task_id: str,
        name: str,
        kind: type[T],
        args: Sequence[object],
        *,
        is_ended: bool,
        again: bool = False,
    ) -> T:
        handle = self.client.get_workflow_handle(task_id)

        async def ask() -> T:
            while True:
                try:
                    answer: T = await handle.query(
                        name,
                        args=args,
                        result_type=kind,
                        reject_condition=None if is_ended else QueryRejectCondition.NOT_OPEN,
                    )
                except WorkflowQueryRejectedError as error:
                    # The run that the server had found continued as new meanwhile: ask the next.
                    if error.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
                        raise
                else:
                    return answer

        try:
            with server_errors(*_PASSING):
                return await self._patiently(partial(while_busy, ask), task_id)
        except WorkflowQueryRejectedError as cause:
            raise TaskClosedError(f"Task {task_id!r} is closed.") from cause
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TaskNotFoundError(task_id) from error
            await self.refuse_stuck(task_id)
            if error.status is RPCStatusCode.FAILED_PRECONDITION and not again:
                await asyncio.sleep(FIRST_SECONDS)  # its workflow task has failed, and goes on now
                return await self._query(task_id, name, kind, args, is_ended=is_ended, again=True)
            queue = await self.presence.queue_if_known(task_id)
            raise unanswered(error, task_id, name, queue) from error
        except WorkflowQueryFailedError as error:
            await self.refuse_stuck(task_id)
            raise QueryFailedError(
                f"{task_id!r} could not answer {name!r}: {error}.",
                remedy="It goes on as before; ask again, and see the worker's log if that does not"
                " help.",
            ) from error

    async def refuse_stuck(self, task_id: str) -> WorkflowExecutionDescription | None:
        """Say what is in the way of an answer, if workflow code fails in the task.

        Returns:
            What the server says of the task; None when it could not be asked, or knows none.

        Raises:
            StuckTaskError: It does.
        """
        found, why = None, ""
        with suppress(ConnectError, TaskNotFoundError):  # the query itself finds that out
            found = await self.describe(task_id)
            if found.raw_description.pending_workflow_task.attempt > 1:
                why = await why_stuck(self.client, found)
        if why:
            raise StuckTaskError(
                f"{task_id!r} cannot answer. {why}.",
                remedy="Mend the code and start the workers again: the task continues. Or"
                " end it: `holdfast abandon --force`.",
            )
        return found

    async def _patiently(self, ask: Callable[[], Coroutine[Any, Any, T]], task_id: str) -> T:
        """Wait for an answer for as long as there is a worker process to give it.

        The question is asked again while none comes; the first answer counts.
        """
        asked = [asyncio.ensure_future(ask())]
        open_ = set(asked)
        try:
            await asyncio.wait(open_, timeout=FIRST_SECONDS)
            if not asked[0].done():
                await self.refuse_stuck(task_id)
            while True:
                done, open_ = await asyncio.wait(
                    open_, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    error, is_last = each.exception(), len(asked) >= QUESTIONS and not open_
                    if error is None or is_last or not _is_lost(error):
                        return each.result()
                await self.presence.require(task_id)
                await self.refuse_stuck(task_id)
                if len(asked) < QUESTIONS:
                    asked.append(asyncio.ensure_future(ask()))
                    open_.add(asked[-1])
        finally:
            for each in asked:
                each.add_done_callback(heard)
                each.cancel()


def unanswered(error: RPCError, task_id: str, name: str, queue: str) -> EngineError:
    """Make the error for a query that the server could not have answered.

    Args:
        error: What the server said.
        task_id: The task.
        name: Name of the query.
        queue: The task's queue.
    """
    if "no poller" in error.message:  # the server knows of a dead worker before its list does
        return no_worker(queue, task_id=task_id)
    if _is_lost(error):
        return QueryFailedError(
            f"No worker process has answered {name!r} of {task_id!r}, though one polled the queue"
            f" {queue!r} in the last minutes.",
            remedy="See that it runs (one that was killed counts for 70 s) and is not held up by"
            " code that blocks its event loop; then ask again.",
        )
    return QueryFailedError(
        f"{task_id!r} has nothing to answer {name!r} with: {error.message}.",
        remedy="If it has just been started, ask again; else see the worker's log.",
    )


def _is_lost(error: BaseException | None) -> bool:
    """Whether no one answered before the request timed out."""
    return isinstance(error, RPCError) and error.status in _LOST


async def while_busy(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and ask again while others keep the task busy: the server holds few questions to it."""
    for pause in BUSY_PAUSES:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                raise
        except WorkflowQueryFailedError as error:
            if SPLIT not in str(error):
                raise
        await asyncio.sleep(pause)
    return await ask()
