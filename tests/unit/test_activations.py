"""A workflow task that a query brought in part is refused, and comes again as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.worker import WorkflowInstance

from holdfast.serving.activations import SplitWorkflowTaskError, WholeTasks


class Inner(WorkflowInstance):
    """Notes the jobs of each activation."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def activate(self, act: Any) -> Any:
        self.seen.append([job.WhichOneof("variant") for job in act.jobs])

    def get_info(self) -> Any:
        raise NotImplementedError

    def get_serialization_context(self, command_info: Any) -> Any:
        raise NotImplementedError

    def get_external_store_context(self, command_info: Any) -> Any:
        raise NotImplementedError


def act(begun: int, length: int, *kinds: str) -> WorkflowActivation:
    """Make an activation: when its workflow task began, length of the history, jobs."""
    made = WorkflowActivation(history_length=length)
    made.timestamp.FromNanoseconds(begun)
    for kind in kinds:
        getattr(made.jobs.add(), kind).SetInParent()
    return made


def test_workflow_tasks_with_queries_between_go_through() -> None:
    inner = Inner()
    whole = WholeTasks(inner)
    whole.activate(act(1, 3, "initialize_workflow"))
    whole.activate(act(1, 3, "query_workflow"))
    whole.activate(act(2, 9, "signal_workflow", "do_update"))
    whole.activate(act(2, 9, "resolve_activity"))  # cancelled by the workflow, at once
    whole.activate(act(2, 12, "query_workflow"))
    whole.activate(act(3, 15, "resolve_activity"))
    assert len(inner.seen) == 6


def test_what_follows_an_early_event_is_refused() -> None:
    inner = Inner()
    whole = WholeTasks(inner)
    whole.activate(act(1, 3, "initialize_workflow"))
    whole.activate(act(1, 6, "signal_workflow"))  # its workflow task has not begun
    whole.activate(act(1, 6, "query_workflow"))
    with pytest.raises(SplitWorkflowTaskError, match="tried again as a whole"):
        whole.activate(act(2, 7, "do_update"))
    whole.activate(act(0, 7, "remove_from_cache"))
    assert inner.seen[-1] == ["remove_from_cache"]
