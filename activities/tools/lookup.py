"""Look-up of the tool for a scheduled call, its context, and its guardrails and hooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, cast

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities import heartbeat
from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source, task_id, worker_identity
from holdfast.activities.failures import LoggedError, failure_by, users_code
from holdfast.activities.guardrails import info_of
from holdfast.activities.heartbeat import NotOursError, attempt_of
from holdfast.activities.spans import Block, GuardrailKind, Recording, checked, guardrail
from holdfast.activities.tools.child_result import ChildRun
from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.local.base import LocalTool
from holdfast.agents.tools.arguments import ToolErrorFormatter
from holdfast.agents.tools.context import NestedRun, ToolContext, names_in_context
from holdfast.agents.tools.decorator import Tool, ToolArgumentsError
from holdfast.agents.tools.functions.schema import is_same_shape
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputGuardrailData,
)
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import EFFECTS, folder_of
from holdfast.errors import ArchiveError, OutcomeUnknownError, UserError
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import (
    INTERRUPTED,
    NOT_REPEATABLE,
    NOT_STARTED,
    TOOL_CHANGED,
    TOOL_MISSING,
    Failure,
    facts,
)
from holdfast.task.data.guard_rules import TOOL_INPUT_TRIPPED, TOOL_OUTPUT_TRIPPED, ToolGuarded
from holdfast.task.data.head import AgentSnapshot, TaskHead, ToolPolicy
from holdfast.task.data.wire import EffectMark, ToolInput
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, canonical, digest
from holdfast.values.checks.gate import clean, filled_in
from holdfast.values.code.typed_data import Returned, class_name
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import ToolCall, Usage, shown
from holdfast.values.parts.sources import content_of
from holdfast.values.text.logs import log
from holdfast.values.tool_result import ToolResultError, render_result
from holdfast.workers.tool_use import ASKS, may_be_final

NOTHING: Any = object()


@dataclass(eq=False, repr=False)
class ToolWatch:
    """Runs the guardrails and hooks of one call.

    Attributes:
        agent: Whose call it is.
        shown: The same as code of the user's is given it.
        tool: The tool.
        ctx: The call's context.
        source: The task's data.
        head: The task's head.
        step: Branch and number of the step.
        value: What the tool returned; set by the caller that runs it.
        guards: Results of the guardrails, in the order in which they ran.
    """

    agent: Agent
    shown: Agent
    tool: Tool
    ctx: ToolContext[Any]
    source: Source
    head: TaskHead
    step: tuple[int, int]
    value: Any = NOTHING
    guards: tuple[ToolGuarded, ...] = ()

    async def screen(self) -> Outcome | None:
        """Run the guardrails of the call; return its outcome, or None when it may be run.

        Raises:
            ApplicationError: A guardrail raised. The call has not been made; the task waits.
        """
        for each in self.tool.tool_input_guardrails:
            name = each.get_name()
            code = users_code(self._guardrail(name), each.guardrail_function)
            with self._recorded("tool_input", name) as span, code:
                found = await each.run(ToolInputGuardrailData(self.ctx, self.shown))
                self._mark(span, found)
            guarded = await self._record("input", name, found)
            if guarded.behavior == "reject_content":
                text = await self.source.store_result(guarded.message)
                return Outcome(content=text, status="failed", attempts=0, guards=self.guards)
            if guarded.behavior == "raise_exception":
                failure = self._tripped(TOOL_INPUT_TRIPPED, guarded)
                return Outcome(status="failed", attempts=0, guards=self.guards, failure=failure)
        return None

    async def begin(self) -> Outcome | None:
        """Screen the call, have `on_approval` decide, and call the hook for a tool about to run.

        Raises:
            ApplicationError: Code of the user's raised. The call has not been made.
        """
        stopped = await self.screen() if self.tool.tool_input_guardrails else None
        if stopped is None and isinstance(cast("object", self.tool), LocalTool):
            stopped = await self._rejected(cast("LocalTool[Any]", self.tool))
        if stopped is None and self.shown.hooks is not None:
            hook = self.shown.hooks.on_tool_start
            with users_code(f"hook on_tool_start of agent {self.agent.name!r}", hook):
                await invoke(hook, self.ctx, self.shown, self.tool)
        return stopped

    async def _rejected(self, tool: LocalTool[Any]) -> Outcome | None:
        """Return the outcome of a call that the `on_approval` function of its tool rejects."""
        ctx = self.ctx
        with users_code(f"approval of tool {tool.name!r}", tool.on_approval):
            reason = await tool.rejection(ctx, ctx.arguments)
        if reason is None:
            return None
        text = await self.source.store_result(clean(reason))
        return Outcome(content=text, is_error=True, status="failed", attempts=0, guards=self.guards)

    async def end(self, outcome: Outcome) -> Outcome:
        """Run the guardrails of the result, then call the hook with what they leave of it.

        A hook that raises stops the step; the outcome is recorded all the same.

        Raises:
            ApplicationError: A guardrail raised, so that the result must not be used.
        """
        if not self.tool.tool_output_guardrails and self.shown.hooks is None:
            return outcome.model_copy(update={"guards": self.guards}) if self.guards else outcome
        if self.value is NOTHING or outcome.is_error:
            self.value = shown(await self.source.content(outcome.content))
        outcome = await self._checked(outcome)
        if outcome.failure is None and self.shown.hooks is not None:
            hook = self.shown.hooks.on_tool_end
            try:
                with users_code(f"hook on_tool_end of agent {self.agent.name!r}", hook):
                    await invoke(hook, self.ctx, self.shown, self.tool, self.value)
            except ApplicationError as error:
                outcome = outcome.model_copy(update={"failure": failure_by(error)})
        return outcome.model_copy(update={"guards": self.guards})

    async def _checked(self, outcome: Outcome) -> Outcome:
        for each in self.tool.tool_output_guardrails:
            data = ToolOutputGuardrailData(self.ctx, self.shown, self.value)
            name = each.get_name()
            try:
                code = users_code(self._guardrail(name), each.guardrail_function)
                with self._recorded("tool_output", name) as span, code:
                    found = await each.run(data)
                    self._mark(span, found)
            except ApplicationError as error:
                raise self._unchecked(name, error) from None
            guarded = await self._record("output", name, found)
            if guarded.behavior == "reject_content":
                self.value = guarded.message
                text = await self.source.store_result(guarded.message)
                return outcome.model_copy(update={"content": text, "nodes": (), "returned": None})
            if guarded.behavior == "raise_exception":
                failure = self._tripped(TOOL_OUTPUT_TRIPPED, guarded)
                return outcome.model_copy(update={"failure": failure})
        return outcome

    def _unchecked(self, name: str, error: ApplicationError) -> ApplicationError:
        """Return the failure of a call whose result could not be checked.

        A repeatable call is repeated with its guardrails when the task is run again. Of any other
        call a person must supply the result.
        """
        if self.tool.policy().repeatable:
            return error
        text = (
            f"Tool {self.tool.name!r} was run, but what it gave is lost, because its guardrail"
            f" {name!r} failed: {error.type}: {error.message}"
        )
        return LoggedError(text, type=INTERRUPTED, non_retryable=True)

    def _guardrail(self, name: str) -> str:
        return f"guardrail {name!r} of tool {self.tool.name!r}"

    def _recorded(self, kind: GuardrailKind, name: str) -> Block:
        return guardrail(self.head, name, kind, step=self.step, i=len(self.guards))

    def _mark(self, span: Recording, found: ToolGuardrailFunctionOutput) -> None:
        behavior = found.behavior["type"]
        tripped = behavior == "raise_exception"
        checked(span, self.agent.name, tripped=tripped, behavior=behavior)

    async def _record(
        self, kind: Any, name: str, found: ToolGuardrailFunctionOutput
    ) -> ToolGuarded:
        info, stored = await info_of(self.source, found.output_info)
        message = clean(str(found.behavior.get("message", "")))
        behavior = found.behavior["type"]
        guarded = ToolGuarded(
            kind=kind,
            name=name,
            behavior=behavior,
            message=message,
            info=info,
            info_class=class_name(found.output_info),
            stored=stored,
        )
        self.guards = (*self.guards, guarded)
        return guarded

    def _tripped(self, kind: str, guarded: ToolGuarded) -> Failure:
        facts: dict[str, Json] = {
            "found": guarded.wire(),
            "tool": self.tool.qualified_name,
            "agent": self.agent.name,
        }
        text = f"Guardrail {guarded.name!r} of tool {self.tool.name!r} triggered its tripwire."
        return Failure(type=kind, message=text, data=facts)


_EPOCH = datetime.fromtimestamp(0, UTC)


class Ready(NamedTuple):
    """A call that can be run: its tool, arguments, state and context.

    A guardrail, a hook, or a function that decides on such calls watches it. The behaviour is that
    of the agent: whether the result may end the run.
    """

    tool: Tool
    policy: ToolPolicy
    call: ToolCall
    state: dict[str, Json]
    ctx: ToolContext[Any, dict[str, Json]]
    head: TaskHead
    watch: ToolWatch
    is_watched: bool = True
    formatter: ToolErrorFormatter | None = None
    behavior: str = ""

    def returned(self, value: Any, text: str) -> Returned | None:
        """Describe what the tool returned, if that may end the run and its JSON is the text."""
        if not may_be_final(self.call.name, self.behavior):
            return None
        value = content_of(value)
        try:
            if render_result(value) != text:
                return None
        except ToolResultError:  # it can be written only once, and has been
            return None
        returned = Returned.of(value, text)
        if returned is not None and self.behavior == ASKS:  # functions get what is made, not this
            return returned.model_copy(update={"text": ""})
        return returned


async def find(
    registry: Registry, source: Source, given: ToolInput, *, runs: bool = True, usage: bool = False
) -> Ready:
    """Look up a call and its tool, and build the tool's context.

    Args:
        registry: The agents of this process.
        source: The task's data.
        given: Which call.
        runs: Whether it is about to be run: then its arguments must fit, and the formatter of its
            errors must be there.
        usage: Whether to ask for the cost of the task, also when the tool takes no context.

    Raises:
        ApplicationError: This process lacks the tool.
        AgentNotFoundError: This process lacks the agent.
        UserError: A deploy has changed the class of the context, or what the tool takes, and what
            is recorded does not fit any more.
    """
    head = await source.head(given.head)
    registry = registry.of(head)
    call, state = await source.call(given)
    first = await registry.snapshot(head.snapshot)
    agent = registry.agent(given.agent or head.agent, first)
    began = first.of(agent.name)
    tool = tool_of(agent, call, given.n, began)
    policy = tool.policy()
    now = merge_patch.apply(state, given.patch) if state or given.patch else {}
    if runs:
        check_fits(began, agent, tool, policy, call)
        if attempt_of(given.tried) > 1:
            check_repeat(f"call of tool {call.name!r}", not policy.may_have_happened)
    if runs and tool.takes_context and head.run.context:
        registry.context(head, now)  # to find out before the tool starts if its class has changed
    ctx = context_of(
        partial(registry.load_context, head),
        agent,
        call,
        given,
        tool,
        state=now,
        usage=(await source.status()).usage if usage or tool.takes_context else None,
        nested=ChildRun(given.child, registry, source, now) if given.child else None,
    )
    ref = head.run.tool_error_formatter
    formatter = registry.code(ref) if ref and runs else None
    shown_as, step = users_agent(agent), (given.branch, given.n)
    watch = ToolWatch(agent, shown_as, tool, ctx, source, head, step)
    guards = tool.tool_input_guardrails or tool.tool_output_guardrails
    is_watched = bool(guards) or shown_as.hooks is not None or isinstance(tool, LocalTool)
    return Ready(tool, policy, call, state, ctx, head, watch, is_watched, formatter, began.behavior)


def find_tool(agent: Agent, call: ToolCall, began: AgentSnapshot) -> Tool | None:
    """Return the tool, or the handoff as a tool, that is called; None if this process lacks it."""
    tool = agent.tool(call.name, began)
    return tool if tool is not None and tool.kind == call.kind else None


def check_there(agent: Agent, call: ToolCall, n: int, began: AgentSnapshot) -> None:
    """Refuse a call whose tool this process lacks, or has another one for.

    Raises:
        ApplicationError: As for `tool_of` and `check_fits`.
        UserError: As for `check_fits`.
    """
    tool = tool_of(agent, call, n, began)
    check_fits(began, agent, tool, tool.policy(), call)


def tool_of(agent: Agent, call: ToolCall, n: int, began: AgentSnapshot) -> Tool:
    """Return the tool that a step calls.

    Args:
        agent: The agent whose call it is, as it is now.
        call: The call.
        n: Number of the step.
        began: The agent as the task began with it.

    Raises:
        ApplicationError: This process lacks it.
    """
    tool = find_tool(agent, call, began)
    if tool is not None:
        return tool
    served = [each.qualified_name for each in agent.made_tools]
    msg = (
        f"Tool {call.name} not found in agent {agent.name} of this worker process: step {n} calls"
        f" it, and there is: {', '.join(served) or 'none'}. The task waits, nothing is lost."
    )
    remedy = (
        f"Give the tool back to agent {agent.name!r} and restart the worker, or reject the call if"
        " it still waits for a person; then ask again for what you had asked for."
    )
    raise ApplicationError(msg, *facts(remedy=remedy), type=TOOL_MISSING, non_retryable=True)


def check_fits(
    began: AgentSnapshot, agent: Agent, tool: Tool, now: ToolPolicy, call: ToolCall
) -> None:
    """Refuse a call whose arguments do not fit because a deploy has changed the tool.

    The model knows the tool as it was when the task began, and its arguments may have fitted then.
    An error sent to the model would not help: it cannot know the new parameters.

    Args:
        began: The agent as the task began with it.
        agent: The same as it is now.
        tool: The tool as it is now.
        now: How a task runs it now.
        call: The call.

    Raises:
        ApplicationError: It is not a tool of the same kind any more, or leads to another agent: the
            call would do something else.
        UserError: The tool is another one, and the call does not fit it; or an argument that it
            leaves out would not be what people who approve it are shown.
    """
    policy = began.policies.get(call.name, now)
    where = f"of agent {agent.name!r} in this worker process"
    remedy = (
        "Give the agent the earlier tool back, restart the worker process and ask again. A fork"
        " begins with the tool as it is now."
    )
    if (policy.handoff, policy.agent) != (now.handoff, now.agent):
        msg = (
            f"Cannot reconcile queued tool {call.name} with a new tool or handoff {where}, which is"
            " not the one that the model was told of when the task began: the call would do"
            " something else. The task waits, nothing is lost."
        )
        raise ApplicationError(msg, *facts(remedy=remedy), type=TOOL_CHANGED, non_retryable=True)
    if policy.needs_approval != "no" and policy.defaults != now.defaults:
        shown, runs = (filled_in(call.arguments, each.defaults) for each in (policy, now))
        if shown != runs:
            changed = (f"{at} ({canonical(runs.get(at)).decode()})" for at in {*shown, *runs})
            msg = (
                f"Tool {call.name!r} {where} fills in other defaults than people see who approve"
                f" its calls: {', '.join(sorted(changed))}. The task waits,"
                " nothing is lost."
            )
            raise UserError(msg, remedy=remedy)
    specs = (spec for spec in (*began.tools, *began.handoffs) if spec.name == call.name)
    known = next(specs, None)
    if known is None or known.hosted is not None:  # what it takes, the API says, not the agent
        return
    now_sent = tool.sent.parameters
    if known.parameters == now_sent or is_same_shape(known.parameters, now_sent):
        return
    try:
        tool.parse(call.arguments)
    except ToolArgumentsError as error:
        msg = (
            f"Tool {call.name!r} {where} is not the one that the model was told of when the task"
            f" began, and the call does not fit it: {'; '.join(error.problems)}. The task waits,"
            " nothing is lost."
        )
        raise UserError(msg, remedy=remedy) from None


def check_repeat(what: str, is_repeatable: bool) -> None:  # noqa: FBT001
    """Refuse to repeat what the task takes for repeatable, if a deploy says that it is not.

    Args:
        what: What is about to be run, for a person.
        is_repeatable: Whether it is, as this process has it.

    Raises:
        ApplicationError: An earlier attempt may have run it.
    """
    if is_repeatable:
        return
    msg = (
        f"The {what} was cut off or failed before it could say how it ended. When the task began,"
        " it could have been run again; as this worker process has it, it must not be repeated."
    )
    raise ApplicationError(msg, type=NOT_REPEATABLE, non_retryable=True)


def context_of(
    load: Callable[[Json], Any],
    agent: Agent,
    call: ToolCall,
    given: ToolInput,
    tool: Tool,
    *,
    state: dict[str, Json],
    usage: Usage | None,
    nested: NestedRun | None = None,
) -> ToolContext[Any, dict[str, Json]]:
    """Build the context that a tool, its predicate, its probe and its undo get of a call.

    Args:
        load: Makes the run's context object of its data.
        agent: The agent whose call it is.
        call: The call.
        given: Where it is in the task.
        tool: Its tool.
        state: The task's state.
        usage: What the task has cost so far; None where it is not asked for.
        nested: The task that the call is, if it is one.
    """
    name, namespace = names_in_context(call, tool)
    ctx = ToolContext[Any, dict[str, Json]](
        task_id=task_id(),
        step_id=given.step or f"s{given.n}",
        tool_call_id=call.id,
        tool_name=name,
        tool_namespace=namespace,
        tool_arguments=call.arguments,
        attempt=attempt_of(given.tried),
        idempotency_key=idempotency_key(task_id(), given, call),
        fencing_token=fencing_token(),
        agent=users_agent(agent),
        usage=usage,
        state=state,
        heartbeat=heartbeat.current.get().teller(),
        load_context=load,
        nested=nested,
    )
    ctx.answers, ctx.resume, ctx.keeper = given.answers, given.resume, None
    return ctx


def fencing_token() -> int:
    """Number the current start of a call: higher than each earlier one of the same call.

    Made of when the server scheduled the activity, and of the attempt: a call whose activity has
    failed is scheduled again, seconds later. It stays below 2^53, which every JSON reader can read.
    """
    info = activity.info()
    return (info.scheduled_time - _EPOCH) // timedelta(milliseconds=1) * 1000 + info.attempt


def idempotency_key(task: str, given: ToolInput, call: ToolCall) -> str:
    """Name the action: what is called with which arguments, and at which place in the task.

    Two equal calls of one step have two keys, because they have two places: branch, step, batch
    and position. All attempts of a call have one key, as has the call of a step that is run again
    and makes it at the same place. A step that is undone and run again is on a new branch, so its
    calls are new actions; so are those of a fork, which is another task.
    """
    place = [given.branch, given.n, given.batch, given.i]
    return digest(canonical([task, place, call.name, call.arguments]))[:32]


# Marks in the archive of calls that must not be repeated, for a history that went back in time.
#
# A database of Temporal that is restored from a backup has forgotten what tasks did since. The task
# would make its payments again. So before such a call begins, the archive gets a mark of it. A mark
# of an activity that the history does not have makes the call *unknown*: its tool's probe, or a
# person, says whether it happened.
#
# Without a restore a mark costs two small writes of a call.


class Begun(NamedTuple):
    """A call that was marked.

    Attributes:
        mark: The mark.
        name: Name of its record.
    """

    mark: EffectMark
    name: str


async def begin_effect(archive: Archive, place: str, what: str) -> Begun:
    """Mark that a call begins; nothing may be called before.

    Each mark at a place follows an older one by name, and is created exclusively: of two databases
    that know the same marks, one begins the call.

    Args:
        archive: The namespace's archive.
        place: Place of the call in its task: it is the same when a restored task makes the call
            again, whatever it calls there then.
        what: What is called, for a person.

    Returns:
        The mark.

    Raises:
        OutcomeUnknownError: A forgotten activity, or one of another database, has begun a call
            there. When this error has reached the history and the call is scheduled again, a person
            has answered, and it begins.
        RPCError: The server does not answer, and nothing was called.
        ArchiveError: The archive cannot be read or written, and nothing was called.
        NotOursError: A later activity has begun the call: the server has given this one up.
    """
    info = activity.info()
    mine = EffectMark(
        task=task_id(),
        what=repr(what[:1000]),
        activity=info.activity_id,
        scheduled=info.scheduled_time.timestamp(),
        started=info.started_time.timestamp(),
        begun=time.time(),
        worker=worker_identity(),
    )
    name, before = f"{folder_of(EFFECTS, task_id())}/{place}.json", None
    new = mine
    while True:
        # The first place is free, except in a restored task: to take it shows whether it is.
        found = None if before is None else await read_mark(archive, name)
        if found is None:
            if before is not None:
                new = await _following(before, mine, info.workflow_run_id)
            sent = new.wire()
            there = await archive.acreate_record(name, sent)
            if there == sent:
                break
            found = mark_of(name, there)
        name, before = name_after(name, found), found
    if before is None or not new.asks:
        return Begun(mine, name)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(before.begun))
    ended = f" and ended ({before.status})" if before.ended else ""
    raise OutcomeUnknownError(
        f"At this place of the task, {before.what} was begun at {when} UTC{ended}, and the history"
        " of the task does not have it: Temporal's database was probably restored from a backup."
    )


async def _following(before: EffectMark, mine: EffectMark, run: str | None) -> EffectMark:
    """Return the mark that follows another: of this call, or of the question about the other.

    Raises:
        NotOursError: The other is of a later activity.
    """
    # An activity makes one attempt. If it finds its own mark, it was handed out twice: also by the
    # database of a backup, where it still waited for a worker.
    is_mine = (before.activity, before.scheduled) == (mine.activity, mine.scheduled)
    if is_mine or await unknown_of(activity.client(), [before], run):
        who = mine.model_dump(include={"activity", "scheduled", "started"})
        return before.model_copy(update={**who, "asks": True})
    if before.scheduled > mine.scheduled:
        text = f"{mine.what} was begun again elsewhere."
        raise NotOursError(text, type=NOT_STARTED, non_retryable=True)
    return mine


def name_after(name: str, mark: EffectMark) -> str:
    """Return the name of what follows a mark at its place, however the marked call ends."""
    folder, _, last = name.rpartition("/")
    place = last.removesuffix(".json").partition("~")[0]
    made = digest(f"{name} {mark.activity} {mark.scheduled} {mark.started}".encode())
    return f"{folder}/{place}~{made[:32]}.json"


def end_effect(archive: Archive, begun: Begun, status: str) -> None:
    """Add to the mark how the call has ended. It only helps people, so nothing waits for it."""
    done = begun.mark.model_copy(update={"ended": time.time(), "status": status})
    writing = asyncio.create_task(_write_end(archive, begun.name, done))
    _ends.add(writing)
    writing.add_done_callback(_ends.discard)


_ends = set[asyncio.Task[None]]()
"""Ends that are being written: an event loop does not keep its tasks alive."""


async def _write_end(archive: Archive, name: str, done: EffectMark) -> None:
    try:
        await archive.aput_record(name, done.wire())
    except ArchiveError as error:
        log.warning("The end of a call is not marked in the archive: %s", error)


async def read_mark(archive: Archive, name: str) -> EffectMark | None:
    """Read a mark by the name of its record; None if nothing has that name.

    Raises:
        ArchiveError: It cannot be read.
    """
    found = await archive.afind_record(name)
    return None if found is None else mark_of(name, found)


def mark_of(name: str, found: Json) -> EffectMark:
    """Return the mark that a record holds.

    Raises:
        ArchiveError: It holds none.
    """
    try:
        return EffectMark.model_validate(found)
    except ValidationError as error:
        msg = f"The mark {name!r} of a call cannot be read: {error.error_count()} fields."
        raise ArchiveError(msg, remedy="Restore it from a backup, or delete it.") from None


async def unknown_of(
    client: Client, marks: Collection[EffectMark], run: str | None = None
) -> list[EffectMark]:
    """Return the marks of a task whose activities its history does not have.

    Of one that was to ask a person, it must have the error with which the activity asks: else
    no person was asked. The history is that of one run and of the runs that it continues. A run
    that `temporal workflow reset` has ended does not count. Activities are numbered: after a
    restore another activity has the same id, at another time. Or the same one starts again, which
    waited for a worker at the time of the backup.

    Args:
        client: A client of the namespace.
        marks: Marks of one task.
        run: The run; the newest one by default.

    Raises:
        RPCError: The server does not answer.
    """
    left, unknown = list(marks), list[EffectMark]()
    while left and (run is None or run):
        handle, run = client.get_workflow_handle(left[0].task, run_id=run), ""
        seen = dict[int, _Seen]()
        try:
            async for event in handle.fetch_history_events():
                began = event.workflow_execution_started_event_attributes
                sent = event.activity_task_scheduled_event_attributes
                taken = event.activity_task_started_event_attributes
                failed = event.activity_task_failed_event_attributes
                run, at = run or began.continued_execution_run_id, event.event_time.ToMicroseconds()
                if sent.activity_id:
                    seen[event.event_id] = _Seen(sent.activity_id, at / 1e6)
                elif taken.scheduled_event_id in seen:
                    seen[taken.scheduled_event_id].started = at / 1e6
                elif failed.scheduled_event_id in seen:
                    kind = failed.failure.application_failure_info.type
                    has_asked = kind == OutcomeUnknownError.__name__
                    seen[failed.scheduled_event_id].has_asked = has_asked
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        ids = {each.id: each for each in seen.values()}
        here = [mark for mark in left if mark.activity in ids and ids[mark.activity].is_of(mark)]
        unknown += [mark for mark in here if not ids[mark.activity].has(mark)]
        left = [mark for mark in left if mark not in here]
    return unknown + left


@dataclass
class _Seen:
    """An activity in a history, with the times of its events in seconds since the epoch."""

    id: str
    scheduled: float
    started: float | None = None
    has_asked: bool = False

    def is_of(self, mark: EffectMark) -> bool:
        """Whether it was scheduled when the activity of a mark was."""
        return abs(self.scheduled - mark.scheduled) < ROUNDING

    def has(self, mark: EffectMark) -> bool:
        """Whether it is the one that has made a mark, and has asked if that says so."""
        is_this = self.started is None or abs(self.started - mark.started) < ROUNDING
        return is_this and (self.has_asked or not mark.asks)


ROUNDING = 0.001
"""Of a time that two messages have, in seconds. A restore takes longer."""
