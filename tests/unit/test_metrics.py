"""What our metrics say of a model call and of a tool call, by how it has ended."""

import asyncio

import pytest
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from holdfast.errors import ModelRequestError, ModelUnavailableError, ToolTimeoutError
from holdfast.serving.observed.metrics import Meters
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INTERRUPTED, TIMED_OUT


class Heard(Meters):
    """Keeps the outcomes that it is told."""

    def __init__(self) -> None:
        super().__init__(MetricMeter.noop)
        self.outcomes: list[str] = []

    def record(self, name: str, value: float, **labels: str) -> None:
        del name, value
        self.outcomes.append(labels["outcome"])


LIMIT, DOWN = (ModelUnavailableError("no", is_limit=each) for each in (True, False))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LIMIT, "rate_limited"),
        (DOWN, "unavailable"),
        (ModelRequestError("no"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
        (None, "answered"),
    ],
)
def test_a_model_call(error: BaseException | None, outcome: str) -> None:
    heard = Heard()
    heard.model_call("m", 1.0, None, error)
    assert heard.outcomes == [outcome]


@pytest.mark.parametrize(
    ("error", "made", "outcome"),
    [
        (None, Outcome(content="milk"), "done"),
        (None, Outcome(content="no milk", is_error=True), "failed"),
        (ValueError("no"), None, "failed"),
        (ToolTimeoutError(tool_name="t", timeout_seconds=1), None, "timeout"),
        (ApplicationError("late", type=TIMED_OUT), None, "timeout"),
        (ApplicationError("lost", type=INTERRUPTED), None, "unknown"),
        (asyncio.CancelledError(), None, "unknown"),
    ],
)
def test_a_tool_call(error: BaseException | None, made: Outcome | None, outcome: str) -> None:
    heard = Heard()
    heard.tool_call("t", 1.0, made, error)
    assert heard.outcomes == [outcome]
