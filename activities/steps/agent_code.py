"""What code of an agent and its run does in a step: instructions, predicates, filters, hooks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from temporalio import activity

from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source, task_id
from holdfast.activities.failures import users_code
from holdfast.activities.spans import handoff
from holdfast.activities.steps.handoffs import AgentHandoffs
from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.hooks import AgentHooksBase
from holdfast.agents.hosted.prompt import chosen_prompt
from holdfast.agents.hosted.tools import decided_by_code, servers_of
from holdfast.agents.output_type import AgentOutputSchemaBase, output_schema, typed_output
from holdfast.agents.runs.model_input import filtered, without_reasoning_ids
from holdfast.agents.runs.results import response
from holdfast.agents.tools.arguments import worded
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.functions.signature import returned_object
from holdfast.agents.tools.options import EnabledPredicate, invoke_hook, is_offered
from holdfast.errors import InvalidArgumentError, ModelBehaviorError, UserError
from holdfast.models.base import ModelRequest, ToolSpec
from holdfast.models.openai.items import shown_items
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import AgentSnapshot, TaskHead
from holdfast.task.data.records import OpenStep, StepResult
from holdfast.task.data.wire import AdvanceInput
from holdfast.task.ledger.recording import newest_answer
from holdfast.values.base import Json
from holdfast.values.checks.gate import clean
from holdfast.values.code.user_calls import invoke, naming, yes_or_no
from holdfast.values.messages import Blob, Message, ToolCall, Usage
from holdfast.values.runs.retries import (
    ModelRetrySettings,
    RetryDecision,
    RetryPolicy,
    RetryPolicyContext,
    decided,
)
from holdfast.values.runs.run_context import AgentHookContext, RunContextWrapper
from holdfast.values.runs.usage import Usage as RunUsage
from holdfast.values.steps import HistoryRef, ToolOutput
from holdfast.workers.context.context import StepContext
from holdfast.workers.context.offer import AgentCode, ToolResult
from holdfast.workers.tool_use import FunctionToolResult, ToolsToFinalOutputResult


def _told(result: ToolResult, tool: Tool | None) -> FunctionToolResult:
    """Return a result in the form that a `tool_use_behavior` function gets."""
    fields = {name: getattr(result, name) for name in ToolOutput.model_fields}
    return FunctionToolResult(**fields, tool=tool, output=_object(result, tool))


def _object(result: ToolResult, tool: Tool | None) -> Any:
    """Return what a tool returned."""
    if result.returned is None:
        return result.content
    return returned_object(getattr(tool, "__wrapped__", None), result.content, result.returned)


INLINE_CHARACTERS = 80
"""Instructions up to this length are recorded as they are; a reference to the archive is longer."""

TEXT, OFF, PROMPT = "instructions", "off", "prompt"


@dataclass(eq=False, repr=False, kw_only=True)
class RegisteredCode(AgentCode):
    """Calls code of the agent that this process serves under the task's name, and of the run.

    The caller records each result that a later run of the step must find again.

    Attributes:
        registry: The registry for the task.
        live: The agent.
        user: The user's own object for it.
        head: The task's head.
        first: The agent that the task began with, and its team.
        source: The task's data.
    """

    live: Agent
    user: Any
    first: AgentSnapshot
    head: TaskHead
    registry: Registry
    source: Source

    @classmethod
    async def of(
        cls, registry: Registry, source: Source, head: TaskHead, name: str
    ) -> RegisteredCode:
        """Answer for the agent that acts in a step, as the task knows it.

        Args:
            registry: The agents of this process.
            source: The task's data.
            head: The task's head.
            name: Name of the agent; empty for the one that the task began with.

        Raises:
            AgentNotFoundError: This process lacks it.
        """
        registry = registry.of(head)
        first = await registry.snapshot(head.snapshot)
        agent = registry.agent(name or head.agent, first)
        snapshot = first.of(name)
        if not agent.made_worker.hands_over:
            snapshot = snapshot.model_copy(update={"handoffs": ()})
        return cls(
            agent=snapshot,
            live=agent,
            user=users_agent(agent),
            first=first,
            head=head,
            registry=registry,
            source=source,
        )

    @property
    def is_asked(self) -> bool:
        """Whether a function makes instructions or prompt, or decides on tools."""
        agent = self.agent
        return (
            agent.is_dynamic
            or agent.makes_prompt
            or any(each.is_conditional for each in agent.policies.values())
        )

    async def context(self, state: dict[str, Json]) -> RunContextWrapper[Any]:
        """Return the run's context, with what the run has cost before this step."""
        usage = (await self.source.status()).usage
        return self._wrapped(state, usage)

    def _wrapped(self, state: dict[str, Json], usage: Usage) -> RunContextWrapper[Any]:
        context = self.registry.context(self.head, state)
        return RunContextWrapper(context, RunUsage.of(usage), task_id())

    async def turn(self, state: dict[str, Json]) -> Json:
        """Say what this turn's instructions are, and which tools are not on offer.

        Raises:
            InvalidArgumentError: The instructions are not a string.
            UserError: The prompt is not valid.
            Exception: Whatever the agent's code raised.
        """
        ctx = await self.context(state)
        said: dict[str, Json] = {}
        if self.agent.is_dynamic:
            said[TEXT] = await self._instructions(ctx)
        if self.agent.makes_prompt:
            with naming(f"prompt of agent {self.agent.name!r}", self.live.prompt):
                said[PROMPT] = await chosen_prompt(self.user, self.live.prompt, ctx)
        off = await self._off(ctx)
        return {**said, OFF: off} if off else said

    async def _instructions(self, ctx: RunContextWrapper[Any]) -> Json:
        """Make the instructions; a long text goes to the archive, once for equal ones."""
        made: Any = self.live.instructions
        if callable(made):
            with naming(f"instructions of agent {self.agent.name!r}", made):
                made = await invoke_hook(made, ctx, self.user, keep="first")
        if not isinstance(made, str | None):
            raise InvalidArgumentError(
                f"The instructions function of agent {self.agent.name!r} returned a"
                f" {type(made).__name__}; it must return a text."
            )
        text = clean(made or "")
        if len(text) <= INLINE_CHARACTERS:
            return text
        return (await self.source.archived(text)).wire()

    async def _off(self, ctx: RunContextWrapper[Any]) -> list[str]:
        """Name the tools and handoffs that the model is not offered in this turn.

        Tools removed from the agent since the task began stay on offer: the task keeps its
        snapshot.
        """
        asked = {tool.qualified_name: tool.is_enabled for tool in self.live.made_tools}
        served = self.live.served_tools(self.agent)
        asked |= {name: tool.is_enabled for name, tool in served.items()}
        asked |= {each.tool_name: each.is_enabled for each in self.live.made_handoffs}
        policies = self.agent.policies
        names = [name for name in asked if name in policies and policies[name].is_conditional]
        offered = await asyncio.gather(*(self._is_on(n, asked[n], ctx) for n in names))
        return [name for name, is_on in zip(names, offered, strict=True) if not is_on]

    async def _is_on(self, name: str, asked: bool | EnabledPredicate, ctx: Any) -> bool:  # noqa: FBT001  a tool's attribute
        with naming(f"is_enabled of {name!r} of agent {self.agent.name!r}", asked):
            return await is_offered(asked, ctx, self.user)

    async def taken(self, said: Json) -> AgentSnapshot:
        """Return the agent as it is in this turn."""
        text = said.get(TEXT, self.agent.instructions)
        if isinstance(text, dict):
            text = await self.source.text(Blob.model_validate(text))
        off = set(said.get(OFF, ()))
        changes: dict[str, object] = {"instructions": text}
        if PROMPT in said:
            changes["prompt"] = said[PROMPT]
        for kind in ("tools", "handoffs"):
            specs: tuple[ToolSpec, ...] = getattr(self.agent, kind)
            changes[kind] = tuple(spec for spec in specs if spec.name not in off)
        self.agent = self.agent.model_copy(update=changes)
        return self.agent

    def read(self, text: str) -> Json:
        """Read a final answer by the agent's own output type.

        Raises:
            ModelBehaviorError: It does not fit.
            UserError: It does not fit a type that is not the one the model was told of.
        """
        output = None if self.agent.output is None else self.live.made_output
        if output is None:
            return super().read(text)
        try:
            return output.read(text)
        except ModelBehaviorError as error:
            if output.spec() == self.agent.output:
                raise
            msg = (
                f"The task began with another output type of agent {self.agent.name!r}, and what"
                f" the model said does not fit the one that this worker process has: {error}."
            )
            remedy = (
                "Give the agent the earlier type back, restart the worker process and ask again."
            )
            raise UserError(msg, remedy=remedy) from error

    def structure(self, output_type: Any) -> AgentOutputSchemaBase | None:
        """Describe a type to the model, as an agent's output type is described.

        Raises:
            UserError: The type cannot be used.
        """
        return output_schema(output_type)

    def final(self, result: ToolResult) -> Json:
        """Return the final output that a tool's result is.

        It is that of the output type; of what does not fit, the data, or the text of a text. For an
        agent without an output type it is `str()` of what the tool returned.
        """
        text, returned, output = result.content, result.returned, self.live.made_output
        if self.agent.output is None or output is None:
            if returned is None:
                return text
            return returned.text or clean(str(_object(result, self._tools.get(result.tool_name))))
        try:
            return output.read_bare(text)
        except ModelBehaviorError:
            return text if returned is None else returned.data_of(text)

    @property
    def _tools(self) -> dict[str, Tool]:
        """The tools of the agent, by name."""
        tools: dict[str, Tool] = {tool.qualified_name: tool for tool in self.live.made_tools}
        return tools | self.live.served_tools(self.agent)

    async def follow(
        self, state: dict[str, Json], results: Sequence[ToolResult]
    ) -> ToolsToFinalOutputResult:
        """Ask the agent's function what tool results come to.

        Raises:
            UserError: It returned something else.
            Exception: Whatever it raised.
        """
        decide = self.live.tool_use_behavior
        if not callable(decide):
            return await super().follow(state, results)
        tools = self._tools
        told = [_told(result, tools.get(result.tool_name)) for result in results]
        context = await self.context(state)
        with naming(f"tool_use_behavior of agent {self.agent.name!r}", decide):
            said: object = await invoke(decide, context, told)
            if isinstance(said, ToolsToFinalOutputResult):
                yes_or_no(decide, said.is_final_output, "is_final_output=True or False")
                return said
        raise UserError(
            f"The tool_use_behavior of agent {self.agent.name!r} must return a"
            f" ToolsToFinalOutputResult; it returned a {type(said).__name__}."
        )

    async def decided(
        self, calls: Sequence[ToolCall], state: dict[str, Json]
    ) -> dict[int, Outcome]:
        """Ask `on_approval_request` of the provider's servers about their requests, by position.

        Raises:
            UserError: One returned something else than a decision.
            Exception: Whatever one raised.
        """
        servers = {server.label: server for server in servers_of(self.live.hosted_tools)}
        asked = {i: each for i, each in enumerate(calls) if each.server in servers}
        if not any(servers[each.server].on_approval_request for each in asked.values()):
            return {}
        ctx = await self.context(state)
        made = await asyncio.gather(
            *(decided_by_code(servers[each.server], each, ctx) for each in asked.values())
        )
        return {i: each for i, each in zip(asked, made, strict=True) if each is not None}

    async def not_found(self, call: ToolCall, state: dict[str, Json], text: str) -> str:
        """Word what the model reads of a tool that it was not given."""
        ref = self.head.run.tool_error_formatter
        if not ref:
            return text
        formatter, context = self.registry.code(ref), await self.context(state)
        return clean(await worded(formatter, "tool_not_found", call, text, context))

    def handoffs(
        self,
        step: tuple[int, int],
        *,
        given: int,
        view: HistoryRef | None,
        store: Callable[[Sequence[Message]], Awaitable[str]],
    ) -> AgentHandoffs:
        """Say what is known of the agent's handoffs.

        Args:
            step: Branch and number of the step.
            given: How many messages come before the task's own, or that the view has.
            view: What the agent sees in place of the whole conversation, or None.
            store: Keeps messages in the archive and returns their digest.
        """
        head, registry = self.head, self.registry
        is_text = not head.history and not head.has_session
        return AgentHandoffs(
            agent=self.live,
            first=registry.agent(head.agent),
            rules=head.run,
            code=registry.code,
            context=self.context,
            store=store,
            record=functools.partial(handoff, head, self.live.name, step=step),
            given=given if view is None or view.given is None else view.given,
            seen=given,
            past=view,
            is_text=is_text if view is None or view.input == "same" else view.input != "items",
            handoffs={each.tool_name: each for each in self.live.made_handoffs},
        )

    def retry_of(self, settings: ModelRetrySettings) -> ModelRetrySettings:
        """Return when a failed model call is made again, with the policy that this process has."""
        ref = self.head.run.retry_policy
        given = self.live.model_settings.retry
        policy = self.registry.code(ref) if ref else given.policy if given is not None else None
        return replace(settings, policy=None if policy is None else self._named_policy(policy))

    def _named_policy(self, policy: RetryPolicy) -> RetryPolicy:
        """Return a policy whose own errors name it, and leave the task waiting."""

        async def ask(context: RetryPolicyContext) -> RetryDecision:
            with users_code(f"retry policy for agent {self.agent.name!r}", policy):
                return await decided(policy, context)

        return ask

    def with_secrets(self, request: ModelRequest) -> ModelRequest:
        """Put secrets of hosted tools into a request that is about to leave the process."""
        hosted = self.live.hosted_tools
        tools = tuple(
            tool
            if tool.hosted is None
            else next(filter(None, (each.with_secrets(tool) for each in hosted)), tool)
            for tool in request.tools
        )
        return request.model_copy(update={"tools": tools})

    async def sent(self, request: ModelRequest, state: dict[str, Json]) -> ModelRequest:
        """Return a request as it is sent; what is recorded of it does not change.

        Raises:
            UserError: The run's filter returned something else.
            Exception: Whatever it raised.
        """
        if self.head.run.reasoning_ids == "omit":
            messages = without_reasoning_ids(request.messages)
            request = request.model_copy(update={"messages": messages})
        ref = self.head.run.model_input_filter
        if not ref:
            return request
        context = self._wrapped(state, Usage()).context
        return await filtered(self.registry.code(ref), request, self.user, context)


@dataclass(eq=False, repr=False)
class StepHooks:
    """Calls an agent's hooks in one activity of a step.

    Their changes of the context are not kept.

    Attributes:
        hooks: The hooks.
        code: The agent's code.
        source: The task's data.
        opened: The step.
        before: How many messages came before the task's.
    """

    hooks: AgentHooksBase[Any, Any]
    code: RegisteredCode
    source: Source
    opened: OpenStep
    before: int
    _context: AgentHookContext[Any] | None = None

    async def started(self, given: AdvanceInput, ctx: StepContext) -> None:
        """Call `on_start`, once for all attempts of an activity in this process.

        Raises:
            ApplicationError: The hook raised; nothing was done yet.
        """
        if given.journal.length or given.limit == "stop":
            return
        if given.n != 1 and not self.opened.step.enters:
            return
        memory, activity_id = self.source.memory(), activity.info().activity_id
        if memory.started != activity_id:
            context = await self._made()
            context.turn_input = await self._items(self._given(given, ctx))
            with self._calling("on_start", self.hooks.on_start):
                await invoke(self.hooks.on_start, context, self.code.user)
            memory.started = activity_id

    async def asking(self, request: ModelRequest) -> None:
        """Call `on_llm_start` with the request that is about to be sent.

        Raises:
            ApplicationError: The hook raised; the call is not made.
        """
        hooks = self.hooks
        context, items = await self._made(), await self._items(request.messages)
        prompt = request.instructions or None
        with self._calling("on_llm_start", hooks.on_llm_start):
            await invoke(hooks.on_llm_start, context, self.code.user, prompt, items)

    async def ended(self, ctx: StepContext, result: StepResult | None) -> None:
        """Call the hooks for the answer of this activity, a handoff, and the final output.

        Args:
            ctx: The step.
            result: The step's result, if it is over.

        Raises:
            ApplicationError: A hook raised; the caller must keep the answer all the same.
        """
        hooks = self.hooks
        answered = ctx.record.answered
        if answered is not None and answered.answer is not None and not answered.answer.flaw:
            context = await self._made()
            with self._calling("on_llm_end", hooks.on_llm_end):
                await invoke(hooks.on_llm_end, context, self.code.user, response(answered.answer))
        for other in self._handed_to(result):
            context = await self._made()
            with self._calling("on_handoff", hooks.on_handoff):
                await invoke(hooks.on_handoff, context, users_agent(other), self.code.user)
        if result is not None and result.last and not result.calls:
            context = await self._made()
            with self._calling("on_end", hooks.on_end):
                output = typed_output(self.code.live.made_output, _output(ctx, result))
                await invoke(hooks.on_end, context, self.code.user, output)

    def _given(self, given: AdvanceInput, ctx: StepContext) -> Sequence[Message]:
        """Return what the run was given, or what the filter of a handoff made of it."""
        own = self.opened.step.message()
        seen = ctx.messages if own is None else (*ctx.messages, own)
        if given.n == 1 or ctx.has_view:
            return seen
        asked = takewhile(lambda each: each.role == "user", seen[self.before :])
        return (*seen[: self.before], *asked)

    def _calling(self, name: str, hook: Callable[..., Any]) -> AbstractContextManager[None]:
        return users_code(f"hook {name} of agent {self.code.live.name!r}", hook)

    def _handed_to(self, result: StepResult | None) -> list[Agent]:
        following = () if result is None else result.next
        names = {
            step.agent: None for step in following if step.agent not in ("", self.code.live.name)
        }
        return [self.code.registry.agent(name) for name in names]

    async def _items(self, messages: Sequence[Message]) -> list[dict[str, Json]]:
        return shown_items([await self.source.rehydrate(each) for each in messages])

    async def _made(self) -> AgentHookContext[Any]:
        if self._context is None:
            context = self.code.registry.context(self.code.head, self.opened.state)
            usage = (await self.source.status()).usage
            self._context = AgentHookContext(
                context=context, usage=RunUsage.of(usage), task_id=task_id()
            )
        return self._context


def _output(ctx: StepContext, result: StepResult) -> Json:
    """Return a step's output, which may be the text of the newest answer."""
    if not result.echo:
        return result.output
    answer = newest_answer(ctx.journal)
    return None if answer is None else answer.text
