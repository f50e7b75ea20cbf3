"""OpenTelemetry spans with given ids. The only module that imports OpenTelemetry."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from holdfast.values.checks.gate import clean
from holdfast.values.code.extras import needing
from holdfast.values.text.logs import log
from holdfast.values.version import __version__

with needing("otel", "Making spans"):
    from opentelemetry import trace as api
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        TracerProvider,
    )

SCOPE = "holdfast"
NANOSECONDS = 1_000_000_000


_chosen: ContextVar[tuple[int, int] | None] = ContextVar("holdfast_span_ids", default=None)


@dataclass(frozen=True)
class Place:
    """The ids of a span.

    Attributes:
        trace: Id of the trace, 32 hexadecimal digits.
        span: Id of the span, 16 hexadecimal digits.
        parent: Id of its parent; empty for none.
        sampled: Whether the parent was sampled; None if this is not known, so that the sampler
            decides by the trace's id.
    """

    trace: str
    span: str
    parent: str = ""
    sampled: bool | None = None


class ChosenIds:
    """An id generator that returns the ids that Holdfast chose, else those of another generator.

    Holdfast wraps the generator of its own tracer with it. Give one to a provider whose tracers
    have no `id_generator`: `SomeProvider(id_generator=ChosenIds(RandomIdGenerator()))`.
    """

    def __init__(self, following: Any) -> None:
        """Take the generator of all other ids."""
        self._following = following

    def generate_span_id(self) -> int:
        """Return the id of the span that is being started."""
        ids = _chosen.get()
        return ids[1] if ids is not None else int(self._following.generate_span_id())

    def generate_trace_id(self) -> int:
        """Return the id of its trace."""
        ids = _chosen.get()
        return ids[0] if ids is not None else int(self._following.generate_trace_id())

    def is_trace_id_random(self) -> bool:
        """Whether trace ids are uniformly random; Holdfast's digests count as random."""
        return bool(self._following.is_trace_id_random())


class Spans:
    """Makes spans with one provider."""

    def __init__(self, provider: TracerProvider) -> None:
        """Get a tracer of the provider, and set its id generator."""
        tracer: Any = provider.get_tracer(SCOPE, __version__)
        following = getattr(tracer, "id_generator", None)  # public in the SDK's tracers
        if following is not None and not isinstance(following, ChosenIds):
            tracer.id_generator = ChosenIds(following)
        self._tracer = tracer
        self._sampler: Any = getattr(tracer, "sampler", None)
        self._warned = False

    def start(
        self,
        place: Place,
        name: str,
        *,
        attributes: Mapping[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
        start: float | None = None,
    ) -> Span:
        """Start a span.

        Args:
            place: Its ids.
            name: Its name.
            attributes: Its attributes; None values are left out.
            kind: OpenTelemetry's kind of span.
            start: When it began, seconds since the epoch; None for now.
        """
        token = _chosen.set((int(place.trace, 16), int(place.span, 16)))
        try:
            span: Span = self._tracer.start_span(
                name,
                context=self._below(place),
                kind=kind,
                attributes=told(attributes),
                start_time=None if start is None else nanoseconds(start),
            )
        finally:
            _chosen.reset(token)
        self._check(span, place)
        return span

    def _below(self, place: Place) -> Context:
        """Return a context with the parent alone, as a remote span: it may be another process's."""
        if not place.parent:
            return Context()
        sampled = self._is_sampled(place) if place.sampled is None else place.sampled
        parent = SpanContext(
            trace_id=int(place.trace, 16),
            span_id=int(place.parent, 16),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
        )
        return api.set_span_in_context(NonRecordingSpan(parent), Context())

    def _is_sampled(self, place: Place) -> bool:
        """Compute the sampler's decision on the root of a trace, which another process may make."""
        if self._sampler is None:
            return True
        asked = self._sampler.should_sample(Context(), int(place.trace, 16), "invoke_agent")
        return bool(asked.decision.is_sampled())

    def _check(self, span: Span, place: Place) -> None:
        """Warn once if the provider did not use the given ids, as spans then have wrong parents."""
        if self._warned or not span.is_recording():
            return
        if span.get_span_context().span_id != int(place.span, 16):
            self._warned = True
            log.warning(
                "The tracer provider chose a span's id itself, so that spans of several processes"
                " will not join. Give it id_generator=holdfast.tracing.ChosenIds(...), or call"
                " holdfast.tracing.instrument() with a TracerProvider of the OpenTelemetry SDK."
            )


@contextmanager
def current(span: Span) -> Generator[None]:
    """Make a span the current one, the parent of spans that other code records in the block."""
    with api.use_span(span, record_exception=False, set_status_on_exception=False):
        yield


def told(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes for an exporter: without None values, and without lone surrogates."""
    return {
        key: clean(value) if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }


def caller() -> tuple[str, str, bool] | None:
    """Return trace id, span id and sampling of the caller's current span, if there is one."""
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags.sampled)


def fail(
    span: Span, kind: str, text: str = "", *, stack: str = "", at: float | None = None
) -> None:
    """Record an error in a span.

    Args:
        span: The span.
        kind: Class name of the error.
        text: Its text; empty if that is sensitive data to leave out.
        stack: Its stack trace; empty to leave it out.
        at: When, seconds since the epoch; None for now.
    """
    span.set_attribute("error.type", kind)
    text = clean(text)
    span.set_status(Status(StatusCode.ERROR, text or None))
    if text:
        facts = {"exception.type": kind, "exception.message": text}
        if stack:
            facts["exception.stacktrace"] = clean(stack)
        span.add_event("exception", facts, timestamp=None if at is None else nanoseconds(at))


def end(span: Span, at: float | None = None) -> None:
    """End a span, now or at a time in seconds since the epoch."""
    span.end(None if at is None else nanoseconds(at))


def nanoseconds(seconds: float) -> int:
    """Return a time in nanoseconds, rounded to milliseconds, so that floats add no false digits."""
    return round(seconds * 1000) * (NANOSECONDS // 1000)
