"""`trace()`: several runs as one trace, and what a new task takes over from where it is made."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, NamedTuple, Self

from holdfast.argument_checks import check_arguments
from holdfast.errors import HoldfastError
from holdfast.redact import redact
from holdfast.tracing import switch
from holdfast.tracing.ids import trace_digits
from holdfast.values import Json, as_text

DEFAULT_WORKFLOW_NAME = "Agent workflow"
SENSITIVE = "HOLDFAST_TRACE_INCLUDE_SENSITIVE_DATA"


class Trace:
    """A trace that tasks made inside its `with` block belong to.

    Attributes:
        name: Name of the workflow that the block is.
        trace_id: `trace_` and 32 hexadecimal digits.
        group_id: Joins traces, as those of one conversation.
        metadata: Facts about it.
        disabled: Whether tasks made inside record nothing.
        parent: The block's own span, below which its tasks hang; empty when this process makes no
            spans.
    """

    def __init__(
        self,
        name: str,
        *,
        trace_id: str | None = None,
        group_id: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        disabled: bool = False,
    ) -> None:
        """Name the trace; nothing is recorded before `start`.

        Raises:
            InvalidArgumentError: One of these is of another type.
        """
        check_arguments(
            Trace.__init__, name=name, trace_id=trace_id, group_id=group_id, metadata=metadata
        )
        self.name = name
        self.trace_id = trace_id or ""
        self.group_id = group_id
        self.metadata = dict(metadata or {})
        self.disabled = disabled
        self.parent = ""
        self._span: Any = None
        self._current: AbstractContextManager[None] | None = None
        self._before: Token[Trace | None] | None = None

    def start(self, *, mark_as_current: bool = False) -> None:
        """Begin.

        Args:
            mark_as_current: Whether tasks made from now on belong to it.
        """
        around = None if self.trace_id else _around()
        self.disabled = self.disabled or (around is not None and around.disabled)
        found = around.trace_id if around is not None else self.trace_id
        self.trace_id = f"trace_{trace_digits(found)}" if found else gen_trace_id()
        self._start_span(around.parent if around is not None else "")
        if mark_as_current:
            self._before = _current.set(self)
            if self._span is not None:
                from holdfast.tracing import otel

                self._current = otel.current(self._span)
                self._current.__enter__()

    def _start_span(self, above: str) -> None:
        spans = None if self.disabled or switch.is_disabled() else switch.spans()
        if spans is None:
            self.parent = above
            return
        from holdfast.tracing import otel

        self.parent = secrets.token_hex(8)
        sampled = True if above else None
        place = otel.Place(trace_digits(self.trace_id), self.parent, above, sampled)
        self._span = spans.start(
            place,
            f"invoke_workflow {self.name}",
            attributes={
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": self.name,
                "gen_ai.conversation.id": self.group_id,
                **metadata_attributes(self.metadata),
            },
        )
        context = self._span.get_span_context()
        self.disabled = self.disabled or not context.trace_flags.sampled

    def finish(self, *, reset_current: bool = False) -> None:
        """End.

        Args:
            reset_current: Whether tasks made from now on belong to the trace around this one.
        """
        if reset_current and self._before is not None:
            if self._current is not None:
                self._current.__exit__(None, None, None)
            _current.reset(self._before)
            self._before = None
        if self._span is not None:
            self._span.end()
            self._span = None

    def __enter__(self) -> Self:
        """Begin, and take in the tasks that are made inside."""
        self.start(mark_as_current=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        """End; an error that leaves the block is told, and goes on.

        The text of one of Holdfast's own may be a model's words, and the block does not know what
        its run allows: the run's own spans tell it.
        """
        if self._span is not None and error is not None:
            from holdfast.tracing import otel

            tells = includes_sensitive_data() and not isinstance(error, HoldfastError)
            otel.fail(self._span, type(error).__name__, redact(str(error)) if tells else "")
        self.finish(reset_current=True)


_current: ContextVar[Trace | None] = ContextVar("holdfast_trace", default=None)


def trace(
    workflow_name: str,
    trace_id: str | None = None,
    group_id: str | None = None,
    metadata: Mapping[str, Json] | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Trace:
    """Make one trace of all tasks that are created inside a `with` block.

    Args:
        workflow_name: Name of what the block does.
        trace_id: Id of the trace, best as `gen_trace_id()` makes them. Without one, the trace is
            the one around the block: an outer `trace()`, or OpenTelemetry's current span.
        group_id: Joins traces, as those of one conversation.
        metadata: Facts about it.
        disabled: Whether tasks made inside record nothing.
    """
    return Trace(
        workflow_name, trace_id=trace_id, group_id=group_id, metadata=metadata, disabled=disabled
    )


def get_current_trace() -> Trace | None:
    """Return the trace of the innermost `with trace(...)` block around the caller."""
    return _current.get()


def gen_trace_id() -> str:
    """Make up a trace id: `trace_` and 32 hexadecimal digits."""
    return f"trace_{uuid.uuid4().hex}"


class Around(NamedTuple):
    """The trace that a new task finds itself in.

    Attributes:
        trace_id: Its id, in any form.
        parent: Span that the task hangs below; empty for none.
        disabled: Whether the task records nothing.
        block: The `trace()` block, if it is one.
    """

    trace_id: str
    parent: str
    disabled: bool
    block: Trace | None = None


def around(trace_id: str = "") -> Around | None:
    """Find the trace that a task made here belongs to; None for one of its own.

    Args:
        trace_id: The trace that the task was given: it comes before the one around the caller.
    """
    if switch.is_disabled():
        return Around("", "", disabled=True)
    block = _current.get()
    if block is not None and block.disabled:
        return Around("", "", disabled=True, block=block)
    found = _around()
    if trace_id and (found is None or trace_digits(found.trace_id) != trace_digits(trace_id)):
        return Around(trace_id, "", disabled=False, block=block)
    return found


def _around() -> Around | None:
    """Return OpenTelemetry's current span, which is inside of the block, or the block itself."""
    block = _current.get()
    if switch.spans() is not None:
        from holdfast.tracing import otel

        found = otel.caller()
        if found is not None and (block is None or found[0] == trace_digits(block.trace_id)):
            return Around(found[0], found[1], disabled=not found[2], block=block)
    if block is None:
        return None
    return Around(block.trace_id, block.parent, disabled=block.disabled, block=block)


def includes_sensitive_data() -> bool:
    """Whether this process puts inputs, outputs and messages into spans: yes, unless told not to.

    `HOLDFAST_TRACE_INCLUDE_SENSITIVE_DATA` set to 0, false, no or off says no.
    """
    return os.environ.get(SENSITIVE, "").strip().lower() not in ("0", "false", "no", "off")


def metadata_attributes(metadata: Mapping[str, Json]) -> dict[str, Any]:
    """Write metadata as attributes: plain values as they are, the rest as JSON text."""
    return {
        f"holdfast.metadata.{key}": value
        if isinstance(value, str | bool | int | float)
        else as_text(value)
        for key, value in metadata.items()
    }
