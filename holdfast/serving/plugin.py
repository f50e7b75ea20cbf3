"""HoldfastPlugin: Holdfast for clients and workers that a team already has."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerConfig

from holdfast.activities.failures import ReadableResults
from holdfast.activities.notices import Notifier
from holdfast.agents.agent import Agent
from holdfast.archive.archive import Archive
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.converter import archive_storage, holdfast_converter
from holdfast.errors import InvalidArgumentError
from holdfast.models.prices import Prices
from holdfast.serving.names import check_archive
from holdfast.serving.whole_tasks import WholeTasksRunner
from holdfast.values.checks.gate import check_arguments
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.serving.governor.providers import Limited
else:  # loaded where there are some
    Limited = object


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
