"""Run an AgentWorker's step with its journal, up to the first call that needs the task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from holdfast.errors import (
    AgentsException,
    InvalidArgumentError,
    StalledTaskError,
    UserError,
    remedy_of,
)
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import OVER_BUDGET, JournalEntry, OpenStep, StepResult
from holdfast.task.data.wire import Advanced
from holdfast.task.ledger.recording import newest_answer
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, as_text, canonical
from holdfast.values.checks.gate import safe_text
from holdfast.values.code.user_calls import (
    calling,
    heard,
    invoke_here,
    kept_alive,
    message_with_place,
)
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.values.steps import TaskStep, TaskStepOutput
from holdfast.values.text.logs import log
from holdfast.workers.base import AgentWorker
from holdfast.workers.context.context import StepContext
from holdfast.workers.function_calling import told_of

STOP_SECONDS = 5.0
"""How long a cancelled step may take to run its `finally` blocks."""


async def advance(worker: AgentWorker, ctx: StepContext, opened: OpenStep) -> Advanced:
    """Run the step from its top until it is over or needs the task.

    At most one model call is made. An interruption looks like a cancellation to the AgentWorker:
    its coroutine waits at the call and is then cancelled, so `finally` blocks run and `except
    Exception` does not.

    The budget's last model call ends the task, whatever the AgentWorker does with the answer: calls
    and next steps that it returns after it are dropped.

    Args:
        worker: The step logic.
        ctx: The step's context, fresh.
        opened: The step and the state that it began with.

    Raises:
        InvalidArgumentError: The worker returned something that cannot be recorded.
        StepCodeChangedError: The journal does not fit the code.
    """
    step = opened.step.model_copy(update={"task_id": ctx.task_id})
    doing = _join(worker, step, ctx) if step.is_join else _run(worker, step, ctx)
    run = asyncio.create_task(doing)
    try:
        await asyncio.wait(
            (run, cast("asyncio.Future[Any]", ctx.stop.interrupted)),
            return_when=asyncio.FIRST_COMPLETED,
        )
        # A coroutine that the step runs beside others may have ended the step while a model call
        # of another one is in flight; its answer is paid for, so wait for it.
        await ctx.paid.settled()
        return await _came_to(run, worker, ctx, opened)
    finally:
        # Closed first, so that calls in the cancelled step's `finally` blocks are refused.
        ctx.stop.close()
        run.add_done_callback(heard)
        if not run.done():
            await _stop(run, ctx)


async def _run(worker: AgentWorker, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Run the step with the agent's instructions and tools of this turn."""
    if ctx.code.is_asked:
        await ctx.prepare()
    with calling(f"run_step of agent {ctx.agent.name!r}"), kept_alive():
        return await worker.run_step(step, ctx)


async def _join(worker: AgentWorker, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Make one answer of the outputs of several last steps."""
    has_rule = type(worker).join is not AgentWorker.join
    over = step.step_state.get(OVER_BUDGET) and not has_rule
    joined = dict(ctx.inputs) if over else await invoke_here(worker.join, ctx.inputs)
    ctx.add(assistant(as_text(joined)))
    return TaskStepOutput(output=joined, task_step=step, is_last=True)


async def _stop(run: asyncio.Task[TaskStepOutput], ctx: StepContext) -> None:
    """Cancel the step's coroutine; after STOP_SECONDS, stop waiting for its `finally` blocks."""
    run.cancel()
    await asyncio.wait((run,), timeout=STOP_SECONDS)
    if not run.done():
        log.warning(
            "Step %s of task %s did not stop within %g seconds of its interruption. It is left"
            " behind: look for a finally block or an except CancelledError that waits.",
            ctx.n,
            ctx.task_id,
            STOP_SECONDS,
        )


async def _came_to(
    run: asyncio.Task[TaskStepOutput], worker: AgentWorker, ctx: StepContext, opened: OpenStep
) -> Advanced:
    """Make the activity's result. An error after a paid answer is reported together with it.

    An interruption counts before the run's own end: of coroutines that the step runs side by side,
    one may be interrupted while another ends the run, and the first one's calls would be lost.
    """
    try:
        if ctx.stop.interrupted.done():
            advanced = await _interrupted(ctx, opened)
        else:
            advanced = await _ended(run, worker, ctx, opened)
    except Exception as error:
        if not ctx.record.has_spent and not facts_of(error):
            raise
        log.warning("A step of task %s failed after its model call", ctx.task_id, exc_info=True)
        advanced = Advanced(result=None, failure=failure_after(error))
    # The calls answered in this activity: at most one model call, any number of memos.
    memos: list[JournalEntry] = []
    changes: dict[str, object] = {}
    for k, entry in enumerate(ctx.record.fresh):
        if entry.answer is None:
            memos.append(entry)
        else:
            request = "" if advanced.result is not None else entry.request
            changes = {"early": k, "answer": entry.answer, "request": request}
    return advanced.model_copy(update={**changes, "memos": tuple(memos)})


def failure_after(error: Exception) -> Failure:
    """Describe the error of a step that failed after its model call, whose answer is kept."""
    return Failure(
        type=type(error).__name__,
        message=safe_text(message_with_place(error)),
        remedy=safe_text(remedy_of(error)),
        data=facts_of(error),
        parks=isinstance(error, UserError),  # the task can go on once the code is mended
    )


def facts_of(error: Exception) -> dict[str, Json]:
    """Return the data that an error of the Agents SDK carries for the task, next to its text."""
    return (error.facts or {}) if isinstance(error, AgentsException) else {}


async def _interrupted(ctx: StepContext, opened: OpenStep) -> Advanced:
    """Make the result of an interrupted step: what it needs from the task.

    Raises:
        Exception: The model call failed.
        InvalidArgumentError: The state cannot be recorded.
        ModelBehaviorError: The model called a tool that was not on offer, and the rules of the
            Agents SDK end the run for that.
    """
    why = ctx.stop.interrupted.result()
    if why.kind == "over":
        return Advanced(result=_forced(ctx, opened))
    patch = merge_patch.change(opened.state, ctx.state)
    return Advanced(
        result=None,
        calls=why.calls,
        told=await told_of(why.calls, ctx),
        asked=why.request,
        patch=patch,
        limit=why.kind == "limit",
        needs=why.needs,
        used_day=why.used_day,
    )


async def _ended(
    run: asyncio.Task[TaskStepOutput], worker: AgentWorker, ctx: StepContext, opened: OpenStep
) -> Advanced:
    """Make the result of what the AgentWorker returned.

    Raises:
        StalledTaskError: The AgentWorker's own code cancelled it.
        Exception: An error that the AgentWorker raised.
    """
    # Not cancelled by the driver; raised on, it would look to Temporal like a cancelled activity.
    if run.cancelled():
        msg = f"{type(worker).__name__}.run_step was cancelled by its own code. Run the step again."
        raise StalledTaskError(msg)
    output = cast("object", run.result())
    if not isinstance(output, TaskStepOutput):
        raise InvalidArgumentError(
            f"{type(worker).__name__}.run_step returned {type(output).__name__}; it must return a"
            " TaskStepOutput."
        )
    over = ctx.record.is_finished
    told = await told_of(output.calls, ctx) if output.calls and not over else {}
    return Advanced(result=_result(worker, ctx, opened, output), told=told)


def _result(
    worker: AgentWorker, ctx: StepContext, opened: OpenStep, output: TaskStepOutput
) -> StepResult:
    newest = newest_answer(ctx.record.all)
    said = newest.message.text if newest is not None else None
    echo = isinstance(output.output, str) and output.output == said
    over = ctx.record.is_finished
    return StepResult(
        output=None if echo else _json(worker, output.output, "output"),
        echo=echo,
        adds=_adds(ctx, opened),
        calls=_call_reference(output.calls, ctx) if output.calls and not over else (),
        quiet=output.quiet and bool(output.calls) and not over,
        next=_following(worker, output.next_steps) if output.next_steps and not over else (),
        last=over or output.is_last,
        patch=merge_patch.change(opened.state, ctx.state),
    )


def _forced(ctx: StepContext, opened: OpenStep) -> StepResult:
    """End a step that wanted more after its budget's last model call, with that call's answer."""
    newest = newest_answer(ctx.record.all)
    if newest is not None and not any(each in _forms(newest.message) for each in ctx.adds):
        ctx.add(newest.message)
    return StepResult(
        echo=True,
        adds=_adds(ctx, opened),
        calls=(),
        next=(),
        last=True,
        patch=merge_patch.change(opened.state, ctx.state),
    )


def _adds(ctx: StepContext, opened: OpenStep) -> tuple[Message | str, ...]:
    """Return the messages that join the transcript, those in history as references.

    The calls of the budget's last answer are not run, so they are removed: providers refuse calls
    without results.
    """
    newest = newest_answer(ctx.record.all) if ctx.record.is_finished else None
    adds: list[Message | str] = []
    known = _references(ctx, opened)
    for message in ctx.adds:
        if newest is not None and message.calls and message in _forms(newest.message):
            adds.append(message.model_copy(update={"calls": ()}))
        else:
            adds.append(known.get(canonical(message.wire()), message))
    return tuple(adds)


def _references(ctx: StepContext, opened: OpenStep) -> dict[bytes, str]:
    """Return references to messages that history already holds, so that none is stored twice.

    The reference of equal messages is that of the first.
    """
    named = [(opened.step.message() or user(""), "input")]
    if opened.notes:
        named += [(note, f"n{k}") for k, note in enumerate(opened.notes)]
    for k, entry in enumerate(ctx.record.all):
        if entry.answer is not None:
            named.append((entry.answer.message, f"j{k}"))
        for i, outcome in enumerate(entry.outcomes):
            named.append((outcome.message(entry.calls[i]), f"j{k}.{i}"))
    known: dict[bytes, str] = {}
    for message, name in named:
        for form in _forms(message):
            known.setdefault(canonical(form.wire()), name)
    return known


def _forms(message: Message) -> tuple[Message, ...]:
    """Return a message as it is, and as an AgentWorker rebuilds it: without ids for readers."""
    if not message.item_ids:
        return (message,)
    return message, message.model_copy(update={"item_ids": ()})


def _call_reference(calls: tuple[ToolCall, ...], ctx: StepContext) -> tuple[ToolCall, ...] | str:
    for k, entry in enumerate(ctx.record.all):
        if entry.answer is not None and entry.answer.message.calls == calls:
            return f"j{k}"
    return calls


def _following(worker: AgentWorker, steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
    return tuple(
        step.model_copy(
            update={
                "task_id": "",
                "is_join": False,
                "step_state": _json(worker, step.step_state, f"next_steps[{k}].step_state")
                if step.step_state
                else {},
            }
        )
        for k, step in enumerate(steps)
    )


def _json(worker: AgentWorker, data: Any, what: str) -> Json:
    """Return a value that an AgentWorker returned, as JSON data.

    Raises:
        InvalidArgumentError: JSON cannot represent it exactly (an object, NaN). It is checked here,
            where the answer that was paid for can still be kept.
    """
    try:
        return merge_patch.written(data, what)
    except InvalidArgumentError as cause:
        reason = str(cause).rstrip(".")
        raise InvalidArgumentError(
            f"{type(worker).__name__}.run_step gave {what} of type {type(data).__name__} that"
            f" cannot be stored as JSON: {reason}. Return text, finite numbers, lists, dicts or"
            " pydantic models."
        ) from cause
