"""Keys and lines: from a person at a terminal, or from the lines of a script on stdin."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer

from holdfast.cli import output
from holdfast.errors import InvalidArgumentError


class EndOfInputError(Exception):
    """There is nothing more to read."""


class Keyboard:
    """The source of typed decisions. Questions go to stderr, so that stdout holds only results.

    Attributes:
        is_terminal: Whether a person types; else stdin is read line by line.
    """

    def __init__(self) -> None:
        """Look at stdin."""
        self.is_terminal = sys.stdin.isatty()

    def key(self, question: str) -> tuple[str, str]:
        """Read one keystroke; from a script one line, split into its first letter and the rest.

        Raises:
            EndOfInputError: The input has ended.
        """
        if not self.is_terminal:
            line = self.line(question)
            return line[:1], line[1:].strip()
        output.ask(question)
        with _interruptible():
            try:
                key: str = typer.getchar()
            except EOFError:
                raise EndOfInputError from None
        output.say(key if key.isprintable() else "")
        return key, ""

    def line(self, question: str) -> str:
        """Read one line.

        Raises:
            EndOfInputError: The input has ended.
        """
        output.ask(question)
        with _interruptible():
            line = sys.stdin.readline()
        if not self.is_terminal:
            output.say(line.rstrip("\n"))
        if not line:
            raise EndOfInputError
        return line.strip()

    def edit(self, text: str) -> str:
        """Let a person change a text in their editor, or type it again when they have none.

        Raises:
            EndOfInputError: There is nothing to read.
            InvalidArgumentError: The editor did not end well.
        """
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not self.is_terminal or not editor:
            return self.line("Arguments, as one line of JSON (empty to leave them): ")
        with tempfile.TemporaryDirectory(prefix="holdfast-") as directory:
            file = Path(directory) / "arguments.json"
            file.write_text(text + "\n", encoding="utf-8")
            try:
                done = subprocess.run([*shlex.split(editor), str(file)], check=False)
            except (OSError, ValueError) as cause:
                msg = f"The editor {editor!r} cannot be started: {cause}"
                raise InvalidArgumentError(msg) from cause
            if done.returncode:
                msg = f"The editor {editor!r} ended with {done.returncode}; nothing was decided."
                raise InvalidArgumentError(msg)
            return file.read_text(encoding="utf-8")


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end a read that blocks; asyncio's own handler only sets a flag."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
