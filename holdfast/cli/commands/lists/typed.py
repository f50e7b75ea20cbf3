"""`schedule` and `event` as they are typed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.arguments import AppOption, ByOption, QueueOption, ReasonOption, login_name
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, shared
from holdfast.values.runs.times import Overlap

schedule = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


@schedule.command(epilog=EPILOG)
@shared
async def add(
    common: Common,
    *,
    name: NameArgument,
    agent: Annotated[str, typer.Argument(help="Name of the agent.")],
    question: Annotated[str, typer.Argument(help="What it is asked each time.")],
    every: Annotated[
        list[str],
        typer.Option(
            "--every",
            metavar="WHEN",
            help="'Mon 09:00', 'Mon-Fri 09:00', 'day 09:00', '30 min', '2 h', or five fields of"
            " cron; repeatable.",
        ),
    ],
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Time zone of these, as Europe/Berlin.")
    ] = "UTC",
    session: Annotated[
        str | None, typer.Option("--session", help="Session that all its tasks share.")
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="When its time comes while the task before is open.")
    ] = "skip",
    catch_up: Annotated[
        str, typer.Option("--catch-up", help="How late a task may begin; else it is missed.")
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
) -> ExitCode | None:
    """Begin a task at set times; each is named by its time and runs to its end."""
    from holdfast.cli.commands.lists.schedules import add_command

    return await add_command(
        common,
        name,
        agent,
        question,
        app=app,
        queue=queue,
        every=every,
        time_zone=time_zone,
        session=session,
        overlap=overlap,
        catch_up=catch_up,
        max_dollars=max_dollars,
        exist_ok=exist_ok,
        by=by or login_name(),
    )


@schedule.command("list", epilog=EPILOG)
@shared
async def list_(common: Common, app: AppOption = None) -> ExitCode | None:
    """List schedules: when, what comes next, what was missed or skipped."""
    from holdfast.cli.commands.lists.schedules import list_command

    return await list_command(common, app=app)


@schedule.command(epilog=EPILOG)
@shared
async def pause(
    common: Common, name: NameArgument, reason: ReasonOption = "", by: ByOption = ""
) -> ExitCode | None:
    """Begin no further task."""
    return await _change(common, "pause", name, reason, by or login_name())


@schedule.command(epilog=EPILOG)
@shared
async def resume(common: Common, name: NameArgument, by: ByOption = "") -> ExitCode | None:
    """End a pause; what was missed is not begun, see `backfill`."""
    return await _change(common, "resume", name, by or login_name())


@schedule.command(epilog=EPILOG)
@shared
async def backfill(
    common: Common,
    name: NameArgument,
    since: Annotated[datetime, typer.Option(help="First time, in local time.")],
    until: Annotated[datetime, typer.Option(help="Last time, in local time.")],
) -> ExitCode | None:
    """Begin the tasks of times that are over, one after the other."""
    return await _change(common, "backfill", name, since.astimezone(), until.astimezone())


@schedule.command(epilog=EPILOG)
@shared
async def delete(common: Common, name: NameArgument) -> ExitCode | None:
    """Delete a schedule; its tasks stay."""
    return await _change(common, "delete", name)


async def _change(common: Common, verb: str, name: str, *given: object) -> ExitCode:
    from holdfast.cli.commands.lists.schedules import change_command

    return await change_command(common, verb, name, *given)


event = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@event.command(epilog=EPILOG)
@shared
async def send(
    common: Common,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, as order.paid.")],
    *,
    data: Annotated[
        str, typer.Option("--data", metavar="JSON", help="What is known of it.")
    ] = "{}",
    id: Annotated[
        str | None,
        typer.Option("--id", help="Tells it apart: sent again with it, it changes nothing."),
    ] = None,
    keep: Annotated[
        str, typer.Option("--keep", help="How long it is kept for calls that wait later.")
    ] = "1 d",
    app: AppOption = None,
    queue: QueueOption = None,
) -> ExitCode | None:
    """Send an event to the calls that wait for it, now or soon."""
    from holdfast.cli.commands.lists.schedules import send_command

    return await send_command(common, name, data, id=id, keep=keep, app=app, queue=queue)


@event.callback()
def of_events() -> None:
    """Send events."""
