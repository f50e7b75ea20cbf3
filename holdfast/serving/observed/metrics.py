"""`HOLDFAST_METRICS`: the metrics of Temporal's SDK and ours, from one port or to one collector.

Ours go through the SDK's own meter. No label is an id: their number is that of agents, models,
tools and queues.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

from temporalio import activity
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import OpenTelemetryConfig, PrometheusConfig
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.archive.archive import Archive, time_store
from holdfast.engine.runtime import export_metrics
from holdfast.errors import ModelUnavailableError, ServerStartError, ToolTimeoutError
from holdfast.models.base import ModelAnswer
from holdfast.serving.observed.health import address_in
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INTERRUPTED, TIMED_OUT
from holdfast.task.data.wire import Advanced
from holdfast.tracing import switch

VARIABLE = "HOLDFAST_METRICS"
LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MONEY = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metric(NamedTuple):
    """What a metric is.

    Attributes:
        kind: Its kind.
        text: What it says.
        labels: Names of its labels.
        buckets: Of a histogram, the bounds of its buckets.
    """

    kind: str
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS = {
    "holdfast_steps": Metric("counter", "Steps that AgentWorkers have ended.", ("queue",)),
    "holdfast_model_seconds": Metric(
        "histogram", "Duration of model calls.", ("model", "outcome"), LONG
    ),
    "holdfast_model_tokens": Metric("counter", "Tokens of model calls.", ("model", "kind")),
    "holdfast_model_dollars": Metric("histogram", "Cost of model calls.", ("model",), MONEY),
    "holdfast_governor_wait_seconds": Metric(
        "histogram", "How long model calls waited for their turn.", ("provider",), LONG
    ),
    "holdfast_tool_seconds": Metric(
        "histogram", "Duration of tool calls.", ("tool", "outcome"), LONG
    ),
    "holdfast_archive_seconds": Metric(
        "histogram", "Duration of the archive's operations.", ("operation", "outcome"), SHORT
    ),
    "holdfast_open_tasks": Metric("gauge", "Open tasks.", ("agent", "status")),
    "holdfast_closed_tasks": Metric(
        "gauge", "Tasks that have closed within the last hour.", ("agent", "status")
    ),
    "holdfast_failing_tasks": Metric("gauge", "Open tasks whose workflow task fails."),
    "holdfast_approvals_waiting": Metric("gauge", "Open approvals.", ("kind",)),
    "holdfast_oldest_approval_seconds": Metric("gauge", "Age of the oldest open approval."),
    "holdfast_unserved_queues": Metric(
        "gauge", "Queues with open tasks that no worker process serves."
    ),
    "holdfast_counted_at_seconds": Metric(
        "gauge", "When all tasks were last counted, in seconds since 1970."
    ),
}
"""Our metrics; those of the SDK begin with `temporal_`. Gauges come from `holdfast metrics`."""


def begin_metrics() -> Meters:
    """Export the metrics of this process as `HOLDFAST_METRICS` says, before a client is made.

    Raises:
        InvalidArgumentError: The variable has another form.
        ServerStartError: The address is taken, or not of this machine.
    """
    given = os.environ[VARIABLE]
    buckets = {name: each.buckets for name, each in METRICS.items() if each.buckets}
    url = given.removeprefix("otlp=")
    exporter: OpenTelemetryConfig | PrometheusConfig
    if "://" in url:
        exporter = OpenTelemetryConfig(
            url,
            http=url.endswith("/v1/metrics"),
            durations_as_seconds=True,
            histogram_bucket_overrides=buckets,
        )
    else:
        host, port = address_in(VARIABLE, given)
        exporter = PrometheusConfig(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            counters_total_suffix=True,
            unit_suffix=True,
            durations_as_seconds=True,
            histogram_bucket_overrides=buckets,
        )
    try:
        return Meters(export_metrics(exporter))
    except ValueError as error:
        msg = f"{VARIABLE} is {given!r}, and the metrics cannot be exported so: {error}."
        raise ServerStartError(msg) from None


class Meters(switch.Meter):
    """Our metrics in this process."""

    def __init__(self, meter: MetricMeter) -> None:
        """Make them by this meter."""
        make: dict[str, Callable[..., Any]] = {
            "counter": meter.create_counter,
            "histogram": meter.create_histogram_float,
            "gauge": meter.create_gauge_float,
        }
        self._of = {name: make[each.kind](name, each.text) for name, each in METRICS.items()}

    def add(self, name: str, count: int, **labels: str) -> None:
        """Add to a counter."""
        self._of[name].add(count, labels)

    def record(self, name: str, value: float, **labels: str) -> None:
        """Record a value of a histogram."""
        self._of[name].record(value, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._of[name].set(value, labels)

    def watch(self, archive: Archive) -> Interceptor:
        """Measure what workers of this process do; return what counts their steps.

        Args:
            archive: Their archive.
        """
        switch.measure(self)
        time_store(archive, self._timed)
        return _Steps(self)

    def _timed(self, operation: str, run: Callable[..., Any]) -> Callable[..., Any]:
        record = partial(self.record, "holdfast_archive_seconds", operation=operation)

        @wraps(run)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun, outcome = time.monotonic(), "error"
            try:
                found = run(*args, **kwargs)
                outcome = "done"
            except FileNotFoundError:  # an answer like any other
                outcome = "done"
                raise
            else:
                return found
            finally:
                record(time.monotonic() - begun, outcome=outcome)

        return timed

    def model_call(
        self, model: str, seconds: float, answer: ModelAnswer | None, error: BaseException | None
    ) -> None:
        """Record a model call."""
        match error:
            case None:
                outcome = "answered"
            case ModelUnavailableError():
                outcome = "rate_limited" if error.is_limit else "unavailable"
            case Exception():
                outcome = "failed"
            case _:
                outcome = "cancelled"
        self.record("holdfast_model_seconds", seconds, model=model, outcome=outcome)
        if answer is None:
            return
        used = answer.usage
        for kind, count in (
            ("input", used.input_tokens - used.cached_tokens),
            ("cached", used.cached_tokens),
            ("output", used.output_tokens),
        ):
            self.add("holdfast_model_tokens", max(count, 0), model=model, kind=kind)
        if used.priced:
            self.record("holdfast_model_dollars", float(used.paid), model=model)

    def waited(self, provider: str, seconds: float) -> None:
        """Record how long a model call has waited for its turn."""
        self.record("holdfast_governor_wait_seconds", seconds, provider=provider)

    def tool_call(
        self, tool: str, seconds: float, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Record a tool call."""
        self.record("holdfast_tool_seconds", seconds, tool=tool, outcome=_came_to(outcome, error))


def _came_to(outcome: Outcome | None, error: BaseException | None) -> str:
    kind = error.type if isinstance(error, ApplicationError) else ""
    if isinstance(error, ToolTimeoutError) or kind == TIMED_OUT:
        return "timeout"
    if kind == INTERRUPTED or (error is not None and not isinstance(error, Exception)):
        return "unknown"
    if error is not None or (outcome is not None and outcome.is_error):
        return "failed"
    return "done"


class _Steps(Interceptor):
    """Counts the steps that activities end."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def intercept_activity(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002  Temporal's name
    ) -> ActivityInboundInterceptor:
        return _Counting(next, self._meters)


class _Counting(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, meters: Meters) -> None:
        super().__init__(following)
        self._meters = meters

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        result = await super().execute_activity(input)
        if isinstance(result, Advanced) and result.result is not None and not result.unbegun:
            self._meters.add("holdfast_steps", 1, queue=activity.info().task_queue)
        return result
