"""What the code of an agent and of its run says in a step: AgentWorkers ask it through the context.

The activity gives each step one that asks the registered agent; this one has no code to ask, and
is what unit tests of AgentWorkers get.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic_core import from_json

from holdfast.errors import ModelBehaviorError, UserError
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall
from holdfast.values.steps import ToolOutput
from holdfast.workers.tool_use import ToolsToFinalOutputResult

if TYPE_CHECKING:
    from holdfast.task.data.agent_snapshot import AgentSnapshot


class AgentCode:
    """The plain answers, without any code.

    Attributes:
        agent: The agent's snapshot.
    """

    def __init__(self, agent: AgentSnapshot) -> None:
        """Answer for this agent."""
        self.agent = agent

    @property
    def is_asked(self) -> bool:
        """Whether instructions or tools differ from turn to turn."""
        return False

    async def turn(self, state: dict[str, Json]) -> Json:  # noqa: ARG002  for those with code
        """Say what this turn's instructions and tools are, in few bytes: it is recorded."""
        return {}

    async def taken(self, said: Json) -> AgentSnapshot:  # noqa: ARG002  for those with code
        """Return the agent as it is in a turn of which `turn` said this."""
        return self.agent

    def read(self, text: str) -> Json:
        """Read a final answer: JSON data when the agent has an output type, else text.

        Raises:
            ModelBehaviorError: It does not fit.
        """
        if self.agent.output is None:
            return text
        try:
            return from_json(text)
        except ValueError as cause:
            raise ModelBehaviorError(f"Invalid JSON when parsing {text}; {cause}") from cause

    def fitting(self, text: str) -> Json:
        """Read a tool's result as the output type has it; text that does not fit stays text."""
        return text

    async def follow(
        self, state: dict[str, Json], results: Sequence[ToolOutput]
    ) -> ToolsToFinalOutputResult:
        """Ask the agent's `tool_use_behavior` what tool results come to.

        Raises:
            UserError: There is none, or it gave something else.
        """
        del state, results
        msg = f"Agent {self.agent.name!r} has no tool_use_behavior function in this process."
        raise UserError(msg)

    async def not_found(self, call: ToolCall, state: dict[str, Json], text: str) -> str:
        """Word what the model reads when it has called a tool that it was not given."""
        del call, state
        return text
