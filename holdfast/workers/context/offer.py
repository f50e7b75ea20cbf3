"""What a step offers its model, and what becomes of calls of other tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import ModelBehaviorError
from holdfast.models.base import ToolSpec
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import TaskHead
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall
from holdfast.workers.context.step_view import StepView

if TYPE_CHECKING:
    from holdfast.workers.context.agent_code import AgentCode

MEMO = "offered tools"

Retrieve = Callable[[str], Awaitable[Sequence[str]]]
"""Names the tools for a query, the best first."""


class Offer:
    """The tools of one step.

    The retriever is asked once, when the step first wants to know; from then on only what was
    offered may be called, by the model or by the AgentWorker.
    """

    def __init__(
        self, agent: AgentSnapshot, head: TaskHead, retrieve: Retrieve | None, code: AgentCode
    ) -> None:
        """Offer all tools that the agent has in this turn, unless there is a retriever."""
        self._agent = agent
        self._head = head
        self._retrieve = retrieve
        self._code = code
        self._chosen: list[str] | None = None
        self._allowed: set[str] = set()
        self._asking = asyncio.Lock()

    async def tools(self, ctx: StepView, choice: str) -> tuple[ToolSpec, ...]:
        """Return the tools on offer, and the one that a tool choice names."""
        if self._retrieve is None:
            return self._agent.tools
        async with self._asking:  # two model calls at once ask it once
            if self._chosen is None:
                self._chosen = await self._ask(ctx, self._retrieve)
        tools = select(self._agent.tools, self._chosen, choice)
        self.widen(tools)
        return tuple(tools)

    async def _ask(self, ctx: StepView, retrieve: Retrieve) -> list[str]:
        async def choose() -> Sequence[str]:
            task = await ctx.task()
            # A task that was given a conversation has its request at the end of that.
            asked = (message.text for message in reversed(ctx.messages) if message.role == "user")
            return await retrieve(task.input or next(asked, ""))

        return list(await ctx.memo(MEMO, choose, costly=False))

    def widen(self, tools: Iterable[ToolSpec]) -> None:
        """Allow calls of tools that the AgentWorker offers the model of its own accord."""
        self._allowed.update(tool.name for tool in tools)

    def has(self, name: str) -> bool:
        """Whether a tool of this name may be called in this step."""
        return name in self._known()

    async def refused(
        self, calls: Sequence[ToolCall], state: dict[str, Json]
    ) -> dict[int, Outcome]:
        """Say to the model which of its calls are not run: position to what it is told.

        Raises:
            ModelBehaviorError: The rules end the run when the model calls a tool that it was not
                given.
        """
        known = self._known()
        told = {i: c for i, c in enumerate(calls) if c.name not in known}
        if not told:
            return {}
        raises = self._head.dialect.unknown_tool == "raise"
        if not raises:
            if self._chosen is None:  # the task itself tells of names that it does not know
                told = {i: c for i, c in told.items() if c.name in self._agent.policies}
            return {i: self._outcome(call) for i, call in told.items()}
        if self._head.run.tool_not_found == "raise_error":
            name = next(iter(told.values())).name
            raise ModelBehaviorError(f"Tool {name} not found in agent {self._agent.name}")
        return {i: await self._not_found(call, state) for i, call in told.items()}

    def _known(self) -> set[str]:
        """Name the tools that may be called."""
        if self._chosen is not None:
            return self._allowed | {handoff.name for handoff in self._agent.handoffs}
        policies = self._agent.policies.items()
        off = {name for name, policy in policies if policy.is_conditional or policy.handoff}
        off -= {tool.name for tool in (*self._agent.tools, *self._agent.handoffs)}
        return (self._agent.policies.keys() - off) | self._allowed

    async def _not_found(self, call: ToolCall, state: dict[str, Json]) -> Outcome:
        text = await self._code.not_found(call, state, f"Tool '{call.name}' not found.")
        return Outcome(content=text, is_error=True, status="failed", attempts=0)

    def _outcome(self, call: ToolCall) -> Outcome:
        names = ", ".join(sorted(self._known())) or "none"
        text = f"Not run: tool {call.name!r} is not on offer in this step. On offer: {names}."
        return Outcome(content=text, is_error=True, status="failed", attempts=0)


def select(specs: Sequence[ToolSpec], names: Sequence[str], always: str = "") -> list[ToolSpec]:
    """Return the tools of these names in their order, and the one that must be among them.

    Args:
        specs: The tools that the task knows. A name that is not among them is of a tool that came
            to the catalogue after the task had begun, and is passed over.
        names: The names.
        always: A name to be added, if there is such a tool: a tool choice may name it.
    """
    known = {spec.name: spec for spec in specs}
    wanted = dict.fromkeys((*names, always))
    return [known[name] for name in wanted if name in known]
