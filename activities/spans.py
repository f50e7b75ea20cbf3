"""Spans of what activities do: model calls, tool calls, guardrails, handoffs, undone effects.

Each is one `with` block. While tracing is off, a block costs a look at a global.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.heartbeat import attempt_of, place_here
from holdfast.agents.handoffs.handoff import HandoffFailedError, HandoffTool
from holdfast.agents.tools.decorator import Tool
from holdfast.models.base import Model, ModelAnswer, ModelRequest
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import TaskRecord
from holdfast.task.data.wire import AdvanceInput, ToolInput
from holdfast.task.step_body import body_of
from holdfast.tracing import contents, switch
from holdfast.tracing.export import send
from holdfast.tracing.finished import step_span, task_span, usage_attributes
from holdfast.tracing.spans import TraceRules
from holdfast.values.messages import ToolCall, shown
from holdfast.values.steps import Task
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from holdfast.tracing.switch import Meter

GuardrailKind = Literal["input", "output", "tool_input", "tool_output"]


class Recording:
    """The span of a block, for more attributes; does nothing while tracing is off."""

    def __init__(self, span: Span | None = None, rules: TraceRules | None = None) -> None:
        """Write to this span."""
        self._span = span if span is not None and span.is_recording() else None
        self._rules = rules
        self._failed = False

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded."""
        return self._span is not None

    @property
    def is_sensitive(self) -> bool:
        """Whether inputs, outputs, messages, arguments and results may be recorded."""
        return self._span is not None and self._rules is not None and self._rules.sensitive

    def set(self, facts: Mapping[str, Any]) -> None:
        """Add attributes; None values are left out."""
        if self._span is not None:
            from holdfast.tracing import otel

            self._span.set_attributes(otel.told(facts))

    @contextmanager
    def watching(self) -> Generator[None]:
        """Record an error that leaves the block, for errors that do not leave the span's block."""
        try:
            yield
        except BaseException as error:
            with harmless():
                self.fail(error)
            raise

    def measured(self) -> Measured:
        """Return a recording of the same span that also gathers data for the meter."""
        return Measured(self._span, self._rules)

    def hear(self, made: ModelAnswer | Outcome) -> None:
        """Hear of an answer or an outcome."""

    def fail(self, error: BaseException) -> None:
        """Mark the span as failed, without secrets; the first error counts."""
        if self._failed or not self.is_on:
            return
        kind = error.type if isinstance(error, ApplicationError) else None
        kind = error.kind if isinstance(error, HandoffFailedError) else kind
        stack = "".join(traceback.format_exception(error)) if self.is_sensitive else ""
        self.fail_as(kind or type(error).__name__, str(error), stack)

    def fail_as(self, kind: str, text: str = "", stack: str = "") -> None:
        """Mark the span as failed, by the name of an error."""
        if self._span is not None:
            from holdfast.tracing import otel

            self._failed = True
            shown = redact(text) if self.is_sensitive else ""
            otel.fail(self._span, kind, shown, stack=redact(stack))


class Measured(Recording):
    """Gathers data of a block for the meter of this process.

    Attributes:
        heard: The answer, or the outcome.
        error: What the block, or a part of it, has raised.
    """

    heard: Any = None
    error: BaseException | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded: always."""
        return True

    def hear(self, made: ModelAnswer | Outcome) -> None:
        """Keep an answer or an outcome."""
        self.heard = made

    def fail(self, error: BaseException) -> None:
        """Keep an error; the first counts."""
        self.error = self.error or error
        super().fail(error)


NOTHING = Recording()


@contextmanager
def harmless() -> Generator[None]:
    """Log errors of tracing: they must not fail the call itself, which may have been paid for."""
    try:
        yield
    except Exception:
        log.warning("A span could not be recorded", exc_info=True)


Block = AbstractContextManager[Recording]


@contextmanager
def recorded(
    kind: str,
    name: str,
    head: TaskHead,
    facts: Mapping[str, Any],
    *,
    step: tuple[int, int] | None = None,
    tried: int = 0,
    calls_out: bool = False,
) -> Generator[Recording]:
    """Record the block as a span; an error that leaves the block is recorded and raised again.

    Args:
        kind: What it is, once per activity or tool call.
        name: Name of the span.
        head: The task's head.
        facts: Attributes.
        step: Branch and number of the step that it is part of; None for the task itself.
        tried: Attempts that were lost before the activity was scheduled.
        calls_out: Whether it is a call to another service.
    """
    maker, rules = switch.spans(), _rules(head)
    if maker is None or rules is None:
        yield NOTHING
        return
    from opentelemetry.trace import INVALID_SPAN, SpanKind

    from holdfast.tracing import otel

    trace, info, here = rules.trace, activity.info(), place_here()
    place = otel.Place(
        trace.trace,
        trace.attempt(kind, info.workflow_run_id or "", here, info.attempt),
        trace.step(*step) if step is not None else trace.root,
        sampled=rules.sampled,
    )
    attempt = attempt_of(tried)
    facts = {**rules.common, **facts, "holdfast.attempt": attempt if attempt > 1 else None}
    span: Span = INVALID_SPAN
    with harmless():
        span = maker.start(
            place, name, attributes=facts, kind=SpanKind.CLIENT if calls_out else SpanKind.INTERNAL
        )
    recording = Recording(span, rules)
    try:
        with otel.current(span):
            yield recording
    except BaseException as error:
        with harmless():
            recording.fail(error)
        raise
    finally:
        with harmless():
            otel.end(span)


@contextmanager
def _measured(
    span: Recording, tell: Callable[[Meter], Callable[[float, Any, BaseException | None], None]]
) -> Generator[Recording]:
    """Tell the meter of this process, if it has one, of the block."""
    meter = switch.meter()
    if meter is None:
        yield span
        return
    made, begun = span.measured(), time.monotonic()
    try:
        yield made
    except BaseException as error:
        made.error = made.error or error
        raise
    finally:
        with harmless():
            tell(meter)(time.monotonic() - begun, made.heard, made.error)


@contextmanager
def model_call(
    head: TaskHead, given: AdvanceInput, agent: str, model: Model, request: ModelRequest
) -> Generator[Recording]:
    """Record a model call of an agent; add its answer with `answered`."""
    if switch.is_off():
        yield NOTHING
        return
    settings = request.settings
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": agent,
        "gen_ai.provider.name": getattr(model, "provider", "") or type(model).__name__,
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": settings.max_tokens,
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.top_p": settings.top_p,
        "gen_ai.request.frequency_penalty": settings.frequency_penalty,
        "gen_ai.request.presence_penalty": settings.presence_penalty,
        "gen_ai.output.type": "text" if request.output is None else "json",
    }
    name, step = f"chat {request.model}", (given.branch, given.n)
    with (
        recorded("chat", name, head, facts, step=step, calls_out=True) as made,
        _measured(made, lambda to: partial(to.model_call, request.model)) as span,
    ):
        if span.is_sensitive:
            with harmless():
                span.set(_asked(request))
        yield span


def _asked(request: ModelRequest) -> dict[str, Any]:
    said, tools = request.instructions, request.tools
    return {
        "gen_ai.system_instructions": contents.instructions(said) if said else None,
        "gen_ai.input.messages": contents.input_messages(request.messages),
        "gen_ai.tool.definitions": contents.definitions(tools) if tools else None,
    }


def answered(span: Recording, answer: ModelAnswer) -> None:
    """Add a model's answer to the span of its call."""
    if not span.is_on:
        return
    with harmless():
        span.hear(answer)
        span.set(
            {
                "gen_ai.response.id": answer.response_id or None,
                "gen_ai.response.model": answer.model or None,
                "gen_ai.response.finish_reasons": (contents.finish_reason(answer),),
                **usage_attributes(answer.usage),
            }
        )
        if span.is_sensitive:
            span.set({"gen_ai.output.messages": contents.output_messages(answer)})


@contextmanager
def tool_call(head: TaskHead, given: ToolInput, tool: Tool, call: ToolCall) -> Generator[Recording]:
    """Record a tool call; add its outcome with `came_to`.

    A handoff is one by its `on_handoff`. Of a call that is a task of its own, the task that makes
    it tells: what runs here is its end only.
    """
    if switch.is_off() or given.child:
        yield NOTHING
        return
    agent, step = given.agent or head.agent, (given.branch, given.n)
    target = tool.handoff.agent.name if isinstance(tool, HandoffTool) else ""
    facts = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": agent,
        "gen_ai.tool.name": tool.qualified_name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": tool.description or None,
    }
    name, tried = f"execute_tool {tool.qualified_name}", given.tried
    plain = recorded("execute_tool", name, head, facts, step=step, tried=tried)
    with (
        handoff(head, agent, target, step=step) if target else plain as made,
        _measured(made, lambda to: partial(to.tool_call, tool.qualified_name)) as span,
    ):
        if span.is_sensitive:
            span.set({"gen_ai.tool.call.arguments": call.arguments})
        yield span


def came_to(span: Recording, outcome: Outcome) -> None:
    """Add a tool call's outcome to its span; its error was recorded before."""
    if span.is_on:
        with harmless():
            span.hear(outcome)
            if span.is_sensitive:
                span.set({"gen_ai.tool.call.result": shown(outcome.content)})


def guardrail(
    head: TaskHead,
    name: str,
    kind: GuardrailKind,
    *,
    step: tuple[int, int] | None = None,
    i: int = 0,
) -> Block:
    """Record a guardrail; add its decision with `checked`.

    Args:
        head: The task's head.
        name: The guardrail's name.
        kind: What it looks at.
        step: Branch and number of the step that it is part of, if it is part of one.
        i: Its position among the activity's guardrails.
    """
    facts = {"holdfast.guardrail.name": name, "holdfast.guardrail.kind": kind}
    return recorded(f"guardrail {kind} {i}", f"guardrail {name}", head, facts, step=step)


def checked(span: Recording, agent: str, *, tripped: bool, behavior: str | None = None) -> None:
    """Add what a guardrail has decided to its span.

    Args:
        span: The span.
        agent: The agent whose run or call it looked at.
        tripped: Whether the run must not go on.
        behavior: What follows for a tool call.
    """
    with harmless():
        span.set(
            {
                "gen_ai.agent.name": agent,
                "holdfast.guardrail.tripped": tripped,
                "holdfast.guardrail.behavior": behavior,
            }
        )


def handoff(head: TaskHead, source: str, target: str, *, step: tuple[int, int]) -> Block:
    """Record a handoff from one agent to another."""
    facts = {
        "gen_ai.agent.name": source,
        "holdfast.handoff.from": source,
        "holdfast.handoff.to": target,
    }
    return recorded("handoff", f"handoff {source} to {target}", head, facts, step=step)


def undo_of(head: TaskHead, call: ToolCall) -> Block:
    """Record the undo of a tool call."""
    facts = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
    return recorded("undo", f"undo {call.name}", head, facts)


def tell_of_closed(
    head: TaskHead, record: TaskRecord, task: Task, status: str, *, at: float, branch: int
) -> None:
    """Record the spans of a closed task and of the steps that it left open.

    Repeated, it exports the same spans: they are made of what is recorded.

    Args:
        head: The task's head.
        record: What the archive keeps of it.
        task: The task.
        status: What it closes with.
        at: When it began to close.
        branch: Its branch of the ledger.
    """
    rules = _rules(head)
    if rules is None:
        return
    with harmless():
        for current in record.opens:
            body = body_of(current, branch=branch, is_closed=True)
            send(rules, step_span(rules, body, status=status, at=at))
        output = record.output if record.stored is None else shown(record.stored)
        ended = task_span(rules, task, status=status, at=at, output=output, failure=record.failure)
        send(rules, ended)


def _rules(head: TaskHead) -> TraceRules | None:
    if switch.spans() is None:
        return None
    info = activity.info()
    return TraceRules.of(info.namespace, info.workflow_id or "", head)
