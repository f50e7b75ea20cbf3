"""Failures that the task makes itself: refusals of requests, and verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import errors
from holdfast.errors import AgentsException, ModelRefusalError
from holdfast.task.data.failures import REFUSAL, Failure
from holdfast.task.data.records import ForkOf
from holdfast.values.steps import TaskStep
from holdfast.values.text.shown import named

NOT_UPCOMING = "Could not find step_id: {} among the upcoming steps."
"""Why a command for a step is refused that is neither queued nor in progress."""

ABANDONED = "TaskAbandonedError"
"""Type of the failure with which the workflow of an abandoned task ends."""

VERDICTS = frozenset(
    {
        "MaxTurnsExceeded",
        "ModelBehaviorError",
        "ModelRefusalError",
        "UserError",
        "ToolTimeoutError",
        "InputGuardrailTripwireTriggered",
        "OutputGuardrailTripwireTriggered",
        "ToolInputGuardrailTripwireTriggered",
        "ToolOutputGuardrailTripwireTriggered",
    }
)
"""Failures that end a task; all others leave its step first in the queue."""


def is_verdict(failure: Failure | None) -> bool:
    """Whether a failure ends a task; a child task parks with it, and its parent decides."""
    return failure is not None and failure.type in VERDICTS and not failure.parks


def verdict_of(failure: Failure) -> AgentsException | None:
    """Make the error again that a failure was made of, if that was a verdict of the agent loop."""
    kind = getattr(errors, failure.type, None)
    if not (isinstance(kind, type) and issubclass(kind, AgentsException)):
        return None
    if kind is ModelRefusalError:
        # One that code of the user's has raised has it in its message alone.
        said = failure.data.get(REFUSAL) or failure.message.partition(": ")[2]
        return ModelRefusalError(str(said))
    return kind(failure.message, remedy=failure.remedy)


NO_STEPS = Failure(type="NoUpcomingStepsError", message="The task has no upcoming steps to run.")
DROPPED = Failure(
    type="StalledTaskError",
    message="The task has no upcoming steps to run: its first step was dropped. Give it another"
    " input, run_step(task, input=...), or abandon it.",
)
NOT_FAILED = Failure(
    type="InvalidArgumentError",
    message='restart="step" is for a step that has failed and does not wait for a person.',
)
BEGUN = Failure(
    type="InvalidArgumentError",
    message="The failed step has begun: the model has seen its input. Run it again as it is, or"
    ' with restart="step" to give it another input.',
)
WAITS = Failure(
    type="InvalidArgumentError",
    message="The task waits for a person, and its step has its input already. Decide first;"
    " feedback reaches the next model call.",
)
NO_PROGRESS = Failure(
    type="StalledTaskError", message="The step neither called anything nor ended. Run it again."
)
UNDONE = Failure(
    type="CommandRefusedError",
    message="The step was undone while it was being waited for. Ask again to run it again.",
)
UNDO_RUNS = Failure(type="CommandRefusedError", message="Another undo is in progress.")
UNDOING = Failure(
    type="CommandRefusedError",
    message="An undo of the task is in progress. Ask again once it is done, or was refused.",
)
NOTHING_DONE = Failure(type="InvalidArgumentError", message="The task has no step to undo.")
NOTHING_AFTER = Failure(
    type="InvalidArgumentError", message="There is no step after the one to be kept."
)
NO_ORDINAL = Failure(
    type="InvalidArgumentError",
    message="'to' is the number of the last step to keep: 0 for none, -1 for all but the last.",
)
DRAINING = Failure(type="Draining", message="The task continues as new; ask again.")
BUSY = Failure(type="Draining", message="The task has commands to read first; ask again.")
CROWDED = Failure(type="Draining", message="Many requests wait for the task; ask again.")
CLOSED = Failure(type="TaskClosedError", message="The task is closed or closing.")


def answered_parent(parent: str) -> Failure:
    """Refuse to change a child task whose parent has its answer: no one would tell the parent."""
    text = (
        f"The task has answered task {parent!r}, which works with that answer. Undo the step there"
        f" that has called it: undo_step({parent!r}) or rewind also takes back what was done here."
    )
    return Failure(type="CommandRefusedError", message=text)


def not_ready(step_id: str, unmet: tuple[str, ...]) -> Failure:
    """Refuse a step that waits for others."""
    why = f"it waits for {', '.join(map(repr, unmet))}" if unmet else "no step has made it ready"
    return Failure(type="InvalidArgumentError", message=f"Step {step_id} is not ready: {why}.")


def none_ready(queue: Iterable[TaskStep]) -> Failure:
    """Refuse, because all queued steps wait, and no step runs that they could wait for."""
    ids = ", ".join(repr(step.step_id) for step in queue)
    text = (
        f"None of the queued steps ({ids}) is ready, and no step is in progress that could make one"
        " ready. Hand one out again with is_ready=True, drop one with drop_step, or undo the last"
        " step."
    )
    return Failure(type="StalledTaskError", message=text)


def no_such_step(step_id: str, upcoming: Iterable[TaskStep]) -> Failure:
    """Refuse a step that is not in the queue."""
    return Failure(type="StepNotFoundError", message=not_upcoming(step_id, upcoming))


def not_upcoming(step_id: str, upcoming: Iterable[TaskStep]) -> str:
    """Return why a command for such a step is refused."""
    known = named(step.step_id for step in upcoming)
    return f"{NOT_UPCOMING.format(step_id)} They are: {known}."


def other_failed(step_id: str) -> Failure:
    """Refuse, because a failed step must be run before all others."""
    text = (
        f"Step {step_id!r} has failed and stays first: run it again, and the others after it."
        " Nothing was run."
    )
    return Failure(type="InvalidArgumentError", message=text)


def stalled(step_id: str) -> Failure:
    """Refuse, because the task cannot go on without help."""
    which = f"Step {step_id!r}" if step_id else "The last step that ran"
    text = (
        f"{which} was not the last one and queued no next step, so the task cannot go on. Its"
        " AgentWorker must set is_last or return next_steps: undo the step with undo_step, mend the"
        " worker, and run it again."
    )
    return Failure(type="StalledTaskError", message=text)


def of_another(fork: ForkOf) -> Failure:
    """Refuse to undo a step of the forked task: only that task may take back its effects."""
    text = (
        f"Steps 1 to {fork.n} are task {fork.task!r}'s, and only it may undo their effects. Undo"
        " them there, or fork it at an earlier step."
    )
    return Failure(type="InvalidArgumentError", message=text)


def abandoned(why: str) -> Failure:
    """Return the failure of an abandoned task: who abandoned it, and why."""
    return Failure(type=ABANDONED, message=f"The task was abandoned by {why}")
