"""The base of all workers: a runner makes a `holdfast.Agent` of each."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.agent import Agent
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import ChatMemoryBuffer, template_text
from holdfast.llama_index.llms.openai import default_llm
from holdfast.llama_index.query_pipeline import (
    AgentFnComponent,
    AgentInputComponent,
    CustomAgentComponent,
    QueryPipeline,
)
from holdfast.llama_index.step_code.worker import StepCode
from holdfast.llama_index.values import Task, TaskStep, TaskStepOutput
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.text.shown import shown
from holdfast.workers import base

RUNNER: list[Callable[..., Any]] = []
"""The class AgentRunner, once its module is imported; it is above this one."""

AGENTS: dict[type[Any], Callable[..., Any]] = {}
"""What makes the agent that brings a worker along, by the worker's class, once it is imported."""

OF_RUNNERS = (
    "callback_manager",
    "chat_history",
    "default_tool_choice",
    "delete_task_on_finish",
    "init_task_state_kwargs",
    "memory",
    "state",
    "verbose",
)
"""Options that `from_tools` hands to the runner."""


class MadeOfTools:
    """What is made of tools and a model: `cls(tools, llm=..., tool_retriever=..., ...)`."""

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **options: Any) -> None: ...

    @classmethod
    def from_tools(
        cls,
        tools: Sequence[Any] | None = None,
        tool_retriever: Any = None,
        llm: Any = None,
        **options: Any,
    ) -> Self:
        """Make one of tools.

        Args:
            tools: The tools: ours, LlamaIndex's, Holdfast's, or plain functions.
            tool_retriever: Chooses among tools for each step, instead of `tools`.
            llm: The model: LlamaIndex's, Holdfast's or its name; None for the default.
            options: What else the constructor takes; of an agent also what its worker's takes.
        """
        return cls(tools=tools or [], llm=llm, tool_retriever=tool_retriever, **options)


class BaseAgentWorker:
    """Base of step logic: subclass it and write `initialize_step`, `run_step`, `finalize_task`.

    Attributes:
        kind: Part of the names of the agents that are made of it.
        observes: Whether a step in the middle shows what it observed.
        gives_data: Whether an output that is a dict or a list is shown as that, not as its text.
    """

    kind: ClassVar[str] = "agent"
    observes: ClassVar[bool] = False
    gives_data: ClassVar[bool] = True
    callback_manager: Any

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        """Make the first step of a task."""
        raise NotImplementedError

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Do one step."""
        raise NotImplementedError

    async def arun_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Do one step; called when there is no `run_step`."""
        raise NotImplementedError

    def stream_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Do one step; runners call `run_step` for a streamed one as well."""
        return self.run_step(step, task, **kwargs)

    async def astream_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Do one step, as `arun_step` does."""
        return await self.arun_step(step, task, **kwargs)

    def finalize_task(self, task: Task, **kwargs: Any) -> None:
        """Put into `task.memory` what the conversation keeps; nothing: question and answer."""

    def set_callback_manager(self, callback_manager: Any) -> None:
        """Keep a callback manager."""
        self.callback_manager = callback_manager

    def get_prompts(self) -> dict[str, Any]:
        """Return the prompts that may be changed, by name."""
        return {}

    def update_prompts(self, prompts: Mapping[str, Any]) -> None:
        """Change prompts.

        Raises:
            ValueError: There is no such name.
        """
        known = self.get_prompts()
        for name, prompt in prompts.items():
            if name not in known:
                raise ValueError(f"Prompt {name} not found.")
            self.set_prompt(name, template_text(prompt))

    def set_prompt(self, name: str, text: str) -> None:
        """Take the text of a prompt that `get_prompts` names."""

    def as_agent(self, **options: Any) -> Any:
        """Make a runner of this worker; the options are those of AgentRunner."""
        return RUNNER[0](self, **options)

    def get_tools(self, input: str = "") -> list[Any]:
        """Return the tools; with a retriever, the ones it chooses for an input."""
        retriever = getattr(self, "tool_retriever", None)
        return list(getattr(self, "tools", ()) if retriever is None else retriever.retrieve(input))

    def make_agent(self, name: str, llm: Any = None) -> Agent[Any]:
        """Make the agent of Holdfast.

        Args:
            name: Its name.
            llm: Its model, when the worker has none.
        """
        known = default_llm(getattr(self, "llm", None) or llm)
        return Agent(name=name, model="offline" if known is None else known, worker=StepCode(self))


class HoldfastWorker(BaseAgentWorker):
    """An AgentWorker or an Agent of Holdfast, or a worker of another library, for a runner."""

    gives_data = False

    def __init__(self, given: Any, options: Mapping[str, Any]) -> None:
        """Take it.

        Raises:
            InvalidArgumentError: It is not one of these.
        """
        self.given = given
        self.options = dict(options)
        if not isinstance(given, Agent | base.AgentWorker) and not callable(
            getattr(given, "run_step", None)
        ):
            raise InvalidArgumentError(
                f"AgentRunner was given {shown(given)}. Pass an AgentWorker, such as"
                " ReActAgentWorker.from_tools(tools, llm=llm)."
            )

    def make_agent(self, name: str, llm: Any = None) -> Agent[Any]:
        """Make the agent of Holdfast, or return the one that was given."""
        if isinstance(self.given, Agent):
            return self.given  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  an Agent of any context
        if isinstance(self.given, base.AgentWorker) or not hasattr(self.given, "initialize_step"):
            return Agent(name=name, model=default_llm(llm), worker=self.given, **self.options)
        return Agent(name=name, model="offline", worker=StepCode(self.given))


def worker_of(given: Any, **options: Any) -> BaseAgentWorker:
    """Return a worker of ours, or anything else that can be run as one.

    Raises:
        InvalidArgumentError: It cannot be run.
    """
    return given if isinstance(given, BaseAgentWorker) else HoldfastWorker(given, options)


def options_of_runner(options: dict[str, Any]) -> dict[str, Any]:
    """Take what is meant for the runner out of options; the rest is the worker's."""
    options.pop("memory_cls", None)
    return {name: options.pop(name) for name in OF_RUNNERS if name in options}


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
                raise InvalidArgumentError(
                    f"The function of an FnAgentWorker must return (state, is_done): {shown(made)}."
                )
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


class SharedStateWorker(BaseAgentWorker):
    """Step logic whose steps share a state, with "sources" and "memory" in it."""

    def _followed(self, step: TaskStep, task: Task, response: Any, is_done: bool) -> TaskStepOutput:
        task.extra_state.update(step.step_state)
        following = [] if is_done else [step.get_next_step(new_step_id())]
        return TaskStepOutput(response, step, following, is_done)

    def finalize_task(self, task: Task, **kwargs: Any) -> None:
        """Put what the steps put into the state's memory into the conversation."""
        del kwargs
        memory: Any = task.extra_state.get("memory")
        if memory is not None and memory.get_all():
            task.memory.put_messages(memory.get_all())


class CustomSimpleAgentWorker(MadeOfTools, BaseModel, SharedStateWorker):
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
            raise ValueError("Cannot specify both tools and tool_retriever")
        options["llm"] = default_llm(options.get("llm"))
        private = dict(self.__pydantic_private__ or {})
        super().__init__(tools=tools, **options)
        known = {**(self.__pydantic_private__ or {}), **private}
        object.__setattr__(self, "__pydantic_private__", known)

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

    def finalize_task(self, task: Task, **kwargs: Any) -> None:
        """Put what the steps put into the state's memory into the conversation."""
        super().finalize_task(task, **kwargs)
        self._finalize_task(task.extra_state, **kwargs)


class QueryPipelineAgentWorker(SharedStateWorker):
    """Runs a pipeline once per step; its output is `(response, is_done)`.

    Components see the task and the state that steps share: "sources" and "memory", and what they
    put there. The state is recorded with each step, so it holds data.
    """

    kind = "pipeline"

    def __init__(
        self,
        pipeline: QueryPipeline,
        callback_manager: Any = None,
        update_state_fn: Any = None,
        *,
        task_key: str = "task",
        step_state_key: str = "step_state",
    ) -> None:
        """Take a pipeline.

        Args:
            pipeline: The pipeline.
            callback_manager: Kept as it is.
            update_state_fn: Called as `(step, task)` before each step.
            task_key: Key at which a StatefulFnComponent finds the task.
            step_state_key: Key at which it finds the state that steps share.
        """
        self.pipeline = pipeline
        self.callback_manager = callback_manager
        self._update = update_state_fn
        self.task_key = task_key
        self.step_state_key = step_state_key

    @property
    def agent_components(self) -> list[Any]:
        """The components of the pipeline that are made for agents."""
        kinds = (AgentFnComponent, CustomAgentComponent)
        return [each for each in self.pipeline.module_dict.values() if isinstance(each, kinds)]

    @property
    def agent_input_component(self) -> AgentInputComponent:
        """The component with which the pipeline begins.

        Raises:
            ValueError: It begins with another one.
        """
        found = next(iter(self.pipeline.module_dict.values()), None)
        if not isinstance(found, AgentInputComponent):
            raise ValueError("The pipeline of an agent begins with an AgentInputComponent.")  # noqa: TRY004  as in LlamaIndex
        return found

    def preprocess(self, task: Task, step: TaskStep) -> None:
        """Prepare a step: `update_state_fn` is called."""
        if self._update is not None:
            self._update(step, task)

    def owned_objects(self) -> Mapping[str, Any]:
        """Return the objects that the state may hold by name."""
        return {"pipeline": self.pipeline, "callback_manager": self.callback_manager}

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        """Begin with an empty state."""
        del kwargs
        state: dict[str, Any] = {"sources": [], "memory": ChatMemoryBuffer()}
        return TaskStep(task.task_id, new_step_id(), task.input, state)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Run the pipeline once.

        Raises:
            InvalidArgumentError: Its output is not `(response, is_done)`.
        """
        del kwargs
        self.preprocess(task, step)
        state: dict[str, Any] = {"task": task, "step_state": step.step_state}
        state |= {self.task_key: task, self.step_state_key: step.step_state}
        made: Any = self.pipeline.run_with({}, state)["output"]
        try:
            response, is_done = made
        except (TypeError, ValueError) as error:
            msg = f"The pipeline of an agent must give (response, is_done): {shown(made)}"
            raise InvalidArgumentError(msg) from error
        return self._followed(step, task, response, bool(is_done))

    async def arun_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        """Run the pipeline once, in a thread."""
        return await asyncio.to_thread(self.run_step, step, task, **kwargs)
