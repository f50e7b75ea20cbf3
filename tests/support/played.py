"""A task in memory: runs steps with links one after the other, without a server."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from holdfast import Agent, Message, TaskStep
from holdfast.models.base import ModelRequest
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import JournalEntry, OpenStep, StepResult
from holdfast.task.ledger.recording import output_of_calls
from holdfast.testing import ScriptedModel
from holdfast.values.base import Json
from holdfast.workers import AgentWorker, StepContext
from holdfast.workers.driver import advance


def seen(_name: str, arguments: dict[str, Json]) -> Outcome:
    """Stand in for a tool."""
    return Outcome(content=f"seen {json.dumps(arguments)}")


class Played:
    """Runs ready steps as a task does, and keeps what it records.

    Attributes:
        queue: Steps to come.
        outputs: Step id to output, in the order in which the steps ran.
        called: Name and arguments of each call.
        answer: Stands in for the tools.
        finish_at: After so many model calls the next one is the last.
        offered: What a retriever of tools chooses.
    """

    def __init__(
        self,
        worker: AgentWorker,
        script: Sequence[Any] | Callable[[ModelRequest], Any],
        *tools: Any,
        input: str | None = "the request",
    ) -> None:
        self.worker = worker
        self.model = ScriptedModel(script)
        agent = Agent(name="a", instructions="Be good.", model=self.model, tools=tools)
        self.snapshot = agent.snapshot("m")
        self.queue = [TaskStep(step_id="s1", input=input)]
        self.history: Sequence[Message] = ()
        self.transcript: list[Message] = []
        self.outputs: dict[str, Json] = {}
        self.called: list[tuple[str, dict[str, Json]]] = []
        self.state: dict[str, Json] = {}
        self.answer: Callable[[str, dict[str, Json]], Outcome] = seen
        self.finish_at: int | None = None
        self.offered: list[str] | None = None
        self.last = False
        self.tool_choice = ""

    @property
    def asked(self) -> list[str]:
        """The last message of each request."""
        return [request.messages[-1].text for request in self.model.requests]

    async def run(self) -> Json:
        """Run to the last step; return its output."""
        for _ in range(100):
            output = await self.step()
            if self.last:
                return output
        raise AssertionError("the task does not end")

    async def step(
        self, at: int = 0, *, notes: Sequence[Message] = (), input: str | None = None
    ) -> Json:
        """Run a ready step to its end; return its output."""
        step = [s for s in self.queue if set(s.prev_steps) <= self.outputs.keys()][at]
        self.queue.remove(step)
        if input is not None:
            step = step.model_copy(update={"input": input})
        opened = OpenStep(step=step, state=self.state, notes=tuple(notes))
        journal: list[JournalEntry] = []
        while True:
            ctx = self._context(opened, journal)
            got = await advance(self.worker, ctx, opened)
            assert got.failure is None, got.failure
            journal += ctx.record.fresh
            if got.result is not None:
                break
            if got.calls:
                outcomes = tuple(self._call(*got.calls))
                journal.append(JournalEntry(request=got.asked, calls=got.calls, outcomes=outcomes))
        result = got.result
        self.outputs[step.step_id] = self._output(result, journal)
        assert not {each.step_id for each in (*result.next, *self.queue)} & self.outputs.keys()
        self.queue += result.next
        self.transcript += ctx.adds
        self.state, self.last = ctx.state, result.last
        return self.outputs[step.step_id]

    def _context(self, opened: OpenStep, journal: list[JournalEntry]) -> StepContext:
        is_last = self.finish_at is not None and self.model.calls >= self.finish_at
        return StepContext(
            agent=self.snapshot,
            head=TaskHead(agent="a", tool_choice=self.tool_choice),
            opened=opened,
            transcript=self.transcript,
            respond=self.model.respond,
            inputs={id: self.outputs[id] for id in opened.step.prev_steps},
            task_id="t",
            n=len(self.outputs) + 1,
            before=(*self.history, *self.transcript),
            journal=list(journal),
            retrieve=None if self.offered is None else self._retrieve,
            limit="finish" if is_last else "",
        )

    async def _retrieve(self, query: str) -> Sequence[str]:
        assert query
        return self.offered or []

    def _call(self, *calls: Any) -> list[Outcome]:
        given = [(call.name, json.loads(call.arguments)) for call in calls]
        self.called += given
        return [self.answer(*each) for each in given]

    def _output(self, result: StepResult, journal: list[JournalEntry]) -> Json:
        """Return a step's own output, its answer, or what the calls give that it ends with."""
        if result.quiet:
            output, stored = output_of_calls(self._call(*result.calls))
            assert stored is None
            return output
        texts = [entry.answer.text for entry in journal if entry.answer is not None]
        return texts[-1] if result.echo else result.output
