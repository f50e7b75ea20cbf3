"""Workers of a user's own step logic: a function from state to state, or one method."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import ChatMemoryBuffer
from holdfast.llama_index.llms.openai import default_llm
from holdfast.llama_index.query_pipeline.pipeline import QueryPipeline
from holdfast.llama_index.values import Task, TaskStep, TaskStepOutput
from holdfast.llama_index.workers.base import BaseAgentWorker
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.text.shown import shown

RESERVED = ("sources", "memory")
"""Keys of the state of a CustomSimpleAgentWorker that are the worker's."""


def new_step_id() -> str:
    """Make up the id of a step."""
    return uuid.uuid4().hex[:12]


class FnAgentWorker(BaseAgentWorker):
    """Makes an agent of a function `fn(state) -> (state, is_done)`, called once per step.

    The state is recorded with each step: data as it is, and what is an entry of `initial_state`,
    such as a model or a query engine, by its name there.
    """

    kind = "fn"
    gives_data = False

    def __init__(
        self,
        fn: Callable[..., Any],
        async_fn: Callable[..., Awaitable[Any]] | None = None,
        initial_state: Mapping[str, Any] | None = None,
        task_input_key: str = "__task__",
        output_key: str = "__output__",
        verbose: bool = False,
    ) -> None:
        """Take the function.

        Args:
            fn: The function; it has a parameter `state`.
            async_fn: The same as a coroutine function, used in its place.
            initial_state: State that each task begins with; tasks get copies of what is data.
            task_input_key: Key of the state at which the function finds the Task.
            output_key: Key of the state at which it leaves the output.
            verbose: Whether runners print what happens.

        Raises:
            ValueError: The function has no parameter `state`.
        """
        self.fn = async_fn or fn
        if "state" not in inspect.signature(self.fn).parameters:
            msg = f"StatefulFnComponent must have 'state' as a parameter: {shown(fn)} has none."
            raise ValueError(msg)
        self.initial_state = dict(initial_state or {})
        self.task_input_key = task_input_key
        self.output_key = output_key
        self.verbose = verbose

    def owned_objects(self) -> Mapping[str, Any]:
        """Return the objects that the state may hold by name."""
        return self.initial_state

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        """Begin with a copy of the initial state."""
        del kwargs
        state = {key: copied(each) for key, each in self.initial_state.items()}
        return TaskStep(task.task_id, new_step_id(), task.input, state)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Leave it to `arun_step`, which can call both kinds of functions."""
        raise NotImplementedError

    async def arun_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Call the function once.

        Raises:
            InvalidArgumentError: It returned something else than a state and a flag.
        """
        del kwargs
        made: object = await invoke_here(
            self.fn, state={**step.step_state, self.task_input_key: task}
        )
        match made:
            case (dict(), bool() as is_done):
                state = cast("dict[str, Any]", made[0])
            case _:
                msg = (
                    f"The function of an FnAgentWorker must return (state, is_done): {shown(made)}."
                )
                raise InvalidArgumentError(msg)
        state.pop(self.task_input_key, None)
        output = state.get(self.output_key)
        said = output if output is not None else ""
        if self.output_key in state:  # the next step finds it, as text where it is no data
            state = {**state, self.output_key: output if _is_data(output) else str(output)}
        following = [] if is_done else [step.get_next_step(new_step_id(), step_state=state)]
        return TaskStepOutput(said, step, following, is_done)


def _is_data(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | list | dict)


def copied(value: Any) -> Any:
    """Copy lists, dicts and sets all the way down; other objects stay the same.

    A pipeline is copied with its state, so that tasks do not share it.
    """
    if isinstance(value, QueryPipeline):
        return value.with_state(copied(value.state))
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]  anybody's
    if kind is dict:
        return {key: copied(each) for key, each in value.items()}
    if kind is list:
        return [copied(each) for each in value]
    return set(value) if kind is set else value


class CustomSimpleAgentWorker(BaseModel, BaseAgentWorker):
    """Base of an agent that is one method: write `_initialize_state` and `_run_step`.

    It is a pydantic model: a subclass may add fields. The state is recorded with each step.

    Attributes:
        tools: The tools, for the subclass to call.
        tool_retriever: Chooses among tools, see `get_tools`.
        llm: The model, for the subclass to call.
        callback_manager: Kept as it is.
        verbose: Whether runners print what happens.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: ClassVar[str] = "custom"
    tools: Sequence[Any] = Field(default=())
    tool_retriever: Any = None
    llm: Any = None
    callback_manager: Any = None
    verbose: bool = False

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Let a subclass set its private attributes before it calls our constructor."""
        made = super().__new__(cls)
        object.__setattr__(made, "__pydantic_private__", {})
        object.__setattr__(made, "__pydantic_extra__", None)
        return made

    def __init__(self, tools: Sequence[Any] = (), **options: Any) -> None:
        """Take the tools, and the fields.

        Raises:
            ValueError: Both tools and a retriever are given.
        """
        if tools and options.get("tool_retriever") is not None:
            msg = "Cannot specify both tools and tool_retriever"
            raise ValueError(msg)
        options["llm"] = default_llm(options.get("llm"))
        private = dict(self.__pydantic_private__ or {})
        super().__init__(tools=tools, **options)
        known = {**(self.__pydantic_private__ or {}), **private}
        object.__setattr__(self, "__pydantic_private__", known)

    @classmethod
    def from_tools(
        cls,
        tools: Sequence[Any] | None = None,
        tool_retriever: Any = None,
        llm: Any = None,
        **options: Any,
    ) -> Self:
        """Make a worker of tools."""
        return cls(tools=tools or [], tool_retriever=tool_retriever, llm=llm, **options)

    def owned_objects(self) -> Mapping[str, Any]:
        """Return the objects that the state may hold by name."""
        return {**dict(self), **(self.__pydantic_private__ or {})}

    def _initialize_state(self, task: Task, **kwargs: Any) -> dict[str, Any]:
        """Return the state that a task begins with."""
        raise NotImplementedError

    def _run_step(
        self, state: dict[str, Any], task: Task, input: str | None = None
    ) -> tuple[Any, bool]:
        """Do one step: change the state, and return a response and whether it is the last."""
        raise NotImplementedError

    async def _arun_step(
        self, state: dict[str, Any], task: Task, input: str | None = None
    ) -> tuple[Any, bool]:
        """Do one step; called when there is no `_run_step`."""
        raise NotImplementedError

    def _finalize_task(self, state: dict[str, Any], **kwargs: Any) -> None:
        """Do what must be done at the end."""

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        """Begin with the subclass's state.

        Raises:
            ValueError: It uses a key that is the worker's.
        """
        state = self._initialize_state(task, **kwargs)
        taken = [key for key in RESERVED if key in state]
        if taken:
            msg = f"Keys {taken} of the initial state intersect those of the worker: {RESERVED}"
            raise ValueError(msg)
        whole: dict[str, Any] = {"sources": [], "memory": ChatMemoryBuffer(), **state}
        task.extra_state.update(whole)
        return TaskStep(task.task_id, new_step_id(), task.input, whole)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Call the subclass's method."""
        del kwargs
        return self._followed(step, task, *self._run_step(step.step_state, task, input=step.input))

    async def arun_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Call the subclass's async method."""
        del kwargs
        made = await self._arun_step(step.step_state, task, input=step.input)
        return self._followed(step, task, *made)

    def _followed(self, step: TaskStep, task: Task, response: Any, is_done: bool) -> TaskStepOutput:
        task.extra_state.update(step.step_state)
        following = [] if is_done else [step.get_next_step(new_step_id())]
        return TaskStepOutput(response, step, following, is_done)

    def finalize_task(self, task: Task, **kwargs: Any) -> None:
        """Put what the steps put into the state's memory into the conversation."""
        memory: Any = task.extra_state.get("memory")
        if memory is not None and memory.get_all():
            task.memory.put_messages(memory.get_all())
        self._finalize_task(task.extra_state, **kwargs)
