"""HoldfastPlugin: Holdfast for clients and workers that a team already has."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from temporalio.common import VersioningBehavior
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerConfig, WorkflowInstance

from holdfast.activities.failures import ReadableResults
from holdfast.activities.notices import Notifier
from holdfast.agents.agent import Agent
from holdfast.archive.archive import Archive
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.converter import archive_storage, holdfast_converter
from holdfast.engine.search_attributes import SESSION, SPLIT
from holdfast.errors import InvalidArgumentError
from holdfast.models.prices import Prices
from holdfast.serving.names import check_archive
from holdfast.values.checks.gate import check_arguments
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.serving.governor.providers import Limited
else:  # loaded where there are some
    Limited = object


# Keeps a query from changing the order in which a workflow sees its events.
#
# A query that waits for a worker process is given the history as it is when one comes, with events
# that no workflow task has brought yet. The SDK lets the workflow act on them for the query, and on
# the rest of the workflow task later. A replay brings all events of a workflow task at once,
# updates first, so that the commands can come in another order: the history is then not
# deterministic, and the task stuck (github.com/temporalio/sdk-python/issues/1591 is of the same
# kind).

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


class SplitWorkflowTaskError(Exception):
    """A workflow task came in two parts; the server sends it again, as a whole."""


class WholeTasks:
    """A workflow that acts on the events of a workflow task together, or not at all.

    What a query brought early may stay alone as long as nothing follows it. Else the workflow task
    is failed before any of it is recorded: the run leaves the cache, and the server's next attempt
    brings the whole to a fresh one.

    A query can also bring a workflow task that has begun in another worker process and is lost with
    it. That shows when the next one begins: the history is then too short to hold the commands that
    the workflow has made. As many other events as there are commands hide it.
    """

    def __init__(self, inner: WorkflowInstance) -> None:
        """Guard a workflow, which answers all else itself."""
        self._inner = inner
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
                # Another workflow task has begun, and brought no more events than early ones.
                if not self._is_early:
                    self._commands = 0
                self._is_early = False
                self._at = at
            return self._inner.activate(act)
        if self._is_early or self._is_unrecorded(at):
            msg = f"{SPLIT} before its begin. It is tried again as a whole; nothing is lost."
            raise SplitWorkflowTaskError(msg)
        self._is_early = at[0] == self._at[0] and at[1] > self._at[1]
        if at[1] != self._at[1]:  # else it goes on after a local activity, at a later time
            self._commands = 0
        self._at = at
        completion = self._inner.activate(act)
        if not act.is_replaying:
            self._commands = _count_recorded(completion, self._commands)
        return completion

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

    def create_instance(self, det: Any) -> WorkflowInstance:
        """Make a run of a workflow."""
        inner = super().create_instance(det)
        is_session = self._of_version and det.info.workflow_type == SESSION
        return cast("WorkflowInstance", (MovingOn if is_session else WholeTasks)(inner))


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


class _Guards(ReadableResults):
    def workflow_interceptor_class(self, input: Any) -> Any:  # noqa: ARG002  Temporal's name
        """Show the details of tasks."""
        from holdfast.workflows.agent_task import Details  # clients do without

        return Details


class HoldfastPlugin(SimplePlugin):
    """Data converter for every client; with agents, also workflows and activities for workers.

    Give it to `Client.connect(plugins=[...])`; each worker made with that client takes it over.
    Codec, failure converter and external storage of the client's own data converter are kept.

    Args:
        archive: The archive of the namespace.
        agents: Agents that workers of this client serve, on whatever queue they poll.
        prices: What models cost, recorded with each call; the prices that `HOLDFAST_PRICES` names
            by default, else none.
        notify: What notifies people when a task waits for them, such as
            `Webhook`; what `HOLDFAST_NOTIFY` names by default, else nothing.
        providers: Limits of model providers and budgets of tenants, kept together; those of the
            file that `HOLDFAST_PROVIDERS` names by default, else none.
    """

    def __init__(
        self,
        *,
        archive: Archive,
        agents: Iterable[Agent] = (),
        prices: Prices | None = None,
        notify: Iterable[Notifier] | None = None,
        providers: Iterable[Limited] | None = None,
    ) -> None:
        """Set up the plugin.

        Raises:
            InvalidArgumentError: The archive, an agent, a notifier or a provider cannot be used.
        """
        check_arguments(HoldfastPlugin.__init__, archive=archive, prices=prices)
        given = cast("object", agents)
        listed = list(cast("Iterable[object]", given)) if isinstance(given, Iterable) else None
        if listed is None or not all(isinstance(each, Agent) for each in listed):
            raise InvalidArgumentError(f"agents is a list of Agents; it was {shown(agents)}.")
        served = tuple(agents)

        def converter(current: DataConverter | None) -> DataConverter:
            made = holdfast_converter(current)
            if archive.encrypted is not None:
                from holdfast.archive.encryption.codec import encrypting  # where there are keys

                made = encrypting(made, archive.encrypted.data_keys)
            if made.external_storage is not None:  # the team's own
                return made
            return dataclasses.replace(made, external_storage=archive_storage(archive))

        self._archive = archive
        self._activities, workflows, loops = None, None, None
        if served:  # what a worker runs is imported here: clients do without
            from holdfast.activities.user_loop import UserLoops
            from holdfast.serving.activities import WORKFLOWS, Activities

            loops = UserLoops()
            self._activities = Activities(
                served, archive, loops, prices=prices, notify=notify, providers=providers
            )
            workflows = WORKFLOWS
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
            "holdfast",
            data_converter=converter,
            workflows=workflows,
            activities=self._activities.all if self._activities else None,
            interceptors=[_Guards()],
            run_context=None if loops is None else loops.served,
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add the workflows and activities; tool calls get the worker's own grace."""
        options = cast("dict[str, Any]", config)
        if type(options.get("unsandboxed_workflow_runner")) is UnsandboxedWorkflowRunner:
            options["unsandboxed_workflow_runner"] = WholeTasksRunner(
                of_version=options.get("deployment_config") is not None
            )
        if self._activities is not None:
            grace: timedelta = options.get("graceful_shutdown_timeout", timedelta())
            self._activities.long_calls.grace = grace
        return super().configure_worker(config)

    async def run_worker(
        self,
        worker: Worker,
        next: Callable[[Worker], Awaitable[None]],  # noqa: A002  Temporal's name
    ) -> None:
        """Run a worker, once the namespace has the search attributes that tasks and sessions set.

        Without one, each workflow task of theirs would fail, again and again and without a word.

        Raises:
            ConnectError: It lacks one, and the server does not let us add it.
            ArchiveError: The archive cannot be used, lacks its keys, or is not the namespace's.
        """
        if self._activities is not None:
            await ensure_search_attributes(worker.client)
        await check_archive(worker.client, self._archive)
        await super().run_worker(worker, next)
