"""Ids of a task's trace and spans, derived from names alone, so that all processes agree.

Pure. A span's id is a digest of its place in the task, so a worker process knows the id of the
parent of its spans, even if another process exports that parent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.values.base import canonical, digest

TRACE_DIGITS = 32
SPAN_DIGITS = 16

_SPAN_ID = re.compile(r"(?:span_[0-9a-f]{8})?([0-9a-f]{16})")
_TRACE_ID = re.compile(r"(?:trace_)?([0-9a-f]{32})")


def trace_digits(given: str) -> str:
    """Return the 32 hexadecimal digits for a trace id that a user gave.

    OpenTelemetry's own form and `trace_<32 digits>` keep their digits; any other text is replaced
    by its digest, so that equal texts are one trace.
    """
    known = _TRACE_ID.fullmatch(given)
    if known is not None and int(known[1], 16):
        return known[1]
    return _digits(TRACE_DIGITS, "trace", given)


def span_digits(given: str) -> str:
    """Return the 16 hexadecimal digits for a span id that a user gave.

    Of `span_<24 digits>` the last 16, and OpenTelemetry's own form as it is; any other text is
    replaced by its digest.
    """
    known = _SPAN_ID.fullmatch(given)
    if known is not None and int(known[1], 16):
        return known[1]
    return _digits(SPAN_DIGITS, "span", given)


@dataclass(frozen=True)
class TaskTrace:
    """The trace of one task.

    Attributes:
        namespace: The Temporal namespace.
        task_id: The task.
        trace: The trace's id, 32 hexadecimal digits.
        parent: Id of the parent of the task's own span, 16 hexadecimal digits; empty for none.
    """

    namespace: str
    task_id: str
    trace: str
    parent: str = ""

    @classmethod
    def of(cls, namespace: str, task_id: str, *, trace: str = "", parent: str = "") -> TaskTrace:
        """Make the trace of a task.

        Args:
            namespace: The Temporal namespace.
            task_id: The task.
            trace: Trace id that the task was created with; if empty, it is derived from the
                task's id.
            parent: Id of the parent span that the task was created with.
        """
        found = trace_digits(trace) if trace else _digits(TRACE_DIGITS, namespace, task_id)
        return cls(namespace, task_id, found, parent)

    @property
    def root(self) -> str:
        """Id of the task's own span."""
        return self._span("task")

    def step(self, branch: int, n: int) -> str:
        """Return the id of a step's span, by branch and the number under which it was opened."""
        return self._span("step", branch, n)

    def call(self, child: str) -> str:
        """Return the id of the span of a tool call that runs as a child task, by the child's id."""
        return self._span("call", child)

    def attempt(self, kind: str, run_id: str, activity_id: str, attempt: int) -> str:
        """Return the id of a span that one attempt of an activity makes; unique per attempt."""
        return self._span(kind, run_id, activity_id, attempt)

    def _span(self, *place: str | int) -> str:
        return _digits(SPAN_DIGITS, self.trace, self.namespace, self.task_id, *place)


def _digits(count: int, *place: str | int) -> str:
    found = digest(canonical(place))[:count]
    return found if int(found, 16) else found[:-1] + "1"  # zero means "no id"
