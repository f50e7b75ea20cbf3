"""What a task depends on, as data."""

from __future__ import annotations

import json

from pydantic import Field

from holdfast.errors import AgentNotFoundError
from holdfast.models.base import OutputSpec, ToolSpec
from holdfast.task.data.guard_rules import GuardRule
from holdfast.task.data.tool_policy import ToolPolicy
from holdfast.values.base import Value, digest
from holdfast.values.settings import ModelSettings


class AgentSnapshot(Value):
    """Everything a task depends on that is data: kept in the archive under its digest.

    A running task goes on with the snapshot it began with, whatever is edited meanwhile.

    Attributes:
        name: Agent name.
        instructions: System prompt.
        model: Model name.
        settings: Model settings.
        tools: What the model is told of the tools.
        policies: Tool name to what the task must know of the tool.
        worker: Class of the AgentWorker, as `module.QualifiedName`.
        retriever: Class of the tool retriever, likewise; empty when all tools are on offer.
        is_dynamic: Whether a function makes the instructions for each turn.
        output: Structure of the final output; None for text.
        handoffs: What the model is told of the handoffs, beside `tools`; their policies are there.
        behavior: What follows tool calls: "" for another model call, "first" for the first result
            as the answer, "ask" for what the agent's function says, else names of tools, each
            with a comma after it, of which one ends the run.
        keeps_tool_choice: Whether a tool choice stands after a tool was used.
        guards: Its guardrails, those of the input first.
        team: The other agents that a task may be handed to, in the order in which they are found.
    """

    name: str
    instructions: str = ""
    model: str = ""
    settings: ModelSettings = ModelSettings()
    tools: tuple[ToolSpec, ...] = ()
    policies: dict[str, ToolPolicy] = Field(default_factory=dict)
    worker: str = ""
    retriever: str = ""
    is_dynamic: bool = False
    output: OutputSpec | None = None
    handoffs: tuple[ToolSpec, ...] = ()
    behavior: str = ""
    keeps_tool_choice: bool = False
    guards: tuple[GuardRule, ...] = ()
    team: tuple[AgentSnapshot, ...] = ()

    def of(self, name: str) -> AgentSnapshot:
        """Return the snapshot of an agent of the team; without a name, this one.

        Raises:
            AgentNotFoundError: The team has no such agent.
        """
        if name in ("", self.name):
            return self
        for other in self.team:
            if other.name == name:
                return other
        names = ", ".join((self.name, *(other.name for other in self.team)))
        raise AgentNotFoundError(f"The task knows agents {names}; there is no {name!r} among them.")

    @property
    def data(self) -> bytes:
        """This snapshot as the archive keeps it.

        Keys stay in their order, unlike in the canonical form: a schema's order of parameters means
        something to models, and prompts made of it must be the same from a worker to the next.
        """
        text = json.dumps(self.wire(), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")

    @property
    def digest(self) -> str:
        """Digest of this snapshot: equal digests, equal agents."""
        return digest(self.data)
