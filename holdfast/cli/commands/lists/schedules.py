"""`schedule`: tasks that begin at set times, and what was missed; `event`: what calls wait for."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.cli import output
from holdfast.cli.commands.decisions import parse_arguments
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.schedules import Schedule, span_of
from holdfast.errors import InvalidArgumentError
from holdfast.values.runs.times import span_in
from holdfast.values.settings import Budget
from holdfast.values.text.shown import shown, time_shown


async def add_command(
    common: Common,
    name: str,
    agent: str,
    question: str,
    *,
    app: str | None,
    queue: str | None,
    every: list[str],
    catch_up: str,
    max_dollars: str | None,
    on_busy: str,
    **options: Any,
) -> ExitCode:
    """Add a schedule and say when its next task begins."""
    options["budget"] = Budget(max_dollars=max_dollars) if max_dollars else None
    options["on_busy"] = None if on_busy == "none" else on_busy
    late = span_of(catch_up)
    async with engine_of(common, new=True) as engine:
        runner = engine.runner(agent, app=app, queue=queue)
        made = await runner.add_schedule(name, question, every=every, catch_up=late, **options)
    return _told(common, [made])


async def list_command(common: Common, *, app: str | None) -> ExitCode:
    """List the schedules of an app."""
    async with engine_of(common) as engine:
        return _told(common, await engine.runner(app=app).list_schedules())


async def change_command(common: Common, name: str, *, verb: str, **given: Any) -> ExitCode:
    """Change a schedule by a method of AgentRunner, and say what was done."""
    async with engine_of(common) as engine:
        await getattr(engine.runner(), f"{verb}_schedule")(name, **given)
    if common.json:
        output.emit({"schedule": name, "done": verb})
    else:
        output.say(f"{name}: {verb} is done.")
    return ExitCode.OK


pause_command = partial(change_command, verb="pause")
resume_command = partial(change_command, verb="resume")
backfill_command = partial(change_command, verb="backfill")
delete_command = partial(change_command, verb="delete")


def _told(common: Common, found: list[Schedule]) -> ExitCode:
    data = [each.wire() for each in found]
    rows = [
        (
            each.name,
            each.agent,
            f"{', '.join(each.every)} {each.time_zone}",
            f"paused by {each.paused}" if each.paused else _next(each),
            each.trouble,
        )
        for each in found
    ]
    columns = ("schedule", "agent", "every", "next", "not begun")
    return output.listed(data, "No schedules.", columns, rows, as_json=common.json)


def _next(schedule: Schedule) -> str:
    return time_shown(schedule.next[0]) if schedule.next else "never"


async def send_command(
    common: Common,
    name: str,
    data: str,
    *,
    id: str | None,
    keep: str,
    app: str | None,
    queue: str | None,
) -> ExitCode:
    """Send an event and say whether calls wait for it.

    Raises:
        InvalidArgumentError: The data are no JSON object.
    """
    found = parse_arguments(data, "--data")
    if (kept := span_in(keep)) is None:
        msg = f"--keep takes a time, as '30 min', '2 h' or '1 d'; this is {shown(keep)}."
        raise InvalidArgumentError(msg)
    async with engine_of(common) as engine:
        runner = engine.runner(app=app, queue=queue)
        receipt = await runner.send_event(name, found, id=id, keep=kept)
    if common.json:
        output.emit(receipt.wire())
    elif receipt.status == "recorded":
        output.say(f"Event {receipt.id} is recorded. No worker process has seen it yet.")
    else:
        output.say(f"Event {receipt.id} is kept. Calls that it has found: {receipt.waiters}.")
    return ExitCode.OK
