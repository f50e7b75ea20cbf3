"""The options of every command: the engine, `--json`; and errors as one clear line."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from holdfast.cli import output
from holdfast.cli.exits import EPILOG, ExitCode, InterruptedByUserError, exit_code_of
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.values.text.redact import redact, without_credentials

P = ParamSpec("P")
DEFAULT_DATA_DIR = ".holdfast"
_PANEL = "Where"


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options that all commands share, as they were given.

    Attributes:
        data_dir: Directory of the embedded server.
        address: host:port of a cluster.
        namespace: Temporal namespace.
        archive: URL of the archive of a cluster.
        json: Whether to print JSON.
    """

    data_dir: Path | None
    address: str | None
    namespace: str | None
    archive: str | None
    json: bool

    @property
    def embedded(self) -> Path | None:
        """The directory of the embedded server, or None when a cluster is meant.

        Raises:
            InvalidArgumentError: Options for both were given, or a password among them.
        """
        if self.archive and without_credentials(self.archive) != self.archive:
            raise InvalidArgumentError(
                "--archive holds a password or a token, and other users of this machine can read"
                " command lines: set HOLDFAST_ARCHIVE to that URL instead, and leave --archive out."
            )
        if self.data_dir is not None and self.address:
            msg = "--data-dir names the embedded server and --address a cluster: give one of them."
            raise InvalidArgumentError(msg)
        environment = os.environ.get("TEMPORAL_ADDRESS")
        if self.address or (environment and self.data_dir is None):
            return None
        given = asdict(self)
        unused = [name for name in ("namespace", "archive") if given[name]]
        if unused:
            msg = f"--{unused[0]} is for a cluster: name it with --address or TEMPORAL_ADDRESS."
            raise InvalidArgumentError(msg)
        return self.data_dir or Path(os.environ.get("HOLDFAST_DATA_DIR") or DEFAULT_DATA_DIR)

    def arguments(self) -> str:
        """Return the options that name the same engine, for a command to be copied."""
        words: list[str] = []
        if self.data_dir is not None:
            words += ["--data-dir", str(self.data_dir)]
        if self.address:
            words += ["--address", self.address]
        if self.namespace:
            words += ["--namespace", self.namespace]
        if self.archive:
            words += ["--archive", self.archive]
        return f" {shlex.join(words)}" if words else ""


def check_data(directory: Path) -> None:
    """Refuse a directory in which no server has ever run: the tasks are somewhere else.

    Raises:
        InvalidArgumentError: No server has; the text says how to name the tasks' directory.
    """
    from holdfast.engine.dev_server.command import DATABASE

    if directory.is_file() or (directory / DATABASE).exists():
        return
    is_missing = "does not exist" if not directory.exists() else "has no tasks in it"
    raise InvalidArgumentError(
        f"There is no data directory here: {str(directory.absolute())!r} {is_missing}. Run this"
        " where your program or `holdfast dev` has made one, name it with --data-dir or"
        " HOLDFAST_DATA_DIR, or name a cluster with --address or TEMPORAL_ADDRESS."
    )


def _shared(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Directory of the embedded server. [env: HOLDFAST_DATA_DIR; default: .holdfast]",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="host:port of a Temporal cluster, instead. [env: TEMPORAL_ADDRESS; its API key is"
            " taken from TEMPORAL_API_KEY only: other users can read command lines]",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            help="Namespace of the cluster. [env: TEMPORAL_NAMESPACE]",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive",
            help="URL of the cluster's archive. [env: HOLDFAST_ARCHIVE]",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON on stdout; what is said goes to stderr.")
    ] = False,
) -> None:
    """Declare the options of every command; never called."""


def shared(
    body: Callable[Concatenate[Common, P], Coroutine[Any, Any, ExitCode | None]],
) -> Callable[..., None]:
    """Give a command the options of all commands, and run it."""
    own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
    more = list(inspect.signature(_shared, eval_str=True).parameters.values())

    @functools.wraps(body)
    def command(**given: Any) -> None:
        common = Common(**{each.name: given.pop(each.name) for each in more})
        for name, value in given.items():
            if isinstance(value, datetime):
                given[name] = _in_local_time(value)
        guarded(functools.partial(body, common, **given), as_json=common.json)

    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    return command


def _in_local_time(given: datetime) -> datetime:
    try:
        return given.astimezone()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{given} cannot be told as a local time: {error}.") from None


def command(
    group: typer.Typer, place: str, name: str | None = None, means: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a command of a group, by a function that has its words and its options, and no body.

    What it does is the function at `place`, below `holdfast.cli`. It is imported when the command
    runs, and gets the options of all commands, and each declared one by its name. A second command
    with the same options has words of its own, `means`.
    """
    module, _, function = f"holdfast.cli.{place}".rpartition(".")

    def declare(words: Callable[..., None]) -> Callable[..., None]:
        async def body(common: Common, /, **given: Any) -> ExitCode | None:
            does = getattr(importlib.import_module(module), function)
            done: ExitCode | None = await does(common, **given)
            return done

        own = inspect.signature(words, eval_str=True).parameters.values()
        first = inspect.Parameter("common", inspect.Parameter.POSITIONAL_ONLY)
        body.__name__, body.__doc__ = words.__name__, means or words.__doc__
        vars(body)["place"] = module, function
        vars(body)["__signature__"] = inspect.Signature([first, *own])
        group.command(name, epilog=EPILOG)(shared(body))
        return words

    return declare


def group(name: str = "", parent: typer.Typer | None = None, means: str = "") -> typer.Typer:
    """Make a group of commands, below a parent if it has a name of its own."""
    made = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=bool(name))
    if parent is not None:
        parent.add_typer(made, name=name, help=means)
    return made


def guarded(body: Callable[[], Coroutine[Any, Any, ExitCode | None]], *, as_json: bool) -> None:
    """Run a command; an error becomes a line on stderr and an exit code.

    Raises:
        Exit: Its exit code is not 0.
    """
    try:
        code = asyncio.run(body())
    except HoldfastError as error:
        code = fail(error, str(error), exit_code_of(error), as_json=as_json)
    except (InterruptedByUserError, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except Exception as error:
        text = _server_error(error)
        if text is None:
            raise
        code = fail(error, text, ExitCode.ENGINE, as_json=as_json)
    if code:
        raise typer.Exit(int(code))


def fail(error: Exception, text: str, code: ExitCode, *, as_json: bool) -> ExitCode:
    """Report an error: for people on stderr, for programs on stdout."""
    if os.environ.get("HOLDFAST_DEBUG") == "1":
        import traceback

        output.say("".join(traceback.format_exception(error)))
    text = redact(text)
    output.say(f"error: {text}", style="red")
    if as_json:
        facts = {"type": type(error).__name__, "message": text}
        if task_id := getattr(error, "task_id", None):
            facts["task_id"] = task_id
        output.emit({"error": facts, "exit_code": code})
    return code


def _server_error(error: Exception) -> str | None:
    """Describe a failed call of the server, an error that is not ours; None for a bug."""
    from temporalio.service import RPCError

    if not isinstance(error, RPCError):
        return None
    return (
        f"The Temporal server did not answer as it should: {error.status.name}: {error.message}."
        " Check that it runs; tasks are not lost."
    )
