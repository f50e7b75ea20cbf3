"""The activities `describe` and `step`: where AgentWorker code runs and models are called.

Large texts of a step go to the archive before history gets to see them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from temporalio import activity

from holdfast.activities.data.cache import Slot
from holdfast.activities.data.registry import Registry, makes_first_step, published
from holdfast.activities.data.source import (
    Source,
    TaskActivities,
    seen_before,
    session_now,
    task_id,
    worker_identity,
)
from holdfast.activities.failures import counted, failure_by, heals_by_time, typed_failures
from holdfast.activities.guardrails import failing_for_all
from holdfast.activities.heartbeat import (
    FailedCalls,
    Pulse,
    counting_failed,
    ensure_ours,
    heartbeats,
)
from holdfast.activities.steps.agent_code import RegisteredCode, StepHooks
from holdfast.activities.steps.model_call import Asking, Continuation, telling_losses
from holdfast.activities.tools.inline import Batch, InlineCalls, current_key, given_up
from holdfast.activities.tools.questions import has_no_rules
from holdfast.agents.agent import Agent
from holdfast.agents.tools.retriever import ask_retriever
from holdfast.archive.contents import read_json
from holdfast.archive.kept_answers import find_answer
from holdfast.archive.segments import write_messages
from holdfast.reading.streams.hub import Place, StreamKey, local_turns
from holdfast.task.data.head import AgentSnapshot, TaskHead
from holdfast.task.data.records import Handed, JournalEntry, OpenState, OpenStep
from holdfast.task.data.state import MOST_LOST, Described, known_head
from holdfast.task.data.wire import NOTHING_KEPT, Advanced, AdvanceInput, KeptAnswer
from holdfast.task.ledger.recording import new_entries, newest_answer, resolve_adds, resolve_calls
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json
from holdfast.values.code.user_calls import invoke_here, naming
from holdfast.values.messages import Blob, Message
from holdfast.values.steps import TaskStep
from holdfast.values.text.logs import log
from holdfast.workers.context.context import StepContext
from holdfast.workers.context.offer import Retrieve
from holdfast.workers.driver import advance
from holdfast.workers.function_calling import has_used_tools


class StepTexts:
    """Moves large texts of a task's steps to its archive, and reads them back."""

    def __init__(self, source: Source) -> None:
        """Use this source of task data."""
        self._source = source

    async def with_references(self, steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
        """Name the images of steps by reference, before history gets to see them."""
        found = list(steps)
        for k, step in enumerate(steps):
            if step.images:
                images = [await self._source.refer(each) for each in step.images]
                found[k] = step.model_copy(update={"images": tuple(images)})
        return tuple(found)

    async def whole(self, opened: OpenStep, stored: Blob) -> OpenStep:
        """Put an archived input into the step."""
        text = await self._source.text(stored)
        return opened.model_copy(update={"step": opened.step.model_copy(update={"input": text})})

    async def inputs(self, opened: OpenStep) -> dict[str, Json]:
        """Read the outputs of the steps that this one waited for."""
        found = await asyncio.gather(*map(self._source.output, opened.inputs.values()))
        return dict(zip(opened.inputs, found, strict=True))

    async def resolve(self, entry: JournalEntry) -> JournalEntry:
        """Put archived contents into a journal entry."""
        if entry.memo is not None:
            kept = await read_json(entry.memo.output, entry.memo.stored, self._source.text)
            memo = Handed(output=kept)
            return entry.model_copy(update={"memo": memo})
        answer = entry.answer
        if answer is not None:
            message = await self._source.resolve(answer.message)
            return entry.model_copy(
                update={"answer": answer.model_copy(update={"message": message})}
            )
        outcomes = [
            o.model_copy(
                update={
                    "content": await self._source.content(o.content),
                    "nodes": await self._source.nodes(o),
                }
            )
            for o in entry.outcomes
        ]
        return entry.model_copy(update={"outcomes": tuple(outcomes)})

    async def keep_messages(self, messages: Sequence[Message]) -> str:
        """Store what another agent sees; images by reference, as everywhere."""
        kept = [await self._source.offload(message) for message in messages]
        return await write_messages(self._source.archive, kept)

    async def compact_memo(self, entry: JournalEntry) -> JournalEntry:
        """Move a large memo to the archive."""
        if entry.memo is None:
            return entry
        stored = await self._source.store_json(entry.memo.output)
        return entry if stored is None else entry.model_copy(update={"memo": Handed(stored=stored)})

    async def compact_answer(self, advanced: Advanced, attempt: int) -> Advanced:
        """Move a large answer to the archive, before history gets to see it; say who made it."""
        stamp: dict[str, object] = {"attempts": attempt}
        if advanced.answer is not None or advanced.memos:
            stamp["worker"] = worker_identity()
        if advanced.answer is not None:
            message = await self._source.offload(advanced.answer.message)
            usage = advanced.answer.usage.model_copy(update={"requests": 0})  # the ledger counts
            changes: dict[str, object] = {"message": message, "usage": usage}
            stamp["answer"] = advanced.answer.model_copy(update=changes)
        return advanced.model_copy(update=stamp)

    async def compact_result(self, advanced: Advanced) -> dict[str, object]:
        """Move large texts of a result to the archive."""
        result = advanced.result
        if result is None:
            return {}
        adds = [
            await self._source.offload(add) if isinstance(add, Message) else add
            for add in result.adds
        ]
        following = await self.with_references(result.next) if result.next else ()
        changes: dict[str, object] = {"adds": tuple(adds), "next": following}
        if result.output is not None:
            stored = await self._source.store_json(result.output)
            if stored is not None:
                changes |= {"output": None, "stored": stored}
        return {"result": result.model_copy(update=changes)}


class Ready(NamedTuple):
    """A step that can be run, with all that it needs.

    Attributes:
        agent: The agent that this process serves.
        ctx: The step's context.
        hooks: Tells the agent's hooks, if it has any.
        opened: The step, archived texts put in.
        recorded: The step as history has it.
        journal: Its answered calls as history has them.
        head: The task's head.
        asking: Makes its model call.
        continuation: How its next steps go on where the provider keeps the conversation.
        kept: What an attempt before this one has kept in the archive.
    """

    agent: Agent
    ctx: StepContext
    hooks: StepHooks | None
    opened: OpenStep
    recorded: OpenStep
    journal: tuple[JournalEntry, ...]
    head: TaskHead
    asking: Asking
    continuation: Continuation | None
    kept: KeptAnswer


class StepActivities(TaskActivities):
    """Runs steps for the tasks of one worker process."""

    def __init__(self, registry: Registry, source: Source, inline: InlineCalls) -> None:
        """Use these agents and this source of task data, and run some tool calls by `inline`."""
        super().__init__(registry, source)
        self._inline = inline
        self._texts = StepTexts(source)

    @activity.defn(name="describe")
    async def describe(self, head: TaskHead) -> Described:
        """Publish the agent's snapshot and let its AgentWorker make the first step."""
        with typed_failures():
            async with heartbeats():
                return await self._describe(head)

    async def _describe(self, head: TaskHead) -> Described:
        # An attempt whose result is lost may have described the agent differently, so what this one
        # finds is only a guess: the task says which description it took, at the first step.
        self._source.cache.drop(task_id())
        commits = ChainRef()
        if head.session is not None:
            commits, ahead = await session_now(self._source, head.session, head)
            if ahead:
                return Described(snapshot="", ahead=ahead)
        found = await published(self._registry, head)
        agent = self._registry.of(head).agent(head.agent)
        own = {"step": await self._first_step(agent), "commits": commits}
        described = found.model_copy(update=own)
        self._source.cache.know(known_head(head, described))
        return described

    async def _first_step(self, agent: Agent) -> TaskStep:
        """Let a worker that has its own first step make it; the task makes the usual one itself."""
        if not makes_first_step(agent):
            return TaskStep()
        worker = agent.made_worker
        task = await self._source.task()
        with naming(f"initialize_step of agent {agent.name!r}", worker.initialize_step):
            made: TaskStep = await invoke_here(worker.initialize_step, task)
        if made.input == task.input and not made.images:
            changes: dict[str, object] = {"images": task.images}  # it does not know of images
            if not task.input and not task.images:
                changes["input"] = None  # nor of tasks whose request is in what came before
            made = made.model_copy(update=changes)
        [made] = await self._texts.with_references([made])
        return made.model_copy(update={"task_id": ""})

    @activity.defn(name="step")
    async def step(self, given: AdvanceInput) -> Advanced:
        """Run the step up to its next call that needs the task; make at most one model call."""
        starts = max(given.attempts, MOST_LOST)
        if FailedCalls.known().attempt > starts:
            return given_up(await self._kept(given))
        async with telling_losses() if given.dollars is not None else nullcontext():
            with counted(starts), typed_failures(attempts=given.attempts):
                # What may be done twice is a model call or a read.
                async with heartbeats(trusts_start=True) as pulse, counting_failed(pulse):
                    # `apart`: guardrails run beside it, which the task then cancels.
                    with failing_for_all() if given.apart else nullcontext():
                        return await self._step(given, pulse)

    async def _step(self, given: AdvanceInput, pulse: Pulse) -> Advanced:
        ready = await self._ready(given, pulse)
        ctx, hooks = ready.ctx, ready.hooks
        is_read = ctx.task_id in local_turns.runs or ctx.task_id in local_turns.stops
        if is_read and not await _may_begin(given, ctx):
            return Advanced(result=None, unbegun=True)
        if hooks is not None:
            await hooks.started(given, ctx)
        made = await advance(ready.agent.made_worker, ctx, ready.opened)
        if ready.continuation is not None and made.result is not None:
            following = ready.continuation.handed_on(made.result, newest_answer(ctx.journal))
            made = made.model_copy(update={"result": following})
        result, answered = made.result, ctx.record.answered
        advanced = await self._texts.compact_answer(made, ready.asking.attempt)
        if advanced.memos:
            memos = [await self._texts.compact_memo(entry) for entry in advanced.memos]
            advanced = advanced.model_copy(update={"memos": tuple(memos)})
        memory = self._source.memory()
        state: OpenState | None = None
        try:
            if hooks is not None:
                await hooks.ended(ctx, result)
            whole = advanced.model_copy(update=await self._texts.compact_result(advanced))
            state = self._expect(given, ready, whole)
            advanced = whole
        except Exception as error:
            if not ctx.record.fresh:
                raise
            log.warning("The end of a step could not be recorded", exc_info=True)
            memory.drop_journal(given.n)
            request = answered.request if answered is not None else ""
            advanced = _answer_alone(advanced, request, error)
        if state is not None and state.calls and advanced.failure is None:
            batch = Batch(given, ready.agent, ctx.agent, ready.head, state, answered, ready.kept)
            advanced = await self._inline.run(batch, advanced)
            session, policies = ready.head.session, ctx.agent.policies
            if session is not None and await has_no_rules(session, state.calls, policies):
                advanced = advanced.model_copy(update={"unruled": True})
        if ctx.record.fresh:
            memory.handed_over(given.n, activity.info().activity_id)
        lost = ready.asking.lost
        return advanced.model_copy(update={"lost": lost}) if lost else advanced

    async def _kept(self, given: AdvanceInput) -> KeptAnswer:
        """Return what an attempt of this activity, or of one whose workers were lost, has kept."""
        ours = (current_key(), given.lost)
        return await find_answer(self._source.archive, task_id(), given.lane, ours)

    async def _ready(self, given: AdvanceInput, pulse: Pulse) -> Ready:
        """Collect what the step works with: the agent as the task knows it, what was said."""
        source = self._source
        head = await source.head(given.head)
        recorded = await source.opened(given)
        code = await RegisteredCode.of(self._registry, source, head, recorded.step.agent)
        agent, snapshot = code.live, code.agent
        journal = await source.journal(given)
        opened = await self._texts.whole(recorded, recorded.stored) if recorded.stored else recorded
        seen = await seen_before(source, head, opened.step, given.at)
        hooks = continuation = None
        if code.user.hooks is not None:
            hooks = StepHooks(code.user.hooks, code, source, opened, before=seen.given)
        if head.run.kept is not None:
            continuation = Continuation.of(head.run.kept, opened, given.n, journal)
        asking = Asking(
            model=await code.registry.model_of_run(agent, snapshot, head, given.limit),
            code=code,
            source=source,
            before=seen.whole,
            hooks=hooks,
            given=given,
            state=opened.state,
            key=_stream_key(given.n, journal) if given.stream or head.run.streams else None,
            attempt=given.tried + pulse.failed.attempt,
            pulse=pulse,
            continuation=continuation,
        )
        is_first = activity.info().attempt == 1 and not given.lost
        memory, kept = source.memory(), NOTHING_KEPT if is_first else await self._kept(given)
        # An answer that was paid for, here or in a lost process, and is not recorded.
        unrecorded = memory.unrecorded(given.n, activity.info().activity_id)
        if unrecorded is None and kept.paid is not None:
            entry = JournalEntry(request=kept.paid.request, answer=kept.paid.answer)
            unrecorded = await self._texts.resolve(entry)
        # Whether the agent has used a tool is found out only where its tool choice depends on it.
        choice, used = snapshot.settings_in(head).tool_choice, False
        if choice not in (None, "auto") and not snapshot.keeps_tool_choice:
            before = await source.transcript(given.at)
            used = has_used_tools(snapshot.name, code.first, before)
        ctx = StepContext(
            agent=snapshot,
            head=head,
            opened=opened,
            transcript=seen.transcript,
            respond=asking,
            ask_task=source.task,
            retrieve=_retrieve(agent, snapshot) if snapshot.retriever else None,
            inputs=await self._texts.inputs(opened) if opened.inputs else {},
            at=given.at,
            task_id=task_id(),
            n=given.n,
            before=seen.whole.messages,
            journal=[await self._texts.resolve(entry) for entry in journal],
            limit=given.limit,
            tokens=given.tokens,
            unrecorded=unrecorded,
            keep=functools.partial(memory.keep, given.n),
            ensure_ours=functools.partial(ensure_ours, "memo"),
            code=code,
            has_used_tools=used,
        )
        if snapshot.handoffs:
            ctx.handoffs = code.handoffs(
                (given.branch, given.n),
                given=seen.given,
                view=opened.step.history,
                store=self._texts.keep_messages,
            )
        return Ready(agent, ctx, hooks, opened, recorded, journal, head, asking, continuation, kept)

    def _expect(self, given: AdvanceInput, ready: Ready, advanced: Advanced) -> OpenState:
        """Remember what the task is about to record, so that it need not be asked for.

        Returns:
            The step with the calls that are open then, and the state that their tools see.
        """
        memory, result = self._source.memory(), advanced.result
        journal = (*ready.journal, *new_entries(advanced, last=given.limit == "finish"))
        patch = advanced.patch if result is None else result.patch
        seen = ready.recorded.state
        if patch:
            seen = merge_patch.apply(seen, patch)
        state = OpenState(open=ready.recorded, n=given.n, started=0.0, journal=journal, state=seen)
        state.calls = calls = advanced.calls if result is None else resolve_calls(result, state)
        if result is None:
            memory.put_journal(given.n, journal)
            memory.open_calls(given.n, calls)
            return state
        memory.drop_journal(given.n)
        if calls or given.n in memory.calls:
            memory.open_calls(given.n, calls)
        if memory.results:
            memory.clear_results()
        slots: list[Slot] = [*resolve_adds(result, state)]
        for i, outcome in advanced.told.items():
            memory.put_result(given.n, i, outcome.message(calls[i]))
        if calls and not result.quiet:
            slots += [(given.n, i) for i in range(len(calls))]
        memory.expect(slots)
        return state


def _retrieve(agent: Agent, snapshot: AgentSnapshot) -> Retrieve | None:
    """Return how the tools on offer are chosen, if the task began with an agent that chooses.

    Tools of MCP servers are always on offer, after the chosen ones. An agent that has lost its
    retriever since then offers the task all tools that it knows.
    """
    if agent.tool_retriever is None:
        return None
    catalogue = {tool.qualified_name for tool in agent.made_tools}
    choose = functools.partial(ask_retriever, agent.tool_retriever, catalogue)

    async def retrieve(query: str) -> Sequence[str]:
        return [*await choose(query), *snapshot.served]

    return retrieve


async def _may_begin(given: AdvanceInput, ctx: StepContext) -> bool:
    """Wait for the readers of a streamed run in this process; return False if one has stopped it.

    A step that has an answer, recorded or not, has begun.
    """
    if ctx.journal or ctx.record.is_paid:
        return True
    return await local_turns.may_begin(ctx.task_id, Place(given.branch, given.n))


def _stream_key(n: int, journal: Sequence[JournalEntry]) -> StreamKey:
    """Name a step's next model call to those who want to see its answer being made."""
    return StreamKey(task_id(), n, sum(entry.answer is not None for entry in journal))


def _answer_alone(advanced: Advanced, request: str, error: Exception) -> Advanced:
    """Hand over the answer that was paid for, without what came after it and cannot be recorded.

    What may pass with time is left to the next activity, which has the answer in its journal; the
    rest stops the step.
    """
    return Advanced(
        result=None,
        request=request,
        answer=advanced.answer,
        memos=advanced.memos,
        early=advanced.early,
        failure=None if heals_by_time(error) else failure_by(error),
        attempts=advanced.attempts,
        worker=advanced.worker,
    )
