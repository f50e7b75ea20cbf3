"""Agent: the frozen description of who does the work, and how it becomes data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.agent_snapshot import AgentSnapshot
from holdfast.errors import UserError
from holdfast.models.base import Model
from holdfast.settings import ModelSettings
from holdfast.tool_retriever import ToolRetriever
from holdfast.tools import Tool, to_tool
from holdfast.workers.function_calling import FunctionCallingAgentWorker

if TYPE_CHECKING:
    from holdfast.workers.base import AgentWorker


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Who does the work.

    Args:
        name: Identity of the agent within a worker process.
        instructions: System prompt.
        model: A model name for OpenAI's Responses API, "chat:NAME" for Chat Completions, "offline",
            a Model, or None for the default (`HOLDFAST_MODEL`, else gpt-5-mini).
        tools: Tools, or plain functions to be made into tools.
        model_settings: How the model is called.
        worker: The step logic.
        tool_retriever: Chooses from its catalogue, in place of `tools`, what each step offers the
            model. See `holdfast.tool_retriever`.

    Raises:
        UserError: The name is empty, two tools have the same name, or both tools and a
            tool_retriever are given.
    """

    name: str
    instructions: str = ""
    model: str | Model | None = None
    tools: Sequence[Tool | Callable[..., Any]] = ()
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    worker: AgentWorker = field(default_factory=FunctionCallingAgentWorker)
    tool_retriever: ToolRetriever | None = None
    made_tools: tuple[Tool, ...] = field(init=False, repr=False, compare=False, default=())
    """The tools, functions made into tools; with a retriever, its whole catalogue."""

    def __post_init__(self) -> None:
        """Check names and make functions into tools."""
        if not self.name or not isinstance(self.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"An agent needs a name of at least one character; it was given {self.name!r}."
            raise UserError(msg)
        if self.tools and self.tool_retriever is not None:
            msg = (
                f"Cannot specify both `tools` and `tool_retriever`: agent {self.name!r} has both."
                " Put the tools into the retriever's catalogue."
            )
            raise UserError(msg)
        retriever = self.tool_retriever
        given = self.tools if retriever is None else retriever.tools
        tools = tuple(to_tool(tool) for tool in given)
        names = [tool.name for tool in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = (
                f"Agent {self.name!r} has more than one tool named {', '.join(map(repr, twice))}."
                " The model could not tell them apart: rename one with @tool(name=...)."
            )
            raise UserError(msg)
        object.__setattr__(self, "made_tools", tools)
        if retriever is None:
            object.__setattr__(self, "tools", tools)

    def clone(self, **changes: Any) -> Agent:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def tool(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        return next((tool for tool in self.made_tools if tool.name == name), None)

    def snapshot(self, model: str) -> AgentSnapshot:
        """Describe this agent as data.

        Args:
            model: Name of the resolved model.
        """
        tools = self.made_tools
        kind = type(self.worker)
        chooser = None if self.tool_retriever is None else type(self.tool_retriever)
        return AgentSnapshot(
            name=self.name,
            instructions=self.instructions,
            model=model,
            settings=self.model_settings,
            tools=tuple(tool.spec() for tool in tools),
            policies={tool.name: tool.policy() for tool in tools},
            worker=f"{kind.__module__}.{kind.__qualname__}",
            retriever="" if chooser is None else f"{chooser.__module__}.{chooser.__qualname__}",
        )
