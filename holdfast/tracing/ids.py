"""Which trace and which spans a task has: decided by names alone, so that all processes agree.

Pure. A span's id is a digest of its place in the task, so a worker process can name the parent of
its spans without a word from the process that exports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.values.base import canonical, digest

TRACE_DIGITS = 32
SPAN_DIGITS = 16

_TRACE_ID = re.compile(r"(?:trace_)?([0-9a-f]{32})")


def trace_digits(given: str) -> str:
    """Return the 32 hexadecimal digits of a trace id that somebody gave.

    OpenTelemetry's own form and `trace_<32 digits>` are taken as they are; of any other text the
    digest is taken, so that equal texts are one trace.
    """
    known = _TRACE_ID.fullmatch(given)
    if known is not None and int(known[1], 16):
        return known[1]
    return _digits(TRACE_DIGITS, "trace", given)


@dataclass(frozen=True)
class TaskTrace:
    """The trace of one task.

    Attributes:
        namespace: The Temporal namespace.
        task_id: The task.
        trace: The trace's id, 32 hexadecimal digits.
        parent: Span that the task hangs below, 16 hexadecimal digits; empty for none.
    """

    namespace: str
    task_id: str
    trace: str
    parent: str = ""

    @classmethod
    def of(cls, namespace: str, task_id: str, *, trace: str = "", parent: str = "") -> TaskTrace:
        """Name the trace of a task.

        Args:
            namespace: The Temporal namespace.
            task_id: The task.
            trace: Trace id that was given when the task was created; else the task's id decides.
            parent: Span that was given then.
        """
        found = trace_digits(trace) if trace else _digits(TRACE_DIGITS, namespace, task_id)
        return cls(namespace, task_id, found, parent)

    @property
    def root(self) -> str:
        """The task's own span."""
        return self._span("task")

    def step(self, branch: int, n: int) -> str:
        """Name the span of a step, by its branch and the number under which it was opened."""
        return self._span("step", branch, n)

    def call(self, child: str) -> str:
        """Name the span of a tool call that is a task of its own, by that task."""
        return self._span("call", child)

    def attempt(self, kind: str, run_id: str, activity_id: str, attempt: int) -> str:
        """Name a span that one attempt of an activity makes; no other attempt makes it too."""
        return self._span(kind, run_id, activity_id, attempt)

    def _span(self, *place: str | int) -> str:
        return _digits(SPAN_DIGITS, self.trace, self.namespace, self.task_id, *place)


def _digits(count: int, *place: str | int) -> str:
    found = digest(canonical(place))[:count]
    return found if int(found, 16) else found[:-1] + "1"  # zero means "no id"
