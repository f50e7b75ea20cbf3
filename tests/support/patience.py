"""Time limits of the SDK and of the conformance suite, for machines that are busy with tests."""

from datetime import timedelta
from typing import Any

from temporalio.worker import _replayer, _worker, _workflow  # pyright: ignore[reportPrivateUsage]

from holdfast.testing.conformance.runs import Surface
from holdfast.workflows import activity_calls

DEADLOCK_SECONDS = 100
"""After 2 s the SDK takes a workflow that has not yielded for one that never will."""

CHECK_SECONDS = 250.0
"""Below the time limit of a test."""

AT_ONCE = timedelta(seconds=7)
"""Below the ten seconds of a workflow task, which the SDK would prolong by another one."""


class _Patient(_workflow._WorkflowWorker):  # pyright: ignore[reportPrivateUsage]
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._deadlock_timeout_seconds = DEADLOCK_SECONDS


def be_patient() -> None:
    """Give all workers and replayers of this process, and the checks of its suites, more time."""
    for module in (_worker, _replayer):
        setattr(module, "_WorkflowWorker", _Patient)  # noqa: B010  private to the SDK
    Surface.seconds = CHECK_SECONDS
    activity_calls.AT_ONCE = AT_ONCE
