"""The demo's execution log: worker processes write down what they execute.

It is independent of all that Holdfast records, so that the two can be compared.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from holdfast.values.base import Value

CallKind = Literal["model", "tool"]


class Execution(Value):
    """One line of the log.

    Attributes:
        kind: What is executed.
        key: Which call: the number of the model call in the conversation, or the tool call's id.
        event: "start", then "end" or "error".
        pid: The worker process.
        at: Time, seconds since the epoch.
    """

    kind: CallKind
    key: str
    event: Literal["start", "end", "error"]
    pid: int
    at: float


class ExecutionLog:
    """An append-only file that several processes write, each line in one piece."""

    def __init__(self, path: Path) -> None:
        """Use this file."""
        self._path = path

    @contextmanager
    def execution(self, kind: CallKind, key: str) -> Generator[None]:
        """Write down that a call starts, and that it ends or fails."""
        self._write(kind, key, "start")
        try:
            yield
        except BaseException:
            self._write(kind, key, "error")
            raise
        self._write(kind, key, "end")

    def _write(self, kind: CallKind, key: str, event: Literal["start", "end", "error"]) -> None:
        line = Execution(kind=kind, key=key, event=event, pid=os.getpid(), at=time.time())
        data = json.dumps(line.model_dump()).encode() + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)

    def read(self) -> list[Execution]:
        """Read what was written so far, oldest first."""
        if not self._path.exists():
            return []
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [Execution.model_validate_json(each) for each in lines if each.endswith("\n")]


class CallCount(Value):
    """How often one call was executed.

    Attributes:
        kind: What it is.
        key: Which one, as in the log.
        starts: How often a worker process started it.
        completions: How often one completed it.
        pids: The worker processes that started it, in order.
    """

    kind: CallKind
    key: str
    starts: int = 0
    completions: int = 0
    pids: tuple[int, ...] = ()


def count(executions: Sequence[Execution]) -> dict[tuple[CallKind, str], CallCount]:
    """Count the executions of each call, in the order of their first start. Pure."""
    counts: dict[tuple[CallKind, str], CallCount] = {}
    for each in executions:
        known = counts.get((each.kind, each.key), CallCount(kind=each.kind, key=each.key))
        if each.event == "start":
            pids = (*known.pids, each.pid)
            known = known.model_copy(update={"starts": known.starts + 1, "pids": pids})
        elif each.event == "end":
            known = known.model_copy(update={"completions": known.completions + 1})
        counts[each.kind, each.key] = known
    return counts


def in_flight(executions: Sequence[Execution], kind: CallKind, key: str, pid: int) -> bool:
    """Whether this process is inside this call."""
    events = [e.event for e in executions if (e.kind, e.key, e.pid) == (kind, key, pid)]
    return bool(events) and events[-1] == "start"
