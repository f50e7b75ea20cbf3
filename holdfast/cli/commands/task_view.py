"""`show`: one task with all its steps, undone ones too, its events and what it waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from holdfast.cli import output
from holdfast.cli.commands.open_questions import READ_SECONDS, find_task, waiting_in
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.following.live import sent_since, style
from holdfast.cli.following.timeline import COLUMNS, STATE, timeline
from holdfast.cli.options import Common
from holdfast.desk.views.branches import origin_of
from holdfast.errors import NoWorkerError, QueryFailedError, StuckTaskError
from holdfast.reading.artifacts import KeptArtifact, artifacts_in, newest
from holdfast.reading.queries import why_blocked
from holdfast.reading.step_events import StepEvent, event_text
from holdfast.reading.visibility import listed
from holdfast.task.data.calls import Approval
from holdfast.task.data.records import Entry, OpenState
from holdfast.task.happenings import Happening, Noted, StepEnded, happenings
from holdfast.task.step_body import StepBody
from holdfast.values.base import Json
from holdfast.values.messages import cost_written
from holdfast.values.steps import ListedTask, Task, TaskStep, TaskStepOutput


@dataclass(frozen=True)
class Shown:
    """What `show` prints.

    Attributes:
        task: The task.
        source: "ledger", or "history" when the task could not be asked: then all of this is as a
            worker last knew it, or only what lists know where none has had the task.
        entries: The ledger.
        opens: The steps in progress.
        outputs: Outputs of its steps, undone ones too, in the same order as in the ledger.
        upcoming: The step in progress and the queued ones.
        approvals: What waits for a person.
        since: What has come since, each with its time, as the server's history shows it.
        is_listed: Whether of the task is known only what lists know.
    """

    task: Task
    source: str
    entries: Sequence[Entry] = ()
    opens: Sequence[OpenState] = ()
    outputs: Sequence[TaskStepOutput] = ()
    upcoming: Sequence[TaskStep] = ()
    approvals: Sequence[Approval] = ()
    since: Sequence[tuple[float, StepEvent]] = ()
    is_listed: bool = False

    @cached_property
    def happenings(self) -> list[Happening]:
        """What happened in the task, by its ledger."""
        return list(happenings(self.entries, self.opens))

    @cached_property
    def bodies(self) -> list[StepBody]:
        """Its completed steps, in the order of `outputs`."""
        return [each.body for each in self.happenings if isinstance(each, StepEnded)]

    @property
    def timeline(self) -> list[tuple[str, ...]]:
        """Its steps, calls and waits, as `COLUMNS`."""
        places = [(body.branch, body.n) for body in self.bodies]
        given = dict(zip(places, self.outputs, strict=False))
        return [*timeline(self.happenings, given, now=time.time())]

    @property
    def artifacts(self) -> list[KeptArtifact]:
        """The files that its tools have kept, of each name the newest."""
        return newest(artifacts_in(self.entries, self.opens))

    @property
    def answer(self) -> str:
        """Its answer; empty before it has one."""
        last = next((each for each in self.outputs[::-1] if each.status != "undone"), None)
        return str(last) if last is not None and last.is_last else ""

    def wire(self) -> Json:
        """Return it as JSON data."""
        events = [each.event for each in self.happenings if isinstance(each, Noted)]
        origin = origin_of(self.happenings)
        known = {*ListedTask.model_fields} if self.is_listed else None
        task = self.task.model_dump(mode="json", include=known)
        if not self.is_listed:
            task["cost"] = cost_written(self.task.usage)
        return {
            "task": task,
            "source": self.source,
            "forked_from": {"task_id": origin.task_id, "n": origin.n} if origin else None,
            "steps": [
                {
                    **output_.model_dump(mode="json"),
                    "n": body.n,
                    "started": body.started,
                    "ended": body.ended,
                    "model_calls": body.usage.requests,
                    "cost": cost_written(body.usage),
                }
                for body, output_ in zip(self.bodies, self.outputs, strict=False)
            ],
            "events": [event.model_dump(mode="json") for event in events],
            "upcoming": [step.model_dump(mode="json") for step in self.upcoming],
            "approvals": [each.model_dump(mode="json") for each in self.approvals],
            "artifacts": [each.model_dump(mode="json") for each in self.artifacts],
            "happenings": [{"at": at, **each.model_dump(mode="json")} for at, each in self.since],
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
        if shown.approvals:
            output.say(f"Decide: holdfast inbox{common.arguments()}")
    return ExitCode.OK


async def read_task(engine: Engine, task_id: str) -> Shown:
    """Read a task: from itself or the archive, else from its history."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _from_ledger(engine, task_id)
    except (NoWorkerError, StuckTaskError, TimeoutError):
        return await _from_history(engine, task_id)


async def _from_ledger(engine: Engine, task_id: str) -> Shown:
    runner = engine.runner()
    entries, opens = await runner.reader.ledger(task_id, legible=True)
    return Shown(
        task=await runner.get_task(task_id),
        source="ledger",
        entries=entries,
        opens=opens,
        outputs=await runner.reader.steps_of(task_id, entries),
        upcoming=await runner.get_upcoming_steps(task_id),
        approvals=[each.approval for each in await waiting_in(engine, task_id)],
    )


async def _from_history(engine: Engine, task_id: str) -> Shown:
    """Read a task without a worker process: its history is replayed here."""
    from holdfast.client.agent_runner.task_client.forced import replayed

    reader = engine.runner().reader
    found = await reader.describe(task_id)
    known = await listed(found)
    why = await why_blocked(engine.client, found)
    waiting = await waiting_in(engine, task_id, silent={found.task_queue})
    shown = Shown(
        task=known.model_copy(update={"blocked_by": why}),
        source="history",
        approvals=[each.approval for each in waiting],
        is_listed=True,
    )
    try:
        read = await replayed(reader, task_id)
    except QueryFailedError:  # of other code, or no worker has ever had it
        return replace(shown, since=await sent_since(reader, task_id, 0.0))
    return replace(
        shown,
        task=read.task.model_copy(update={"status": known.status, "blocked_by": why}),
        entries=read.entries,
        opens=read.opens,
        outputs=await reader.steps_of(task_id, read.entries),
        upcoming=read.upcoming,
        approvals=read.approvals,
        since=await sent_since(reader, task_id, read.until),
        is_listed=False,
    )


def _print(shown: Shown) -> None:
    out = output.out()
    _print_facts(shown)
    if lines := shown.timeline:
        output.rows(COLUMNS, lines, state=STATE)
    running = {each.open.step.step_id for each in shown.opens}
    for step in shown.upcoming:
        if step.step_id not in running:
            out.print(f"{'next':<10} step {step.step_id} {step.input or ''}".rstrip(), style="dim")
    if shown.upcoming and not running and shown.task.status == "running":
        out.print(f"{'waits for':<10} `holdfast attach` or `holdfast step`", style="yellow")
    for approval in shown.approvals:
        about = [f"{name} {text}" for name, text in approval.about.items()]
        text = "; ".join([approval.line, *about])
        out.print(f"{'waits for':<10} {text}", style="yellow")
    for kept in shown.artifacts:
        out.print(f"{'artifact':<10} {kept.name} {kept.size:,} bytes, step {kept.step_id}")
    if shown.answer:
        out.print(f"{'answer':<10} {shown.answer}")
    if shown.source == "history":
        said = "The task cannot be asked now; this is what it knew when a worker last had it."
        output.say(f"{said} What has come since:" if shown.since else said)
        for at, each in shown.since:
            out.print(f"{output.clock(at)[-8:]} {event_text(each)}", style=style(each))


def facts_of(shown: Shown) -> dict[str, str]:
    """Return what is known of a task as a whole, by name; what says nothing is left out."""
    task, origin = shown.task, origin_of(shown.happenings)
    facts = {
        "task": task.task_id,
        "status": task.status.replace("_", " "),
        "agent": task.agent,
        "session": task.session,
        "created": f"{output.clock(task.created)} UTC",
        "input": task.input,
        "forked": f"from {origin.task_id} after step {origin.n}" if origin else "",
        "waits": task.waits,
        "paused by": task.paused,
        "error": task.error,
        "blocked by": task.blocked_by,
        "state": str(task.extra_state) if task.extra_state else "",
    }
    return {name: text for name, text in facts.items() if text}


def _print_facts(shown: Shown) -> None:
    out, task = output.out(), shown.task
    for name, text in facts_of(shown).items():
        bad = "red" if name in ("error", "blocked by") else None
        out.print(f"{name:<10} {text}", style=output.colour(text) if name == "status" else bad)
    if task.usage.requests and not shown.is_listed:  # a record that is lost has no cost to show
        out.print(f"{'usage':<10} {task.usage.in_words}")
        if task.branch_usage != task.usage:
            out.print(f"{'branch':<10} {task.branch_usage.in_words} on the present branch")
