"""Every error that Holdfast raises, in one tree.

Each class says what happens to the task: it *retries*, *waits* for a person with nothing lost,
*ends* with this error, or is *untouched* because the request was refused before it began.

    HoldfastError
    ├── InvalidArgumentError            untouched   also a ValueError
    ├── NotFoundError                   untouched   also a LookupError
    │   ├── TaskNotFoundError
    │   ├── StepNotFoundError
    │   └── AgentNotFoundError          waits when found out by a worker
    ├── TaskExistsError                 untouched
    ├── TaskClosedError                 untouched
    ├── NoUpcomingStepsError            untouched   also an IndexError
    ├── StalledTaskError                waits
    │   └── UnfitAnswerError            waits       run again, the step asks the model again
    ├── CommandRefusedError             untouched
    │   ├── UndoRefusedError            untouched
    │   └── UndoFailedError             waits
    ├── SessionBusyError                untouched, or waits for its turn
    ├── SessionClosedError              waits       the session was ended through Temporal
    ├── SessionUnclearError             untouched   a turn may be in a session of the caller's
    ├── StepFailedError                 waits
    │   └── StepCodeChangedError
    ├── ComponentError                  waits       a component of a pipeline failed
    ├── NotificationError               retries     a message about an approval was not delivered
    ├── EngineError                     untouched
    │   ├── ServerStartError
    │   ├── ConnectError
    │   ├── NoWorkerError               waits for a worker
    │   ├── QueryFailedError
    │   │   └── StuckTaskError
    │   ├── OpenTasksError
    │   └── ArchiveError
    │       ├── ArchiveMismatchError
    │       ├── BlobMissingError
    │       │   └── ErasedError
    │       ├── DigestMismatchError
    │       └── KeyMissingError
    ├── MCPConnectionError              retries, then waits for the MCP server
    ├── OutcomeUnknownError             waits       raised by a tool: did its call take effect?
    ├── ModelError
    │   ├── ModelUnavailableError       retries, then waits
    │   └── ModelRequestError           waits
    └── AgentsException                 ends        names of the OpenAI Agents SDK
        ├── MaxTurnsExceeded
        ├── ModelBehaviorError
        ├── ModelRefusalError
        ├── GuardrailTripwireTriggered
        │   ├── InputGuardrailTripwireTriggered
        │   ├── OutputGuardrailTripwireTriggered
        │   ├── ToolInputGuardrailTripwireTriggered
        │   └── ToolOutputGuardrailTripwireTriggered
        ├── ToolTimeoutError
        ├── TaskAbandonedError
        └── UserError                   untouched, or waits: code of a run was found wrong
            ├── DeclarationError        untouched   also an InvalidArgumentError
            └── WrongTypeError          untouched   also a TypeError
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

_TWO_STOPS = re.compile(r"(?<=[\w)'\"])\.\.(?=\s+[A-Z]|\s*$)")
"""Where a sentence ends with another error's text, which has its own full stop."""


class HoldfastError(Exception):
    """Base of every error of this package.

    The text of an error ends with what to do about it. An error that wraps another one takes over
    the remedy of that one, which knows more, instead of its own.

    Attributes:
        remedy: What to do about it; empty where the message needs none, or has it in itself.
    """

    remedy: str = ""

    def __init__(self, *args: object, remedy: str = "") -> None:
        """Keep the remedy apart from the message."""
        self.remedy = remedy
        super().__init__(*(_TWO_STOPS.sub(".", a) if isinstance(a, str) else a for a in args))

    def __str__(self) -> str:
        """Return the message, then the remedy."""
        return with_remedy(super().__str__(), self.remedy)


def with_remedy(message: str, remedy: str) -> str:
    """Return a message with what to do about it."""
    if not remedy:
        return message
    gap = "" if message.endswith("\n") else " "  # after a list, a line of its own
    return f"{message}{gap}{remedy}"


def message_of(error: BaseException) -> str:
    """Return what happened, for an error that wraps this one: its text without its remedy."""
    if isinstance(error, BaseExceptionGroup):  # its own text does not say what went wrong
        group = cast("BaseExceptionGroup[BaseException]", error)
        each = (f"{type(inner).__name__}: {message_of(inner)}" for inner in group.exceptions)
        return f"{group}: {'; '.join(each)}"
    if not isinstance(error, HoldfastError):
        try:
            return str(error)
        except Exception as raised:  # noqa: BLE001  the failure is told all the same
            return f"it has no text, because its __str__ raised {type(raised).__name__}"
    return super(HoldfastError, error).__str__().rstrip("\n")


def behind(error: BaseException) -> BaseException | None:
    """Return the error that this one was raised from, or while it was handled, or None."""
    return error.__context__ if error.__cause__ is None else error.__cause__


def remedy_of(error: BaseException) -> str:
    """Return what to do about an error, for one that wraps it; empty if it does not say."""
    return error.remedy if isinstance(error, HoldfastError) else ""


class InvalidArgumentError(HoldfastError, ValueError):
    """An argument that cannot be used; the text says why and what to pass instead."""


class NotFoundError(HoldfastError, LookupError):
    """Something was asked for by a name or id that does not exist."""


class TaskNotFoundError(NotFoundError):
    """No open or archived task has this id.

    Attributes:
        task_id: The id that was asked for.
    """

    def __init__(self, task_id: str, instead: str = "") -> None:
        """Name the missing task.

        Args:
            task_id: The id that was asked for.
            instead: A sentence, after a space, about tasks that there are.
        """
        self.task_id = task_id
        super().__init__(
            f"No task {task_id!r} is known here.{instead}",
            remedy="Ids are shown by `holdfast tasks`; a task of another server, namespace or"
            " archive is not visible from this one.",
        )


class StepNotFoundError(NotFoundError):
    """The task has no completed step with this id."""


class AgentNotFoundError(NotFoundError):
    """No agent of this name is known to the process that was asked."""


class TaskExistsError(HoldfastError):
    """A task with this id exists already; the existing one was left as it is.

    Attributes:
        task_id: The id that is taken.
    """

    def __init__(self, task_id: str, difference: str = "") -> None:
        """Name the task that is there already.

        Args:
            task_id: Its id.
            difference: How it differs from the one that was to be made, where it may exist.
        """
        self.task_id = task_id
        other = f": {difference}" if difference else ""
        super().__init__(
            f"Task {task_id!r} exists already and was left untouched{other}.",
            remedy="Choose another task_id, or use get_task to go on with the existing one.",
        )


class TaskClosedError(HoldfastError):
    """The task is finished, failed or abandoned: it can be read and forked, not changed."""


class NoUpcomingStepsError(HoldfastError, IndexError):
    """There is no step left to run in this task."""


class StalledTaskError(HoldfastError):
    """A step gave nothing with which the task could go on.

    It was not the last one and named no next step, or it is an UnfitAnswerError.
    """


class UnfitAnswerError(StalledTaskError):
    """The model's answer is useless, however often it was asked.

    Nothing that was done is lost. When the step is run again, the model is asked again; feedback
    before that says more to it.
    """


class CommandRefusedError(HoldfastError):
    """A command reached the task and was refused; the text is the recorded reason.

    Attributes:
        is_decided: Whether that reason names the decision that the approval has already.
        is_repeated: Whether its `request_id` had been given to another command, which was obeyed.
    """

    def __init__(
        self,
        message: str,
        *,
        is_decided: bool = False,
        is_repeated: bool = False,
        remedy: str = "",
    ) -> None:
        """Keep the facts next to the text."""
        self.is_decided, self.is_repeated = is_decided, is_repeated
        super().__init__(message, remedy=remedy)


class UndoRefusedError(CommandRefusedError):
    """Effects are in the way of an undo; the text lists them. Nothing was changed."""


class UndoFailedError(CommandRefusedError):
    """The undo of an effect failed; effects undone before it stay undone. Ask again."""


class SessionBusyError(HoldfastError):
    """Another task of the session has the floor, and this one does not wait for it.

    Attributes:
        task_id: The task that has the floor.
        waiting: The task that was created all the same, and waits in line; empty for none.
    """

    def __init__(
        self,
        session: str,
        task_id: str,
        status: str = "",
        *,
        waiting: str = "",
        waits_for_itself: bool = False,
    ) -> None:
        """Name both tasks and the ways to go on.

        Args:
            session: Name of the session.
            task_id: The task that has the floor.
            status: The status in which that one rests.
            waiting: As the attribute.
            waits_for_itself: Whether `task_id` waits for this task, if only through others.
        """
        self.task_id, self.waiting = task_id, waiting
        msg = f"Task {task_id!r} of session {session!r} has the floor"
        remedy = "Ask again when it has ended, or choose on_busy='queue', 'interrupt' or 'merge'."
        if waits_for_itself:
            msg = f"Task {task_id!r} of session {session!r} comes first, and it waits for this one"
            remedy = "A tool of it, or of a task that it waits for, runs this one. Give this one"
            remedy += " another session, or none."
        elif waiting:
            msg += f", and is {status!r}. Task {waiting!r} waits for its turn"
            remedy = (
                f"Decide on {task_id!r}, resume, finalize or abandon it: then {waiting!r} begins,"
                f" and Runner.run(agent, RunState.of({waiting!r})) returns its result."
            )
        super().__init__(f"{msg}.", remedy=remedy)


class SessionClosedError(HoldfastError):
    """A session's workflow was ended from outside, so that nothing can be added to its memory.

    Attributes:
        session_id: The session's workflow id.
    """

    def __init__(self, session_id: str) -> None:
        """Name the session and the two ways to go on."""
        self.session_id = session_id
        super().__init__(
            f"Session {session_id!r} was ended with Temporal's own tools; its memory is still"
            " there, and nothing was added to it.",
            remedy="To go on with that memory, run `temporal workflow reset --type LastWorkflowTask"
            f" --workflow-id {session_id} --reason resumed`; to forget it, run `temporal workflow"
            f" delete --workflow-id {session_id}` and delete its record in the archive, if it has"
            " rested. Then ask again.",
        )


class SessionUnclearError(HoldfastError):
    """A session of the caller's own may have a run's turn or not: nothing was added to it again.

    Attributes:
        task_id: Task of the run; it has ended, and its result can be read.
        session_id: The session.
        items: The turn: what the session is to have of the run.
    """

    remedy = (
        "Look into the session: if these items are not there, add them with add_items. Then run"
        " RunState.of(task_id) without session= for the result."
    )

    def __init__(self, task_id: str, session_id: str, items: Sequence[Any]) -> None:
        """Keep the turn."""
        super().__init__(
            f"An attempt to write the turn of task {task_id!r} to session {session_id!r} failed or"
            " died, and its items do not show whether the turn is there: they have been changed"
            f" since, or repeat themselves. The turn has {len(items)} items (`items` of this"
            " error); nothing was added again.",
            remedy=self.remedy,
        )
        self.task_id = task_id
        self.session_id = session_id
        self.items = list(items)


class StepFailedError(HoldfastError):
    """A step failed and stays first in the queue; nothing it had done is lost.

    Fix the cause, then run the step again: answered model calls are not paid for again.

    Attributes:
        task_id: The task.
        step_id: The step that failed.
        cause_type: Class name of the error that stopped it.
        run_data: What a run of `Runner` had produced by then (a `RunData`), or None when nothing
            is known.
    """

    run_data: Any = None

    def __init__(
        self, message: str, *, task_id: str, step_id: str, cause_type: str = "", remedy: str = ""
    ) -> None:
        """Keep the facts next to the text."""
        self.task_id = task_id
        self.step_id = step_id
        self.cause_type = cause_type
        super().__init__(message, remedy=remedy)


class StepCodeChangedError(StepFailedError):
    """The AgentWorker's code changed in the middle of a step, so its journal no longer fits.

    `run_step(task, restart="step")` starts the step again; its model calls are then made again.
    """


class ComponentError(HoldfastError):
    """A component of a pipeline failed; the step waits, to be run again.

    Attributes:
        component: Name of the component.
    """

    def __init__(self, component: str, what: str) -> None:
        """Name the component and say what became of it."""
        self.component = component
        super().__init__(f"Component {component!r} {what}")


class NotificationError(HoldfastError):
    """A message about an approval was not delivered.

    Attributes:
        is_final: Whether sending it again is useless.
    """

    def __init__(self, *texts: object, is_final: bool = False, remedy: str = "") -> None:
        """Word the error."""
        super().__init__(*texts, remedy=remedy)
        self.is_final = is_final


class EngineError(HoldfastError):
    """The Temporal server, a worker process or the archive cannot be used as asked."""


class ServerStartError(EngineError):
    """The embedded Temporal server did not start."""


class ConnectError(EngineError):
    """The Temporal server could not be reached, or refused the connection."""


class NoWorkerError(EngineError):
    """No worker process serves the task's queue. The task waits and nothing is lost.

    Attributes:
        queue: The Temporal task queue that no worker process polls.
        task_id: The task, when it is known.
        request_id: Id of the request that was made: asking again with it does nothing twice.
        is_sent: Whether the request reached the server, which hands it to the next worker process.
        command: Command line of a worker process that would serve it; empty for a queue that is not
            one of Holdfast's own.
    """

    def __init__(
        self,
        queue: str,
        *,
        serves: str = "",
        command: str = "",
        task_id: str = "",
        request_id: str = "",
        is_sent: bool = False,
    ) -> None:
        """Name the queue, the agents that it serves in words, and the command of a worker."""
        self.queue = queue
        self.task_id = task_id
        self.request_id = request_id
        self.is_sent = is_sent
        which = f" {task_id!r}" if task_id else ""
        then = (
            f" The request was sent and may be carried out then: ask again with"
            f" request_id={request_id!r}, so that it is not done twice."
            if is_sent
            else ""
        )
        self.command = command
        start = "Start yours, made with HoldfastPlugin"
        if command:
            start = f"Start one with `{command}`"
        super().__init__(
            f"No worker process serves {serves or f'queue {queue!r}'}. The task{which} waits and"
            " nothing is lost.",
            remedy=f"{start}, then ask again.{then}",
        )


class QueryFailedError(EngineError):
    """A task or session could not answer a question; it was not touched by it. Ask again."""


class StuckTaskError(QueryFailedError):
    """Workflow code fails in this task: it answers nothing, and goes on once that is mended."""


class OpenTasksError(EngineError):
    """Open tasks cannot go on with the code of this worker process. It has not touched them.

    Attributes:
        task_ids: Ids of these tasks, of the ones that were replayed.
    """

    def __init__(self, message: str, task_ids: list[str]) -> None:
        """Name the tasks."""
        super().__init__(
            message, remedy="Keep workers with the code that they run with until these have ended."
        )
        self.task_ids = task_ids


class ArchiveError(EngineError):
    """The archive (the directory or bucket for large and closed records) cannot be used."""


class ArchiveMismatchError(ArchiveError):
    """This archive is not the one that the namespace's tasks were stored in."""


class BlobMissingError(ArchiveError):
    """The archive lacks a value that a task refers to."""


class ErasedError(BlobMissingError):
    """A task, or a value of one, was erased."""


class DigestMismatchError(ArchiveError):
    """Recorded bytes do not give the digest recorded for them: something was changed."""


class KeyMissingError(ArchiveError):
    """Something is encrypted with a key that this process does not have."""


DAMAGED = (BlobMissingError, DigestMismatchError, KeyMissingError)
"""What reading one value of the archive raises when this value alone cannot be read."""


def is_torn(error: ArchiveError) -> bool:
    """Whether a record is not as it was written: cut, or changed, with keys and without."""
    return isinstance(error, DigestMismatchError) or isinstance(error.__cause__, ValueError)


class MCPConnectionError(HoldfastError):
    """An MCP server cannot be reached now, or was lost before it answered; it may be back soon."""


class OutcomeUnknownError(HoldfastError):
    """A tool raises it when it cannot say whether its call took effect.

    The call is then *unknown*: it is not repeated, a person or the tool's `probe=` decides. A call
    that may be repeated, of a tool that reads or is idempotent, is made again. An `undo=` raises it
    likewise: a person is asked.
    """


class ModelError(HoldfastError):
    """A model call did not give an answer.

    Attributes:
        client_error: What the provider's client raised, in the process that called it. It is not
            the `__cause__`, which is recorded with the task.
    """

    client_error: Exception | None = None


LONGEST_WAIT_SECONDS = 3600.0
"""Longest time until a model call is repeated, whatever the provider asks for."""


class ModelUnavailableError(ModelError):
    """A failure of the model that may pass with time: 408, 409, 429, 5xx, timeout, lost connection.

    Attributes:
        retry_after: Seconds that the provider asked to wait, or None.
        code: The provider's code for the failure, as "conversation_locked"; empty for none.
        is_limit: Whether it is a rate limit or an overload: the provider has refused to work.
        limit_seconds: How long such a limit is waited out; None for the usual time.
        is_repeated: Whether the usage counts the call as one that was made once more.
        usage: Cost of an answer that came and cannot be used; None when no answer came.
        open_calls: Its calls: a provider that keeps the conversation waits for their results.
        is_unasked: Whether the provider was not asked: the call waits for its turn, however long.
        used_day: The day of the tenant that is used up (`UsedDay`), if that is why; else None.
        is_accepted: Whether the call will be answered: no other model is asked meanwhile.
    """

    limit_seconds: float | None = None
    is_repeated: bool = False
    is_unasked: bool = False
    is_accepted: bool = False
    usage: Any = None
    used_day: Any = None
    open_calls: tuple[Any, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        code: str = "",
        is_limit: bool = False,
        remedy: str = "",
    ) -> None:
        """Keep the provider's wish and code next to the text."""
        self.retry_after = retry_after
        self.code = code
        self.is_limit = is_limit
        super().__init__(message, remedy=remedy)


class ModelRequestError(ModelError):
    """The provider refused the request (400, 401, 403, 404, ...): repeating it cannot help.

    Attributes:
        status: HTTP status, or None when no response came.
        code: The provider's code for the failure, as "context_length_exceeded"; empty for none.
    """

    def __init__(
        self, message: str, *, status: int | None = None, code: str = "", remedy: str = ""
    ) -> None:
        """Keep status and code next to the text."""
        self.status = status
        self.code = code
        super().__init__(message, remedy=remedy)


class AgentsException(HoldfastError):
    """Base of the verdicts of the agent loop; the task has ended with it.

    Attributes:
        run_data: What the run had produced (a `RunData`), or None when nothing is known.
        facts: What the task must know besides the text, JSON data.
    """

    run_data: Any = None
    facts: dict[str, Any] | None = None

    @property
    def message(self) -> str:
        """What happened, without what to do about it."""
        return message_of(self)


class MaxTurnsExceeded(AgentsException):
    """One more model call would exceed `max_turns`."""


class ModelBehaviorError(AgentsException):
    """The model did something it was not allowed to: unknown tool, invalid structured output."""


class ModelRefusalError(AgentsException):
    """The model's last message is a refusal.

    Attributes:
        refusal: What the model said.
    """

    def __init__(self, refusal: str) -> None:
        """Word the error."""
        self.refusal = refusal
        super().__init__(f"Model refused to produce output: {refusal}")


class GuardrailTripwireTriggered(AgentsException):
    """A guardrail found what must not go on.

    Attributes:
        guardrail_result: What it found: an InputGuardrailResult, OutputGuardrailResult,
            ToolInputGuardrailResult or ToolOutputGuardrailResult.
    """

    guardrail_result: Any = None

    def __init__(self, *texts: Any, guardrail: Any = None, output: Any = None, **more: Any) -> None:
        """Keep what was found, if it is given instead of a text or next to it.

        Args:
            texts: The text; or the result of an input or output guardrail; or the guardrail of a
                tool and what it returned.
            guardrail: The guardrail of a tool.
            output: What it returned.
            more: As for HoldfastError.
        """
        if texts and not (isinstance(texts[0], str) or hasattr(texts[0], "guardrail")):
            guardrail, *rest = texts
            output = rest[0] if rest else output
            texts = ()
        if texts and not isinstance(texts[0], str):
            self.guardrail_result = texts[0]
            guardrail = getattr(texts[0], "guardrail", None)
            texts = ()
        if guardrail is not None and not texts:
            name = getattr(guardrail, "get_name", lambda: type(guardrail).__name__)()
            kind = type(self).__name__.removesuffix("TripwireTriggered")
            texts = (f"{kind} {name!r} triggered its tripwire.",)
        self._guardrail, self._output = guardrail, output
        super().__init__(*texts, **more)

    @property
    def guardrail(self) -> Any:
        """The guardrail, if it is known."""
        if self.guardrail_result is not None:
            return self.guardrail_result.guardrail
        return self._guardrail

    @property
    def output(self) -> Any:
        """What the guardrail returned, if it is known."""
        if self.guardrail_result is not None:
            return self.guardrail_result.output
        return self._output


class InputGuardrailTripwireTriggered(GuardrailTripwireTriggered):
    """A guardrail refused the input of the run."""


class OutputGuardrailTripwireTriggered(GuardrailTripwireTriggered):
    """A guardrail refused the final output."""


class ToolInputGuardrailTripwireTriggered(GuardrailTripwireTriggered):
    """A guardrail refused a tool call before the tool ran."""


class ToolOutputGuardrailTripwireTriggered(GuardrailTripwireTriggered):
    """A guardrail refused what a tool gave."""


class ToolTimeoutError(AgentsException):
    """A tool ran longer than its timeout and was told to raise.

    Attributes:
        tool_name: The tool; empty where only the text is known.
        timeout_seconds: Its timeout; 0 likewise.
    """

    tool_name: str = ""
    timeout_seconds: float = 0

    def __init__(
        self, *texts: object, tool_name: str = "", timeout_seconds: float = 0, remedy: str = ""
    ) -> None:
        """Word the error, unless its text is given."""
        self.tool_name = tool_name
        self.timeout_seconds = timeout_seconds
        text = f"Tool '{tool_name}' timed out after {timeout_seconds:g} seconds."
        super().__init__(*(texts or (text,)), remedy=remedy)


class TaskAbandonedError(AgentsException):
    """The task was abandoned; the text holds who did it and why."""


class UserError(AgentsException):
    """The library was used in a way it cannot serve; the text says what to do instead."""


class WrongTypeError(UserError, TypeError):
    """An argument, or a value assigned to an attribute, has a type that does not fit."""


class DeclarationError(UserError, InvalidArgumentError):
    """A tool, or how a run executes tools, declared in a way in which it cannot work.

    The text says what to change.
    """
