"""FunctionAgentWorker: a function as a step, such as one that calls another framework's agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.values.code.user_calls import invoke_here, is_async
from holdfast.values.messages import Message
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker
from holdfast.workers.turns import add_answer, add_question, as_json, one_turn

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

RULE = (
    "It must take one parameter, or two, the second one called `ctx`. The first one gets the"
    " step's input as text; when it is called `step`, it gets the TaskStep. More parameters need"
    " a default, which they keep."
)


class FunctionAgentWorker(AgentWorker):
    """Runs a function as the step; its return value is the answer, if not a TaskStepOutput.

        async def answer(question: str, ctx: StepContext) -> str:
            plan = await ctx.memo(f"plan {question}", lambda: planner.run(question))
            found = await ctx.memo(f"look up {plan}", lambda: search(plan))
            return (await ctx.call_model([user(f"{question} Known: {found}")])).text

        agent = Agent(name="helper", model="gpt-5-mini", worker=FunctionAgentWorker(answer))

    An `async def` is run again from its top for each costly call that it makes, so each belongs in
    `ctx.memo`, `ctx.call_model` or `ctx.call_tools`, which return the recorded result instead of
    making the call again. A plain `def` runs in a thread and gets no `ctx`: it is run once, and
    again only if its worker process is lost meanwhile.

    The signature decides what the function gets. One parameter, of any name, gets the input: text,
    or None for a later step without input. In the first step of a task that was started with a
    conversation, the input is the newest user message. A parameter called `step` gets the TaskStep
    instead. A second parameter must be called `ctx` and gets the StepContext. Other parameters must
    have a default, which they keep.

    The return value is the task's answer: text, or JSON data. A TaskStepOutput is used as it is, so
    that a function can queue further steps.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the function's signature.

        Args:
            function: A function, method, partial or object with `__call__`, async or not.

        Raises:
            InvalidArgumentError: It cannot be called as a step; the text says what it must take.
        """
        self.function = function
        self.name = _name_of(function)
        self._by_step, self._has_ctx = _read(function, self.name)

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Call the function with the step or its input."""
        step = add_question(ctx, step)
        first = step if self._by_step else step.input
        named = {"ctx": ctx} if self._has_ctx else {}
        made = await invoke_here(self.function, first, **named)
        if not isinstance(made, TaskStepOutput):
            made = TaskStepOutput(output=made, task_step=step, is_last=True)
        output = as_json(made.output, f"Function {self.name!r} returned")
        if not made.is_last:
            return made.model_copy(update={"output": output})
        if output is None:
            msg = f"Function {self.name!r} returned None, not an answer. Return text or data."
            raise InvalidArgumentError(msg)
        add_answer(ctx, output)
        return made.model_copy(update={"output": output})

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep each turn's question and answer."""
        return one_turn(task, transcript)


def _name_of(function: Any) -> str:
    """Return a function's name, for errors."""
    function = getattr(function, "func", function)  # of a partial
    return getattr(function, "__name__", type(function).__name__)


def _read(function: Any, name: str) -> tuple[bool, bool]:
    """Return whether a function takes the step instead of the input, and whether it takes `ctx`.

    Raises:
        InvalidArgumentError: It has other required parameters.
    """
    if not callable(function):
        msg = f"{shown(function)} cannot be called. Pass a function."
        raise InvalidArgumentError(msg)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        msg = f"The signature of {name!r} cannot be read: {error}. Wrap it in a def of your own."
        raise InvalidArgumentError(msg) from error
    wanted = [p for k, p in enumerate(parameters) if p.name == "ctx" or _is_required(p) or not k]
    match wanted:
        case [first] if first.name != "ctx" and _is_positional(first):
            return first.name == "step", False
        case [first, second] if (
            _is_positional(first)
            and second.name == "ctx"
            and second.kind is not second.POSITIONAL_ONLY
        ):
            if is_async(function):
                return first.name == "step", True
            msg = (
                f"Function {name!r} takes `ctx` but is not an async function: it runs in a thread,"
                " where nothing of ctx can be awaited. Make it an `async def`, or leave `ctx` out."
            )
            raise InvalidArgumentError(msg)
        case _:
            listed = ", ".join(str(p) for p in parameters)
            msg = f"Function {name}({listed}) cannot be a step. {RULE}"
            raise InvalidArgumentError(msg)


def _is_required(parameter: inspect.Parameter) -> bool:
    stars = {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and parameter.kind not in stars


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
