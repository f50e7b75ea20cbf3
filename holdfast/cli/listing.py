"""`tasks` and `show`: what there is, and everything that is known of one task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from temporalio.client import WorkflowExecutionStatus

from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.finding import find_task
from holdfast.cli.history import Happening, TaskHistory
from holdfast.cli.live import line, style
from holdfast.cli.options import Common
from holdfast.client.tasks import HF_AGENT, HF_STATUS
from holdfast.errors import NoWorkerError
from holdfast.steps import Task, TaskStatus, TaskStep, TaskStepOutput
from holdfast.values import Json
from holdfast.wire import Entry, EventRecord, StepRecord

READ_SECONDS = 12.0
"""A worker that was killed a moment ago still counts as one; reading does not wait for it."""


async def tasks_command(
    common: Common, *, status: str | None, agent: str | None, limit: int
) -> ExitCode:
    """List tasks."""
    async with engine_of(common) as engine:
        found = await engine.runner().list_tasks(
            cast("TaskStatus | None", status), agent, limit=limit
        )
    if common.json:
        for task in found:
            output.emit(task.model_dump(mode="json", exclude={"extra_state", "usage", "stored"}))
        return ExitCode.OK
    if not found:
        output.say("No tasks.")
        return ExitCode.OK
    rows = [
        (t.task_id, t.status, t.agent, output.clock(t.created), output.shortened(t.input, 60))
        for t in found
    ]
    output.table(output.out(), ("task", "status", "agent", "created (UTC)", "input"), rows)
    if len(found) == limit:
        output.say(f"These are the newest {limit}; --limit shows more.")
    return ExitCode.OK


@dataclass(frozen=True)
class Shown:
    """What `show` found out.

    Attributes:
        task: The task.
        source: "ledger", or "history" when no worker was up to be asked.
        entries: The ledger.
        outputs: Outputs of its completed steps, in the same order as in the ledger.
        upcoming: The step in progress and the queued ones.
        happenings: What the history tells, when the ledger could not be asked.
    """

    task: Task
    source: str
    entries: Sequence[Entry] = ()
    outputs: Sequence[TaskStepOutput] = ()
    upcoming: Sequence[TaskStep] = ()
    happenings: list[Happening] = field(default_factory=list[Happening])

    def wire(self) -> Json:
        """Return it as JSON data."""
        records = [entry.step for entry in self.entries if entry.step is not None]
        return {
            "task": self.task.model_dump(mode="json"),
            "source": self.source,
            "steps": [
                {
                    **output_.model_dump(mode="json"),
                    "n": record.n,
                    "started": record.started,
                    "ended": record.ended,
                    "model_calls": record.usage.requests,
                }
                for record, output_ in zip(records, self.outputs, strict=False)
            ],
            "events": [e.event.model_dump(mode="json") for e in self.entries if e.event],
            "upcoming": [step.model_dump(mode="json") for step in self.upcoming],
            "happenings": [each.model_dump(mode="json") for each in self.happenings],
        }


async def show_command(common: Common, typed: str) -> ExitCode:
    """Show one task."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        shown = await read_task(engine, task_id)
    if common.json:
        output.emit(shown.wire())
    else:
        _print(shown)
    return ExitCode.OK


async def read_task(engine: Engine, task_id: str) -> Shown:
    """Read a task: from itself or the archive, else from its history."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _from_ledger(engine, task_id)
    except (NoWorkerError, TimeoutError):
        return await _from_history(engine, task_id)


async def _from_ledger(engine: Engine, task_id: str) -> Shown:
    runner = engine.runner()
    return Shown(
        task=await runner.get_task(task_id),
        source="ledger",
        entries=await runner.ledger(task_id),
        outputs=await runner.get_completed_steps(task_id),
        upcoming=await runner.get_upcoming_steps(task_id),
    )


async def _from_history(engine: Engine, task_id: str) -> Shown:
    """Put together what the server alone knows."""
    found = await engine.client.get_workflow_handle(task_id).describe()
    memo = await found.memo()
    known = found.typed_search_attributes.get(HF_STATUS) or "running"
    if known == "running" and found.status is not WorkflowExecutionStatus.RUNNING:
        known = "failed"
    task = Task(
        task_id=task_id,
        input=memo.get("input", ""),
        agent=found.typed_search_attributes.get(HF_AGENT) or "",
        status=cast("TaskStatus", known),
        created=found.start_time.timestamp(),
    )
    history = TaskHistory(engine.client, task_id)
    happenings = [each async for each in history.read(wait=False)]
    return Shown(task=task, source="history", happenings=happenings)


def _print(shown: Shown) -> None:
    out, task = output.out(), shown.task
    facts = {
        "task": task.task_id,
        "status": task.status,
        "agent": task.agent,
        "session": task.session,
        "created": f"{output.clock(task.created)} UTC",
        "input": task.input,
        "paused by": task.paused,
        "error": task.error,
        "state": str(task.extra_state) if task.extra_state else "",
    }
    for name, text in facts.items():
        if text:
            out.print(f"{name:<10} {text}", style="red" if name == "error" else None)
    if shown.source == "ledger":
        usage = task.usage
        out.print(
            f"{'usage':<10} {usage.requests} model calls, {usage.input_tokens} tokens read,"
            f" {usage.output_tokens} written"
        )
    outputs = iter(shown.outputs)
    for entry in shown.entries:
        if entry.step is not None:
            _print_step(entry.step, next(outputs, None))
        if entry.event is not None:
            _print_event(entry.event)
    for step in shown.upcoming:
        out.print(f"{'next':<10} step {step.step_id} {step.input or ''}".rstrip(), style="dim")
    if shown.source == "history":
        output.say("No worker process is up to be asked; this is what the server's history tells.")
        for happening in shown.happenings:
            out.print(line(happening), style=style(happening))


def _print_step(record: StepRecord, got: TaskStepOutput | None) -> None:
    out = output.out()
    seconds = record.ended - record.started
    calls = f"{record.usage.requests} model call{'s' if record.usage.requests != 1 else ''}"
    out.print(f"step {record.n:<5} {calls}, {seconds:.1f} s", style="bold")
    if got is None:
        return
    for source in got.sources:
        state = "" if source.status == "done" else f" [{source.status}]"
        often = f" (started {source.attempts} times)" if source.attempts > 1 else ""
        text = output.shortened(source.content)
        out.print(f"{'':<10} {source.tool_name} {source.raw_input} -> {text}{state}{often}")
    if got.output is not None and str(got):
        out.print(f"{'':<10} {'answer: ' if got.is_last else ''}{got}")


def _print_event(event: EventRecord) -> None:
    verb = str(event.body.get("verb") or event.body.get("status") or "")
    who = f"by {event.by}" if event.by else ""
    words = " ".join(part for part in (event.kind, verb, who) if part)
    text = f": {event.text}" if event.text else ""
    red = event.kind in ("failed", "refused")
    output.out().print(f"{'event':<10} {words}{text}", style="red" if red else "dim")
