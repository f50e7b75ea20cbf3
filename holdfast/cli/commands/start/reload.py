"""`dev --reload`: the server stays, and the worker process is another one after each change."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.cli import output
from holdfast.cli.commands.servers import desk_beside, dev_command
from holdfast.cli.connection import engine_of, until_stopped
from holdfast.cli.exits import ExitCode, InterruptedByUserError
from holdfast.cli.options import Common
from holdfast.serving.worker_process import grace_given
from holdfast.values.code.extras import needing_local

_EXTRA = 5


async def reload_command(
    common: Common, target: str, *, app: str | None, reload: bool, ui: bool, port: int | None
) -> ExitCode:
    """Run the server here and a worker process next to it, again after each change of the code.

    Without `reload`, the worker is in this process.

    Tasks are not touched: the worker lets running calls end, and the next one goes on.

    Raises:
        ServerStartError: The extra `local` is not installed.
    """
    if not reload:
        return await dev_command(common, target, app=app, ui=ui, port=port)
    with needing_local():
        from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType]  its own types lack one
    async with (
        engine_of(common, new=True, ui=ui) as engine,
        desk_beside(common, engine.runner(), port) as desk,
    ):
        url = engine.server.ui_url if engine.server else ""
        if common.json:
            output.emit({"address": engine.address, "ui": url, "desk": desk})
        for name, text in (("desk", desk), ("address", engine.address), ("ui", url)):
            if text:
                output.say(f"  {name:<8} {text}")
        worker = _Worker(common, target, app)

        async def follow() -> None:
            await worker.start()
            output.say(f"Watching {Path.cwd()}; Ctrl-C stops.", style="bold")
            async for changes in awatch(Path.cwd(), watch_filter=PythonFilter()):
                changed = sorted({Path(path) for _, path in changes})
                wrong = _broken(changed)
                if wrong:
                    output.say(f"Not reloaded: {wrong}. The worker goes on as it was.", "yellow")
                    continue
                output.say(f"Reloading: {', '.join(path.name for path in changed)}.")
                await worker.stop()
                await worker.start()

        try:
            with suppress(InterruptedByUserError):
                await until_stopped(follow())
        finally:
            await worker.stop()
    return ExitCode.OK


def _broken(changed: Iterable[Path]) -> str:
    """Say which file cannot be compiled, as one that is half written; empty for none."""
    for path in changed:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except FileNotFoundError:
            continue  # it was deleted
        except (SyntaxError, ValueError) as error:
            return f"{path.name}: {error}"
    return ""


class _Worker:
    """The worker process, which is started again after each change."""

    def __init__(self, common: Common, target: str, app: str | None) -> None:
        where = shlex.split(common.arguments())
        named = ["--app", app] if app else []
        self._command = [sys.executable, "-m", "holdfast", "worker", target, *named, *where]
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        # A session of its own: Ctrl-C in the terminal is for this process, which stops it.
        self._process = await asyncio.create_subprocess_exec(*self._command, start_new_session=True)
        self._watching = asyncio.create_task(self._tell_of_end(self._process))

    async def _tell_of_end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        output.say(f"The worker ended with exit code {code}. The next change starts it.", "yellow")

    async def stop(self) -> None:
        """End the process; what it is doing may end first, and is not lost if it takes longer."""
        process, self._process = self._process, None
        if self._watching is not None:
            self._watching.cancel()
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_given().total_seconds() + _EXTRA):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
