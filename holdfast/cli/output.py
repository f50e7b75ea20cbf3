"""Output: results on stdout, everything else on stderr.

A reader may close its end of a pipe at any time, as `head` does. What is printed then is dropped,
and the command goes on: its exit code tells how it ended, no matter who reads. On a full disk it
goes on as well, and says at its end that its output is lost.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.cli.exits import ExitCode
from holdfast.values.text.logs import log
from holdfast.values.text.terminal import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.values.base import Json


VOID = frozenset({"undone", "restarted", "not run"})
"""States of what has had no effect, or has none any more."""
_OF_TONE = {
    "positive": "green",
    "negative": "red",
    "warning": "yellow",
    "primary": "blue",
    "grey": "dim",
}
_OF_BAR = {"done": "green", **dict.fromkeys(("unknown", "cut off", "refused"), "red")}


@cache
def out() -> Console:
    """Return the console of stdout; rich obeys NO_COLOR and leaves colours out of files."""
    return _console(stderr=False)


@cache
def err() -> Console:
    """Return the console of stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Make a console that shows control characters of texts instead of obeying them."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return Plain(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def emit(data: Json) -> None:
    """Print one JSON object on stdout, on one line."""
    _print(printable_json(json.dumps(data, ensure_ascii=not _is_unicode(), default=str)))


def listed(
    found: Collection[Json],
    none: str,
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    as_json: bool,
    limit: int | None = None,
    state: int | None = None,
) -> ExitCode:
    """Print a list: as JSON, as a table, or that it is empty.

    Args:
        found: One object for each line.
        none: The text for an empty list.
        columns: As for `rows`, like those after it but as_json.
        lines: The lines of the table.
        as_json: Whether JSON is wanted.
        limit: How many were asked for at most.
        state: Position of the column that has a state.
    """
    if as_json:
        for each in found:
            emit(each)
    elif found:
        rows(columns, lines, limit=limit, state=state)
    else:
        say(none)
    return ExitCode.OK


def answer(text: str) -> None:
    """Print a result on stdout; control characters are written out, `emit` has all exactly."""
    _print(printable(text))


def told(data: Json, text: str, *, as_json: bool) -> ExitCode:
    """Print a result on stdout: as JSON, or as text."""
    if as_json:
        emit(data)
    else:
        answer(text)
    return ExitCode.OK


def emit_bytes(data: bytes) -> None:
    """Print bytes on stdout as they are."""
    stream = sys.stdout
    if isinstance(stream, _Stream):
        stream.write_bytes(data)
    else:
        stream.buffer.write(data)


def _print(line: str) -> None:
    print(line, flush=True)


class _Stream(io.TextIOWrapper):
    """A stream of the process that drops what cannot be written, and all that follows.

    Attributes:
        failure: Why it could not be written, unless its reader has gone.
    """

    failure: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._drop(error)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are, between texts."""
        self.flush()
        try:
            self.buffer.write(data)
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Send what is still printed, and what is held back, nowhere."""
        if not isinstance(error, BrokenPipeError):
            self.failure = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def prepare() -> None:
    """Let stdout take every text: characters that its encoding lacks are written out.

    No command ends in the middle because its output cannot be written.
    """
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and not _is_unicode():
        reconfigure(errors="backslashreplace")


def _guarded(stream: Any) -> Any:
    buffer: Any = getattr(stream, "buffer", None)
    if buffer is None:  # as of None, if the process was started with the stream closed
        return stream
    return _Stream(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def finish(code: int) -> int:
    """Write out what is held back, on the streams that the process has.

    Args:
        code: How the command ended.

    Returns:
        The exit code of the process: a command whose output is lost has failed.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]  as above
            stream.flush()
    failure = getattr(sys.stdout, "failure", None)
    if failure is None:
        return code
    say(
        f"error: stdout could not be written ({failure.strerror}): what was printed is lost. What"
        " the command has done remains; `holdfast tasks` and `holdfast show` have it.",
        style="red",
    )
    return code or ExitCode.FAILED


def _is_unicode() -> bool:
    """Whether stdout takes every character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "").startswith("utf")


def say(text: str, style: str | None = None) -> None:
    """Print a message on stderr; where that has JSON objects only, as a log if it is an error."""
    if any(getattr(each.formatter, "is_json", False) for each in logging.root.handlers):
        if style == "red":
            log.error("%s", text)
        return
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  it was closed
        return
    if _is_drawn(sys.stderr):
        err().print(text, style=style)
    else:
        print(printable(text), file=sys.stderr)


def ask(question: str) -> None:
    """Print a question on stderr, and stay on its line."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()


def _is_drawn(stream: TextIO) -> bool:
    """Whether rich may draw on a stream; elsewhere it is not loaded, which takes 0.1 s."""
    return stream.isatty() or not {"FORCE_COLOR", "TTY_COMPATIBLE"}.isdisjoint(os.environ)


def rows(
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    limit: int | None = None,
    state: int | None = None,
) -> None:
    """Print a table on stdout.

    Args:
        columns: Names of its columns.
        lines: Its lines.
        limit: How many were asked for at most; if it has as many, that is said.
        state: Position of the column that has a state, to be drawn in the state's colour.
    """
    if _is_drawn(sys.stdout):
        table(out(), columns, lines, state)
    else:
        for line in _aligned(columns, lines):
            answer(line)
    if len(lines) == limit:
        say(f"These are the newest {limit}; --limit shows more.")


def table(
    console: Console,
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    state: int | None = None,
) -> None:
    """Print a table: drawn on a terminal, aligned plain lines in a file or a pipe."""
    if not console.is_terminal:
        for text in _aligned(columns, lines):
            console.print(text)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    drawn.columns[0].no_wrap = True
    for line in lines:
        cells, word = [Text(printable(cell)) for cell in line], "" if state is None else line[state]
        if state is not None:
            cells[state].stylize(colour(word))
        drawn.add_row(*cells, style="dim" if word in VOID else None)
    console.print(drawn, soft_wrap=False)


def colour(state: str) -> str:
    """Return the colour of a state on a terminal: the one that the desk gives it."""
    from holdfast.desk.views.tasks import COLOURS

    status = state.partition(":")[0].replace(" ", "_")  # a cause may follow
    return _OF_TONE.get(COLOURS.get(status, ""), "") or _OF_BAR.get(state, "")


def _aligned(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    shown = [[_indent(cell) + _one_line(cell) for cell in line] for line in (columns, *lines)]
    widths = [max(len(line[k]) for line in shown) for k in range(len(columns))]
    for line in shown:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def clock(seconds: float) -> str:
    """Return a time in UTC, as people read it; empty for none."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _indent(text: str) -> str:
    return " " * (len(text) - len(text.lstrip(" ")))


def _one_line(text: str) -> str:
    return " ".join(text.split())
