"""AgentRunner: the step API. A handle without state; any process may hold one for any task."""

from __future__ import annotations

from holdfast.client.agent_runner.approvals import TaskApprovals
from holdfast.client.agent_runner.control import TaskArtifacts, TaskControl
from holdfast.client.agent_runner.erasing import TaskErasing
from holdfast.client.agent_runner.events import EventSending
from holdfast.client.agent_runner.runs import TaskStreaming
from holdfast.client.agent_runner.schedules import TaskScheduling
from holdfast.client.agent_runner.time_travel import TimeTravel
from holdfast.engine.converter import without_plumbing


@without_plumbing
class AgentRunner(
    TaskStreaming,
    TaskControl,
    TaskApprovals,
    TimeTravel,
    TaskScheduling,
    TaskErasing,
    EventSending,
    TaskArtifacts,
):
    """Creates tasks, runs their steps, and steers them.

    Make one with `AgentRunner.local(...)` or `await AgentRunner.connect(...)`, and use it in an
    `async with` block, or call `start` and `close`.

    Attributes:
        app: Name of the app; "default" when none was given.
        agent: Agent that new tasks get by default.
    """
