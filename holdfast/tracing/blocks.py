"""`trace()`, which makes several runs one trace, and the trace that a new task belongs to."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, NamedTuple, Self

from holdfast.errors import HoldfastError
from holdfast.tracing import switch
from holdfast.tracing.ids import trace_digits
from holdfast.values.base import Json, as_text
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.text.redact import redact

DEFAULT_WORKFLOW_NAME = "Agent workflow"
SENSITIVE = "HOLDFAST_TRACE_INCLUDE_SENSITIVE_DATA"
SENSITIVE_OF_SDK = "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA"


class Trace:
    """A trace of all tasks that are created inside its `with` block.

    Attributes:
        name: Name of the workflow that the block runs.
        trace_id: `trace_` and 32 hexadecimal digits.
        group_id: Id that groups traces, such as those of one conversation.
        metadata: Metadata of the trace.
        disabled: Whether tasks created inside are not traced.
        parent: Id of the block's own span, the parent of its tasks' spans. If this process makes no
            spans, that of the span around the block, or empty.
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
        """Take the settings; nothing is recorded before `start`.

        Raises:
            InvalidArgumentError: An argument has a wrong type.
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
        """Start the trace.

        Args:
            mark_as_current: Whether tasks created from now on belong to it.
        """
        around = None if self.trace_id else span_around()
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
        """End the trace.

        Args:
            reset_current: Whether tasks created from now on belong to the trace around this one.
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
        """Start the trace as the current one."""
        self.start(mark_as_current=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        """End the trace; an error that leaves the block is recorded, and propagates.

        The text of one of Holdfast's own errors is left out: it may quote a model, and the block
        does not know whether the run allows sensitive data. The run's own spans have it, if so.
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
        workflow_name: Name of the workflow that the block runs.
        trace_id: Id of the trace, best from `gen_trace_id()`. Without one, the block joins the
            trace around it: that of an outer `trace()`, or of OpenTelemetry's current span.
        group_id: Id that groups traces, such as those of one conversation.
        metadata: Metadata of the trace.
        disabled: Whether tasks created inside are not traced.
    """
    return Trace(
        workflow_name, trace_id=trace_id, group_id=group_id, metadata=metadata, disabled=disabled
    )


def get_current_trace() -> Trace | None:
    """Return the trace of the innermost `with trace(...)` block around the caller."""
    return _current.get()


def gen_trace_id() -> str:
    """Make a random trace id: `trace_` and 32 hexadecimal digits."""
    return f"trace_{uuid.uuid4().hex}"


class Around(NamedTuple):
    """The trace that a new task joins.

    Attributes:
        trace_id: Its id, in any form.
        parent: Id of the task's parent span; empty for none.
        disabled: Whether the task is not traced.
        block: The `trace()` block around the caller, if there is one.
    """

    trace_id: str
    parent: str
    disabled: bool
    block: Trace | None = None


def around(trace_id: str = "") -> Around | None:
    """Find the trace that a task created here joins; None if it gets a trace of its own.

    Args:
        trace_id: Trace id from the task's settings; it takes precedence over the trace around the
            caller.
    """
    if switch.is_disabled():
        return Around("", "", disabled=True)
    block = _current.get()
    if block is not None and block.disabled:
        return Around("", "", disabled=True, block=block)
    found = span_around()
    if trace_id and (found is None or trace_digits(found.trace_id) != trace_digits(trace_id)):
        return Around(trace_id, "", disabled=False, block=block)
    return found


def span_around() -> Around | None:
    """Return OpenTelemetry's current span if it belongs to the block's trace, else the block."""
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
    """Whether this process puts inputs, outputs and messages into spans; yes by default.

    0, false, no or off in `HOLDFAST_TRACE_INCLUDE_SENSITIVE_DATA` turns it off; if that is not set,
    in `OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA`.
    """
    said = os.environ.get(SENSITIVE) or os.environ.get(SENSITIVE_OF_SDK) or ""
    return said.strip().lower() not in ("0", "false", "no", "off")


def metadata_attributes(metadata: Mapping[str, Json]) -> dict[str, Any]:
    """Write metadata as span attributes: plain values as they are, others as JSON text."""
    return as_attributes("holdfast.metadata", metadata)


def as_attributes(prefix: str, data: Mapping[str, Json]) -> dict[str, Any]:
    """Write data as span attributes below a prefix, as `metadata_attributes` does."""
    return {
        f"{prefix}.{key}": value if isinstance(value, str | bool | int | float) else as_text(value)
        for key, value in data.items()
    }
