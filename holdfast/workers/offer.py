"""What a step offers its model when a retriever chooses the tools, and what becomes of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.agent_snapshot import AgentSnapshot
from holdfast.errors import ModelBehaviorError
from holdfast.messages import ToolCall
from holdfast.models.base import ToolSpec
from holdfast.records import Dialect, Outcome
from holdfast.tool_retriever import select

if TYPE_CHECKING:
    from holdfast.messages import Message
    from holdfast.workers.context import StepContext
    from holdfast.workers.handing_over import Handing

MEMO = "offered tools"

Retrieve = Callable[[str], Awaitable[Sequence[str]]]
"""Names the tools for a query, the best first."""


class Offer:
    """The tools and handoffs of one step.

    The retriever is asked once, when the step first wants to know; from then on only what was
    offered may be called, by the model or by the AgentWorker.

    Attributes:
        handing: How the task is handed over; None for an AgentWorker that does not do so.
    """

    def __init__(self, agent: AgentSnapshot, dialect: Dialect, retrieve: Retrieve | None) -> None:
        """Offer all tools of the agent, unless there is a retriever."""
        self._agent = agent
        self._dialect = dialect
        self._retrieve = retrieve
        self._chosen: list[str] | None = None
        self._allowed: set[str] = set()
        self._asking = asyncio.Lock()
        self._told: dict[ToolCall, Outcome] = {}
        self.handing: Handing | None = None

    async def tools(self, ctx: StepContext, choice: str) -> tuple[ToolSpec, ...]:
        """Return the tools on offer, and the one that a tool choice names."""
        if self._retrieve is None:
            return self._agent.tools
        async with self._asking:  # two model calls at once ask it once
            if self._chosen is None:
                self._chosen = await self._ask(ctx, self._retrieve)
        tools = select(self._agent.tools, self._chosen, choice)
        self.widen(tools)
        return tuple(tools)

    async def _ask(self, ctx: StepContext, retrieve: Retrieve) -> list[str]:
        async def choose() -> Sequence[str]:
            task = await ctx.task()
            # A task that was given a conversation has its request at the end of that.
            asked = (message.text for message in reversed(ctx.messages) if message.role == "user")
            return await retrieve(task.input or next(asked, ""))

        return list(await ctx.memo(MEMO, choose, costly=False))

    async def handoffs(self, ctx: StepContext) -> tuple[ToolSpec, ...]:
        """Return the handoffs on offer."""
        specs = self._agent.handoffs
        if self.handing is None or not specs:
            return ()
        async with self._asking:
            names = await self.handing.enabled(ctx, [spec.name for spec in specs])
        offered = tuple(spec for spec in specs if spec.name in names)
        self.widen(offered)
        return offered

    def tell(self, call: ToolCall, outcome: Outcome) -> None:
        """Settle what the model is told of a call: it is not run."""
        self._told[call] = outcome

    def told(self, call: ToolCall) -> list[Message]:
        """Return the message that tells the model of a call that is not run."""
        return [self._told[call].message(call)] if call in self._told else []

    def allows(self, call: ToolCall) -> bool:
        """Whether a call is of something that is on offer, as far as this step knows."""
        policy = self._agent.policies.get(call.name)
        is_open = self._chosen is None and not (policy is not None and policy.handoff)
        return is_open or call.name in self._allowed

    def widen(self, tools: Iterable[ToolSpec]) -> None:
        """Allow calls of tools that the AgentWorker offers the model of its own accord."""
        self._allowed.update(tool.name for tool in tools)

    def refused(self, calls: Sequence[ToolCall]) -> dict[int, Outcome]:
        """Say to the model which of its calls are not run: position to what it is told.

        Raises:
            ModelBehaviorError: The task's dialect ends it when the model calls a tool that it was
                not given.
        """
        told = {i: self._told[call] for i, call in enumerate(calls) if call in self._told}
        out = [(i, c) for i, c in enumerate(calls) if i not in told and not self.allows(c)]
        if out and self._dialect.unknown_tool == "raise":
            name = out[0][1].name
            raise ModelBehaviorError(f"Tool {name} not found in agent {self._agent.name}")
        return told | {i: self._outcome(call) for i, call in out}

    def _outcome(self, call: ToolCall) -> Outcome:
        on_offer = {tool.name for tool in self._agent.tools} if self._chosen is None else set[str]()
        names = ", ".join(sorted(self._allowed | on_offer)) or "none"
        text = f"Not run: tool {call.name!r} is not on offer in this step. On offer: {names}."
        return Outcome(content=text, is_error=True, status="failed", attempts=0)
