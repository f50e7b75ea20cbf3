"""A step as its parts see it: enough of the StepContext to choose tools and to hand a task over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.steps import Task


class StepView(Protocol):
    """The members of StepContext that its parts use.

    Attributes:
        agent: Snapshot of the agent whose turn it is.
        state: The task's extra_state, as this step has it so far.
        adds: Messages that this step adds to the transcript.
    """

    agent: AgentSnapshot
    state: dict[str, Json]
    adds: list[Message]

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as the model would see it now."""
        ...

    @property
    def has_view(self) -> bool:
        """Whether a handoff replaced the conversation before this step."""
        ...

    async def task(self) -> Task:
        """Describe the task as it is now."""
        ...

    async def memo(
        self, name: str, make: Callable[[], Awaitable[Any]], *, costly: bool = ...
    ) -> Any:
        """Return a value that is made once for the step, and recorded."""
        ...
