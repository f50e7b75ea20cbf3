"""A step in memory: its activities are run one after the other, as a task has them run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import AgentSnapshot, TaskHead
from holdfast.task.data.records import JournalEntry, OpenStep
from holdfast.task.data.wire import Advanced
from holdfast.values.steps import TaskStep
from holdfast.workers import AgentWorker, StepContext
from holdfast.workers.driver import advance

OPENED = OpenStep(step=TaskStep(step_id="s1"))


class Bench:
    """Runs the activities of one step.

    Attributes:
        paid: Requests that the model has answered.
        journal: What the task has recorded.
    """

    def __init__(
        self,
        worker: AgentWorker,
        answers: Callable[[ModelRequest], Awaitable[ModelAnswer]],
        agent: AgentSnapshot | None = None,
        opened: OpenStep = OPENED,
        **given: Any,
    ) -> None:
        self.worker = worker
        self.opened = opened
        self.answers = answers
        self.given: dict[str, Any] = {"agent": agent or AgentSnapshot(name="a"), **given}
        self.paid: list[ModelRequest] = []
        self.journal: list[JournalEntry] = []

    async def _respond(self, request: ModelRequest) -> ModelAnswer:
        answer = await self.answers(request)
        self.paid.append(request)
        return answer

    async def advance(self, opened: OpenStep | None = None, **given: Any) -> Advanced:
        """Run one activity, and record its answer and the results of its calls."""
        opened = opened or self.opened
        known: dict[str, Any] = {"head": TaskHead(agent="a"), "transcript": (), "task_id": "t"}
        known |= {"respond": self._respond, "journal": list(self.journal)}
        ctx = StepContext(opened=opened, **{**known, **self.given, **given})
        async with asyncio.timeout(100):
            got = await advance(self.worker, ctx, opened)
        self.journal += ctx.record.fresh
        if got.result is None and got.calls:
            outcomes = tuple(Outcome(content=f"result of {call.name}") for call in got.calls)
            self.journal.append(JournalEntry(request=got.asked, calls=got.calls, outcomes=outcomes))
        return got

    async def run(self) -> Advanced:
        """Run activities until the step ends."""
        for _ in range(20):
            got = await self.advance()
            if got.result is not None or got.limit or got.failure is not None:
                return got
        raise AssertionError("the step does not end")
