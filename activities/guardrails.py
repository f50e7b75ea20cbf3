"""The activity `guard`: one guardrail on a run's input or final output."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import (
    Source,
    TaskActivities,
    history_before,
    task_id,
    worker_identity,
)
from holdfast.activities.failures import counted, lost_often, typed_failures
from holdfast.activities.heartbeat import (
    FailedCalls,
    beside,
    counting_failed,
    ensure_ours,
    heartbeats,
)
from holdfast.activities.spans import checked
from holdfast.activities.spans import guardrail as recorded
from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.guardrails import InputGuardrail, OutputGuardrail
from holdfast.agents.output_type import typed_output
from holdfast.archive.contents import read_json
from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.items import shown_items
from holdfast.task.data.failures import facts
from holdfast.task.data.guard_rules import GuardFound
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import OpenStep
from holdfast.task.data.state import MOST_LOST
from holdfast.task.data.wire import GuardInput, View
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, canonical, in_order
from holdfast.values.checks.gate import clean
from holdfast.values.code.typed_data import class_name
from holdfast.values.code.user_calls import naming
from holdfast.values.messages import Blob, Message, user
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.runs.usage import Usage

MOST_SHOWN_BYTES = 2048
"""Largest final output that the error of a tripped guardrail carries."""


def hasten_others() -> None:
    """Have the other activities of the task in this process hear soon that they are cancelled.

    An activity that fails, or a guardrail that trips, has the task cancel those next to it. They
    hear of it by a heartbeat, and the next one may be seconds away.
    """
    for each in beside():
        each.hasten()


@contextmanager
def failing_for_all() -> Generator[None]:
    """Call `hasten_others` if the block fails.

    Raises:
        Exception: Whatever the block raises.
    """
    try:
        yield
    except Exception:
        hasten_others()
        raise


class GuardingActivities(TaskActivities):
    """Runs guardrails for the tasks of one worker process."""

    @activity.defn(name="guard")
    async def guard(self, given: GuardInput) -> GuardFound:
        """Run one guardrail and say what it found."""
        attempts = given.step.attempts
        starts = max(attempts, MOST_LOST)
        if FailedCalls.known().attempt > starts:
            raise lost_often()
        with counted(starts), typed_failures(attempts=attempts):
            async with heartbeats() as pulse, counting_failed(pulse):
                with failing_for_all():
                    found = await self._guard(given)
                if found.tripped:
                    hasten_others()
                return found

    async def _guard(self, given: GuardInput) -> GuardFound:
        head = await self._source.head(given.step.head)
        opened = await self._source.opened(given.step)
        registry = self._registry.of(head)
        first = await registry.snapshot(head.snapshot)
        agent = registry.agent(opened.step.agent or head.agent, first)
        guardrail = _find(registry, agent, given)
        rule, step = given.rule, (given.step.branch, given.step.n)
        shown: Json = None
        await ensure_ours("guardrail")  # it may ask a model itself
        what = f"{rule.kind} guardrail {rule.name!r} of agent {agent.name!r}"
        with (
            recorded(head, rule.name, rule.kind, step=step) as span,
            naming(what, guardrail.guardrail_function),
        ):
            if isinstance(guardrail, InputGuardrail):
                context = _context(registry, head, opened.state)
                given_input = await self._input(head, opened)
                found = (await guardrail.run(users_agent(agent), given_input, context)).output
            else:
                view = await self._source.output_of(given.step.n)
                shown = await self._output(view)
                output = typed_output(agent.made_output, shown)
                context = _context(registry, head, view.state)
                context.usage = Usage.of(view.usage)
                found = (await guardrail.run(context, users_agent(agent), output)).output
            checked(span, agent.name, tripped=bool(found.tripwire_triggered))
        info, stored = await info_of(self._source, found.output_info)
        is_kept = found.tripwire_triggered and len(canonical(shown)) <= MOST_SHOWN_BYTES
        return GuardFound(
            info=info,
            info_class=class_name(found.output_info),
            stored=stored,
            tripped=bool(found.tripwire_triggered),
            output=shown if is_kept else None,
            attempts=activity.info().attempt,
            worker=worker_identity(),
        )

    async def _input(self, head: TaskHead, opened: OpenStep) -> str | list[dict[str, Json]]:
        """Return what the run was given: a text, or items; with a session, after its history."""
        text = opened.step.input
        if opened.stored is not None:
            text = await self._source.text(opened.stored)
        asks = text is not None or bool(opened.step.images)
        if text is not None and not opened.step.images and not head.has_session:
            return text
        messages: tuple[Message, ...] = ()
        if head.has_session or not asks:
            messages = (await history_before(self._source, head)).messages
        if asks:
            messages = (*messages, user(text or "", opened.step.images))
        return shown_items([await self._source.rehydrate(each) for each in messages])

    async def _output(self, view: View) -> Json:
        if view.output is None:
            return None
        return await read_json(view.output.output, view.output.stored, self._source.text)


async def info_of(source: Source, info: Any) -> tuple[Json, Blob | None]:
    """Return what a guardrail said as JSON data, or where the archive keeps it.

    What JSON cannot say is recorded as it would be printed: the verdict counts.
    """
    try:
        data = merge_patch.written(info, "output_info")
    except InvalidArgumentError:
        data = _printed(info)
    if data is None:
        return None, None
    stored = await source.store(in_order(data).decode("utf-8", "surrogatepass"), is_json=True)
    return (None, stored) if stored is not None else (data, None)


def _printed(info: Any) -> str:
    """Return what a guardrail said as it would be printed, if it can be."""
    try:
        return clean(repr(info))
    except Exception:  # noqa: BLE001  the user's own, or too deep
        return f"<{type(info).__name__}>"


def _context(registry: Registry, head: TaskHead, state: dict[str, Json]) -> RunContextWrapper[Any]:
    return RunContextWrapper(registry.context(head, state), task_id=task_id())


def _find(registry: Registry, agent: Agent, given: GuardInput) -> InputGuardrail | OutputGuardrail:
    """Return the guardrail that the task means.

    Raises:
        ApplicationError: This process no longer has it; the task must not go on unchecked.
    """
    rule = given.rule
    if rule.ref:
        code: Any = registry.code(rule.ref)
        return cast("InputGuardrail | OutputGuardrail", code)
    own = agent.input_guardrails if rule.kind == "input" else agent.output_guardrails
    if given.i < len(own) and own[given.i].get_name() == rule.name:
        return own[given.i]
    for each in own:
        if each.get_name() == rule.name:
            return each
    names = ", ".join(each.get_name() for each in own) or "none"
    msg = (
        f"The task began with {rule.kind} guardrail {rule.name!r} of agent {agent.name!r}, but"
        f" the agent of this worker process has: {names}. The task waits, nothing is lost."
    )
    remedy = "Give it back to the agent, restart the worker process, and run the task again."
    known = facts(remedy=remedy)
    raise ApplicationError(msg, *known, type="GuardrailMissingError", non_retryable=True)
