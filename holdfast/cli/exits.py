"""Exit codes, on which scripts can rely, and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum

from holdfast.errors import (
    EngineError,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    TaskExistsError,
    UserError,
)


class ExitCode(IntEnum):
    """How a command ended. The numbers are stable."""

    OK = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    NOT_FOUND = 4
    ENGINE = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "the task failed, needs attention, or refused; or stdout is full",
    ExitCode.USAGE: "wrong usage: nothing was done",
    ExitCode.WAITING: "the task waits for a person",
    ExitCode.NOT_FOUND: "no such task, step, session or agent",
    ExitCode.ENGINE: "trouble with the server, the connection, the worker or the archive",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C or SIGTERM; the task goes on",
}

EPILOG = "Exit codes: " + "; ".join(f"{code:d} {text}" for code, text in MEANINGS.items()) + "."


class InterruptedByUserError(Exception):
    """Ctrl-C or SIGTERM ended a command that can be left at any moment."""


def exit_code_of(error: HoldfastError) -> ExitCode:
    """Return the exit code of an error."""
    match error:
        case InvalidArgumentError() | UserError() | TaskExistsError():
            return ExitCode.USAGE
        case NotFoundError():
            return ExitCode.NOT_FOUND
        case EngineError():
            return ExitCode.ENGINE
        case _:
            return ExitCode.FAILED
