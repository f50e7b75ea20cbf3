"""Refuse the events that a query brings before their workflow task begins.

A query that waits for a worker process is given the history as it is when one comes, with events
that no workflow task has brought yet. The SDK lets the workflow act on them for the query, and on
the rest of the workflow task later. A replay brings all events of a workflow task at once, updates
first, and at another time, so that other commands can come, or the same in another order: the
history is then not deterministic, and the task stuck (github.com/temporalio/sdk-python/issues/1591
is of the same kind).
"""

from __future__ import annotations

from typing import Any, cast

from temporalio.common import VersioningBehavior
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance

from holdfast.engine.search_attributes import SESSION, SPLIT

_BESIDE = {"query_workflow", "remove_from_cache"}
# Commands of which each is one event. One that is cancelled in the same workflow task is none.
_RECORDED = {
    "modify_workflow_properties",
    "schedule_activity",
    "signal_external_workflow_execution",
    "start_child_workflow_execution",
    "start_timer",
    "upsert_workflow_search_attributes",
}
_CANCELS = {
    "cancel_child_workflow_execution",
    "cancel_signal_workflow",
    "cancel_timer",
    "request_cancel_activity",
}
# Around the commands of a workflow task: its end, and the schedule and the begin of the next.
_EVENTS_BETWEEN_BEGINS = 3


_WHY = f"{SPLIT} before its begin. Ask again: it comes as a whole; nothing is lost."
_KNOWN_RUNS = 1000  # whose early events are remembered


class SplitWorkflowTaskError(Exception):
    """A query brought events of a workflow task that has not begun."""


class WholeTasks:
    """A workflow that acts on the events of a workflow task together, or not at all.

    Events that a query brings early are refused: the workflow would act on them at the time of the
    workflow task before, and a replay acts at that of theirs. The query fails, the run leaves the
    cache, and the client asks again (`while_busy`). Their workflow task brings the whole to a
    fresh run.

    A run that was terminated has such events for good. So the same events are taken when they come
    early for a second time. If the run is open all the same, its next activation is refused.

    A query can also bring a workflow task that has begun in another worker process and is lost with
    it. That shows when the next one begins: the history is then too short to hold the commands that
    the workflow has made. As many other events as there are commands hide it.
    """

    def __init__(self, inner: WorkflowInstance, refused: dict[str, int] | None = None) -> None:
        """Guard a workflow, which answers all else itself.

        Args:
            inner: The workflow.
            refused: How long the history of each run was, by its id, when early events of it were
                refused; shared by all runs of a worker.
        """
        self._inner = inner
        self._refused = {} if refused is None else refused
        self.get_info = inner.get_info
        self.get_serialization_context = inner.get_serialization_context
        self.get_external_store_context = inner.get_external_store_context
        self._at = (0, 0)
        self._is_early = False
        self._commands = 0

    def get_thread_id(self) -> None:
        """Name no thread: code that blocks is waited for, and not interrupted from outside."""

    def activate(self, act: Any) -> Any:
        """Handle an activation.

        Raises:
            SplitWorkflowTaskError: Events of its workflow task were handled before it.
        """
        # Each workflow task has a time of its own, that of its begin; more events of the same time
        # are those of one that has not begun.
        at = (act.timestamp.ToNanoseconds(), act.history_length)
        variants = {job.WhichOneof("variant") for job in act.jobs}
        if variants & _BESIDE:
            if "query_workflow" in variants and at[0] != self._at[0]:
                # Another workflow task has begun, and brought no event.
                if self._is_early:
                    raise SplitWorkflowTaskError(_WHY)
                self._commands = 0
                self._at = at
            return self._inner.activate(act)
        if self._is_early or self._is_unrecorded(at):
            raise SplitWorkflowTaskError(_WHY)
        self._is_early = at[0] == self._at[0] and at[1] > self._at[1]
        if self._is_early and self._is_new(act.run_id, at[1]):
            raise SplitWorkflowTaskError(_WHY)
        if at[1] != self._at[1]:  # else it goes on after a local activity, at a later time
            self._commands = 0
        self._at = at
        completion = self._inner.activate(act)
        if not act.is_replaying:
            self._commands = _count_recorded(completion, self._commands)
        return completion

    def _is_new(self, run: str, length: int) -> bool:
        """Tell whether these early events come for the first time, and remember them."""
        if self._refused.get(run) == length:
            return False
        if run not in self._refused and len(self._refused) >= _KNOWN_RUNS:
            # Other runs are in other threads, and may have taken it out.
            self._refused.pop(next(iter([*self._refused]), ""), None)
        self._refused[run] = length
        return True

    def _is_unrecorded(self, at: tuple[int, int]) -> bool:
        """Tell whether the commands of the workflow task before are not in the history."""
        if not self._commands or at == self._at:
            return False
        begun = self._at[1]
        return begun < at[1] < begun + _EVENTS_BETWEEN_BEGINS + self._commands


class MovingOn(WholeTasks):
    """A session: it never ends, so that it cannot be pinned to the build that it began with."""

    def activate(self, act: Any) -> Any:
        """Handle an activation, and go on with the current build at the next one."""
        completion = super().activate(act)
        if completion.HasField("successful"):
            completion.successful.versioning_behavior = VersioningBehavior.AUTO_UPGRADE.value
        return completion


class WholeTasksRunner(UnsandboxedWorkflowRunner):
    """Runs workflows as they are, each as `WholeTasks`."""

    def __init__(self, *, of_version: bool = False) -> None:
        """Make a runner.

        Args:
            of_version: Whether its worker is of a version of a Worker Deployment.
        """
        super().__init__()
        self._of_version = of_version
        self._refused: dict[str, int] = {}

    def create_instance(self, det: Any) -> WorkflowInstance:
        """Make a run of a workflow."""
        inner = super().create_instance(det)
        is_session = self._of_version and det.info.workflow_type == SESSION
        return cast(
            "WorkflowInstance", (MovingOn if is_session else WholeTasks)(inner, self._refused)
        )


def _count_recorded(completion: Any, before: int) -> int:
    """Count the events that the commands of a workflow task are at least.

    Args:
        completion: What the workflow answered to an activation.
        before: The count of the activations before of the same workflow task.
    """
    count = before
    for command in completion.successful.commands:
        variant = command.WhichOneof("variant")
        if variant in _CANCELS:
            return 0
        if variant == "update_response":
            answer = command.update_response.WhichOneof("response")
            count += answer in {"accepted", "completed"}
        count += variant in _RECORDED
    return count
