"""What becomes of a model's call of a handoff, for AgentWorkers whose agents hand tasks over."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from holdfast import context_object
from holdfast.agent_snapshot import AgentSnapshot
from holdfast.errors import InvalidArgumentError, ModelBehaviorError, NotFoundError, UserError
from holdfast.handoff_filters import (
    HandoffInputData,
    Item,
    conversation,
    nest_handoff_history,
    nested,
    next_input,
)
from holdfast.handoffs import (
    IGNORED,
    Handoff,
    called_handoff,
    check_callable,
    handed_to,
    transfer_message,
)
from holdfast.messages import Message, ToolCall
from holdfast.models.items import from_response_items, to_response_items
from holdfast.records import Outcome, TaskHead
from holdfast.run_context import RunContextWrapper
from holdfast.steps import AFTER, HistoryRef, TaskStep, TaskStepOutput
from holdfast.tool_hooks import invoke, invoke_hook
from holdfast.values import Json

if TYPE_CHECKING:
    from holdfast.agent import Agent
    from holdfast.client.items import RunItem
    from holdfast.models.base import ModelAnswer, ToolSpec
    from holdfast.workers.context import StepContext

MEMO = "offered handoffs"


async def hand_over(
    step: TaskStep,
    ctx: StepContext,
    answer: ModelAnswer,
    run: Sequence[ToolCall],
    refused: Sequence[tuple[str, str]] = (),
) -> TaskStepOutput | None:
    """End a step by handing the task over, if the model's answer wants that.

    The other calls are run first, then the handoff; of several handoffs, the first counts. If
    somebody has given the handoff up, the agent goes on itself.

    Args:
        step: The step.
        ctx: Its context; the answer is in the transcript already.
        answer: The answer.
        run: Those of its calls that may be run.
        refused: (id, reason) of those that may not.

    Returns:
        The step's output, or None when no call hands the task over.
    """
    handing, policies = ctx.handing, ctx.agent.policies
    if handing is None:
        return None
    wanted = [c for c in run if called_handoff(c, policies) and c.name in handing.names]
    if not wanted:
        return None
    chosen, *ignored = wanted
    reasons = dict(refused)
    others = [call for call in run if call not in wanted]
    rest = [call for call in answer.message.calls if call.id in reasons]
    for call in rest:
        handing.tell(call, _not_run(reasons[call.id]))
    for call in ignored:
        handing.tell(call, Outcome(content=IGNORED, status="failed", attempts=0))
    rest += [*ignored, chosen]
    policy = policies[chosen.name]
    is_told = policy.effect == "read"  # there is no on_handoff
    changes_view = handing.changes_view(chosen.name)
    if is_told:
        handing.tell(chosen, Outcome(content=transfer_message(policy.handoff)))
    if others and is_told and not changes_view:
        others, rest = [], [*others, *rest]  # nothing here needs their results
    for result in await ctx.call_tools(others):
        ctx.add(result.message)
    if not is_told:
        results = await ctx.call_tools(rest)
        ctx.adds.extend(result.message for result in results)
        rest = []
        if results[-1].is_error:
            return _stays(step, answer)
    history = None
    with handing.recorded(policy.handoff) if is_told else nullcontext():  # else its call was
        if changes_view:
            history = await handing.view(ctx, chosen, answer.message, handing.messages(rest))
    following = TaskStep(agent=policy.handoff, history=history)
    return TaskStepOutput(
        output=answer.text, task_step=step, next_steps=(following,), calls=tuple(rest)
    )


async def told_of(calls: Sequence[ToolCall], ctx: StepContext) -> dict[int, Outcome]:
    """Return what becomes of those of a step's calls that are not run, by position.

    Raises:
        ModelBehaviorError: The model called something that was not on offer, and that is a verdict.
    """
    told = {} if ctx.handing is None else ctx.handing.told(calls)
    return {**await ctx.offer.refused(calls, ctx.state), **told}


def _not_run(reason: str) -> Outcome:
    return Outcome(content=reason, is_error=True, status="failed", attempts=0)


def _stays(step: TaskStep, answer: ModelAnswer) -> TaskStepOutput:
    state = {key: value for key, value in step.step_state.items() if key != "refused_calls"}
    following = step.get_next_step(step_state=state)
    return TaskStepOutput(output=answer.text, task_step=step, next_steps=(following,))


class Handing:
    """What a worker process knows of an agent's handoffs, for one step of a task.

    Args:
        agent: The agent, as it is now.
        first: The agent that the task began with, likewise.
        team: Snapshot of the task's first agent, with its team.
        head: The task's head, with what the run brought along.
        code: Finds code that the run brought along by reference.
        load: Makes the context object of JSON data.
        store: Keeps messages in the archive and returns their digest.
        recorded: Records what a block does as a handoff to the agent of a name.
        given: Number of messages that came before the task's own.
        offers: Whether the AgentWorker heeds calls of handoffs, so that they are offered.
    """

    def __init__(
        self,
        *,
        agent: Agent,
        first: Agent,
        team: AgentSnapshot,
        head: TaskHead,
        code: Callable[[str], Any],
        load: Callable[[Json], Any],
        store: Callable[[Sequence[Message]], Awaitable[str]],
        recorded: Callable[[str], AbstractContextManager[object]],
        given: int = 0,
        offers: bool = True,
    ) -> None:
        """Keep what is known."""
        self.recorded = recorded
        self._agent = agent
        self._first = first
        self._team = team
        self._head = head
        self._rules = head.run
        self._code = code
        self._load = load
        self._store = store
        self._given = given
        self._asking = asyncio.Lock()
        self._offered: list[str] | None = None if offers else []
        self._told: dict[ToolCall, Outcome] = {}
        self._handoffs = {each.tool_name: each for each in agent.made_handoffs}

    async def offered(self, ctx: StepContext) -> tuple[ToolSpec, ...]:
        """Return the handoffs on offer in this step."""
        specs = ctx.agent.handoffs
        async with self._asking:  # two model calls at once ask once
            if self._offered is None:
                self._offered = await self._enabled(ctx, [spec.name for spec in specs])
        return tuple(spec for spec in specs if spec.name in self.names)

    @property
    def names(self) -> list[str]:
        """Names of the handoffs that have been offered."""
        return self._offered or []

    def tell(self, call: ToolCall, outcome: Outcome) -> None:
        """Settle what becomes of a call that is not run."""
        self._told[call] = outcome

    def messages(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Return what the model is told of calls that are not run."""
        return [self._told[call].message(call) for call in calls]

    def told(self, calls: Sequence[ToolCall]) -> dict[int, Outcome]:
        """Return what becomes of those calls that are not run, by position.

        Raises:
            ModelBehaviorError: The task's rules end it when the model calls a handoff that is not
                on offer.
        """
        found = {i: self._told[call] for i, call in enumerate(calls) if call in self._told}
        known = {spec.name for spec in self._team.of(self._agent.name).handoffs} - set(self.names)
        for i, call in enumerate(calls):
            if i not in found and call.name in known:
                found[i] = self._not_offered(call)
        return found

    def _not_offered(self, call: ToolCall) -> Outcome:
        raises = self._head.dialect.unknown_tool == "raise"
        if raises and self._rules.tool_not_found == "raise_error":
            raise ModelBehaviorError(f"Tool {call.name} not found in agent {self._agent.name}")
        text = f"Not run: handoff {call.name!r} is not on offer in this step."
        return _not_run(text)

    async def _enabled(self, ctx: StepContext, names: Sequence[str]) -> list[str]:
        """Ask which handoffs are on offer in this step; asked once per step and recorded.

        A handoff that the agent has lost since the task began stays on offer: the task goes on with
        what it knows.
        """
        asked = [name for name in names if callable(self._is_enabled(name))]
        if not asked:
            return [name for name in names if self._is_enabled(name)]

        async def choose() -> list[str]:
            given = await self._context(ctx)
            return [name for name in names if await self._says_yes(name, given)]

        return list(await ctx.memo(MEMO, choose, costly=False))

    def changes_view(self, name: str) -> bool:
        """Whether the next agent sees something else than the whole conversation."""
        return bool(self._filter_of(name)) or self._nests(name)

    async def view(
        self, ctx: StepContext, chosen: ToolCall, answer: Message, told: Sequence[Message]
    ) -> HistoryRef:
        """Make what the next agent sees, and keep it in the archive.

        Args:
            ctx: The step's context.
            chosen: The call of the handoff.
            answer: The model's answer, from which on the messages are this turn's.
            told: Results of calls that join the transcript after this step.

        Raises:
            UserError: The filter or mapper is none, or gave something that cannot be used.
            Exception: Whatever it raised.
        """
        data = await self._data(ctx, answer, told)
        given = self._filter_of(chosen.name)
        if given:
            use = self._code(given) if isinstance(given, str) else given
            check_callable(use, f"The input filter of handoff {chosen.name!r}")
            items = next_input(await _called(use, data))
        else:
            items = next_input(await self._nest(data))
        try:
            messages = from_response_items(items)
        except InvalidArgumentError as cause:
            msg = f"What handoff {chosen.name!r} leaves for the next agent is no input: {cause}"
            raise UserError(msg) from cause
        return HistoryRef(sha256=await self._store(messages), skip=AFTER)

    async def _nest(self, data: HandoffInputData) -> HandoffInputData:
        if not self._rules.history_mapper:
            return nest_handoff_history(data)
        mapper = self._code(self._rules.history_mapper)
        check_callable(mapper, "handoff_history_mapper")
        return nested(data, await _called(mapper, conversation(data)))

    async def _data(
        self, ctx: StepContext, answer: Message, told: Sequence[Message]
    ) -> HandoffInputData:
        """Split the conversation into what was given, what came since, and this turn."""
        messages = ctx.messages
        turn = len(messages) - len(ctx.adds) + ctx.adds.index(answer)
        given = self._given
        if given < turn and not ctx.has_view and messages[given].role == "user":
            given += 1
        before = messages[:given]
        is_text = len(before) == 1 and before[0].role == "user" and not before[0].items
        is_text = is_text and isinstance(before[0].content, str)
        names = self._speakers(messages[given:turn])
        return HandoffInputData(
            input_history=before[0].text if is_text else tuple(to_response_items(before)),
            pre_handoff_items=tuple(self._run_items(messages[given:turn], names)),
            new_items=tuple(
                self._run_items(
                    (*messages[turn:], *told), [ctx.agent.name] * (len(messages) + len(told))
                )
            ),
            run_context=await self._context(ctx),
        )

    def _speakers(self, messages: Sequence[Message]) -> list[str]:
        """Name the agent to which each message of the transcript belongs: see who got the task."""
        name, names = self._team.name, list[str]()
        calls: dict[str, ToolCall] = {}
        for message in messages:
            names.append(name)
            calls |= {call.id: call for call in message.calls}
            call = calls.get(message.call_id) if message.role == "tool" else None
            if call is not None:
                name = handed_to(call, message, self._team.of(name).policies) or name
        return names

    def _run_items(self, messages: Iterable[Message], names: Sequence[str]) -> list[RunItem]:
        from holdfast.client.items import message_items, team_of

        team = team_of(self._first)
        said = itertools.groupby(zip(messages, names, strict=False), key=lambda pair: pair[1])
        return [
            item
            for name, pairs in said
            for item in message_items([message for message, _ in pairs], team.of(name), team)
        ]

    async def _context(self, ctx: StepContext) -> RunContextWrapper[Any]:
        task = await ctx.task()
        context = self._load(ctx.state.get(context_object.KEY))
        return RunContextWrapper(context=context, usage=task.usage, task_id=ctx.task_id)

    def _is_enabled(self, name: str) -> Any:
        known = self._handoffs.get(name)
        return True if known is None else known.is_enabled

    async def _says_yes(self, name: str, given: RunContextWrapper[Any]) -> bool:
        asked = self._is_enabled(name)
        if not callable(asked):
            return bool(asked)
        return bool(await invoke_hook(asked, given, self._agent, keep="first"))

    def _filter_of(self, name: str) -> Any:
        """Return the filter of a handoff, or the reference to the run's."""
        return self._known(name).input_filter or self._rules.handoff_filter

    def _nests(self, name: str) -> bool:
        own = self._known(name).nest_handoff_history
        return self._rules.nests_history if own is None else own

    def _known(self, name: str) -> Handoff:
        found = self._handoffs.get(name)
        if found is None:
            msg = (
                f"The model calls handoff {name!r}, which agent {self._agent.name!r} of this worker"
                f" process has no more; it has: {', '.join(self._handoffs) or 'none'}. The task"
                " waits, nothing is lost. Give it back, restart the worker process, and run the"
                " step again."
            )
            raise NotFoundError(msg)
        return found


async def _called(function: Callable[..., Any], given: HandoffInputData | list[Item]) -> Any:
    """Call a filter or mapper; a sync one in a thread, as all code of users."""
    made = await invoke(function, given)
    return await made if inspect.isawaitable(made) else made
