"""The activity `nest`: prepares the task that a call of an agent as a tool is."""

from __future__ import annotations

from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.registry import Registry, described_ahead
from holdfast.activities.data.source import TaskActivities, task_id
from holdfast.activities.failures import typed_failures
from holdfast.activities.heartbeat import heartbeats
from holdfast.activities.spans import came_to, tool_call
from holdfast.activities.tools.lookup import Ready, find
from holdfast.activities.tools.tool import failed, recorded
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.runs.teams import run_budget, run_head
from holdfast.archive.segments import read_archived, write_messages
from holdfast.archive.session_commits import RPC_TIMEOUT, end_of
from holdfast.engine.search_attributes import AGENT_TASK
from holdfast.errors import NotFoundError
from holdfast.models.openai.items import from_response_items
from holdfast.task.data.calls import Begun, Outcome
from holdfast.task.data.children import ENDED, SAYS, EndNested, ParentSays, secret_of_child
from holdfast.task.data.head import KeptConversation, TaskHead
from holdfast.task.data.records import Entry
from holdfast.task.data.state import TaskInput
from holdfast.task.data.wire import Nesting, ToolInput
from holdfast.task.undo import undoable
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks.gate import clean
from holdfast.values.code.context_data import KEY
from holdfast.values.code.some_at_once import some_at_once

AT_ONCE = 16


class NestingActivities(TaskActivities):
    """Prepares the tasks that calls of agents are."""

    @activity.defn(name="nest")
    async def nest(self, given: ToolInput) -> Nesting:
        """Make the input of a call's child task, or the call's outcome if it is refused.

        The guardrails of the call and the hook for its start run here, as before any tool; those
        for its end run in the activity `tool`, once the child has its answer.
        """
        with typed_failures():
            async with heartbeats():
                ready = await find(self._registry, self._source, given)
                tool = _agent_tool(ready, given.n)
                stopped = await ready.watch.begin()
                if stopped is not None:
                    return Nesting(outcome=recorded(self._source, given, ready, stopped))
                try:
                    made = await tool.make_input(ready.call.arguments)
                except Exception as error:  # noqa: BLE001  a result for the model
                    return Nesting(outcome=await self._refused(given, ready, error))
                return await self._begun(ready, tool, made)

    @activity.defn(name="is_own")
    async def is_own(self, task: str) -> bool:
        """Return whether a workflow is a child task of this task."""
        handle = activity.client().get_workflow_handle(task)
        found = await handle.describe(rpc_timeout=RPC_TIMEOUT)
        return (found.workflow_type, found.parent_id) == (AGENT_TASK, task_id())

    @activity.defn(name=ENDED)
    async def ended(self, tasks: list[str]) -> dict[str, str]:
        """Return which tasks have ended, with how.

        Raises:
            ApplicationError: None has; the server makes another attempt after a pause.
        """
        ends = await some_at_once(partial(end_of, activity.client()), tasks, AT_ONCE)
        found = {task: how for task, how in zip(tasks, ends, strict=True) if how}
        if not found:
            msg = "None of these tasks has ended."
            raise ApplicationError(msg, type=ENDED, category=ApplicationErrorCategory.BENIGN)
        return found

    @activity.defn(name="end_nested")
    async def end_nested(self, given: EndNested) -> None:
        """End the tasks of calls of archived steps; ended ones are left alone."""
        with typed_failures():
            async with heartbeats():
                entries = await read_archived(self._source.archive, given.segment)
                await some_at_once(partial(_end, given), _nested(entries), AT_ONCE)

    async def _refused(self, given: ToolInput, ready: Ready, error: Exception) -> Outcome:
        """End a call whose task cannot begin, as any tool's call that has failed."""
        with tool_call(ready.head, given, ready.tool, ready.call) as span:
            span.fail(error)
            outcome = await ready.watch.end(await failed(self._source, ready, error))
            came_to(span, outcome)
        return recorded(self._source, given, ready, outcome)

    async def _begun(
        self, ready: Ready, tool: AgentTool, made: str | list[dict[str, Json]]
    ) -> Nesting:
        head = child_head(tool, ready.head, self._registry.of(ready.head))
        head = head.model_copy(update={"callers": ready.head.turns(task_id())})
        text, stored = "", None
        if isinstance(made, str):
            stored = await self._source.store(clean(made))
            text = "" if stored else clean(made)
        else:
            messages = from_response_items(made)
            history = await write_messages(self._source.archive, messages)
            head = head.model_copy(update={"history": history})
        state = ready.ctx.final_state()
        begins = TaskInput(
            head=head,
            input=text,
            stored=stored,
            extra_state={KEY: state[KEY]} if KEY in state else {},
            budget=run_budget(tool.max_turns),
            automatic=True,
            described=await described_ahead(self._registry, self._source.cache, head),
        )
        begun = Begun(guards=ready.watch.guards, patch=merge_patch.change(ready.state, state))
        return Nesting(task=begins, begun=begun)


def _agent_tool(ready: Ready, n: int) -> AgentTool:
    if not isinstance(ready.tool, AgentTool):
        msg = (
            f"Step {n} calls the agent tool {ready.call.name!r}, but {ready.ctx.agent_name!r} of"
            " this worker process has another tool of that name. The task waits, nothing is lost."
        )
        raise NotFoundError(msg, remedy="Give the agent back and restart the worker process.")
    ready.tool.check_for_task()
    return ready.tool


def child_head(tool: AgentTool, caller: TaskHead, registry: Registry) -> TaskHead:
    """Return the head of a call's task, with the calling run's settings if the tool has none."""
    name, config, above = tool.agent.name, tool.run_config, caller.run
    changes: dict[str, object]
    if config is None:
        head = TaskHead(agent=name, model=caller.model, settings=caller.settings, run=above)
        changes = {"error_handlers": {}, "streams": False, "kept": None, "inherits": True}
    else:
        head = run_head(name, config, refer=registry.refer)
        changes = {each: getattr(head.run, each) or getattr(above, each) for each in _INHERITED}
    options = tool.options
    ids = {each: options[each] or "" for each in ("conversation_id", "previous_response_id")}
    if ids["conversation_id"]:
        ids["previous_response_id"] = ""
    if any(ids.values()):
        changes["kept"] = KeptConversation(**ids)
    changes["streams"] = options["on_stream"] is not None
    run = head.run.model_copy(update=changes)
    same = {"dialect": caller.dialect, "asker": caller.asker, "tenant": caller.tenant}
    return head.model_copy(update={**same, "run": run})


_INHERITED = ("agent", "context", "trace_id", "trace_parent", "group_id")
"""Rules of the calling run that hold for a nested one with settings of its own, unless these say
otherwise: it works on the same context, and one trace shows both."""


def _nested(entries: list[Entry]) -> list[str]:
    """List the tasks of calls of a ledger's steps, but not those of a task that it departs from."""
    names: list[str] = []
    for entry in entries:
        if entry.event is not None and entry.event.kind == "forked":
            names.clear()
        if entry.step is not None:
            names += [effect.child for effect in undoable(entry.step).effects if effect.child]
    return names


async def _end(given: EndNested, name: str) -> None:
    secret = secret_of_child(given.secret, name)
    said = ParentSays(secret=secret, end=given.end, reason=given.reason)
    handle = activity.client().get_workflow_handle(name)
    try:
        await handle.signal(SAYS, said, rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # it is not there any more
            raise
