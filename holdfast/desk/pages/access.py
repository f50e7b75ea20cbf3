"""What the pages need from the desk: a runner, and who may do what."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.guard import Guard
from holdfast.desk.pages.feed import Feed


@dataclass(frozen=True)
class Desk:
    """What all pages share.

    Attributes:
        runner: Reads and steers the tasks.
        guard: Decides who may do what.
        feed: What waits and which tasks there are, read once for all pages.
    """

    runner: AgentRunner
    guard: Guard
    feed: Feed
