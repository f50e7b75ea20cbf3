"""`init` and `doctor` as they are typed."""

from __future__ import annotations

import functools
from datetime import datetime
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
            "--agents", metavar="MODULE:AGENTS", help="Check also whether their queues are served."
        ),
    ] = None,
    app: AppOption = None,
) -> ExitCode | None:
    """Look at engine, namespace, archive, keys, clock, queues and tasks that no one serves."""
    from holdfast.cli.commands.start.doctor import doctor_command

    return await doctor_command(common, agents=agents, app=app)


keys = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
start.add_typer(keys, name="keys", help="Make, list and rotate the keys that encrypt everything.")
KeyNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]


@keys.command(epilog=EPILOG)
def new(
    name: KeyNameArgument,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Print a new key, as a line of the file that HOLDFAST_KEYS names."""
    from holdfast.cli.commands.start.keys import keys_new_command

    code = guarded(functools.partial(keys_new_command, name, as_json=json), as_json=json)
    if code:
        raise typer.Exit(int(code))


@keys.command("list", epilog=EPILOG)
@shared
async def list_(common: Common) -> ExitCode | None:
    """List the keys, and how many data keys of the archive each encrypts."""
    from holdfast.cli.commands.start.keys import keys_list_command

    return await keys_list_command(common)


@keys.command(epilog=EPILOG)
@shared
async def rotate(
    common: Common,
    *,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Encrypt also what was written without keys; no worker may run."
        ),
    ] = False,
) -> ExitCode | None:
    """Encrypt all data keys of the archive by the first key; see `keys list` then."""
    from holdfast.cli.commands.start.keys import keys_rotate_command

    return await keys_rotate_command(common, plain=plain)


codec = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
start.add_typer(codec, name="codec", help="Decrypt for Temporal's own web UI and command line.")


@codec.command(epilog=EPILOG)
@shared
async def serve(
    common: Common,
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: any.")] = 8401,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", help="Web page that may ask, as of Temporal's UI; several."),
    ] = None,
) -> ExitCode | None:
    """Serve a remote codec to people with a token of the desk."""
    from holdfast.cli.commands.start.codec import codec_command

    return await codec_command(common, host=host, port=port, origins=origin or [])


@start.command(epilog=EPILOG)
@shared
async def restore(
    common: Common,
    since: Annotated[
        datetime,
        typer.Option("--since", help="Local time of the backup; older ones are left out."),
    ],
    *,
    erase_again: Annotated[
        bool, typer.Option("--erase-again", help="Erase again what was erased and is back.")
    ] = False,
) -> ExitCode | None:
    """List what the archive has and a restored database has not; and what was erased, and is back.

    Exit with 1 if some of it cannot be read.
    """
    from holdfast.cli.commands.start.restore import restore_command

    return await restore_command(common, since.astimezone(), erases=erase_again)


archive = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
start.add_typer(archive, name="archive", help="Look whether the archive is whole.")


@archive.command(epilog=EPILOG)
@shared
async def check(common: Common) -> ExitCode | None:
    """Read the whole archive and verify all closed tasks; say what is broken."""
    from holdfast.cli.commands.lists.archive import archive_check_command

    return await archive_check_command(common)


@start.command(epilog=EPILOG)
@shared
async def backup(
    common: Common,
    manifest: Annotated[Path, typer.Argument(metavar="FILE", help="Where the digests are.")],
    *,
    copy: Annotated[
        str | None,
        typer.Option("--copy", help="URL or directory of a copy: compare it with the file."),
    ] = None,
) -> ExitCode | None:
    """Write the digests of all files of the archive, or compare a copy of it with them."""
    from holdfast.cli.commands.lists.archive import copy_command, manifest_command

    if copy is None:
        return await manifest_command(common, manifest)
    return await copy_command(manifest, copy, as_json=common.json)


@start.command(epilog=EPILOG)
@shared
async def gc(
    common: Common,
    *,
    days: Annotated[
        float, typer.Option("--days", help="List only what is older than so many days.")
    ] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List, and delete nothing.")] = False,
) -> ExitCode | None:
    """List values of the archive that no task, session or schedule refers to any more."""
    from holdfast.cli.commands.lists.garbage import gc_command

    return await gc_command(common, days=days, is_dry=dry_run)
