"""What the pages need from the desk: a runner, who asks, and what that one may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.pages.feed import Feed


class Visitor(Protocol):
    """Who looks at a page."""

    @property
    def name(self) -> str:
        """The name that is recorded as `by`."""
        ...


class Guard(Protocol):
    """Decides who asks, and what they may do."""

    async def visitor(self, request: Request) -> Visitor:
        """Return who sends a request.

        Raises:
            HoldfastError: They are not known.
        """
        ...

    async def allows(self, visitor: Any, verb: str, subject: str) -> bool:
        """Whether somebody may do this with a task or an approval."""
        ...


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
