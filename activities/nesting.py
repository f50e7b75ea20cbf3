"""Calls of agents as tools: the activity `nest`, which prepares one, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from temporalio import activity

from holdfast import merge_patch
from holdfast.activities.failures import LONGEST_TEXT, typed_failures
from holdfast.activities.heartbeat import heartbeats
from holdfast.activities.registry import Registry
from holdfast.activities.source import Source, task_id
from holdfast.activities.tool_watch import ToolWatch
from holdfast.agent import Agent
from holdfast.agent_tool import AgentTool
from holdfast.client.failures import to_error
from holdfast.client.reading import Reader
from holdfast.client.recorded import read_recorded
from holdfast.client.run_config import run_rules
from holdfast.context_object import KEY
from holdfast.errors import NotFoundError
from holdfast.messages import ToolCall, clean
from holdfast.models.items import from_response_items
from holdfast.nesting import Nesting
from holdfast.records import Failure, Outcome, RunRules, TaskHead
from holdfast.segments import read_record, write_messages
from holdfast.settings import Budget
from holdfast.steps import Task
from holdfast.tool_arguments import ToolArgumentsError
from holdfast.tool_context import ToolContext
from holdfast.values import Json
from holdfast.wire import ToolInput

if TYPE_CHECKING:
    from holdfast.client.results import RunResult


class NestingActivities:
    """Prepares the tasks that calls of agents are."""

    def __init__(self, registry: Registry, source: Source) -> None:
        """Use these agents and this source of task data."""
        self._registry = registry
        self._source = source

    @activity.defn(name="nest")
    async def nest(self, given: ToolInput) -> Nesting:
        """Make the beginning of a call's task; what the model can act on is an outcome."""
        with typed_failures():
            async with heartbeats():
                return await self._nest(given)

    async def _nest(self, given: ToolInput) -> Nesting:
        from holdfast.activities.tool import Ready, failure_text

        head = await self._source.head()
        call, state = await self._source.call(given)
        registry = self._registry.of(head)
        agent = registry.agent(given.agent or head.agent)
        tool = _tool(agent, call, given.n)
        try:
            made = await tool.make_input(call.arguments)
        except ToolArgumentsError as error:
            return _refused(clean(str(error))[:LONGEST_TEXT])
        except Exception as error:  # noqa: BLE001  a result for the model
            ctx = ToolContext[dict[str, Json]](
                task_id=task_id(), call_id=call.id, tool_name=tool.name
            )
            watch = ToolWatch(agent, tool, ctx, self._source, head=head, given=given)
            ready = Ready(tool, call, state, ctx, head, watch)
            return _refused(clean(await failure_text(ready, error)))
        head = _head_of(tool, head, registry)
        text, stored = "", None
        if isinstance(made, str):
            stored = await self._source.store(clean(made))
            text = "" if stored else clean(made)
        else:
            messages = from_response_items(made)
            history = await write_messages(self._source.archive, messages)
            head = head.model_copy(update={"history": history})
        turns = tool.max_turns
        return Nesting(
            head=head,
            input=text,
            stored=stored,
            budget=None if turns is None else Budget(max_turns=turns, on_exceeded="fail"),
            state={KEY: state[KEY]} if KEY in state else {},
        )


def _tool(agent: Agent, call: ToolCall, n: int) -> AgentTool:
    tool = agent.tool(call.name)
    if not isinstance(tool, AgentTool):
        msg = (
            f"Step {n} calls the agent tool {call.name!r}, which agent {agent.name!r} of this"
            " worker process lacks. The task waits, nothing is lost. Give it back and restart the"
            " worker process."
        )
        raise NotFoundError(msg)
    return tool


def _refused(text: str) -> Nesting:
    return Nesting(outcome=Outcome(content=text, is_error=True, status="failed"))


def _head_of(tool: AgentTool, head: TaskHead, registry: Registry) -> TaskHead:
    """Return the head of a call's task: its run's settings are those of the calling run."""
    model, settings = head.model, head.settings
    rules = head.run.model_copy(update={"error_handlers": {}, "streams": False})
    config = tool.run_config
    if config is not None:
        model = config.model if isinstance(config.model, str) else ""
        settings = config.model_settings
        own = run_rules(config, context=None, error_handlers={}, refer=registry.refer)
        traced = {name: getattr(rules, name) for name in _OF_THE_TRACE if not getattr(own, name)}
        shared = {"agent": rules.agent, "context": rules.context}
        rules = own.model_copy(update={**shared, **traced})
    return TaskHead(
        agent=tool.agent.name, dialect=head.dialect, model=model, settings=settings, run=rules
    )


_OF_THE_TRACE = frozenset(RunRules.model_fields) & {"trace_id", "trace_parent", "group_id"}
"""What a nested run has of the calling one, whatever its own settings: one trace shows both."""


def nested_result(
    registry: Registry, source: Source, given: ToolInput, state: dict[str, Json]
) -> Callable[[], Awaitable[RunResult]] | None:
    """Return what gives the result of a call's task, if the call is one.

    Args:
        registry: The agents of this process.
        source: The source of task data.
        given: The call.
        state: The state that the call may change: the context gets what its task made of it.
    """
    if not given.child:
        return None
    child = given.child

    async def result() -> RunResult:
        from holdfast.client.run_reading import run_result

        recorded = await read_recorded(Reader(activity.client(), source.archive), child)
        task = recorded.task
        if task.status not in ("answered", "finished"):
            raise to_error(await _failure(source, task), task_id=child)
        if KEY in task.extra_state:
            state[KEY] = merge_patch.plain(task.extra_state[KEY])
        return run_result(recorded, registry.agent(task.agent))

    return result


async def _failure(source: Source, task: Task) -> Failure:
    """Say what ended a task that has no answer."""
    record = await read_record(source.archive, task.task_id)
    if record is not None and record.failure is not None:
        return record.failure
    kind, _, text = task.error.partition(": ")
    if text:
        return Failure(type=kind, message=text)
    return Failure(type="TaskAbandonedError", message=f"Task {task.task_id!r} was {task.status}.")
