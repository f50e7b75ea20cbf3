"""The activity `tool`: one tool call, and what its model reads of one that failed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities import heartbeat
from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source, TaskActivities, task_id, worker_identity
from holdfast.activities.failures import (
    LoggedError,
    certain,
    clean_message,
    clean_remedy,
    heals_by_time,
    interrupted,
    keep_for_caller,
    marked,
    not_started,
    text_of,
    typed_failures,
)
from holdfast.activities.heartbeat import (
    NotOursError,
    attempt_of,
    begun_at,
    ensure_ours,
    heartbeats,
)
from holdfast.activities.long_calls import OwningTask
from holdfast.activities.spans import Recording, came_to, tool_call
from holdfast.activities.tools.child_result import ChildUnreadError
from holdfast.activities.tools.inline import InlineCalls
from holdfast.activities.tools.lookup import Ready, begin_effect, end_effect, find
from holdfast.activities.user_loop import called, working
from holdfast.agents.handoffs.handoff import HandoffFailedError
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.tools.arguments import FIXED_ERROR, formatted_error, worded
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.decorator import Tool, ToolArgumentsError, ToolResultError
from holdfast.agents.tools.foreign.servers import PreparedTool, QuestionAskedError, ServerTool
from holdfast.errors import (
    AgentsException,
    InvalidArgumentError,
    OutcomeUnknownError,
    ToolTimeoutError,
    UserError,
    message_of,
)
from holdfast.task.data.calls import SHORTEST, Asks, Outcome
from holdfast.task.data.failures import INTERRUPTED, TIMED_OUT, facts
from holdfast.task.data.records import effect_place
from holdfast.task.data.wire import ToolInput
from holdfast.task.refusals import VERDICTS
from holdfast.task.waits import token_of
from holdfast.tracing.switch import may_trace
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, canonical
from holdfast.values.checks.gate import LONGEST_KEPT, clean, safe_text
from holdfast.values.code.typed_data import Returned
from holdfast.values.code.user_calls import StoppedError, calling, invoke, naming, place_of
from holdfast.values.messages import Blob, FilePart, ToolCall
from holdfast.values.parts.images import Image
from holdfast.values.parts.sources import SourceNode
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact
from holdfast.values.tool_result import ErrorResult, read_result, read_whole


class ToolCancelledError(Exception):
    """A tool raised CancelledError, though its call was not cancelled."""


async def timeout_text(ready: Ready, error: ToolTimeoutError) -> str:
    """Make the message to the model about a call that took too long.

    A formatter that fails itself is passed over, as in `failure_text`.
    """
    formatter = ready.tool.timeout_error_function
    if formatter is None:
        return short_text(error)
    try:
        with naming("timeout_error_function", formatter):
            return str(await invoke(formatter, ready.ctx, error))
    except Exception as failed:
        where = place_of(formatter, failed)
        log.exception("The timeout_error_function of %r failed: %s", ready.tool.name, where)
        return short_text(error)


async def arguments_text(ready: Ready, error: ToolArgumentsError) -> str:
    """Make the message to the model about arguments that do not fit.

    Raises:
        ApplicationError: The tool wants its errors to end the run.
    """
    tool, text = ready.tool, short_text(error)
    if ready.head.dialect.tool_error == "text":
        return text
    if tool.failure_error_function is None:
        raise ApplicationError(text, type="ModelBehaviorError", non_retryable=True) from None
    if callable(tool.failure_error_function):
        return await failure_text(ready, error)
    return await _worded(ready, text, error)


async def failure_text(ready: Ready, error: BaseException) -> str:
    """Make the message to the model about an error of the tool.

    A formatter that fails itself ends a run of the Agents SDK's kind, and else is passed over: the
    call has been made, and must not be made again.

    Raises:
        ApplicationError: The tool wants its errors to end the task; so do those made by hand in
            runs of the Agents SDK's kind.
    """
    tool, fixed = ready.tool, ready.head.dialect.tool_error == "fixed"
    formatter = tool.failure_error_function
    is_handmade = tool.signature is None and not isinstance(tool, AgentTool | ServerTool)
    if callable(formatter) and isinstance(error, Exception):
        try:
            with naming("failure_error_function", formatter):
                return str(await invoke(formatter, ready.ctx, formatted_error(error)))
        except Exception as failed:
            where = place_of(formatter, failed)
            log.exception("The failure_error_function of tool %r failed: %s", tool.name, where)
            if fixed and not isinstance(failed, StoppedError):
                formatter, error = None, failed
    is_told = isinstance(tool, AgentTool) or (fixed and type(error).__name__ in VERDICTS)
    if is_told and formatter is None and isinstance(error, AgentsException):
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from None
    if formatter is None or (formatter == "default" and fixed and is_handmade):
        msg = f"Error running tool {tool.name}: {said(error)}"
        if isinstance(error, Exception):
            keep_for_caller(error, msg)
        raise ApplicationError(msg, type="UserError", non_retryable=True) from None
    default = FIXED_ERROR if fixed else f"Encountered error: {named(error)}"
    return await _worded(ready, default, error)


async def _worded(ready: Ready, text: str, error: BaseException) -> str:
    """Let the run's formatter write the error message of a tool that has no formatter itself.

    Tools that are agents or of servers have their own texts. What a tool raises to stop, such as
    CancelledError, is not an error of the tool.
    """
    if isinstance(ready.tool, AgentTool | ServerTool):
        return text
    if isinstance(error, StoppedError | ToolCancelledError):
        return text
    if ready.formatter is None or not isinstance(error, Exception):
        return text
    ctx = ready.ctx
    context = RunContextWrapper(ctx.context, task_id=ctx.task_id)
    return await worded(ready.formatter, "tool_exception", ready.call, text, context, error)


def said(error: BaseException) -> str:
    """Return the text of an error, without secrets and of readable length."""
    try:
        is_told = isinstance(error, StoppedError | BaseExceptionGroup)
        text = (message_of if is_told else str)(error)
    except Exception:  # noqa: BLE001  an error that cannot even say what it is
        text = ""
    return safe_text(text) or type(error).__name__


def named(error: BaseException) -> str:
    """Return the class of an error with its text: that of a KeyError is the key alone."""
    text, name = said(error), type(error).__name__
    return text if isinstance(error, StoppedError) or text == name else f"{name}: {text}"


def short_text(error: BaseException) -> str:
    """Return the text of one of our own errors, which quotes what the model or the tool gave."""
    return clean(str(error))[:LONGEST_KEPT]


class ToolActivities(TaskActivities):
    """Runs tool calls for the tasks of one worker process."""

    def __init__(self, registry: Registry, source: Source) -> None:
        """Use these agents and this source of task data."""
        super().__init__(registry, source)
        self.inline = InlineCalls(source, self.run)

    @activity.defn(name="tool")
    async def tool(self, given: ToolInput) -> Outcome:
        """Run one call, or wait for it where the activity of its step has begun it."""
        async with heartbeats() as pulse:
            going = self.inline.take(given, pulse) if self.inline.going else None
            return await (self.run(given) if going is None else _end_of(going))

    async def run(self, given: ToolInput) -> Outcome:
        """Run one call; an error that the model can act on is a result."""
        with typed_failures():
            async with heartbeats():
                # The errors of a first attempt are certain to hide no effect.
                is_first = attempt_of(given.tried) == 1
                first = certain() if is_first else nullcontext()
                with first, typed_failures(), not_started("tool"):
                    ready = await find(self._registry, self._source, given)
                    called.set((working.get(), ready.call.id))
                    if isinstance(ready.tool, PreparedTool):
                        token = partial(_token, given, ready.call)
                        await ready.tool.prepare(ready.ctx, token, ready.head.tenant)
                    await ensure_ours("tool")
                    begun = stopped = None
                    if ready.is_watched and not given.child:  # `nest` has begun that of a child
                        stopped = await ready.watch.begin()
                    # Marked in the archive before it begins: it must not be repeated.
                    if stopped is None and ready.policy.may_have_happened:
                        place = effect_place(given.branch, given.n, given.batch, given.i)
                        what = f"{ready.call.name} {ready.call.arguments}"
                        begun = await begin_effect(self._source.archive, place, what)
                if stopped is not None:
                    return recorded(self._source, given, ready, stopped)
                outcome = await self._started(given, ready)
                if begun is not None:
                    end_effect(self._source.archive, begun, outcome.status)
                return outcome

    async def _started(self, given: ToolInput, ready: Ready) -> Outcome:
        """Run the tool.

        Raises:
            ApplicationError: "Interrupted" when the tool was started and its outcome is lost,
                "ToolTimeoutError" when it took too long; a certain one is the tool's own wish.
        """
        try:
            with interrupted("tool"):
                return await self._run(given, ready)
        except ApplicationError:
            raise
        except Exception as error:
            log.warning("The outcome of tool %r is lost", ready.tool.name, exc_info=True)
            why = f"its outcome is lost: {type(error).__name__}: {clean_message(error)}"
            msg = f"Tool {ready.tool.name!r} was run, but {why}"
            known, lasts = facts(remedy=clean_remedy(error)), not heals_by_time(error)
            raise LoggedError(msg, *known, type=INTERRUPTED, non_retryable=lasts) from None

    async def _run(self, given: ToolInput, ready: Ready) -> Outcome:
        traced = tool_call(ready.head, given, ready.tool, ready.call) if may_trace() else None
        with traced or nullcontext() as span, ExitStack() as ended:
            ready.ctx.keeper = self._source
            # Before `kept` is read: what comes later is refused, and no artifact is lost.
            ended.callback(setattr, ready.ctx, "keeper", None)
            outcome = await self._outcome(ready, span)
            if isinstance(outcome.asks, Asks):
                return outcome
            if outcome.asks is None:
                outcome = await ready.watch.end(outcome) if ready.is_watched else outcome
                if span is not None:
                    came_to(span, outcome)
        known: dict[str, object] = {
            "attempts": attempt_of(given.tried) - given.tried,
            "worker": worker_identity(),
            "guards": ready.watch.guards,
            "artifacts": ready.ctx.kept,
        }
        outcome = _with_patch(outcome, ready).model_copy(update=known)
        outcome = await self._sealed(outcome, ready)
        if outcome.asks is not None:  # no result yet
            return outcome
        return recorded(self._source, given, ready, outcome)

    async def _sealed(self, outcome: Outcome, ready: Ready) -> Outcome:
        """Return an outcome that has been written as Temporal will write it, and read again.

        Temporal would do so only after the activity, when the outcome would be lost with an error.
        The change of the state may be of any size and depth: if it cannot be recorded, the model
        gets an error result.

        Raises:
            Exception: The outcome cannot be recorded without the change either.
        """
        try:
            await self._source.written(outcome)
        except Exception as error:
            if not outcome.patch:
                raise
            log.warning("The change of the state by %r is lost", ready.tool.name, exc_info=True)
            outcome = _without_patch(outcome, ready, text_of(error))
            await self._source.written(outcome)
        return outcome

    async def _outcome(self, ready: Ready, span: Recording | None) -> Outcome:
        tool = ready.tool
        try:
            with span.watching() if span else nullcontext(), calling(f"tool {tool.name!r}"):
                value = ready.watch.value = await run_with_retries(tool, ready.ctx)
            is_error = isinstance(value, ErrorResult)
            value = ready.watch.value = value.value if is_error else value
            result, nodes = (value, ()) if type(value) is str else read_whole(value, tool=tool.name)
        except NotOursError:  # nothing ran
            raise
        except OutcomeUnknownError as error:
            known = facts(remedy=clean_remedy(error))
            raise LoggedError(clean_message(error), *known, type=INTERRUPTED) from None
        except QuestionAskedError as error:
            after = await self._source.store_result(read_result(error.after, tool=tool.name))
            return Outcome(content=after, asks=error.asks)
        except ToolResultError as error:  # it ran; only its result is of no use
            return Outcome(content=short_text(error), is_error=True)
        except HandoffFailedError as error:  # no result for the model: the task stays where it is
            known = facts(remedy=clean(redact(error.remedy)), parks=not error.is_of_model)
            raise marked(
                ApplicationError(clean_message(error), *known, type=error.kind, non_retryable=True)
            ) from None
        except ChildUnreadError as error:  # the child's result is still there to be read
            kind, lasts = type(error.cause).__name__, not heals_by_time(error.cause)
            known = facts(remedy=clean_remedy(error.cause))
            raise marked(
                ApplicationError(str(error), *known, type=kind, non_retryable=lasts)
            ) from None
        except ToolTimeoutError as error:
            if tool.timeout_behavior == "raise_exception" or ready.policy.may_have_happened:
                raise ApplicationError(
                    short_text(error), type=TIMED_OUT, non_retryable=True
                ) from None
            text = clean(await timeout_text(ready, error))
            return Outcome(content=text, is_error=True, status="failed")
        except (Exception, SystemExit) as error:  # noqa: BLE001  a result for the model
            with certain():  # the tool itself has said how it ended
                return await failed(self._source, ready, error)
        if not isinstance(result, str):
            done = await self._done_with_images(tool, result)
        elif is_error:
            done = await self._done(tool, result, nodes)
        else:
            returned = ready.returned(value, result) if ready.behavior else None
            done = await self._done(tool, result, nodes, returned)
        return done.model_copy(update={"is_error": True}) if is_error else done

    async def _done_with_images(
        self, tool: Tool, result: Sequence[str | Image | FilePart]
    ) -> Outcome:
        """Keep images by reference, unless the texts next to them are too long."""
        text = clean("\n".join(each for each in result if isinstance(each, str)))
        if len(text.encode()) > tool.max_output_bytes:
            return await self._done(tool, text, ())
        return Outcome(content=await self._source.store_result(result))

    async def _done(
        self, tool: Tool, text: str, nodes: tuple[SourceNode, ...], returned: Returned | None = None
    ) -> Outcome:
        text = clean(text)
        blob = await self._source.store(text)
        if blob is None or blob.size <= tool.max_output_bytes:
            kept = await self._kept(nodes) if nodes else ()
            return Outcome(content=blob or text, nodes=kept, returned=returned)
        return Outcome(
            content=f"Tool {tool.name!r} ran, but its result of {blob.size} bytes is over the limit"
            f" of {tool.max_output_bytes} bytes and was left out here. The whole result is in the"
            f" archive as {blob.sha256}. Do not repeat the call as it is; ask for less.",
            is_error=True,
        )

    async def _kept(self, nodes: tuple[SourceNode, ...]) -> tuple[SourceNode, ...] | Blob:
        """Store nodes that are too large for history."""
        text = canonical([node.wire() for node in nodes]).decode("utf-8", "surrogatepass")
        return await self._source.store(text, is_json=True) or nodes


async def _token(given: ToolInput, call: ToolCall) -> str:
    """Return the token of a call, by which others may give it an outcome."""
    secret = await OwningTask().secret()
    place = (given.branch, given.n, given.batch, given.i)
    return token_of(secret or "", task_id(), place, call)


async def _end_of(going: asyncio.Task[Outcome]) -> Outcome:
    """Wait for a call that goes on.

    Raises:
        asyncio.CancelledError: The activity was cancelled before the tool was started.
        ApplicationError: As `run`, which says of a tool that was cancelled: "Interrupted".
    """
    try:
        await asyncio.wait((going,))
    except asyncio.CancelledError:
        going.cancel()
        await asyncio.wait((going,))
        if going.cancelled():
            raise
    if going.cancelled():
        msg = "The call was cut off in the activity of its step, where it was begun."
        raise ApplicationError(msg, type=INTERRUPTED)
    return going.result()


def recorded(source: Source, given: ToolInput, ready: Ready, outcome: Outcome) -> Outcome:
    """Return an outcome as the task records it, and keep its message for the next model call."""
    if not heartbeat.current.get().has_moved:  # else this run of the task is over
        source.memory().put_result(given.n, given.i, outcome.message(ready.call))
    at, begun = time.time(), begun_at()
    took = {"ended": round(at, 3), "took": max(round(at - begun, 3), SHORTEST)}
    return outcome.model_copy(update={"worker": worker_identity(), **took})


async def failed(source: Source, ready: Ready, error: BaseException) -> Outcome:
    """Make the outcome of a call that raised.

    Raises:
        ApplicationError: As `arguments_text` and `failure_text`.
    """
    if isinstance(error, ToolArgumentsError):
        text = clean(await arguments_text(ready, error))
        return Outcome(content=text, is_error=True, status="failed")
    log.warning("Tool %r of task %r raised", ready.tool.name, ready.ctx.task_id, exc_info=error)
    text = clean(await failure_text(ready, error))
    stored = await source.store(text)
    return Outcome(content=stored or text, is_error=True, status="failed")


def _with_patch(outcome: Outcome, ready: Ready) -> Outcome:
    """Add the tool's change of the state; one that cannot be recorded makes an error result."""
    if outcome.status != "done":
        return outcome
    try:
        patch = merge_patch.change(ready.state, ready.ctx.final_state())
    except (InvalidArgumentError, UserError, TypeError, ValueError, RecursionError) as error:
        return _without_patch(outcome, ready, short_text(error))
    return outcome.model_copy(update={"patch": patch})


def _without_patch(outcome: Outcome, ready: Ready, why: str) -> Outcome:
    """Replace the result by an error result: the tool's change of the state is lost."""
    text = f"Tool {ready.tool.name!r} ran, but its change of the state was not kept: {why}"
    changes: dict[str, object] = {"content": text, "is_error": True, "patch": {}, "nodes": ()}
    return outcome.model_copy(update={**changes, "returned": None})


async def run_with_retries(tool: Tool, ctx: ToolContext[Any, dict[str, Json]]) -> Any:
    """Run a tool, repeating it for the errors that it declares worth repeating.

    The waits double from one second. They are inside the activity because Temporal's own retries
    cannot tell such an error from a lost worker, after which some tools must not be repeated.

    Raises:
        ToolTimeoutError: It ran longer than it may.
        NotOursError: The attempt is not this process's any more.
        Exception: Whatever the tool raised last.
    """
    pause = 1.0
    for attempt in itertools.count(1):
        await ensure_ours("tool")
        try:
            return await run_once(tool, ctx)
        except Exception as error:
            if attempt >= tool.max_attempts or not tool.is_worth_repeating(error):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, 60.0)
    raise RuntimeError  # unreachable: the loop returns or raises


async def run_once(tool: Tool, ctx: ToolContext[Any, dict[str, Json]]) -> Any:
    """Run a tool within its time; one that is cancelled sees that by `ctx.is_cancelled`."""
    clock = asyncio.timeout(tool.timeout_seconds)
    try:
        async with clock:
            return await tool.run(ctx, ctx.tool_arguments)
    except asyncio.CancelledError as error:
        ours = asyncio.current_task()
        if ours is not None and not ours.cancelling():  # the tool raised it: a failed call
            raise ToolCancelledError(str(error) or "Tool execution cancelled.") from error
        ctx.cancel()
        raise
    except TimeoutError as error:
        if not clock.expired():  # the tool's own
            raise
        ctx.cancel()
        seconds = tool.timeout_seconds or 0
        raise ToolTimeoutError(tool_name=tool.name, timeout_seconds=seconds) from error
