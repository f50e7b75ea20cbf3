"""`init` and `doctor` as they are typed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.arguments import AppOption
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, guarded, shared

start = typer.Typer(add_completion=False, rich_markup_mode=None)


@start.command(epilog=EPILOG)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Write a new project: an agent, a tool that can be undone, a test, a compose file."""
    from holdfast.cli.commands.start.init import init_command

    code = guarded(functools.partial(init_command, directory, as_json=json), as_json=json)
    if code:
        raise typer.Exit(int(code))


@start.command(epilog=EPILOG)
@shared
async def doctor(
    common: Common,
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents", metavar="MODULE:AGENTS", help="Look whether their queues are served, too."
        ),
    ] = None,
    app: AppOption = None,
) -> ExitCode | None:
    """Look at engine, namespace, archive, keys, clock, queues and tasks that no one serves."""
    from holdfast.cli.commands.start.doctor import doctor_command

    return await doctor_command(common, agents=agents, app=app)
