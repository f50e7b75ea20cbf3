"""Spans of the program's own, by the names and signatures of the Agents SDK."""

from __future__ import annotations

import os
import re
import secrets
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, NamedTuple, Self, cast

from typing_extensions import TypeVar

from holdfast.errors import HoldfastError
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.tracing import switch
from holdfast.values.base import Json, as_text, canonical, digest
from holdfast.values.checks.gate import check_arguments
from holdfast.values.text.redact import redact

# Ids of a task's trace and spans, derived from names alone, so that all processes agree.
#
# Pure. A span's id is a digest of its place in the task, so a worker process knows the id of the
# parent of its spans, even if another process exports that parent.

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


@dataclass
class SpanData:
    """What a span says; its fields may be set until the span ends."""

    type: ClassVar[str] = ""
    titled: ClassVar[str] = ""
    sensitive: ClassVar[frozenset[str]] = frozenset()

    def title(self) -> str:
        """Name of the span as it is exported."""
        known = {name: "" if value is None else value for name, value in vars(self).items()}
        return self.titled.format(**known).strip()

    def export(self) -> dict[str, Any]:
        """Return the type and the fields as data."""
        return {"type": self.type, **asdict(self)}

    def attributes(self) -> dict[str, Any]:
        """Return the fields as attributes; sensitive ones only where this process tells them."""
        hidden = frozenset[str]() if includes_sensitive_data() else self.sensitive
        known = {key: v for key, v in vars(self).items() if v is not None and key not in hidden}
        return as_attributes(f"holdfast.{self.type}", known)


@dataclass
class AgentSpanData(SpanData):
    """An agent that runs."""

    type: ClassVar[str] = "agent"
    titled: ClassVar[str] = "invoke_agent {name}"
    name: str = ""
    handoffs: list[str] | None = None
    tools: list[str] | None = None
    output_type: str | None = None


@dataclass
class FunctionSpanData(SpanData):
    """A function that is called."""

    type: ClassVar[str] = "function"
    titled: ClassVar[str] = "execute_tool {name}"
    sensitive: ClassVar[frozenset[str]] = frozenset({"input", "output"})
    name: str = ""
    input: str | None = None
    output: Any = None


@dataclass
class GenerationSpanData(SpanData):
    """A model call."""

    type: ClassVar[str] = "generation"
    titled: ClassVar[str] = "chat {model}"
    sensitive: ClassVar[frozenset[str]] = frozenset({"input", "output"})
    input: Sequence[Mapping[str, Any]] | None = None
    output: Sequence[Mapping[str, Any]] | None = None
    model: str | None = None
    model_config: Mapping[str, Any] | None = None
    usage: dict[str, Any] | None = None


@dataclass
class GuardrailSpanData(SpanData):
    """A guardrail that is run."""

    type: ClassVar[str] = "guardrail"
    titled: ClassVar[str] = "guardrail {name}"
    name: str = ""
    triggered: bool = False


@dataclass
class HandoffSpanData(SpanData):
    """A handoff."""

    type: ClassVar[str] = "handoff"
    titled: ClassVar[str] = "handoff {from_agent} to {to_agent}"
    from_agent: str | None = None
    to_agent: str | None = None


@dataclass
class CustomSpanData(SpanData):
    """Whatever the program says."""

    type: ClassVar[str] = "custom"
    titled: ClassVar[str] = "{name}"
    name: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])


DataT = TypeVar("DataT", bound=SpanData, default=SpanData)


class Span(Generic[DataT]):
    """A span of the program's own: the parent of spans that are made inside its `with` block.

    Attributes:
        span_data: What it says; fields may be set until it ends.
        span_id: Its id; with OpenTelemetry, its last 16 hexadecimal digits are the span's.
        trace_id: Its trace, once it has started.
        parent_id: Id of its parent, or None.
        started_at: When it started, ISO 8601; None before.
        ended_at: When it ended; None before.
        error: What `set_error` was given.
    """

    def __init__(
        self, data: DataT, span_id: str | None, parent: Trace | Span | None, *, disabled: bool
    ) -> None:
        """Take the settings; nothing is recorded before `start`."""
        self.span_data = data
        self.span_id = span_id or gen_span_id()
        self.trace_id = ""
        self.parent_id: str | None = None
        self.started_at: str | None = None
        self.ended_at: str | None = None
        self.error: Mapping[str, Any] | None = None
        self.disabled = disabled
        self._parent = parent
        self._span: Any = None
        self._current: AbstractContextManager[None] | None = None
        self._before: Token[Span | None] | None = None

    @property
    def digits(self) -> str:
        """The 16 hexadecimal digits by which OpenTelemetry knows it."""
        return span_digits(self.span_id)

    def start(self, mark_as_current: bool = False) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Start the span.

        Args:
            mark_as_current: Whether spans made from now on are below it.
        """
        if self.started_at is not None:
            return
        self.started_at = _now()
        above = self._above()
        self.trace_id = f"trace_{trace_digits(above.trace_id)}" if above else gen_trace_id()
        self.parent_id = (above.parent or None) if above else None
        self.disabled = self.disabled or (above is not None and above.disabled)
        spans = None if self.disabled or switch.is_disabled() else switch.spans()
        if spans is not None:
            from holdfast.tracing import otel

            parent, digits = self.parent_id or "", trace_digits(self.trace_id)
            place = otel.Place(digits, self.digits, parent, True if parent else None)
            self._span = spans.start(place, self.span_data.title(), attributes={})
        if mark_as_current:
            self._before = _current_span.set(cast("Any", self))
            if self._span is not None:
                from holdfast.tracing import otel

                self._current = otel.current(self._span)
                self._current.__enter__()

    def _above(self) -> Around | None:
        """Return what the span is below: its parent, else the span or block around the caller."""
        match self._parent:
            case Trace() as block:
                return Around(block.trace_id, block.parent, disabled=block.disabled)
            case Span() as span:
                return Around(span.trace_id, span.digits, disabled=span.disabled)
            case None:
                found, around = span_around(), _current_span.get()
                is_known = found is not None and switch.spans() is not None
                if around is None or (is_known and not around.disabled):
                    return found
                return Around(around.trace_id, around.digits, disabled=around.disabled)

    def finish(self, reset_current: bool = False) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """End the span.

        Args:
            reset_current: Whether spans made from now on are below the one around it.
        """
        if reset_current and self._before is not None:
            if self._current is not None:
                self._current.__exit__(None, None, None)
                self._current = None
            _current_span.reset(self._before)
            self._before = None
        if self.ended_at is not None:
            return
        self.ended_at = _now()
        if self._span is not None:
            from holdfast.tracing import otel

            for key, value in otel.told(self.span_data.attributes()).items():
                self._span.set_attribute(key, value)
            self._span.update_name(self.span_data.title())
            otel.end(self._span)

    def set_error(self, error: Mapping[str, Any]) -> None:
        """Say that the span has failed.

        Args:
            error: `message`, a text, and `data`, which is not exported.
        """
        self.error = error
        self._fail("error", str(error.get("message", "")))

    def _fail(self, kind: str, text: str) -> None:
        if self._span is not None:
            from holdfast.tracing import otel

            otel.fail(self._span, kind, redact(text) if includes_sensitive_data() else "")

    def export(self) -> dict[str, Any]:
        """Return the span as data."""
        return {
            "object": "trace.span",
            "id": self.span_id,
            "trace_id": self.trace_id,
            "parent_id": self.parent_id,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "span_data": self.span_data.export(),
            "error": self.error,
        }

    def __enter__(self) -> Self:
        """Start the span as the current one."""
        self.start(mark_as_current=True)
        return self

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        """End the span; an error that leaves the block is recorded, and propagates.

        The text of one of Holdfast's own errors is left out, as it is in a `trace()` block.
        """
        if error is not None:
            self._fail(type(error).__name__, "" if isinstance(error, HoldfastError) else str(error))
        self.finish(reset_current=True)


_current_span: ContextVar[Span | None] = ContextVar("holdfast_span", default=None)


def get_current_span() -> Span | None:
    """Return the span of the innermost block of these makers around the caller."""
    return _current_span.get()


def gen_span_id() -> str:
    """Make a random span id: `span_` and 24 hexadecimal digits."""
    return f"span_{uuid.uuid4().hex[:8]}{secrets.token_hex(8)}"


def gen_group_id() -> str:
    """Make a random group id: `group_` and 24 hexadecimal digits."""
    return f"group_{uuid.uuid4().hex[:24]}"


def custom_span(
    name: str,
    data: dict[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span:
    """Make a span of any work of the program's own.

    Args:
        name: Its name.
        data: What it says: data, exported as one attribute.
        span_id: Its id, best from `gen_span_id()`; made up by default.
        parent: What it is below; by default the span, else the trace, around the caller.
        disabled: Whether it is not exported.
    """
    return Span(CustomSpanData(name, data or {}), span_id, parent, disabled=disabled)


def agent_span(
    name: str,
    handoffs: list[str] | None = None,
    tools: list[str] | None = None,
    output_type: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span:
    """Make a span of an agent of the program's own; the last three arguments: `custom_span`."""
    data = AgentSpanData(name, handoffs, tools, output_type)
    return Span(data, span_id, parent, disabled=disabled)


def function_span(
    name: str,
    input: str | None = None,
    output: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span:
    """Make a span of a function that is called; the last three arguments: `custom_span`."""
    return Span(FunctionSpanData(name, input, output), span_id, parent, disabled=disabled)


def generation_span(
    input: Sequence[Mapping[str, Any]] | None = None,
    output: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span:
    """Make a span of a model call; the last three arguments: `custom_span`."""
    data = GenerationSpanData(input, output, model, model_config, usage)
    return Span(data, span_id, parent, disabled=disabled)


def guardrail_span(
    name: str,
    triggered: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span:
    """Make a span of a check; the last three arguments: `custom_span`."""
    return Span(GuardrailSpanData(name, triggered), span_id, parent, disabled=disabled)


def handoff_span(
    from_agent: str | None = None,
    to_agent: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> Span:
    """Make a span of a handoff; the last three arguments: `custom_span`."""
    return Span(HandoffSpanData(from_agent, to_agent), span_id, parent, disabled=disabled)


def _now() -> str:
    return datetime.now(UTC).isoformat()


# Traces, and blocks of a program's own.

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

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
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


# How a task is traced: its ids, whether its spans have sensitive data, common attributes.


@dataclass(frozen=True)
class TraceRules:
    """How one task is traced.

    Attributes:
        trace: Its ids.
        head: Its head.
        sensitive: Whether spans hold inputs, outputs, messages, arguments and results.
    """

    trace: TaskTrace
    head: TaskHead
    sensitive: bool

    @classmethod
    def of(cls, namespace: str, task_id: str, head: TaskHead) -> TraceRules | None:
        """Make the rules from a task's head; None when it is not traced."""
        run = head.run
        if not run.traced:
            return None
        trace = TaskTrace.of(namespace, task_id, trace=run.trace_id, parent=run.trace_parent)
        sensitive = includes_sensitive_data() if run.sensitive is None else run.sensitive
        return cls(trace, head, sensitive)

    @property
    def run(self) -> RunRules:
        """The rules that the run was started with."""
        return self.head.run

    @property
    def sampled(self) -> bool | None:
        """Whether the parent of the task's span is sampled; None when the sampler decides."""
        return True if self.trace.parent and not self.run.trace_open else None

    @property
    def common(self) -> dict[str, Any]:
        """Attributes of every span of the task."""
        session = self.head.session
        conversation = session.name if session is not None else self.run.group_id
        return {
            "gen_ai.agent.name": self.head.agent,
            "gen_ai.conversation.id": conversation or None,
            "holdfast.task.id": self.trace.task_id,
        }


def below_call(run: RunRules, rules: TraceRules | None, span: str) -> RunRules:
    """Put a child task below the span of its tool call, with its parent's rule on sensitive data.

    Args:
        run: The child's rules.
        rules: How its parent is traced.
        span: Id of the call's span, from `TaskTrace.call`.
    """
    if rules is None:
        return run.model_copy(update={"traced": False})
    changes: dict[str, object] = {
        "trace_id": rules.trace.trace,
        "trace_parent": span,
        "trace_open": rules.sampled is None,
        "sensitive": rules.run.sensitive if run.sensitive is None else run.sensitive,
    }
    return run.model_copy(update=changes)


def in_trace(run: RunRules) -> RunRules:
    """Put a task that is about to be created into the trace around the caller, if there is one.

    The run's own settings take precedence over those of the block.
    """
    if not run.traced:
        return run
    if run.sensitive is None and not includes_sensitive_data():
        run = run.model_copy(update={"sensitive": False})
    found = around(run.trace_id)
    if found is None:
        return run
    if found.disabled:
        return run.model_copy(update={"traced": False})
    changes: dict[str, object] = {
        "trace_id": trace_digits(found.trace_id),
        "trace_parent": found.parent,
    }
    block = found.block
    if block is not None:
        changes |= {
            "workflow_name": run.workflow_name or block.name,
            "group_id": run.group_id or block.group_id or "",
            "trace_metadata": {**block.metadata, **run.trace_metadata},
        }
    return run.model_copy(update=changes)
