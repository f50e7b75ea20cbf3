"""The hooks of an agent that are called in an activity of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Any

from temporalio import activity

from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source, task_id
from holdfast.activities.failures import users_code
from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.output_type import typed_output
from holdfast.agents.runs.later_items import response
from holdfast.models.base import ModelRequest
from holdfast.models.openai.items import shown_items
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import OpenStep, StepResult
from holdfast.task.data.wire import AdvanceInput
from holdfast.task.ledger.references import newest_answer
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import Message
from holdfast.values.runs.run_context import AgentHookContext
from holdfast.values.runs.usage import Usage as RunUsage
from holdfast.workers.context.context import StepContext


class StepHooks:
    """Calls an agent's hooks in one activity of a step; does nothing without hooks.

    Their changes of the context are not kept.
    """

    def __init__(
        self,
        agent: Agent,
        registry: Registry,
        source: Source,
        head: TaskHead,
        opened: OpenStep,
        *,
        before: int,
    ) -> None:
        """Set up the hooks of an agent; `before` messages came before the task's."""
        self._before = before
        self._agent = agent
        self._shown = users_agent(agent)
        self._registry = registry
        self._source = source
        self._head = head
        self._opened = opened
        self._context: AgentHookContext[Any] | None = None

    async def started(self, given: AdvanceInput, ctx: StepContext) -> None:
        """Call `on_start`, once for all attempts of an activity in this process.

        Raises:
            ApplicationError: The hook raised; nothing was done yet.
        """
        if self._shown.hooks is None or given.journal.length or given.limit == "stop":
            return
        if given.n != 1 and not self._opened.step.enters:
            return
        memory, activity_id = self._source.memory(), activity.info().activity_id
        if memory.started != activity_id:
            context = await self._made()
            context.turn_input = await self._items(self._given(given, ctx))
            with self._calling("on_start", self._shown.hooks.on_start):
                await invoke(self._shown.hooks.on_start, context, self._shown)
            memory.started = activity_id

    async def asking(self, request: ModelRequest) -> None:
        """Call `on_llm_start` with the request that is about to be sent.

        Raises:
            ApplicationError: The hook raised; the call is not made.
        """
        hooks = self._shown.hooks
        if hooks is None:
            return
        context, items = await self._made(), await self._items(request.messages)
        prompt = request.instructions or None
        with self._calling("on_llm_start", hooks.on_llm_start):
            await invoke(hooks.on_llm_start, context, self._shown, prompt, items)

    async def ended(self, ctx: StepContext, result: StepResult | None) -> None:
        """Call the hooks for the answer of this activity, a handoff, and the final output.

        Args:
            ctx: The step.
            result: The step's result, if it is over.

        Raises:
            ApplicationError: A hook raised; the caller must keep the answer all the same.
        """
        hooks = self._shown.hooks
        if hooks is None:
            return
        answered = ctx.record.answered
        if answered is not None and answered.answer is not None and not answered.answer.flaw:
            context = await self._made()
            with self._calling("on_llm_end", hooks.on_llm_end):
                await invoke(hooks.on_llm_end, context, self._shown, response(answered.answer))
        for other in self._handed_to(result):
            context = await self._made()
            with self._calling("on_handoff", hooks.on_handoff):
                await invoke(hooks.on_handoff, context, users_agent(other), self._shown)
        if result is not None and result.last and not result.calls:
            context = await self._made()
            with self._calling("on_end", hooks.on_end):
                output = typed_output(self._agent.made_output, _output(ctx, result))
                await invoke(hooks.on_end, context, self._shown, output)

    def _given(self, given: AdvanceInput, ctx: StepContext) -> Sequence[Message]:
        """Return what the run was given, or what the filter of a handoff made of it."""
        own = self._opened.step.message()
        seen = ctx.messages if own is None else (*ctx.messages, own)
        if given.n == 1 or ctx.has_view:
            return seen
        asked = takewhile(lambda each: each.role == "user", seen[self._before :])
        return (*seen[: self._before], *asked)

    def _calling(self, name: str, hook: Callable[..., Any]) -> AbstractContextManager[None]:
        return users_code(f"hook {name} of agent {self._agent.name!r}", hook)

    def _handed_to(self, result: StepResult | None) -> list[Agent]:
        following = () if result is None else result.next
        names = {step.agent: None for step in following if step.agent not in ("", self._agent.name)}
        return [self._registry.agent(name) for name in names]

    async def _items(self, messages: Sequence[Message]) -> list[dict[str, Json]]:
        return shown_items([await self._source.rehydrate(each) for each in messages])

    async def _made(self) -> AgentHookContext[Any]:
        if self._context is None:
            context = self._registry.context(self._head, self._opened.state)
            usage = (await self._source.status()).usage
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
