"""What Holdfast's workers run: the workflows, and the activities of one worker process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.activities.data.cache import Cache
from holdfast.activities.data.registry import Registry, described_ahead
from holdfast.activities.data.source import Source
from holdfast.activities.erasure import ErasingActivities
from holdfast.activities.error_handlers import HandlingActivities
from holdfast.activities.events import deliver
from holdfast.activities.guardrails import GuardingActivities
from holdfast.activities.long_calls import LongCalls
from holdfast.activities.notices import NoticeActivities, Notifier, checked_notifiers
from holdfast.activities.steps.step import StepActivities
from holdfast.activities.task_end import ClosingActivities
from holdfast.activities.tools.child_start import NestingActivities
from holdfast.activities.tools.questions import JudgingActivities, sent_at, session_rules
from holdfast.activities.tools.tool import ToolActivities
from holdfast.activities.user_loop import UserLoops
from holdfast.agents.agent import Agent
from holdfast.agents.runs.teams import check_agents, reachable
from holdfast.archive.archive import Archive
from holdfast.models.prices import Prices
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Described
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.requests.erasing import ErasureRun, RetentionRun
from holdfast.workflows.requests.events import EventMailbox
from holdfast.workflows.session import Session

if TYPE_CHECKING:
    from holdfast.serving.governor.providers import Limited


WORKFLOWS: list[type] = [AgentTask, Session, EventMailbox, ErasureRun, RetentionRun]
OF_SESSIONS = {"index", "rest", "deliver"}


class Activities:
    """Holdfast's activities for one worker process.

    Attributes:
        registry: The agents that they serve; more may be added while the worker runs.
        all: The activity functions.
        of_sessions: The activities of sessions and of mailboxes.
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
        providers: Iterable[Limited] | None = None,
    ) -> None:
        """Set up the activities; they share one cache.

        Args:
            agents: The agents.
            archive: The archive of the namespace.
            loops: Where their work is done; on the worker's own loop by default.
            prices: What models cost; the prices that `HOLDFAST_PRICES` names by default.
            notify: What notifies people of approvals; what `HOLDFAST_NOTIFY` names by default.
            providers: Limits of model providers and budgets of tenants; what `HOLDFAST_PROVIDERS`
                names by default.

        Raises:
            InvalidArgumentError: A notifier or a provider cannot be used.
        """
        prices = Prices.from_environment() if prices is None else prices
        notifiers = checked_notifiers(notify)
        agents = tuple(agents)
        kind = Registry
        if providers is not None or os.environ.get("HOLDFAST_PROVIDERS"):
            from holdfast.serving.governor.models import (
                governing_registry,  # others enter nothing of it
            )

            kind = governing_registry(providers, loops, prices=prices is not None)
        self.registry = kind(agents, archive, prices=prices, notifies=bool(notifiers))
        check_agents(reachable(agents), "warn")
        source = Source(archive, Cache())
        tools = ToolActivities(self.registry, source)
        steps = StepActivities(self.registry, source, tools.inline)
        closing = ClosingActivities(self.registry, source)
        judging = JudgingActivities(self.registry, source)
        nesting = NestingActivities(self.registry, source)
        erasing = ErasingActivities(archive)
        self._notices = NoticeActivities(notifiers)
        of_sessions: list[Callable[..., Any]] = [closing.index, closing.rest, deliver]
        activities: list[Callable[..., Any]] = [
            steps.describe,
            steps.step,
            closing.archive,
            closing.close,
            closing.close_here,
            *of_sessions,
            judging.find_tools,
            judging.keep_rule,
            judging.gate,
            judging.check,
            judging.probe,
            judging.rejected,
            judging.undo,
            judging.screen,
            judging.recall,
            HandlingActivities(self.registry, source).handle,
            GuardingActivities(self.registry, source).guard,
            self._notices.notify,
            nesting.nest,
            nesting.is_own,
            nesting.end_nested,
            nesting.ended,
            erasing.erase,
            erasing.expired,
            erasing.plan_expired,
            session_rules,
            sent_at,
        ]
        tool = tools.tool if loops is None else loops.apart(tools.tool)
        self.long_calls = LongCalls(tool)
        apart = activities if loops is None else [loops.apart(each) for each in activities]
        self.of_sessions = [each for each in apart if each.__name__ in OF_SESSIONS]
        self.all = [*apart, self.long_calls.tool, self.long_calls.rejoin]
        self._cache = source.cache

    def follow(self, newer: Activities) -> None:
        """Work with the agents, prices and notifiers of newer ones of this process."""
        self.registry.follow(newer.registry)
        self._notices.notifiers = newer._notices.notifiers

    async def describe(self, head: TaskHead) -> Described | None:
        """Find out what a new task must know of its agent; None where only an activity can."""
        return await described_ahead(self.registry, self._cache, head)
