"""`init`: write a new project."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.commands.start.origin import origin
from holdfast.cli.commands.start.project import FILES, project_files
from holdfast.cli.exits import ExitCode
from holdfast.errors import InvalidArgumentError

_ODD = re.compile(r"[^a-z0-9]+")


async def init_command(directory: Path, *, as_json: bool) -> ExitCode:
    """Write a new project, and say what comes next.

    Raises:
        InvalidArgumentError: One of its files exists, or the directory cannot be written.
    """
    where = await asyncio.to_thread(write_project, directory)
    if as_json:
        output.emit({"directory": str(where), "files": [*FILES]})
    output.say(f"Wrote {', '.join(FILES)} to {str(directory)!r}. Next:", style="bold")
    into = [] if directory == Path() else [shlex.join(["cd", str(directory)])]
    for line in (
        *into,
        "pip install -e '.[dev]'",
        "pytest",
        "holdfast dev booking:agents --reload",
    ):
        output.say(f"  {line}")
    return ExitCode.OK


def write_project(directory: Path) -> Path:
    """Write the files of a new project, and return its whole path.

    Raises:
        InvalidArgumentError: One of the files exists, or the directory cannot be written.
    """
    taken = sorted(name for name in FILES if (directory / name).exists())
    if taken:
        raise InvalidArgumentError(
            f"{str(directory)!r} has {', '.join(taken)} already, and nothing is overwritten:"
            " nothing was written. Name another directory: holdfast init DIR."
        )
    name = _ODD.sub("-", directory.absolute().name.lower()).strip("-") or "agents"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in project_files(name, origin()).items():
            with (directory / file).open("x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        msg = f"The project cannot be written to {str(directory)!r}: {error}."
        raise InvalidArgumentError(msg) from error
    return directory.absolute()
