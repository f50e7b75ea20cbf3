"""The handoffs of a step, as an AgentWorker uses them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.task.data.calls import Outcome
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import HistoryRef
from holdfast.workers.context.step_view import StepView


class StepHandoffs(Protocol):
    """The handoffs that the agent of a step offers, and the calls that the step does not run."""

    def recorded(self, target: str) -> AbstractContextManager[object]:
        """Record the block as a handoff to an agent, in the trace."""
        ...

    def tell(self, call: ToolCall, outcome: Outcome) -> None:
        """Settle the outcome of a call that is not run."""
        ...

    def messages(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Return the results of calls that are not run, as messages for the model."""
        ...

    def told(self, calls: Sequence[ToolCall]) -> dict[int, Outcome]:
        """Return the outcomes of those calls that are not run, by position."""
        ...

    def changes_view(self, name: str) -> bool:
        """Whether the next agent sees something else than the whole conversation."""
        ...

    async def view(
        self, ctx: StepView, chosen: ToolCall, answer: Message, told: Sequence[Message]
    ) -> HistoryRef:
        """Make the conversation that the next agent sees, and keep it in the archive.

        Args:
            ctx: The step's context.
            chosen: The call of the handoff.
            answer: The model's answer, from which on the messages are this turn's.
            told: Results of calls that join the transcript after this step.

        Raises:
            UserError: The filter or mapper is missing, or returned something that cannot be used.
            Exception: An error that the filter or mapper raised.
        """
        ...
