"""`init` and `doctor` as they are typed."""

from __future__ import annotations

import functools
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.arguments import AppOption
from holdfast.cli.exits import EPILOG
from holdfast.cli.options import command, group, guarded

start = group()


@start.command(epilog=EPILOG)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Write a new project: an agent, a tool that can be undone, a test, a compose file."""
    from holdfast.cli.commands.start.init import init_command

    guarded(functools.partial(init_command, directory, as_json=json), as_json=json)


@command(start, "commands.start.doctor.doctor_command")
def doctor(
    agents: Annotated[
        str | None,
        typer.Option(metavar="MODULE:AGENTS", help="Check also whether their queues are served."),
    ] = None,
    app: AppOption = None,
) -> None:
    """Look at engine, namespace, archive, keys, queues and tasks that no one serves."""


keys = group("keys", start, "Make, list and rotate the keys that encrypt everything.")
KeyNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]


@keys.command(epilog=EPILOG)
def new(
    name: KeyNameArgument,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Print a new key, as a line of the file that HOLDFAST_KEYS names."""
    from holdfast.cli.commands.start.keys import keys_new_command

    guarded(functools.partial(keys_new_command, name, as_json=json), as_json=json)


@command(keys, "commands.start.keys.keys_list_command", "list")
def list_() -> None:
    """List the keys, and how many data keys of the archive each encrypts."""


@command(keys, "commands.start.keys.keys_rotate_command")
def rotate(
    *,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Encrypt also what was written without keys; no worker may run."
        ),
    ] = False,
) -> None:
    """Encrypt all data keys of the archive by the first key; see `keys list` then."""


codec = group("codec", start, "Decrypt for Temporal's own web UI and command line.")


@command(codec, "commands.start.codec.codec_command")
def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any.")] = 8401,
    origin: Annotated[
        list[str] | None, typer.Option(help="Web page that may ask, as of Temporal's UI; several.")
    ] = None,
) -> None:
    """Serve a remote codec to people with a token of the desk."""


@command(start, "commands.start.restore.restore_command")
def restore(
    since: Annotated[
        datetime, typer.Option(help="Local time of the backup; older ones are left out.")
    ],
    *,
    erase_again: Annotated[
        bool, typer.Option("--erase-again", help="Erase again what was erased and is back.")
    ] = False,
) -> None:
    """List what the archive has and a restored database has not; and what was erased, and is back.

    Exit with 1 if some of it cannot be read.
    """


archive = group("archive", start, "Look whether the archive is whole.")


@command(archive, "commands.lists.archive.archive_check_command")
def check() -> None:
    """Read the whole archive and verify all closed tasks; say what is broken."""


@command(start, "commands.lists.archive.backup_command")
def backup(
    manifest: Annotated[Path, typer.Argument(metavar="FILE", help="Where the digests are.")],
    *,
    copy: Annotated[
        str | None, typer.Option(help="URL or directory of a copy: compare it with the file.")
    ] = None,
) -> None:
    """Write the digests of all files of the archive, or compare a copy of it with them."""


@command(start, "commands.lists.garbage.gc_command")
def gc(
    *,
    days: Annotated[float, typer.Option(min=1, help="Only what is older than so many days.")] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List, and delete nothing.")] = False,
) -> None:
    """Put values of the archive aside that nothing refers to any more; delete those aside."""
