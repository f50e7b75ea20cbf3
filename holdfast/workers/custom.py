"""CustomAgentWorker: a loop of your own, written as one method from state to state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.messages import Message
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker
from holdfast.workers.turns import add_answer, add_question, as_json, one_turn

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

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
            msg = (
                f"{self._name} ended the task without an answer. Put the answer into"
                ' state["output"] of the state that it returns with True.'
            )
            raise InvalidArgumentError(msg)
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
                msg = (
                    f"{self._name} returned {shown(made)} ({type(made).__name__}). It must return"
                    " (state, is_last): the whole state as a dict, and True or False."
                )
                raise InvalidArgumentError(msg)

    def _take_input(self, state: dict[str, Json], given: str | None) -> None:
        """Remove the step's input from the state.

        Raises:
            InvalidArgumentError: `next_state` changed it.
        """
        if state.pop("input", given) != given:
            msg = (
                f'{self._name} changed state["input"], which is the new user input of each step and'
                " is not carried on. Keep your own data under another key."
            )
            raise InvalidArgumentError(msg)

    def _usable(self, state: Mapping[str, Json]) -> dict[str, Json]:
        """Return a copy of an initial state.

        Raises:
            InvalidArgumentError: It is not JSON data, or uses a reserved key.
        """
        taken = [key for key in RESERVED if key in state]
        if taken:
            msg = (
                f"The initial state of {type(self).__name__} has the key {taken[0]!r}, which is"
                " reserved: `input` is given by each step and `output` holds its result. Use"
                " another key."
            )
            raise InvalidArgumentError(msg)
        return self._plain(state)

    def _plain(self, state: Mapping[str, Json]) -> dict[str, Json]:
        """Return a deep copy of a state.

        Raises:
            InvalidArgumentError: It is not JSON data; the text says where.
        """
        return cast("dict[str, Json]", merge_patch.plain(dict(state), "state"))
