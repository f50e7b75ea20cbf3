"""HoldfastPlugin: Holdfast for clients and workers that a team already has."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, cast

from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerConfig

from holdfast.activities.data.agent_rules import described_ahead
from holdfast.activities.data.cache import Cache
from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source
from holdfast.activities.error_handlers import HandlingActivities
from holdfast.activities.failures import ReadableResults
from holdfast.activities.guardrails import GuardingActivities
from holdfast.activities.long_calls import LongCalls
from holdfast.activities.notices.activity import NoticeActivities
from holdfast.activities.notices.notifiers import Notifier, checked_notifiers
from holdfast.activities.steps.step import StepActivities
from holdfast.activities.task_end import ClosingActivities
from holdfast.activities.tools.child_start import NestingActivities
from holdfast.activities.tools.questions import JudgingActivities
from holdfast.activities.tools.session_rules import keep_rule, session_rules
from holdfast.activities.tools.tool import ToolActivities
from holdfast.activities.user_loop.user_loop import UserLoops
from holdfast.agents.agent import Agent
from holdfast.agents.runs.teams import check_agents, reachable
from holdfast.archive.archive import Archive
from holdfast.archive.external_storage import archive_storage
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.converter import holdfast_converter
from holdfast.errors import InvalidArgumentError
from holdfast.models.prices import Prices
from holdfast.serving.activations import WholeTasksRunner
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Described
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.text.shown import shown
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.session import Session


class Activities:
    """Holdfast's activities for one worker process.

    Attributes:
        registry: The agents that they serve; more may be added while the worker runs.
        all: The activity functions.
        index: The one of them that sessions need.
        long_calls: Tool calls that may go on while their task continues as new.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        archive: Archive,
        loops: UserLoops | None = None,
        *,
        prices: Prices | None = None,
        notify: Iterable[Notifier] | None = None,
    ) -> None:
        """Set up the activities; they share one cache.

        Args:
            agents: The agents.
            archive: The archive of the namespace.
            loops: Where their work is done; on the worker's own loop by default.
            prices: What models cost; those that `HOLDFAST_PRICES` names by default.
            notify: What notifies people of approvals; what `HOLDFAST_NOTIFY` names by default.

        Raises:
            InvalidArgumentError: One of these is no notifier, or cannot be used.
        """
        prices = Prices.from_environment() if prices is None else prices
        notifiers = checked_notifiers(notify)
        agents = tuple(agents)
        self.registry = Registry(agents, archive, prices=prices, notifies=bool(notifiers))
        check_agents(reachable(agents), "warn")
        source = Source(archive, Cache())
        tools = ToolActivities(self.registry, source)
        steps = StepActivities(self.registry, source, tools.inline)
        closing = ClosingActivities(self.registry, source)
        judging = JudgingActivities(self.registry, source)
        nesting = NestingActivities(self.registry, source)
        activities: list[Callable[..., Any]] = [
            steps.describe,
            steps.step,
            closing.archive,
            closing.close,
            closing.close_here,
            closing.index,
            judging.find_tools,
            judging.gate,
            judging.check,
            judging.probe,
            judging.rejected,
            judging.undo,
            judging.screen,
            judging.recall,
            HandlingActivities(self.registry, source).handle,
            GuardingActivities(self.registry, source).guard,
            NoticeActivities(notifiers).notify,
            nesting.nest,
            nesting.is_own,
            nesting.end_nested,
            keep_rule,
            session_rules,
        ]
        self.index = closing.index if loops is None else loops.apart(closing.index)
        tool = tools.tool if loops is None else loops.apart(tools.tool)
        self.long_calls = LongCalls(tool)
        apart = activities if loops is None else [loops.apart(each) for each in activities]
        self.all = [*apart, self.long_calls.tool, self.long_calls.rejoin]
        self._cache = source.cache

    async def describe(self, head: TaskHead) -> Described | None:
        """Find out what a new task must know of its agent; None where only an activity can."""
        return await described_ahead(self.registry, self._cache, head)


class HoldfastPlugin(SimplePlugin):
    """Data converter for every client; with agents, also workflows and activities for workers.

    Give it to `Client.connect(plugins=[...])`; each worker made with that client takes it over.
    Codec, failure converter and external storage of the client's own data converter are kept.

    Args:
        archive: The archive of the namespace.
        agents: Agents that workers of this client serve, on whatever queue they poll.
        prices: What models cost, recorded with each call; those that `HOLDFAST_PRICES` names by
            default, else none.
        notify: What notifies people when a task waits for them, such as
            `Webhook`; what `HOLDFAST_NOTIFY` names by default, else nothing.
    """

    def __init__(
        self,
        *,
        archive: Archive,
        agents: Iterable[Agent] = (),
        prices: Prices | None = None,
        notify: Iterable[Notifier] | None = None,
    ) -> None:
        """Set up the plugin.

        Raises:
            InvalidArgumentError: The archive is none, or one of the agents or notifiers is
                something else.
        """
        check_arguments(HoldfastPlugin.__init__, archive=archive, prices=prices)
        given = cast("object", agents)
        listed = list(cast("Iterable[object]", given)) if isinstance(given, Iterable) else None
        if listed is None or not all(isinstance(each, Agent) for each in listed):
            msg = f"agents is a list of Agents; it was {shown(agents)}."
            raise InvalidArgumentError(msg)
        served = tuple(agents)

        def converter(current: DataConverter | None) -> DataConverter:
            made = holdfast_converter(current)
            if made.external_storage is not None:  # the team's own
                return made
            return dataclasses.replace(made, external_storage=archive_storage(archive))

        self._activities = (
            Activities(served, archive, UserLoops(), prices=prices, notify=notify)
            if served
            else None
        )
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
            "holdfast",
            data_converter=converter,
            workflows=[AgentTask, Session] if served else None,
            activities=self._activities.all if self._activities else None,
            interceptors=[ReadableResults()],
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add the workflows and activities; tool calls get the worker's own grace."""
        options = cast("dict[str, Any]", config)
        if type(options.get("unsandboxed_workflow_runner")) is UnsandboxedWorkflowRunner:
            options["unsandboxed_workflow_runner"] = WholeTasksRunner()
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
        """
        if self._activities is not None:
            await ensure_search_attributes(worker.client)
        await super().run_worker(worker, next)
