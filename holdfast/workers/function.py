"""FunctionAgentWorker: any function is a step, also one that calls another framework's agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.values.code.user_calls import invoke, is_async
from holdfast.values.messages import Message
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker
from holdfast.workers.turns import add_answer, add_question, as_json, one_turn

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

RULE = (
    "It must take one parameter, or two of which the second is called `ctx`. The first one gets the"
    " step's input as text; when it is called `step`, it gets the TaskStep. More parameters need"
    " a default, which they keep."
)


class FunctionAgentWorker(AgentWorker):
    """Makes a step of a function: what it returns is the answer, unless it says otherwise.

        async def answer(question: str, ctx: StepContext) -> str:
            plan = await ctx.memo(f"plan {question}", lambda: planner.run(question))
            found = await ctx.memo(f"look up {plan}", lambda: search(plan))
            return (await ctx.call_model([user(f"{question} Known: {found}")])).text

        agent = Agent(name="helper", model="gpt-5-mini", worker=FunctionAgentWorker(answer))

    An `async def` is run from its top once for each costly thing that it does, so each of them
    belongs into `ctx.memo`, `ctx.call_model` or `ctx.call_tools`, which give the record instead of
    doing it again. A plain `def` runs in a thread and gets no `ctx`: it is run once, and again only
    when its worker process is lost meanwhile.

    The signature decides what the function gets. One parameter, of any name, gets the input: text,
    or None for a later step without one. In the first step of a task that was given a conversation
    it is the newest user message. If the parameter is called `step`, it gets the TaskStep. A second
    one must be called `ctx` and gets the StepContext. Parameters with a default beside these keep
    their default.

    What it returns is the task's answer: text, or JSON data. A TaskStepOutput is taken as it is, so
    that a function can hand out further steps.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the function's signature.

        Args:
            function: A function, method, partial or object with `__call__`, async or not.

        Raises:
            InvalidArgumentError: It cannot be called as a step; the text says how it could.
        """
        self.function = function
        self.name = _name_of(function)
        self._by_step, self._has_ctx = _read(function, self.name)

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Call the function with the step or its input."""
        step = add_question(ctx, step)
        first = step if self._by_step else step.input
        named = {"ctx": ctx} if self._has_ctx else {}
        made = await invoke(self.function, first, **named)
        if not isinstance(made, TaskStepOutput):
            made = TaskStepOutput(output=made, task_step=step, is_last=True)
        output = as_json(made.output, f"Function {self.name!r} returned")
        if not made.is_last:
            return made.model_copy(update={"output": output})
        if output is None:
            msg = f"Function {self.name!r} returned None, which is no answer. Return text or data."
            raise InvalidArgumentError(msg)
        add_answer(ctx, output)
        return made.model_copy(update={"output": output})

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep each turn's question and answer."""
        return one_turn(task, transcript)


def _name_of(function: Any) -> str:
    """Name a function in errors."""
    function = getattr(function, "func", function)  # of a partial
    return getattr(function, "__name__", type(function).__name__)


def _read(function: Any, name: str) -> tuple[bool, bool]:
    """Return whether a function wants the step in the place of its input, and whether `ctx`.

    Raises:
        InvalidArgumentError: It wants something else.
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
                f"Function {name!r} takes `ctx` but is no async function: it runs in a thread,"
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
