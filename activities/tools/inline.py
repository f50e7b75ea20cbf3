"""Tool calls that run in the activity that made the model call: reads that need nothing else.

An activity of its own costs a call six events, a workflow task and two polls. A call of a tool that
only reads, needs no person and no other worker is run at once, side by side with the others of its
answer. Before, the answer is kept in the archive: when the worker process is lost in a tool, the
next attempt of the activity finds it, pays for no model call and leaves the calls to activities of
their own. (A heartbeat could carry the answer as well. Temporal Cloud bills each; the server does
as much work for it as for the turn's own events; and the worker's own heartbeats may overtake it.)
A call that takes longer than its bound continues on its own; the activity `tool` that is scheduled
for it then waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.data.source import Source, task_id
from holdfast.activities.failures import failure_in, lost_often
from holdfast.activities.heartbeat import InlineCall, Pulse, Signs, begin_part, inline_call
from holdfast.activities.user_loop import inline_calls
from holdfast.agents.agent import Agent
from holdfast.archive.kept_answers import keep_answer
from holdfast.errors import ArchiveError
from holdfast.task.data.calls import Outcome, call_digest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import AgentSnapshot, TaskHead
from holdfast.task.data.records import JournalEntry, OpenState
from holdfast.task.data.wire import Advanced, AdvanceInput, KeptAnswer, ToolInput, activity_key
from holdfast.values.code.user_calls import heard
from holdfast.values.messages import ToolCall
from holdfast.values.text.logs import log

MOST = 32
"""Most calls of one answer that run in its activity."""

LEFT_SECONDS = 20.0
"""How long a call that continues on its own waits for its activity, before it is cancelled: its
step may have been undone, or its task abandoned, before there was one."""


def given_up(kept: KeptAnswer) -> Advanced:
    """Return what an activity has done whose workers were lost too often.

    Raises:
        ApplicationError: They had done nothing.
    """
    if kept.paid is not None:
        cut = tuple(i for i in kept.runs if i not in kept.done)
        told = {**kept.paid.told, **kept.done}
        return kept.paid.model_copy(update={"told": told, "cut": cut, "kept": True})
    raise lost_often()


class Batch(NamedTuple):
    """The calls with which a step activity ends.

    Attributes:
        given: The activity's input.
        agent: The agent as this process has it.
        snapshot: The agent as the task knows it, in this turn.
        head: The task's head.
        state: The step as the task will have it: journal and calls; `state` is what tools see.
        answered: The model call that the activity has made, if it has.
        kept: What an attempt before this one has kept.
    """

    given: AdvanceInput
    agent: Agent
    snapshot: AgentSnapshot
    head: TaskHead
    state: OpenState
    answered: JournalEntry | None
    kept: KeptAnswer


class Ends(NamedTuple):
    """How the calls of an activity have ended, by position.

    Attributes:
        known: Outcomes.
        stopped: Why the step stops after a call.
        failed: Calls that must be run again.
    """

    known: dict[int, Outcome]
    stopped: dict[int, Failure]
    failed: list[int]

    def add(self, i: int, task: asyncio.Task[Outcome]) -> None:
        """Add the end of a call."""
        failure = _failure_of(task)
        if failure is not None:
            self.stopped[i] = failure
        elif task.cancelled() or task.exception() is not None:
            self.failed.append(i)
        elif task.result().asks is not None:
            self.failed.append(i)  # in an activity of its own the call can ask a person
        else:
            self.known[i] = task.result()


RunCall = Callable[[ToolInput], Coroutine[Any, Any, Outcome]]


class Going(NamedTuple):
    """A call that runs in the activity of its step, or has gone on since that ended.

    Attributes:
        task: Its end.
        signs: Its heartbeats and its lease.
    """

    task: asyncio.Task[Outcome]
    signs: Signs


class InlineCalls:
    """Runs calls in the activities of their steps, and keeps the ones that take longer.

    Attributes:
        going: Calls that have outlived the activity of their step, by their place.
    """

    def __init__(self, source: Source, run: RunCall) -> None:
        """Run calls by this function, which is that of the activity `tool`."""
        self._source = source
        self._run = run
        self.going: dict[tuple[Any, ...], Going] = {}

    async def run(self, batch: Batch, advanced: Advanced) -> Advanced:
        """Run the calls that may run here; return the activity's result with their outcomes.

        Raises:
            asyncio.CancelledError: The activity was cancelled.
        """
        if batch.kept.runs:
            return self._resumed(batch, advanced)
        inputs = self._inputs(batch, advanced)
        if not inputs:
            return advanced
        paid: Advanced | None = None
        if batch.answered is not None and advanced.answer is not None:
            paid = advanced.model_copy(update={"request": batch.answered.request})
        runs = {i: given.sha for i, given in inputs.items()}
        kept = KeptAnswer(activity=current_key(), paid=paid, runs=runs)
        if not await self._keep(batch, kept):
            return advanced  # its calls have activities of their own, once it is recorded
        with inline_calls():
            done = await self._outcomes(batch, advanced, inputs, kept)
        return done.model_copy(update={"kept": True})

    async def _keep(self, batch: Batch, kept: KeptAnswer) -> bool:
        """Keep an answer and what is known of its calls; return whether the archive has them."""
        try:
            await keep_answer(self._source.archive, task_id(), batch.given.lane, kept)
        except ArchiveError as error:
            log.warning("An answer cannot be kept while its tools run: %s", error)
            return False
        return True

    def take(self, given: ToolInput, pulse: Pulse) -> asyncio.Task[Outcome] | None:
        """Return a call that goes on in this process since its step's activity ended.

        Args:
            given: The call.
            pulse: Heartbeats of the activity that takes it over, the current one.
        """
        going = self.going.pop(_key(given), None)
        if going is None or going.task.get_loop() is not asyncio.get_running_loop():
            return None
        going.signs.hand_over(pulse)
        return going.task

    def _inputs(self, batch: Batch, advanced: Advanced) -> dict[int, ToolInput]:
        """Return the inputs of the calls that may run here, by position."""
        given, head, calls = batch.given, batch.head, batch.state.calls
        if given.apart or given.stream or head.run.streams or head.run.tool_concurrency:
            return {}
        may = [i for i, call in enumerate(calls) if self._may(batch, call)]
        return {i: _input(batch, i) for i in may[:MOST] if i not in advanced.told} if may else {}

    def _may(self, batch: Batch, call: ToolCall) -> bool:
        policy = batch.snapshot.policies.get(call.name)
        if policy is None or policy.effect != "read" or policy.needs_approval != "no":
            return False
        if policy.agent or policy.handoff or policy.is_conditional:
            return False
        tool = batch.agent.tool(call.name, batch.snapshot)
        return tool is not None and tool.inline and tool.effect == "read"

    def _resumed(self, batch: Batch, advanced: Advanced) -> Advanced:
        """Take the outcomes of a lost attempt; its other calls get activities of their own."""
        calls, kept = batch.state.calls, batch.kept
        began = [
            i
            for i, sha in kept.runs.items()
            if i < len(calls) and i not in advanced.told and call_digest(calls[i]) == sha
        ]
        done = {i: kept.done[i] for i in began if i in kept.done}
        for i, outcome in done.items():
            self._source.memory().put_result(batch.given.n, i, outcome.message(calls[i]))
        made = _with(advanced, done, [i for i in began if i not in done])
        return made.model_copy(update={"kept": True})

    async def _outcomes(
        self, batch: Batch, advanced: Advanced, inputs: dict[int, ToolInput], kept: KeptAnswer
    ) -> Advanced:
        going = {i: self._begin(given) for i, given in inputs.items()}
        left, ends = dict(going), Ends({}, {}, [])
        names = [batch.state.calls[i].name for i in inputs]
        tools = [batch.agent.tool(name, batch.snapshot) for name in names]
        deadline = time.monotonic() + max(tool.inline_seconds for tool in tools if tool)
        try:
            while left:
                seconds = max(deadline - time.monotonic(), 0)
                tasks = [each.task for each in left.values()]
                done, _ = await asyncio.wait(
                    tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for i in [i for i, each in left.items() if each.task in done]:
                    ends.add(i, left.pop(i).task)
                if left and ends.known:
                    kept = kept.model_copy(update={"done": dict(ends.known)})
                    await self._keep(batch, kept)
        except asyncio.CancelledError:
            for each in going.values():
                each.task.cancel()
            await asyncio.gather(*(each.task for each in going.values()), return_exceptions=True)
            if not is_task_leaving():
                raise
            for i, each in left.items():
                ends.add(i, each.task)
            left.clear()
        for i, each in left.items():
            self._leave(inputs[i], each)
        made = _with(advanced, ends.known, ends.failed, ends.stopped)
        return made.model_copy(update={"going": tuple(left)}) if left else made

    def _begin(self, given: ToolInput) -> Going:
        context = copy_context()
        signs = context.run(begin_part)
        context.run(inline_call.set, InlineCall(given.i, time.time()))
        return Going(asyncio.create_task(self._run(given), context=context), signs)

    def _leave(self, given: ToolInput, going: Going) -> None:
        """Let a call go on until its activity takes it over."""
        key = _key(given)
        self.going[key] = going

        def drop() -> None:
            if self.going.get(key) is going:
                del self.going[key]
                going.task.cancel()

        going.task.add_done_callback(heard)
        asyncio.get_running_loop().call_later(LEFT_SECONDS, drop)


def is_task_leaving() -> bool:
    """Whether the task itself has cancelled this activity: it still records what the step did.

    An activity that is cancelled because its worker stops is tried again, by another one.
    """
    why = activity.cancellation_details()
    return why is not None and why.cancel_requested and not why.worker_shutdown


def _input(batch: Batch, i: int) -> ToolInput:
    """Return the input of a call as the task would make it."""
    state, step = batch.state, batch.state.open.step
    return ToolInput(
        n=state.n,
        i=i,
        sha=call_digest(state.calls[i]),
        call=state.calls[i],  # the task does not know it yet, and a full cache forgets it
        branch=batch.given.branch,
        batch=state.batch,
        agent=step.agent,
        step="" if step.step_id == f"s{state.n}" else step.step_id,
        state=state.state,
        head=batch.given.head,
    )


def _key(given: ToolInput) -> tuple[Any, ...]:
    return (task_id(), given.branch, given.n, given.batch, given.i, given.sha)


def _with(
    advanced: Advanced,
    known: dict[int, Outcome],
    cut: Sequence[int],
    stopped: dict[int, Failure] | None = None,
) -> Advanced:
    known = {i: _shortened(each, advanced) for i, each in known.items()}
    changes = {"told": {**advanced.told, **known}, "cut": tuple(cut), "stopped": stopped or {}}
    return advanced.model_copy(update=changes)


def _shortened(outcome: Outcome, advanced: Advanced) -> Outcome:
    """Leave out what the activity's result says already: the worker, and as a rule the end."""
    if advanced.answer is not None:
        outcome = outcome.without_end(advanced.answer.at)
    is_ours = outcome.worker == advanced.worker
    return outcome.model_copy(update={"worker": ""}) if is_ours else outcome


def current_key() -> str:
    """Name the current activity as `KeptAnswer.activity` does."""
    info = activity.info()
    return activity_key(info.workflow_run_id, info.activity_id)


def _failure_of(task: asyncio.Task[Outcome]) -> Failure | None:
    """Return why the step stops after a call; None when the call may be run again, or is done."""
    error = None if task.cancelled() else task.exception()
    if not isinstance(error, ApplicationError) or not error.non_retryable:
        return None
    return failure_in(error)
