"""Calls of a run's RunHooks, made from its record while it runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from holdfast.agents.agent_base import users_agent
from holdfast.agents.hooks import RunHooksBase
from holdfast.agents.items.run_items import HandoffOutputItem, ToolCallOutputItem
from holdfast.agents.output_type import typed_output
from holdfast.agents.runs.item_helpers import ItemHelpers, RunInput
from holdfast.agents.runs.item_reading import handoff_names, result_item, step_items
from holdfast.agents.runs.results import response
from holdfast.agents.runs.teams import Team
from holdfast.agents.tools.context import ToolContext, names_in_context
from holdfast.archive.contents import read_json
from holdfast.errors import EngineError, ModelRequestError, ModelUnavailableError, NotFoundError
from holdfast.models.base import ToolSpec
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import resolved
from holdfast.reading.streams.follower import Follower
from holdfast.task.happenings import (
    CallAsked,
    CallBegan,
    CallDone,
    InStep,
    ModelAnswered,
    OfCall,
    StepBegan,
    StepEnded,
    step_happenings,
)
from holdfast.task.step_body import StepBody
from holdfast.values.base import Json, pauses
from holdfast.values.messages import ToolCall, Usage
from holdfast.values.runs.run_context import AgentHookContext, RunContextWrapper
from holdfast.values.runs.usage import Usage as RunUsage
from holdfast.values.steps import AgentResponse
from holdfast.values.text.logs import log

T = TypeVar("T")

Call = Callable[..., Awaitable[Any]]
"""Calls a function, async or not, and returns its result."""


POLL_SECONDS = 0.2
AGAIN_SECONDS = 0.2
LONGEST_AGAIN_SECONDS = 2.0
AFTER_TOOLS = sys.maxsize
"""The place of a handoff among the calls of its answer: behind those of tools, as in the SDK."""

OF_MODELS = frozenset({ModelRequestError.__name__, ModelUnavailableError.__name__})
"""Types of the failure of a step whose model call has failed."""

LAST_LOOKS = 5
"""Attempts to read the end of a run before the remaining hooks are given up."""


class HookFailed(Exception):  # noqa: N818  it never leaves this package
    """A hook has raised; its exception is the cause."""

    @property
    def raised(self) -> BaseException:
        """What it has raised; its class may have a truth of its own, so that is not asked for."""
        return self if self.__cause__ is None else self.__cause__


class HookCall(NamedTuple):
    """One call of a hook.

    Attributes:
        key: Identifies it among those of its step.
        hook: Name of the method; empty for none.
        args: Its arguments after the context.
        usage: Usage that is added just before it.
        call: The tool call that it is about, or None.
    """

    key: tuple[Any, ...]
    hook: str
    args: tuple[Any, ...]
    usage: Usage = Usage()
    call: ToolCall | None = None


class HookNotifier:
    """Calls the hooks of one task, each once and in the order of what happened."""

    def __init__(
        self,
        hooks: RunHooksBase[Any, Any],
        reader: Reader,
        task_id: str,
        *,
        call: Call,
        team: Team,
        context: Any,
        given: RunInput,
    ) -> None:
        """Call none yet.

        Args:
            hooks: The hooks.
            reader: Reads the task.
            task_id: The task.
            call: Calls the caller's functions.
            team: The agents.
            context: The caller's context object.
            given: The input of the run.
        """
        self._hooks = hooks
        self._follower = Follower(reader, _no_response, task_id)
        self._text = reader.text
        self._call = call
        self._team = team
        self._context = context
        self._task_id = task_id
        self._given = ItemHelpers.input_to_new_input_list(given)
        self._items = list(self._given)
        self._known: dict[tuple[float, int], set[tuple[Any, ...]]] = {}
        self._agent = ""
        self._usage = Usage()
        self._due: list[StepBody] = []

    async def look(self, *, notifies: bool = True) -> None:
        """Read what is new and call hooks for it, or only mark it as known.

        Raises:
            HookFailed: A hook has raised.
            EngineError: The record cannot be read now; the next look makes the calls that are due.
        """
        look = await self._follower.look()
        self._due += look.steps
        while self._due:
            await self._step(self._due[0], notifies=notifies)
            del self._due[0]

    async def notify_during(
        self,
        work: Coroutine[Any, Any, T],
        abandon: Callable[[HookFailed], Awaitable[bool]],
        started: asyncio.Event,
    ) -> T:
        """Wait for a run and call its hooks meanwhile, the last ones before its outcome.

        Args:
            work: Waits for the run.
            abandon: Ends the run's task when a hook has raised; returns whether it did.
            started: Set once the task is known to be the run's own: no hook is called before.

        Raises:
            HookFailed: A hook has raised.
            Exception: Whatever the run raises.
        """
        running = asyncio.ensure_future(work)
        try:
            await _begun(started, running)
            while not running.done():
                with suppress(NotFoundError, EngineError):  # the run itself raises it
                    await self.look()
                await asyncio.wait({running}, timeout=POLL_SECONDS)
            if started.is_set():
                await self._last_look(running)
        except BaseException as error:
            if not (isinstance(error, HookFailed) and await abandon(error)):
                running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            raise
        return running.result()

    async def _last_look(self, ended: asyncio.Future[Any]) -> None:
        """Make the last calls for a run that has ended; log an exception if it cannot be read."""
        waits = pauses(AGAIN_SECONDS, LONGEST_AGAIN_SECONDS)
        for left in reversed(range(LAST_LOOKS)):
            try:
                await self.look()
            except (NotFoundError, EngineError):
                if isinstance(ended.exception(), EngineError):  # raised by the run, which goes on
                    return
                if not left:
                    log.exception("Not all hooks were called for task %r", self._task_id)
            else:
                return
            await asyncio.sleep(next(waits) if left else 0)

    async def _step(self, of: StepBody, *, notifies: bool) -> None:
        key = (of.started, of.key)
        if key not in self._known:
            agent = self._team.of(of.step.agent).name
            begun = agent == self._agent
            self._known[key] = {("agent",)} if begun else set()
            self._agent = agent
        read = await resolved(of, self._text)
        output: Json = None
        if of.last:
            output = await read_json(of.output, of.stored, self._text)
        known = self._known[key]
        for call in hook_calls(read, self._team, self._items, output):
            if call.key in known:
                continue
            known.add(call.key)
            self._usage += call.usage
            if notifies:
                await self._notify(call)
        if of.is_completed:
            self._items += [item.to_input_item() for item in step_items(read, self._team)]

    async def _notify(self, call: HookCall) -> None:
        hook = getattr(self._hooks, call.hook, None) if call.hook else None
        if hook is None:
            return
        facts: dict[str, Any] = {
            "context": self._context,
            "usage": RunUsage.of(self._usage),
            "task_id": self._task_id,
        }
        context: RunContextWrapper[Any] = RunContextWrapper(**facts)
        if call.hook in ("on_agent_start", "on_agent_end"):
            context = AgentHookContext(**facts, turn_input=list(self._given))
        elif call.call is not None:
            name, namespace = names_in_context(call.call, call.args[1])
            context = of_call = ToolContext[Any](
                **facts,
                tool_name=name,
                tool_namespace=namespace,
                tool_call_id=call.call.id,
                tool_arguments=call.call.arguments,
                agent=call.args[0],
            )
            of_call.keeper = None  # the hook is told of a call that runs elsewhere, or has ended
        try:
            await self._call(hook, context, *call.args)
        except Exception as cause:
            raise HookFailed(call.hook) from cause


def hook_calls(
    of: StepBody, team: Team, before: Sequence[dict[str, Json]], output: Json
) -> Iterator[HookCall]:
    """Yield the calls of hooks for a step as far as it is recorded, in order.

    Both calls for a model call come once it is answered; the first one alone when it has failed and
    the step waits. The start of a tool comes when the tool is called for, unless an approval or a
    guardrail may keep it from running: then once it is known to have begun, or is done.

    Args:
        of: The step, archived texts put in.
        team: The agents.
        before: The conversation before the step.
        output: Output of the step, if it is the last.
    """
    member = team.of(of.step.agent)
    agent = users_agent(member)
    prompt = agent.instructions if isinstance(agent.instructions, str) else None
    handoffs = handoff_names(of, member)
    for batch, found in groupby(step_happenings(of), key=_batch):
        if batch is not None:
            about = [each for each in found if isinstance(each, OfCall)]
            calls = [_call_of(each, team, handoffs) for each in about]
            if not _are_done(about):  # the next agent takes over once no call waits any more
                calls = [each for each in calls if each is None or each[1].hook != "on_handoff"]
            made = [each for each in calls if each is not None]
            yield from (each for _, each in sorted(made, key=itemgetter(0)))
            continue
        for happening in found:
            match happening:
                case StepBegan():
                    yield HookCall(("agent",), "on_agent_start", (agent,))
                case ModelAnswered(answer=answer, k=k):
                    got = response(answer)
                    yield HookCall(
                        ("llm", k), "on_llm_start", (agent, prompt or None, list(before))
                    )
                    hook = "" if answer.flaw else "on_llm_end"  # its cost counts all the same
                    yield HookCall(("llm", k, "end"), hook, (agent, got), usage=got.usage)
                case StepEnded() if of.last:
                    final = typed_output(agent.made_output, output)
                    yield HookCall(("agent", "end"), "on_agent_end", (agent, final))
                case _:
                    continue
    failure = of.failure
    if failure is not None and failure.type in OF_MODELS and not failure.parks:
        asked = (agent, prompt or None, list(before))
        yield HookCall(("llm", len(of.answers)), "on_llm_start", asked)


def _batch(happening: InStep) -> int | None:
    """Return the batch of the call that this is about; None when it is about no call."""
    return happening.call.batch if isinstance(happening, OfCall) else None


def _are_done(about: Sequence[OfCall]) -> bool:
    done = {each.call.i for each in about if isinstance(each, CallDone)}
    return all(each.call.i in done for each in about)


def _call_of(
    happening: OfCall, team: Team, handoffs: Collection[str]
) -> tuple[int, HookCall] | None:
    """Return the call of a hook for something that happened to a tool call, and its number."""
    agent, call = users_agent(team.of(happening.body.step.agent)), happening.call
    place, outcome = (call.batch, call.i), call.outcome
    is_done = isinstance(happening, CallDone)
    item = result_item(happening.body, call, team, handoffs) if is_done else None
    if call.call.name in handoffs:
        if not isinstance(item, HandoffOutputItem) or not call.done:
            return None
        handed = HookCall(("handoff", *place), "on_handoff", (agent, item.target_agent))
        return AFTER_TOOLS, handed
    if outcome is not None and outcome.attempts == 0:  # it did not run: rejected, or not on offer
        return None
    tool = agent.tool(call.call.name)
    shown = tool or ToolSpec(name=call.call.name, parameters={})
    start = HookCall(("tool", *place), "on_tool_start", (agent, shown), call=call.call)
    guards = getattr(tool, "tool_input_guardrails", None)
    at_once = tool is not None and tool.needs_approval is False and not guards
    match happening:
        case CallAsked() if at_once:
            return call.asked, start
        case CallBegan() if not at_once and (outcome is not None or call.begun is not None):
            return call.done or call.asked, start
        case CallDone():
            output = item.output if isinstance(item, ToolCallOutputItem) else ""
            key = ("tool", *place, "end")
            ended = HookCall(key, "on_tool_end", (agent, shown, output), call=call.call)
            return call.done, ended._replace(usage=happening.outcome.usage)  # of a nested agent
        case _:
            return None


async def _begun(started: asyncio.Event, running: asyncio.Future[Any]) -> None:
    """Wait until a run has started, or failed to."""
    starting = asyncio.ensure_future(started.wait())
    try:
        await asyncio.wait({starting, running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        starting.cancel()


async def _no_response(task_id: str) -> AgentResponse:
    """Return an empty answer: on_agent_end has it from the last step."""
    return AgentResponse(response="", task_id=task_id)
