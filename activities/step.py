"""The activities `describe` and `step`: where AgentWorker code runs and models are called."""

from __future__ import annotations

import functools

from temporalio import activity

from holdfast.activities.failures import typed_failures
from holdfast.activities.heartbeat import heartbeats
from holdfast.activities.history import count_commits, history_before
from holdfast.activities.registry import Registry
from holdfast.activities.source import Source, task_id, worker_identity
from holdfast.ledger import resolve_adds, resolve_calls
from holdfast.messages import Message, clean
from holdfast.models.base import Model, ModelAnswer, ModelRequest
from holdfast.steps import TaskStep
from holdfast.values import canonical
from holdfast.wire import (
    Advanced,
    AdvanceInput,
    Described,
    JournalEntry,
    OpenState,
    OpenStep,
    StepResult,
    TaskHead,
    known_head,
)
from holdfast.workers.base import AgentWorker
from holdfast.workers.context import StepContext
from holdfast.workers.driver import advance


class StepActivities:
    """Runs steps for the tasks of one worker process."""

    def __init__(self, registry: Registry, source: Source) -> None:
        """Use these agents and this source of task data."""
        self._registry = registry
        self._source = source

    @activity.defn(name="describe")
    async def describe(self, head: TaskHead) -> Described:
        """Publish the agent's snapshot and let its AgentWorker make the first step."""
        with typed_failures():
            async with heartbeats():
                return await self._describe(head)

    async def _describe(self, head: TaskHead) -> Described:
        agent = self._registry.agent(head.agent)
        snapshot = await self._registry.publish(head.agent)
        settings = snapshot.settings.resolve(head.settings)
        described = Described(
            snapshot=snapshot.digest,
            policies=snapshot.policies,
            timeout=settings.timeout_seconds,
            attempts=settings.max_attempts,
            step=await self._first_step(agent.worker),
            commits=await count_commits(head),
        )
        self._source.memory().head = known_head(head, described)
        return described

    async def _first_step(self, worker: AgentWorker) -> TaskStep:
        """Let a worker that has its own first step make it; the task makes the usual one itself."""
        if type(worker).initialize_step is AgentWorker.initialize_step:
            return TaskStep()
        made = worker.initialize_step(await self._source.task())
        return made.model_copy(update={"task_id": ""})

    @activity.defn(name="step")
    async def step(self, given: AdvanceInput) -> Advanced:
        """Run the step up to its next call that needs the task; make at most one model call."""
        with typed_failures():
            async with heartbeats():
                return await self._step(given)

    async def _step(self, given: AdvanceInput) -> Advanced:
        source = self._source
        head = await source.head()
        agent = self._registry.agent(head.agent)
        opened = await source.opened(given)
        recorded = await source.journal(given)
        whole = await self._whole(opened)
        ctx = StepContext(
            agent=await self._registry.snapshot(head.snapshot),
            head=head,
            opened=whole,
            transcript=await source.transcript(given.at),
            respond=functools.partial(_respond, self._registry.model(agent, head.model)),
            at=given.at,
            task_id=task_id(),
            n=given.n,
            history=await history_before(source, head),
            journal=[await self._resolve(entry) for entry in recorded],
            limit=given.limit,
            tokens=given.tokens,
        )
        advanced = await advance(agent.worker, ctx, whole)
        advanced = await self._compact(advanced)
        stamp: dict[str, object] = {"attempts": activity.info().attempt}
        if advanced.answer is not None:
            stamp["worker"] = worker_identity()
        advanced = advanced.model_copy(update=stamp)
        self._expect(given, opened, recorded, advanced)
        return advanced

    async def _whole(self, opened: OpenStep) -> OpenStep:
        """Put an archived input into the step."""
        if opened.stored is None:
            return opened
        text = await self._source.text(opened.stored)
        return opened.model_copy(update={"step": opened.step.model_copy(update={"input": text})})

    async def _resolve(self, entry: JournalEntry) -> JournalEntry:
        """Put archived contents into a journal entry."""
        answer = entry.answer
        if answer is not None:
            message = await self._source.resolve(answer.message)
            return entry.model_copy(
                update={"answer": answer.model_copy(update={"message": message})}
            )
        outcomes = [
            o.model_copy(update={"content": await self._source.content(o.content)})
            for o in entry.outcomes
        ]
        return entry.model_copy(update={"outcomes": tuple(outcomes)})

    async def _compact(self, advanced: Advanced) -> Advanced:
        """Move large texts of a result to the archive, before history gets to see them."""
        source = self._source
        changes: dict[str, object] = {}
        if advanced.answer is not None:
            message = await source.offload(advanced.answer.message)
            usage = advanced.answer.usage.model_copy(update={"requests": 0})  # the ledger counts
            changes["answer"] = advanced.answer.model_copy(
                update={"message": message, "usage": usage}
            )
        if advanced.result is not None:
            changes["result"] = await self._compact_result(advanced.result)
        return advanced.model_copy(update=changes)

    async def _compact_result(self, result: StepResult) -> StepResult:
        adds = [
            await self._source.offload(add) if isinstance(add, Message) else add
            for add in result.adds
        ]
        changes: dict[str, object] = {"adds": tuple(adds)}
        if result.output is not None:
            plain = isinstance(result.output, str)
            text = str(result.output)
            if not plain:
                text = canonical(result.output).decode("utf-8", "surrogatepass")
            stored = await self._source.store(clean(text), is_json=not plain)
            if stored is not None:
                changes |= {"output": None, "stored": stored}
        return result.model_copy(update=changes)

    def _expect(
        self,
        given: AdvanceInput,
        opened: OpenStep,
        recorded: tuple[JournalEntry, ...],
        advanced: Advanced,
    ) -> None:
        """Remember what the task is about to record, so that it need not be asked for."""
        memory = self._source.memory()
        journal = recorded
        if advanced.answer is not None:
            last = given.limit == "finish"
            entry = JournalEntry(
                request=advanced.request,
                answer=advanced.answer,
                last=last,
                attempts=advanced.attempts,
                worker=advanced.worker,
            )
            journal = (*recorded, entry)
        memory.journal, memory.journal_step = journal, given.n
        if advanced.result is None:
            memory.calls = {given.n: advanced.calls}
            return
        state = OpenState(open=opened, n=given.n, started=0.0, journal=journal)
        calls = resolve_calls(advanced.result, state)
        memory.calls = {given.n: calls}
        memory.results.clear()
        adds = resolve_adds(advanced.result, state)
        memory.expected = [*adds, *((given.n, i) for i in range(len(calls)))]


async def _respond(model: Model, request: ModelRequest) -> ModelAnswer:
    return await model.respond(request)
