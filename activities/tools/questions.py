"""The activities around a tool call: `gate`, `check`, `probe`, and `undo` of one that was done.

Activities also ask a session for its decisions on later calls, and give it new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Literal, cast

from pydantic_core import to_jsonable_python
from temporalio import activity
from temporalio.client import WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition, RawValue
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.source import TaskActivities, task_id
from holdfast.activities.failures import (
    certain,
    interrupted,
    not_started,
    typed_failures,
    users_code,
)
from holdfast.activities.heartbeat import ensure_ours, heartbeats
from holdfast.activities.spans import undo_of
from holdfast.activities.tools.lookup import (
    Ready,
    begin_effect,
    check_repeat,
    check_there,
    context_of,
    end_effect,
    find,
    find_tool,
    idempotency_key,
    tool_of,
)
from holdfast.agents.tools.arguments import worded
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.decorator import Tool, ToolArgumentsError, render_result
from holdfast.agents.tools.options import takes_context
from holdfast.archive.segments import read_archived
from holdfast.archive.session_commits import send_rule
from holdfast.engine.search_attributes import HF_RULES
from holdfast.task.data.calls import Outcome, StandingRule
from holdfast.task.data.commands import Command, decode
from holdfast.task.data.head import SessionRef, TaskHead, ToolPolicy, policy_of
from holdfast.task.data.undo import Undoable, UndoInput
from holdfast.task.data.wire import KeepInput, Probed, RecallInput, ToolInput, ToolsInput
from holdfast.task.people.decisions import REJECTED
from holdfast.task.undo import active_steps, undoable
from holdfast.tracing.switch import may_trace
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks.gate import clean, data_of
from holdfast.values.code.user_calls import naming
from holdfast.values.messages import ToolCall, shown
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.tool_result import read_result
from holdfast.workers.context.offer import not_found_text


class JudgingActivities(TaskActivities):
    """Answers the task's questions about tool calls, and undoes them."""

    @activity.defn(name="find_tools")
    async def find_tools(self, given: ToolsInput) -> dict[int, str]:
        """Look for the tools of calls, before one begins that a person has decided on.

        Returns:
            Position of a call whose tool is lost to what the model reads of it, where the run is to
            tell the model.
        """
        with typed_failures():
            async with heartbeats():
                return await self._lost(given)

    async def _lost(self, given: ToolsInput) -> dict[int, str]:
        head, source = await self._source.head(given.head), self._source
        registry = self._registry.of(head)
        first = await registry.snapshot(head.snapshot)
        agent = registry.agent(given.agent or head.agent, first)
        began = first.of(agent.name)
        told = head.answers_lost_calls
        lost: dict[int, str] = {}
        for each in given.calls:
            call, state = await source.call(each)
            # That of a child task is there to collect its result, which the model must not miss.
            if told and not each.child and find_tool(agent, call, began) is None:
                lost[each.i] = await self._worded("tool_not_found", call, state, head)
            else:
                check_there(agent, call, given.n, began)
        if given.handoff is not None:
            check_there(agent, given.handoff, given.n, began)
        return lost

    @activity.defn(name="keep_rule")
    async def keep_rule(self, given: KeepInput) -> None:
        """Give a session a rule, and start it if need be; a rule that it has changes nothing.

        A rule that was revoked in transit ends there.
        """
        session, queue = given.session, given.session.queue or activity.info().task_queue
        archive = self._source.archive
        with typed_failures():
            await send_rule(activity.client(), archive, session.id, queue, given.rule)

    @activity.defn(name="gate")
    async def gate(self, given: ToolInput) -> bool | ApprovalRule:
        """Ask a tool's predicate whether a call needs approval, and of whom."""
        with typed_failures():
            async with heartbeats():
                return await _asked(await self._find(given, usage=True))

    @activity.defn(name="check")
    async def check(self, given: ToolInput) -> str:
        """Validate edited arguments; return what is wrong with them, or empty.

        Who was asked about other arguments may not be whom the tool's predicate asks about these.
        """
        with typed_failures():
            async with heartbeats():
                ready = await self._find(given, usage=True)
                try:
                    ready.tool.parse(ready.call.arguments)
                except ToolArgumentsError as error:
                    return str(error)
                rule = await _asked(ready) if callable(ready.tool.needs_approval) else False
                if isinstance(rule, bool) or rule == given.rule:
                    return ""
                return (
                    "With these arguments the tool asks by another ApprovalRule. Reject the call,"
                    " and say what to call instead."
                )

    @activity.defn(name="rejected")
    async def rejected(self, given: ToolInput) -> str:
        """Let the run's formatter write the message to the model about a rejected call."""
        with typed_failures():
            async with heartbeats():
                head = await self._source.head(given.head)
                call, state = await self._source.call(given)
                return await self._worded("approval_rejected", call, state, head)

    async def _worded(
        self,
        kind: Literal["approval_rejected", "tool_not_found"],
        call: ToolCall,
        state: dict[str, Json],
        head: TaskHead,
    ) -> str:
        """Make the message to the model about a call that was not run."""
        text = REJECTED if kind == "approval_rejected" else not_found_text(call)
        if not head.run.tool_error_formatter:
            return text
        registry = self._registry.of(head)
        context = RunContextWrapper(registry.context(head, state), task_id=task_id())
        formatter = registry.code(head.run.tool_error_formatter)
        return clean(await worded(formatter, kind, call, text, context))

    @activity.defn(name="screen")
    async def screen(self, given: ToolInput) -> Outcome:
        """Ask a tool's guardrails about a call before a person is; the default lets it pass."""
        with typed_failures():
            async with heartbeats():
                ready = await self._find(given)
                return await ready.watch.screen() or Outcome()

    @activity.defn(name="probe")
    async def probe(self, given: ToolInput) -> Probed:
        """Run the tool's probe: it finds out whether a call took effect."""
        with typed_failures():
            async with heartbeats():
                ready = await self._find(given, usage=True)
                effect = _effect(ready.tool, ready.call, ready.ctx.idempotency_key, "unknown")
                await ensure_ours("probe")
                with naming(f"probe of tool {ready.tool.name!r}", ready.tool.probe):
                    found = await ready.tool.run_probe(ready.ctx, effect)
                if found is None:
                    return Probed()
                result = read_result(found, tool=ready.tool.name)
                content = await self._source.store_result(result)
                self._source.memory().drop_result(given.n, given.i)
                return Probed(happened=True, content=content)

    @activity.defn(name="undo")
    async def undo(self, given: UndoInput) -> str:
        """Undo one effect; return the text that `undo=` returned.

        Raises:
            ApplicationError: A certain one when nothing was undone, as far as the undo itself says;
                "NotStarted" when it may be scheduled again.
        """
        with typed_failures():
            async with heartbeats():
                with certain(), typed_failures(), not_started("undo"):
                    tool, ctx, effect = await self._undoing(given)
                    await ensure_ours("undo")
                    begun, call = None, given.effect.call
                    if not tool.undo_idempotent:
                        what = f"the undo of {call.name} {call.arguments}"
                        place = f"undo.{given.branch}.{given.n}.{given.effect.batch}"
                        place = f"{place}.{given.effect.i}"
                        begun = await begin_effect(self._source.archive, place, what)
                        await ensure_ours("undo")  # the archive may have taken its time
                head = await self._source.head()
                traced = undo_of(head, call) if may_trace() else nullcontext()
                with traced, interrupted("undo"):
                    what = f"undo of tool {tool.name!r}"
                    with certain(), typed_failures(), naming(what, tool.undo):
                        said = await tool.run_undo(ctx, effect)
                    text = "" if said is None else clean(render_result(said, tool=tool.name))[:2000]
                if begun is not None:
                    end_effect(self._source.archive, begun, "done")
                return text

    async def _undoing(
        self, given: UndoInput
    ) -> tuple[Tool, ToolContext[Any, dict[str, Json]] | None, Effect]:
        """Look up an effect's tool and build what its undo gets."""
        head = await self._source.head()
        registry, call = self._registry.of(head), given.effect.call
        first = await registry.snapshot(head.snapshot)
        agent = registry.agent(given.agent or head.agent, first)
        tool = tool_of(agent, call, given.n, first.of(agent.name))
        if activity.info().attempt > 1:
            check_repeat(f"undo of tool {tool.name!r}", tool.undo_idempotent)
        place = ToolInput(
            n=given.n,
            i=given.effect.i,
            batch=given.effect.batch,
            branch=given.branch,
            step=given.step,
            agent=given.agent,
        )
        said = given.effect.content
        result = data_of(said if isinstance(said, str) else shown(await self._source.content(said)))
        effect = _effect(tool, call, idempotency_key(task_id(), place, call), "done", result)
        if not takes_context(tool.undo):
            return tool, None, effect
        task = await self._source.status()
        state = merge_patch.plain(task.extra_state)
        load = partial(registry.load_context, head)
        ctx = context_of(load, agent, call, place, tool, state=state, usage=task.usage)
        return tool, ctx, effect

    @activity.defn(name="recall")
    async def recall(self, wanted: list[int]) -> list[Undoable]:
        """Read archived steps, as their undo needs them."""
        with typed_failures():
            async with heartbeats():
                page, entries = await self._source.entries()
                archived = await read_archived(self._source.archive, page.segment)
                steps = active_steps([*archived, *entries])
                return [undoable(step) for step in steps if step.n in set(wanted)]

    async def _find(self, given: ToolInput, *, usage: bool = False) -> Ready:
        """Look up a call that is not about to be run."""
        return await find(self._registry, self._source, given, runs=False, usage=usage)


async def _asked(ready: Ready) -> bool | ApprovalRule:
    tool = ready.tool
    asks = tool.needs_approval if callable(tool.needs_approval) else None
    with users_code(f"needs_approval of tool {tool.name!r}", asks):
        return await tool.asks_approval(ready.ctx, ready.call.arguments)


def _effect(tool: Tool, call: ToolCall, key: str, status: Any, result: Json = None) -> Effect:
    try:
        arguments: Json = to_jsonable_python(json.loads(call.arguments or "{}"))
    except (ValueError, RecursionError):
        arguments = {}
    return Effect(
        tool=tool.qualified_name,
        call_id=call.id,
        key=key,
        arguments=cast("dict[str, Json]", arguments) if isinstance(arguments, dict) else {},
        result=result,
        status=status,
    )


LOOK_TIMEOUT = timedelta(seconds=3)


@activity.defn(name="session_rules")
async def session_rules(wanted: RecallInput) -> list[StandingRule]:
    """List the rules of a session for the calls of one agent's tool, oldest first."""
    handle = activity.client().get_workflow_handle(wanted.session)
    with typed_failures():
        try:
            kind, if_open = list[StandingRule], QueryRejectCondition.NOT_OPEN
            found = await handle.query("standing_rules", result_type=kind, reject_condition=if_open)
        except WorkflowQueryRejectedError:  # ended by an operator: nobody could revoke its rules
            return []
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # nothing has begun it yet
                return []
            raise
    return [rule for rule in found if (rule.tool, rule.agent) == (wanted.tool, wanted.agent)]


@activity.defn(name="sent_at")
async def sent_at(command: Command) -> float:
    """Return when the server got a signal of this run of the task, seconds since the epoch.

    Of a signal without an id, the newest that says the same counts.

    Returns:
        0 if the history has no such signal.
    """
    info, client, found = activity.info(), activity.client(), 0.0
    handle = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    with typed_failures():
        async for event in handle.fetch_history_events():
            signal = event.workflow_execution_signaled_event_attributes
            if signal.signal_name != command.verb:
                continue
            raw = await client.data_converter.decode(signal.input.payloads, [RawValue])
            got = decode(command.verb, [each.payload.data for each in raw])
            if got == command or (command.id and got.id == command.id):
                found = event.event_time.ToMicroseconds() / 1e6
                if command.id:  # a repeated id is dropped
                    break
    return found


async def has_no_rules(
    session: SessionRef, calls: Sequence[ToolCall], policies: Mapping[str, ToolPolicy]
) -> bool:
    """Whether a task's session certainly has no decision for later calls, for calls to be asked.

    Only the server is asked: that needs no worker process that has the session, and a step's
    activity can look where the answer of its model has asked for such calls. A session that has
    news to take is not certain to have none.

    Args:
        session: The session.
        calls: The calls.
        policies: Tool name to its rules.
    """
    found = (policy_of(policies, call) for call in calls)
    if all(each is None or each.needs_approval == "no" for each in found):
        return False
    try:
        handle = activity.client().get_workflow_handle(session.id)
        described = await handle.describe(rpc_timeout=LOOK_TIMEOUT)
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    if described.raw_description.HasField("pending_workflow_task"):
        return False
    return not described.typed_search_attributes.get(HF_RULES)
