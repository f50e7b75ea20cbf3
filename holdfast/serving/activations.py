"""Keeps a query from changing the order in which a workflow sees its events.

A query that waits for a worker process is given the history as it is when one comes, with events
that no workflow task has brought yet. The SDK lets the workflow act on them for the query, and on
the rest of the workflow task later. A replay brings all events of a workflow task at once, updates
first, so that the commands can come in another order: the history is then not deterministic, and
the task stuck (github.com/temporalio/sdk-python/issues/1591 is of the same kind).
"""

from __future__ import annotations

from typing import Any

from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance

_BESIDE = {"query_workflow", "remove_from_cache"}


class SplitWorkflowTaskError(Exception):
    """A workflow task came in two parts; the server sends it again, as a whole."""


class WholeTasks(WorkflowInstance):
    """A workflow that acts on the events of a workflow task together, or not at all.

    What a query brought early stands alone as long as nothing follows it. Else the workflow task is
    failed before any of it is recorded: the run leaves the cache, and the server's next attempt
    brings the whole to a fresh one.
    """

    def __init__(self, inner: WorkflowInstance) -> None:
        """Guard a workflow."""
        self._inner = inner
        self._at = (0, 0)
        self._is_early = False

    def activate(self, act: Any) -> Any:
        """Handle an activation.

        Raises:
            SplitWorkflowTaskError: Events of its workflow task were handled before it.
        """
        if any(job.WhichOneof("variant") in _BESIDE for job in act.jobs):
            return self._inner.activate(act)
        if self._is_early:
            msg = (
                "A query brought a part of this workflow task before its begin. It is tried again"
                " as a whole; nothing is lost."
            )
            raise SplitWorkflowTaskError(msg)
        # Each workflow task has a time of its own, that of its begin; more events of the same time
        # are those of one that has not begun.
        at = (act.timestamp.ToNanoseconds(), act.history_length)
        self._is_early = at[0] == self._at[0] and at[1] > self._at[1]
        self._at = at
        return self._inner.activate(act)

    def get_info(self) -> Any:
        """Describe the run."""
        return self._inner.get_info()

    def get_serialization_context(self, command_info: Any) -> Any:
        """Return the context in which payloads of a command are read and written."""
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        """Return the context in which large payloads of a command are stored."""
        return self._inner.get_external_store_context(command_info)


class WholeTasksRunner(UnsandboxedWorkflowRunner):
    """Runs workflows as they are, each as `WholeTasks`."""

    def create_instance(self, det: Any) -> WorkflowInstance:
        """Make a run of a workflow."""
        return WholeTasks(super().create_instance(det))
