"""The tools and handoffs that a step offers its model, as the agent's own code decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import from_json

from holdfast.errors import ModelBehaviorError, UserError
from holdfast.models.base import OutputSpec, ToolSpec
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import AgentSnapshot, TaskHead, policy_of, server_key
from holdfast.values.base import Json
from holdfast.values.code.typed_data import Returned
from holdfast.values.messages import Message, ToolCall, shown
from holdfast.values.steps import HistoryRef, Task, ToolOutput
from holdfast.workers.tool_use import ToolsToFinalOutputResult


class ToolResult(ToolOutput):
    """A tool's result in the middle of a step, with its message for the model.

    Attributes:
        message: The message.
        returned: What the tool returned, if that may end the run and is not text.
    """

    message: Message
    returned: Returned | None = None


def tool_result(call: ToolCall, outcome: Outcome) -> ToolResult:
    """Make the result of a call from its outcome."""
    return ToolResult(
        tool_name=call.name,
        call_id=call.id,
        raw_input=call.arguments,
        content=shown(outcome.content),
        is_error=outcome.is_error,
        status=outcome.status,
        attempts=outcome.attempts,
        nodes=outcome.nodes if isinstance(outcome.nodes, tuple) else (),
        message=outcome.message(call),
        returned=outcome.returned,
    )


class Structure(Protocol):
    """The structure of an answer, made from a type."""

    def spec(self) -> OutputSpec:
        """Describe the structure for a model."""
        ...

    def read(self, text: str) -> Json:
        """Validate an answer, and return its JSON data."""
        ...

    def load(self, data: Json) -> Any:
        """Make the typed object of JSON data."""
        ...


@dataclass(eq=False, repr=False)
class AgentCode:
    """Access to the agent's own code. This base is for an agent without any: it answers plainly.

    Attributes:
        agent: The agent's snapshot.
    """

    agent: AgentSnapshot

    @property
    def is_asked(self) -> bool:
        """Whether code must be called each turn, as instructions or tools may differ."""
        return False

    async def turn(self, state: dict[str, Json]) -> Json:  # noqa: ARG002  for those with code
        """Compute this turn's instructions and tools, in a short form, because it is recorded."""
        return {}

    async def taken(self, said: Json) -> AgentSnapshot:  # noqa: ARG002  for those with code
        """Return the agent's snapshot for a turn, given the result of `turn`."""
        return self.agent

    def read(self, text: str) -> Json:
        """Read a final answer: JSON data when the agent has an output type, else text.

        Raises:
            ModelBehaviorError: It is not JSON, or does not fit the output type.
        """
        if self.agent.output is None:
            return text
        try:
            return from_json(text)
        except ValueError as cause:
            raise ModelBehaviorError(f"Invalid JSON when parsing {text}; {cause}") from cause

    def structure(self, output_type: Any) -> Structure | None:
        """Describe a type to the model; None for text.

        Raises:
            UserError: The type cannot be used.
        """
        raise UserError(f"output_type={output_type!r} must be an OutputSpec here.")

    def final(self, result: ToolResult) -> Json:
        """Convert a tool's result that ends the run to the final output."""
        return result.content

    async def follow(
        self, state: dict[str, Json], results: Sequence[ToolResult]
    ) -> ToolsToFinalOutputResult:
        """Call the agent's `tool_use_behavior` function with tool results.

        Raises:
            UserError: There is no such function, or it returned something else.
        """
        del state, results
        msg = f"Agent {self.agent.name!r} has no tool_use_behavior function in this process."
        raise UserError(msg)

    async def decided(
        self, calls: Sequence[ToolCall], state: dict[str, Json]
    ) -> dict[int, Outcome]:
        """Ask the agent's functions about requests of the provider for an approval, by position.

        Requests that a person is to decide are left out.
        """
        del calls, state
        return {}

    async def not_found(self, call: ToolCall, state: dict[str, Json], text: str) -> str:
        """Make the model's message for its call of a tool that it was not given."""
        del call, state
        return text


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


MEMO = "offered tools"

Retrieve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the names of the tools for a query, the best first."""


@dataclass(eq=False, repr=False)
class Offer:
    """The tools of one step.

    Without a retriever these are all that the agent has in this turn. It is called once, when the
    step first needs the tools. From then on only the tools on offer may be called, by the model or
    by the AgentWorker.
    """

    agent: AgentSnapshot
    head: TaskHead
    retrieve: Retrieve | None
    code: AgentCode
    _chosen: list[str] | None = None
    _allowed: set[str] = field(default_factory=set[str])
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def tools(self, ctx: StepView, choice: str) -> tuple[ToolSpec, ...]:
        """Return the functions on offer, and the one that a tool choice names."""
        if self.retrieve is None:
            return tuple(tool for tool in self.agent.tools if tool.hosted is None)
        async with self._asking:  # two model calls at the same time call the retriever once
            if self._chosen is None:
                self._chosen = await self._ask(ctx, self.retrieve)
        tools = select(self.agent.tools, self._chosen, choice)
        self.widen(tools)
        return tuple(tools)

    async def _ask(self, ctx: StepView, retrieve: Retrieve) -> list[str]:
        async def choose() -> Sequence[str]:
            task = await ctx.task()
            # A task that was started with a conversation has its request at the end of it.
            asked = (message.text for message in reversed(ctx.messages) if message.role == "user")
            return await retrieve(task.input or next(asked, ""))

        return list(await ctx.memo(MEMO, choose, costly=False))

    async def given(
        self, ctx: StepView, tools: Sequence[ToolSpec] | None, choice: str
    ) -> tuple[ToolSpec, ...]:
        """Return the tools of one model call: the AgentWorker's choice, else the offer.

        Args:
            ctx: The step.
            tools: The AgentWorker's choice; these tools may be called from then on. None for the
                offer, with the agent's handoffs.
            choice: The tool choice of the call.
        """
        if tools is None:
            own = self.agent.tools if self.retrieve is None else await self.tools(ctx, choice)
            return (*own, *ctx.agent.handoffs)
        self.widen(tools)
        return tuple(tools)

    def widen(self, tools: Iterable[ToolSpec]) -> None:
        """Allow calls of these tools as well."""
        self._allowed.update(tool.name for tool in tools)

    def has(self, name: str) -> bool:
        """Whether a tool of this name may be called in this step."""
        return name in self._known()

    async def refused(
        self, calls: Sequence[ToolCall], state: dict[str, Json]
    ) -> dict[int, Outcome]:
        """Refuse calls of tools that are not on offer: position to the outcome for the model.

        Raises:
            ModelBehaviorError: The rules end the run when the model calls a tool that it was not
                given.
        """
        if all(map(self._is_known, calls)):
            return {}
        told = {i: each for i, each in enumerate(calls) if not self._is_known(each)}
        raises = self.head.dialect.unknown_tool == "raise"
        for call in told.values() if raises else ():
            if call.server and policy_of(self.agent.policies, call) is None:
                raise ModelBehaviorError(f"MCP server label {call.server} not found")
        if not raises:
            if self._chosen is None:  # the task itself answers calls of tools unknown to it
                policies = self.agent.policies
                told = {i: c for i, c in told.items() if c.server or policy_of(policies, c)}
            return {i: self._outcome(call) for i, call in told.items()}
        if self.head.run.tool_not_found == "raise_error":
            asked = next(iter(told.values()))
            name = asked.name
            if asked.kind:
                msg = f"The model made a {asked.kind!r}, but agent {self.agent.name} is without a"
                raise ModelBehaviorError(f"{msg} {name} tool")
            raise ModelBehaviorError(f"Tool {name} not found in agent {self.agent.name}")
        return {i: await self._not_found(call, state) for i, call in told.items()}

    def _is_known(self, call: ToolCall) -> bool:
        """Whether a call may be made: of a known name, and as the calls of its tool are made."""
        name = server_key(call.server) if call.server else call.name
        policy = self.agent.policies.get(name)
        if policy is not None and not call.server and policy.call_kind != call.kind:
            return False
        is_fixed = policy is not None and not (policy.is_conditional or policy.handoff)
        return (is_fixed and self._chosen is None) or name in self._known()

    def _known(self) -> set[str]:
        """Name the tools that may be called."""
        if self._chosen is not None:
            return self._allowed | {handoff.name for handoff in self.agent.handoffs}
        policies = self.agent.policies.items()
        off = {name for name, policy in policies if policy.is_conditional or policy.handoff}
        off -= {tool.name for tool in (*self.agent.tools, *self.agent.handoffs)}
        return (self.agent.policies.keys() - off) | self._allowed

    async def _not_found(self, call: ToolCall, state: dict[str, Json]) -> Outcome:
        text = await self.code.not_found(call, state, not_found_text(call))
        return Outcome(content=text, is_error=True, status="failed", attempts=0)

    def _outcome(self, call: ToolCall) -> Outcome:
        names = ", ".join(sorted(self._known())) or "none"
        text = f"Not run: tool {call.name!r} is not on offer in this step. On offer: {names}."
        return Outcome(content=text, is_error=True, status="failed", attempts=0)


def not_found_text(call: ToolCall) -> str:
    """Return what the model reads of a tool that is not there, as the Agents SDK words it."""
    return f"Tool '{call.name}' not found."


def select(specs: Sequence[ToolSpec], names: Sequence[str], always: str = "") -> list[ToolSpec]:
    """Return the tools of these names in their order, and the one that must be among them.

    Args:
        specs: The tools that the task knows. Other names are skipped: such a tool was added to the
            catalogue after the task had started.
        names: The names.
        always: A name to be added, if there is such a tool: a tool choice may name it.
    """
    known = {spec.name: spec for spec in specs}
    wanted = dict.fromkeys((*names, always))
    return [known[name] for name in wanted if name in known]


class StepHandoffs(Protocol):
    """Handoffs of a step's agent, and the outcomes of calls that are settled without being run."""

    def recorded(self, target: str) -> AbstractContextManager[object]:
        """Record the block in the trace, as a handoff to an agent."""
        ...

    def tell(self, call: ToolCall, outcome: Outcome) -> None:
        """Settle a call with an outcome: it is not run."""
        ...

    def messages(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Return the outcomes of settled calls, as messages for the model."""
        ...

    def told(self, calls: Sequence[ToolCall]) -> dict[int, Outcome]:
        """Return the outcomes of those of the calls that are settled, by position."""
        ...

    def changes_view(self, name: str) -> bool:
        """Whether this handoff gives the next agent something else than the whole conversation."""
        ...

    async def view(
        self, ctx: StepView, chosen: ToolCall, answer: Message, told: Sequence[Message]
    ) -> HistoryRef:
        """Make the conversation that the next agent sees, and store it in the archive.

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
