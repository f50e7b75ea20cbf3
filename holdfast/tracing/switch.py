"""Whether spans are made in this process, and by which provider.

OpenTelemetry is an extra: nothing here imports it, unless the program has imported it already.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from holdfast.models.base import ModelAnswer
    from holdfast.task.data.calls import Outcome
    from holdfast.tracing.otel import Spans


logger = logging.getLogger(__name__)


class Meter(Protocol):
    """Measures what spans are made of."""

    def model_call(
        self, model: str, seconds: float, answer: ModelAnswer | None, error: BaseException | None
    ) -> None:
        """Measure a model call that has ended."""
        ...

    def waited(self, provider: str, seconds: float) -> None:
        """Measure how long a model call has waited for its turn."""
        ...

    def tool_call(
        self, tool: str, seconds: float, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Measure a tool call that has ended."""
        ...


class _Switch:
    """The tracing settings of this process, its maker of spans, and its meter."""

    def __init__(self) -> None:
        self.given: TracerProvider | None = None
        self.provider: TracerProvider | None = None
        self.spans: Spans | None = None
        self.disabled: bool | None = None
        self.meter: Meter | None = None


_switch = _Switch()


def spans() -> Spans | None:
    """Return the maker of spans of this process; None while there is no provider."""
    provider = provider_in_use()
    if provider is None:
        return None
    if provider is not _switch.provider or _switch.spans is None:
        from holdfast.tracing.otel import Spans

        _switch.spans, _switch.provider = Spans(provider), provider
    return _switch.spans


def measure(meter: Meter | None) -> None:
    """Measure by this meter in this process; None measures nothing."""
    _switch.meter = meter


def meter() -> Meter | None:
    """Return the meter of this process, if it has one."""
    return _switch.meter


def is_off() -> bool:
    """Whether this process has neither a provider of spans nor a meter."""
    return spans() is None and _switch.meter is None


def may_trace() -> bool:
    """Whether there may be a provider. Workflow code asks this: it calls nothing of another's."""
    return _switch.given is not None or "opentelemetry.trace" in sys.modules


def provider_in_use() -> TracerProvider | None:
    """Return the provider of `instrument`, else OpenTelemetry's global one, if there is one."""
    return _switch.given or _global_provider()


def instrument(provider: TracerProvider | None = None) -> None:
    """Make spans with this provider in this process, instead of OpenTelemetry's global one.

    Call it in each process whose provider is not the global one: in worker processes, which run
    models and tools, and where `trace()` is used.

    Args:
        provider: The provider; None goes back to the global one.
    """
    _switch.given = provider


def set_tracing_disabled(disabled: bool) -> None:  # noqa: FBT001  the Agents SDK's signature
    """Turn tracing off, or on again, for tasks that this process creates from now on."""
    _switch.disabled = disabled


def set_tracing_export_api_key(api_key: str) -> None:
    """Take OpenAI's key for traces, and use it for nothing: no trace is sent to OpenAI.

    Programs of the Agents SDK call it. The exporter of the OpenTelemetry provider has its own key.
    """
    del api_key
    logger.info(
        "set_tracing_export_api_key: the key is not used, because traces go where the exporter of"
        " your OpenTelemetry provider sends them, see docs/tracing.md."
    )


def is_disabled() -> bool:
    """Whether tasks that this process creates have no trace.

    1, true, yes or on in `OPENAI_AGENTS_DISABLE_TRACING` says so as well.
    """
    if _switch.disabled is not None:
        return _switch.disabled
    said = os.environ.get("OPENAI_AGENTS_DISABLE_TRACING", "").strip().lower()
    return said in ("1", "true", "yes", "on")


def _global_provider() -> TracerProvider | None:
    """Return OpenTelemetry's global provider, if one was set.

    Another thread may be importing OpenTelemetry just now: half a module has no provider yet.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None or getattr(api.__spec__, "_initializing", False):
        return None
    provider: TracerProvider = api.get_tracer_provider()
    unset = isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
    return None if unset else provider
