"""The contract of an AgentWorker: given a step, do the next piece of reasoning."""

from __future__ import annotations

import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke_here, is_async
from holdfast.values.messages import Message, assistant
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import render_result

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
        raise InvalidArgumentError(
            "More than one step output returned in final step. Steps"
            f" {', '.join(map(repr, outputs))} ran next to others and ended the task. Give"
            f" {type(self).__name__} a join method that makes one answer of them."
        )

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
        raise UserError(
            f"worker={shown(given)} ({type(given).__name__}) has no method run_step, so it cannot"
            " do a step. Pass an AgentWorker, as ReActAgentWorker(), or leave `worker` out for"
            " function calling."
        )
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


RESERVED = ("input", "output")

NextState = tuple[dict[str, Json], bool]
"""The state after a step, and whether the task has its answer."""


class CustomAgentWorker(AgentWorker):
    """Base of an AgentWorker with one method: state in, state out, repeated until the last step.

        class Shortener(CustomAgentWorker):
            initial_state = {"drafts": []}

            async def next_state(self, state, ctx):
                answer = await ctx.call_model()
                state["drafts"].append(answer.text)
                state["output"] = answer.text
                return state, len(answer.text) < 200

    Each call of the method is a step, which is recorded and can be undone together with its state.
    Use model, tools and the outside world through `ctx`: the method may be run again from its top,
    and then gets their recorded answers. Anything done without `ctx` is done again as well.

    The state is JSON data. Two keys of it are reserved: `state["input"]` is the new user input of
    this step (in the first step the task's input or, if the task was started with a conversation,
    the newest user message; usually None in later steps). The method puts the step's output into
    `state["output"]`; on the last step it is the answer. Neither is carried to the next step. The
    task's first input is `(await ctx.task()).input`. The state is recorded whole with each step, so
    keep it small.

    Attributes:
        initial_state: State that each task begins with. Tasks get copies.
    """

    initial_state: Mapping[str, Json] = MappingProxyType({})

    def __init__(self, initial_state: Mapping[str, Json] | None = None) -> None:
        """Take the state that each task begins with.

        Raises:
            InvalidArgumentError: It is not JSON data, or uses a reserved key.
        """
        if initial_state is not None:
            self.initial_state = self._usable(initial_state)

    def initialize_state(self, task: Task) -> Mapping[str, Json]:
        """Make the state that a task begins with; it is recorded, so it is made once.

        Args:
            task: The new task.
        """
        del task
        return self.initial_state

    @abstractmethod
    def next_state(
        self, state: dict[str, Json], ctx: StepContext
    ) -> NextState | Awaitable[NextState]:
        """Do one step; `async def`, or a plain `def` where nothing of `ctx` is awaited.

        A plain `def` is run in a thread.

        Args:
            state: The state, the step's own copy: change it, or make a new one.
            ctx: Model, tools and transcript of the task.

        Returns:
            The whole state after the step, and whether this was the last step.
        """

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Call `next_state` with a copy of the state, and queue the next step with its result."""
        step = add_question(ctx, step)
        before = await self._before(step, ctx)
        made = await invoke_here(self.next_state, {**before, "input": step.input}, ctx)
        state, is_last = self._returned(made)
        self._take_input(state, step.input)
        output = as_json(state.pop("output", None), f"{self._name} gave as output")
        if not is_last:
            after = {"state": self._plain(state)}
            following = (step.get_next_step(step_state=after),)
            return TaskStepOutput(output=output, task_step=step, next_steps=following)
        if output is None:
            raise InvalidArgumentError(
                f"{self._name} ended the task without an answer. Put the answer into"
                ' state["output"] of the state that it returns with True.'
            )
        add_answer(ctx, output)
        return TaskStepOutput(output=output, task_step=step, is_last=True)

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep each turn's question and answer."""
        return one_turn(task, transcript)

    @property
    def _name(self) -> str:
        return f"{type(self).__name__}.next_state"

    async def _before(self, step: TaskStep, ctx: StepContext) -> dict[str, Json]:
        """Return the step's own copy of the state.

        A step without a state is the first of a task, or of a follow-up after the answer.
        """
        if "state" in step.step_state:
            return self._plain(step.step_state["state"])

        async def make() -> dict[str, Json]:
            return self._usable(self.initialize_state(await ctx.task()))

        made = await ctx.memo("initial state", make, costly=False)
        return cast("dict[str, Json]", made)

    def _returned(self, made: Any) -> NextState:
        pair: Any = made  # stays Any where the match narrows to dict[Unknown, Unknown]
        match made:
            case (dict(), bool()):
                return dict(pair[0]), pair[1]
            case _:
                raise InvalidArgumentError(
                    f"{self._name} returned {shown(made)} ({type(made).__name__}). It must return"
                    " (state, is_last): the whole state as a dict, and True or False."
                )

    def _take_input(self, state: dict[str, Json], given: str | None) -> None:
        """Remove the step's input from the state.

        Raises:
            InvalidArgumentError: `next_state` changed it.
        """
        if state.pop("input", given) != given:
            raise InvalidArgumentError(
                f'{self._name} changed state["input"], which is the new user input of each step and'
                " is not carried on. Keep your own data under another key."
            )

    def _usable(self, state: Mapping[str, Json]) -> dict[str, Json]:
        """Return a copy of an initial state.

        Raises:
            InvalidArgumentError: It is not JSON data, or uses a reserved key.
        """
        taken = [key for key in RESERVED if key in state]
        if taken:
            raise InvalidArgumentError(
                f"The initial state of {type(self).__name__} has the key {taken[0]!r}, which is"
                " reserved: `input` is given by each step and `output` holds its result. Use"
                " another key."
            )
        return self._plain(state)

    def _plain(self, state: Mapping[str, Json]) -> dict[str, Json]:
        """Return a deep copy of a state.

        Raises:
            InvalidArgumentError: It is not JSON data; the text says where.
        """
        return cast("dict[str, Json]", merge_patch.plain(dict(state), "state"))


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
        raise InvalidArgumentError(f"{shown(function)} cannot be called. Pass a function.")
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
            raise InvalidArgumentError(
                f"Function {name!r} takes `ctx` but is not an async function: it runs in a thread,"
                " where nothing of ctx can be awaited. Make it an `async def`, or leave `ctx` out."
            )
        case _:
            listed = ", ".join(str(p) for p in parameters)
            raise InvalidArgumentError(f"Function {name}({listed}) cannot be a step. {RULE}")


def _is_required(parameter: inspect.Parameter) -> bool:
    stars = {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and parameter.kind not in stars


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}


# Providers do not get the `call_id` of user and assistant messages, so it serves as a mark here:
# `one_turn` distinguishes inputs, steering and answers by it.
TURN = "turn"
STEERED = "input"
ANSWER = "answer"


def as_json(value: Any, what: str) -> Json:
    """Return a value of the user's code as JSON data; models and dataclasses become dicts.

    Args:
        value: The value.
        what: Beginning of the error's text, as in "Function 'ask' returned".

    Raises:
        InvalidArgumentError: JSON cannot represent it exactly.
    """
    try:
        return merge_patch.written(value)
    except InvalidArgumentError as cause:
        reason = str(cause).rstrip(".")
        raise InvalidArgumentError(
            f"{what} a {type(value).__name__} that cannot be stored as JSON: {reason}. Use text,"
            " finite numbers, lists, dicts or pydantic models."
        ) from cause


def add_question(ctx: StepContext, step: TaskStep) -> TaskStep:
    """Append the input of a step to the transcript, if it has one.

    Returns:
        The step with the input for the user's code: its own or, in the first step of a task that
        was started with a conversation, that conversation's newest user message.
    """
    told = step.message()
    if told is None:
        before = ctx.messages[: len(ctx.messages) - len(ctx.adds)]
        asked = next((message for message in reversed(before) if message.role == "user"), None)
        if asked is None or ctx.n > 1:
            return step
        return step.model_copy(update={"input": asked.text, "images": asked.images})
    # The task's input stays unmarked: it equals the message in history, so it is stored once. It
    # comes before feedback, because `one_turn` takes the first user message for the input.
    if ctx.n == 1:
        ctx.adds.insert(0, told)
    else:
        mark = STEERED if step.step_state else TURN
        ctx.add(told.model_copy(update={"call_id": mark}))
    return step


def add_answer(ctx: StepContext, answer: Json) -> None:
    """Append the answer to the transcript, or mark the step's last message if it is the answer."""
    said = assistant(render_result(answer))
    newest = ctx.adds[-1] if ctx.adds else said
    if newest is not said and newest.role == "assistant" and newest.text == said.text:
        said = said if newest.calls else ctx.adds.pop()
    ctx.add(said.model_copy(update={"call_id": ANSWER}))


def one_turn(task: Task, transcript: Sequence[Message]) -> list[Message]:
    """Keep the question and the answer of each turn, and drop the messages in between.

    There is more than one turn when follow-ups were queued. A turn without an answer, as after a
    fork with an input of its own, keeps its question.

    Args:
        task: The finished task.
        transcript: Its messages, oldest first, as `add_question` and `add_answer` left them.
    """
    kept: list[Message] = []
    answer: Message | None = None
    is_over = False  # the turn has its answer
    begins = bool(task.input or task.images or task.stored)  # the next user message is its input
    for message in transcript:
        if message.role == "user" and (begins or message.call_id == TURN):
            kept += [answer] if is_over and answer is not None else []
            kept.append(message.model_copy(update={"call_id": ""}))
            answer, is_over, begins = None, False, False
        elif message.role == "assistant":
            answer = assistant(message.text)
            is_over = is_over or message.call_id == ANSWER
    # An answer that the task itself added, as after its budget's last call, has no mark.
    return kept if answer is None else [*kept, answer]
