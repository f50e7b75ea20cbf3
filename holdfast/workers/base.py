"""The contract of an AgentWorker: given a step, do the next piece of reasoning."""

from __future__ import annotations

import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext


def at_least(least: int, name: str, value: object) -> int:
    """Return a limit, checked.

    Args:
        least: The smallest that makes sense.
        name: The argument's name, for the error.
        value: What was given.

    Raises:
        InvalidArgumentError: It is not a whole number, or too small.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    msg = f"{name} must be at least {least}, as a whole number; it is {shown(value)}."
    raise InvalidArgumentError(msg)


class RunsSteps(Protocol):
    """Step logic that is not an AgentWorker; it may also have an AgentWorker's other methods."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Do one step, as AgentWorker.run_step does."""
        ...


class AgentWorker(ABC):
    """Step logic. It holds no state of a task: state lives in the step and in `ctx.state`.

    `run_step` runs in an activity, from its top and perhaps several times: a call through `ctx`
    that an earlier run of the step made returns its recorded answer. What `run_step` does outside
    of `ctx` (a file, a request, a random number) happens in each run, so do such things in tools or
    in `ctx.memo`.

    Attributes:
        max_parallel: Most steps of one task that run at the same time in `run_task`, `chat` and the
            like. `run_steps_in_queue` ignores it and runs all ready steps at once.
        hands_over: Whether the agent's handoffs are offered to its model. `run_step` must then act
            on calls of handoffs, as `holdfast.workers.function_calling` does.
        offers_hosted: Whether `run_step` calls the model with the agent's own tools, so that it
            can use those which the provider runs. Agents that have such tools are refused else.
    """

    max_parallel: ClassVar[int] = 1
    hands_over: ClassVar[bool] = False
    offers_hosted: ClassVar[bool] = True

    def initialize_step(self, task: Task) -> TaskStep:
        """Make the first step of a task.

        Args:
            task: The new task.
        """
        return TaskStep(task_id=task.task_id, input=task.input, images=task.images)

    @abstractmethod
    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Do one step.

        Args:
            step: The step; `step.input` is new user input, or None. `step.message()` is the message
                for the transcript, images included.
            ctx: Model, tools, transcript and state of the task.

        Returns:
            The step's output. The tool calls in its `calls` are run after this method returns. The
            step is over when their results are in the transcript, in call order.
        """

    def join(self, outputs: Mapping[str, Json]) -> Json:
        """Make one answer of several outputs, when steps that ran side by side ended the task.

        Args:
            outputs: Step id to output of the last steps, in the order of the queue.

        Raises:
            InvalidArgumentError: The worker has no rule for it; the task then waits, and can go on
                with a worker that has one.
        """
        msg = (
            "More than one step output returned in final step. Steps"
            f" {', '.join(map(repr, outputs))} ran next to others and ended the task. Give"
            f" {type(self).__name__} a join method that makes one answer of them."
        )
        raise InvalidArgumentError(msg)

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Choose what the session keeps of a finished task; all of it by default.

        Args:
            task: The finished task.
            transcript: The task's messages, oldest first.
        """
        del task
        return transcript


PARAMETERS = {
    "initialize_step": ("task",),
    "run_step": ("step", "ctx"),
    "join": ("outputs",),
    "finalize_task": ("task", "transcript"),
}
"""The methods of an AgentWorker and the parameters that each is called with."""


def as_worker(given: object) -> AgentWorker:
    """Return an AgentWorker unchanged, and wrap any other object with `run_step` into one.

    The wrapper has AgentWorker's methods where the object lacks them. Its class has the name of the
    object's class, for errors and records.

    Raises:
        UserError: The object cannot do steps; the text says why, and what to pass.
    """
    if isinstance(given, type):
        msg = f"worker={given.__name__} is a class. Pass an object of it: {given.__name__}()."
        raise UserError(msg)
    if isinstance(given, AgentWorker):
        return given
    if not callable(getattr(given, "run_step", None)):
        msg = (
            f"worker={shown(given)} ({type(given).__name__}) has no method run_step, so it cannot"
            " do a step. Pass an AgentWorker, as ReActAgentWorker(), or leave `worker` out for"
            " function calling."
        )
        raise UserError(msg)
    own: dict[str, Any] = {
        name: getattr(given, name) for name in PARAMETERS if hasattr(given, name)
    }
    for name, method in own.items():
        _check_method(type(given).__name__, name, method)
    members = {name: staticmethod(method) for name, method in own.items()}
    made = types.new_class(
        type(given).__name__,
        (AgentWorker,),
        exec_body=lambda body: body.update(
            {
                **members,
                "__module__": type(given).__module__,
                "__qualname__": type(given).__qualname__,
                "__doc__": type(given).__doc__,
                "max_parallel": getattr(given, "max_parallel", AgentWorker.max_parallel),
            }
        ),
    )
    worker: AgentWorker = made()
    return worker


def _check_method(kind: str, name: str, method: Any) -> None:
    """Refuse a method that cannot be called with the arguments of AgentWorker's own."""
    wanted = PARAMETERS[name]
    is_async = inspect.iscoroutinefunction(method)
    if is_async != (name == "run_step"):
        how = "must be `async def`" if name == "run_step" else "must be a plain `def`, not async"
        raise UserError(f"{kind}.{name}({', '.join(wanted)}) {how}.")
    try:
        inspect.signature(method).bind(*wanted)
    except TypeError as error:
        msg = f"{kind}.{name} is called with ({', '.join(wanted)}), which it cannot take: {error}."
        raise UserError(msg) from error
