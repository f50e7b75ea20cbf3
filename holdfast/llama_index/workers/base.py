"""The base of all workers: a runner makes a `holdfast.Agent` of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.agents.agent import Agent
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import template_text
from holdfast.llama_index.llms.openai import default_llm
from holdfast.llama_index.step_code.worker import StepCode
from holdfast.llama_index.values import Task, TaskStep, TaskStepOutput
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
                msg = f"Prompt {name} not found."
                raise ValueError(msg)
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
            msg = (
                f"AgentRunner was given {shown(given)}. Pass an AgentWorker, such as"
                " ReActAgentWorker.from_tools(tools, llm=llm)."
            )
            raise InvalidArgumentError(msg)

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
