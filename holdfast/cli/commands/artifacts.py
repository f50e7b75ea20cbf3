"""`artifacts`: the files that the tools of a task have kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from holdfast.cli import output
from holdfast.cli.commands.open_questions import find_task
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.errors import InvalidArgumentError

COLUMNS = ("NAME", "VERSION", "TYPE", "BYTES", "STEP", "TOOL", "KEPT AT (UTC)", "REFERENCE")


async def artifacts_command(
    common: Common, typed: str, *, get: str | None, out: Path | None, versions: bool
) -> ExitCode:
    """List the artifacts of a task, or write the bytes of one.

    Raises:
        InvalidArgumentError: The bytes have no place to go to.
        NotFoundError: The task has no such artifact.
    """
    if get is None and out is not None:
        raise InvalidArgumentError("--out says where to write an artifact; name it with --get.")
    stdout: Any = sys.stdout  # None, if the process was started with it closed
    if get is not None and out is None and (stdout is None or stdout.isatty()):
        msg = "A terminal would obey what an artifact holds. Name a file with --out."
        raise InvalidArgumentError(msg)
    async with engine_of(common) as engine:
        task_id, runner = await find_task(engine, typed), engine.runner()
        if get is not None:
            return _write(await runner.read_artifact(task_id, get), out)
        found = await runner.artifacts(task_id, versions=versions)
    data = [each.wire() for each in found]
    lines = [
        (
            each.name,
            str(each.version),
            each.media_type,
            str(each.size),
            each.step_id,
            each.tool,
            output.clock(each.at),
            each.reference,
        )
        for each in found
    ]
    return output.listed(data, f"{task_id} has no artifacts.", COLUMNS, lines, as_json=common.json)


def _write(data: bytes, out: Path | None) -> ExitCode:
    if out is None:
        output.emit_bytes(data)
        return ExitCode.OK
    try:
        out.write_bytes(data)
    except OSError as error:
        msg = f"The file {str(out)!r} cannot be written: {error.strerror}"
        raise InvalidArgumentError(msg) from error
    output.say(f"{out}: {len(data):,} bytes.")
    return ExitCode.OK
