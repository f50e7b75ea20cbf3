"""`schedule` and `event` as they are typed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import typer

from holdfast.cli.arguments import AppOption, ByOption, QueueOption, ReasonOption
from holdfast.cli.options import command, group
from holdfast.values.runs.times import Overlap

schedule = group("schedule")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


@command(schedule, "commands.lists.schedules.add_command")
def add(
    *,
    name: NameArgument,
    agent: Annotated[str, typer.Argument(help="Name of the agent.")],
    question: Annotated[str, typer.Argument(help="What it is asked each time.")],
    every: Annotated[
        list[str],
        typer.Option(
            metavar="WHEN",
            help="'Mon 09:00', 'Mon-Fri 09:00', 'day 09:00', '30 min', '2 h', or five fields of"
            " cron; repeatable.",
        ),
    ],
    time_zone: Annotated[str, typer.Option(help="Time zone of these, as Europe/Berlin.")] = "UTC",
    session: Annotated[str | None, typer.Option(help="Session that all its tasks share.")] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="When its time comes while the task before is open.")
    ] = "skip",
    on_busy: Annotated[
        Literal["queue", "none"],
        typer.Option("--on-busy", help="While another task of the session runs: wait, or not."),
    ] = "queue",
    catch_up: Annotated[
        str, typer.Option(help="How late a task may begin; else it is missed.")
    ] = "1 d",
    max_dollars: Annotated[
        str | None, typer.Option(help="US dollars of each task before a person is asked for more.")
    ] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Give a schedule of this name these settings.")
    ] = False,
    app: AppOption = None,
    queue: QueueOption = None,
    by: ByOption = "",
) -> None:
    """Begin a task at set times; each is named by its time and runs to its end."""


@command(schedule, "commands.lists.schedules.list_command", "list")
def list_(app: AppOption = None) -> None:
    """List schedules: when, what comes next, what was missed or skipped."""


@command(schedule, "commands.lists.schedules.pause_command")
def pause(name: NameArgument, reason: ReasonOption = "", by: ByOption = "") -> None:
    """Begin no further task."""


@command(schedule, "commands.lists.schedules.resume_command")
def resume(name: NameArgument, by: ByOption = "") -> None:
    """End a pause; what was missed is not begun, see `backfill`."""


@command(schedule, "commands.lists.schedules.backfill_command")
def backfill(
    name: NameArgument,
    since: Annotated[datetime, typer.Option(help="First time, in local time.")],
    until: Annotated[datetime, typer.Option(help="Last time, in local time.")],
) -> None:
    """Begin the tasks of times that are over, one after the other."""


@command(schedule, "commands.lists.schedules.delete_command")
def delete(name: NameArgument) -> None:
    """Delete a schedule; its tasks stay."""


event = group("event")


@command(event, "commands.lists.schedules.send_command")
def send(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, as order.paid.")],
    *,
    data: Annotated[str, typer.Option(metavar="JSON", help="What is known of it.")] = "{}",
    id: Annotated[
        str | None, typer.Option(help="Tells it apart: sent again with it, it changes nothing.")
    ] = None,
    keep: Annotated[
        str, typer.Option(help="How long it is kept for calls that wait later.")
    ] = "1 d",
    app: AppOption = None,
    queue: QueueOption = None,
) -> None:
    """Send an event to the calls that wait for it, now or soon."""
