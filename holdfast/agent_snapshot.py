"""What a task depends on, as data."""

from __future__ import annotations

import json

from pydantic import Field

from holdfast.models.base import ToolSpec
from holdfast.settings import ModelSettings
from holdfast.tool_policy import ToolPolicy
from holdfast.values import Value, digest


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
    """

    name: str
    instructions: str = ""
    model: str = ""
    settings: ModelSettings = ModelSettings()
    tools: tuple[ToolSpec, ...] = ()
    policies: dict[str, ToolPolicy] = Field(default_factory=dict)
    worker: str = ""
    retriever: str = ""

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
