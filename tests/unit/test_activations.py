"""Events that a query brings before their workflow task are refused, and come with it."""

import uuid
from functools import partial
from typing import Any

import pytest
from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowQueryFailedError
from temporalio.worker import Worker, WorkflowInstance

from holdfast.engine.search_attributes import SPLIT
from holdfast.reading.queries import while_busy
from holdfast.serving.batches.workflow import Batches
from holdfast.serving.governor.served import bare, worker_of
from holdfast.serving.whole_tasks import SplitWorkflowTaskError, WholeTasks, WholeTasksRunner
from tests.support.rig import Engine


class Inner(WorkflowInstance):
    """Notes the jobs of each activation, and answers with commands."""

    def __init__(self, *commands: str) -> None:
        self.seen: list[list[str]] = []
        self.commands = commands

    def activate(self, act: Any) -> Any:
        self.seen.append([job.WhichOneof("variant") for job in act.jobs])
        made = WorkflowActivationCompletion()
        made.successful.SetInParent()
        for kind in self.commands:
            command = made.successful.commands.add()
            if kind in {"accepted", "rejected", "completed"}:
                getattr(command.update_response, kind).SetInParent()
            else:
                getattr(command, kind).SetInParent()
        return made

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


def test_early_events_are_refused_before_the_workflow_acts_on_them() -> None:
    inner = Inner()
    whole = WholeTasks(inner)
    whole.activate(act(1, 3, "initialize_workflow"))
    with pytest.raises(SplitWorkflowTaskError, match="Ask again"):
        whole.activate(act(1, 6, "signal_workflow"))  # its workflow task has not begun
    whole.activate(act(0, 6, "remove_from_cache"))
    assert inner.seen == [["initialize_workflow"], ["remove_from_cache"]]


@pytest.mark.parametrize("begun", ["do_update", "query_workflow"])
def test_early_events_that_come_again_are_taken_and_what_follows_is_refused(begun: str) -> None:
    refused: dict[str, int] = {}
    for length in (6, 8):  # what has come meanwhile is early for the first time
        whole = WholeTasks(Inner(), refused)
        whole.activate(act(1, 3, "initialize_workflow"))
        with pytest.raises(SplitWorkflowTaskError, match="before its begin"):
            whole.activate(act(1, length, "signal_workflow"))
    whole = WholeTasks(Inner("schedule_activity"), refused)
    whole.activate(act(1, 3, "initialize_workflow"))
    whole.activate(act(1, 8, "signal_workflow"))
    whole.activate(act(1, 8, "query_workflow"))
    with pytest.raises(SplitWorkflowTaskError, match="before its begin"):
        whole.activate(act(2, 9, begun))


def test_what_follows_a_workflow_task_that_was_lost_is_refused() -> None:
    whole = WholeTasks(Inner("upsert_workflow_search_attributes", "schedule_activity"))
    whole.activate(act(1, 6, "initialize_workflow"))
    whole.activate(act(2, 13, "signal_workflow"))
    whole.activate(act(2, 13, "query_workflow"))
    with pytest.raises(SplitWorkflowTaskError, match="before its begin"):
        whole.activate(act(3, 17, "do_update"))  # no events of the commands are between


@pytest.mark.parametrize(
    "commands",
    [(), ("rejected",), ("schedule_activity", "request_cancel_activity"), ("respond_to_query",)],
    ids=["none", "rejected update", "cancelled at once", "query"],
)
def test_a_workflow_task_without_commands_in_the_history_goes_before_another(
    commands: tuple[str, ...],
) -> None:
    inner = Inner(*commands)
    whole = WholeTasks(inner)
    whole.activate(act(1, 3, "initialize_workflow"))
    whole.activate(act(2, 6, "do_update"))
    whole.activate(act(3, 9, "do_update"))
    assert len(inner.seen) == 3


def test_a_workflow_task_for_a_query_alone_is_between_two() -> None:
    inner = Inner("upsert_workflow_search_attributes", "schedule_activity")
    whole = WholeTasks(inner)
    whole.activate(act(1, 3, "initialize_workflow"))
    whole.activate(act(2, 8, "query_workflow"))
    whole.activate(act(3, 11, "do_update"))
    assert len(inner.seen) == 3


def test_the_guard_answers_all_that_a_worker_asks_of_a_workflow() -> None:
    whole = WholeTasks(Inner())
    asked = {each for each in dir(WorkflowInstance) if not each.startswith("_")}
    assert {each for each in asked if not callable(getattr(whole, each, None))} == set()


async def test_governors_and_batches_are_guarded_as_well(engine: Engine) -> None:
    made = worker_of(bare(engine.client), "guarded", workflows=[Batches], build_id="1")
    used: Any = made.config()["unsandboxed_workflow_runner"]
    assert isinstance(used, WholeTasksRunner)


@workflow.defn(name="Counts", sandboxed=False)
class Counts:
    """Counts signals."""

    def __init__(self) -> None:
        """Begin at none."""
        self.counted = 0

    @workflow.run
    async def run(self) -> None:
        """Go on for ever."""
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def count(self) -> None:
        """Count one more."""
        self.counted += 1

    @workflow.query
    def so_far(self) -> int:
        """Tell how many have come."""
        return self.counted


async def test_events_that_no_workflow_task_will_bring_are_read_when_asked_again(
    engine: Engine,
) -> None:
    def worker() -> Worker:
        guarded = WholeTasksRunner()
        return Worker(
            engine.client, task_queue="c", workflows=[Counts], unsandboxed_workflow_runner=guarded
        )

    asked = uuid.uuid4().hex
    async with worker():
        handle = await engine.client.start_workflow(Counts.run, id=asked, task_queue="c")
        assert await handle.query(Counts.so_far) == 0
    await handle.signal(Counts.count)
    await handle.terminate()
    async with worker():
        with pytest.raises(WorkflowQueryFailedError, match=SPLIT):
            await handle.query(Counts.so_far)
        assert await while_busy(partial(handle.query, Counts.so_far)) == 1
