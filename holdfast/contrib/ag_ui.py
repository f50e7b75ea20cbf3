"""AG-UI: a durable task as the run of a frontend that speaks this protocol.

A run is a task, and a thread a session. Who sends the same run again gets what its task has done,
or with `Last-Event-ID` the rest.

Source: Agent-User Interaction Protocol 1.0, "Events" and "Interrupts".
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from holdfast.values.code.extras import needing

with needing("ag-ui", "holdfast.contrib.ag_ui"):
    from ag_ui import core as ui
    from ag_ui.encoder import EventEncoder
    from fastapi import APIRouter, Depends
    from starlette.responses import StreamingResponse

    from holdfast.contrib.fastapi import known_by
    from holdfast.contrib.threads import (
        Answer,
        begin,
        names_digest,
        only_text,
        question_of,
        resumed,
        settled,
    )
    from holdfast.desk.api.access import Access, Asked, IdRoute
    from holdfast.desk.api.events import Last, event_number, streamed
    from holdfast.desk.identity.tokens import May
    from holdfast.desk.views.words import without_secrets

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import HoldfastError, InvalidArgumentError, message_of
from holdfast.reading.streams.reader import (
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
)
from holdfast.task.data.calls import Approval
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import check_name
from holdfast.values.text.decided import covered
from holdfast.values.text.redact import redact

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "arguments": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
"""What a resumed run answers to an approval."""

_encoder = EventEncoder()


def ag_ui_router(
    runner: AgentRunner,
    *,
    agent: str | None = None,
    identity: Callable[..., Any],
    may: May | None = None,
    path: str = "/ag-ui",
) -> APIRouter:
    """Make a router with an endpoint that takes a `RunAgentInput` and streams AG-UI's events.

    The last user message is the input; the session has what was said before. `context` is not read.
    An approval ends the run with an interrupt, and the run that resumes it decides.

    Args:
        runner: Runs the tasks. Your app starts and closes it.
        agent: Name of the agent; that of the runner by default.
        identity: As for `tasks_router`.
        may: Likewise.
        path: Address of the endpoint.
    """
    sender = Depends(known_by(runner, identity, may))
    router = APIRouter(dependencies=[sender], route_class=IdRoute)

    async def run(asked: Asked, given: ui.RunAgentInput, last: Last = None) -> StreamingResponse:
        known = event_number(last, 0)
        task_id, after = await _task(asked, given, agent or runner.agent)
        told = _events(asked, given, task_id, known or after)
        asked.reads = [task_id]
        return streamed(asked, told, end="", failed=_failed)

    router.post(path, response_class=StreamingResponse)(run)
    return router


async def _task(asked: Access, given: ui.RunAgentInput, agent: str) -> tuple[str, int]:
    """Begin a run's task, or decide what it waits for; return it, and the offset to go on after.

    Raises:
        InvalidArgumentError: The run asks for what tasks do not have.
    """
    for what, id in (("thread", given.thread_id), ("run", given.run_id)):
        check_name(f"The id of a {what}", id)
    if given.tools:
        msg = "Tools of the frontend cannot be called: give the agent tools of its own."
        raise InvalidArgumentError(msg)
    if given.resume:
        answers = [_answer(each) for each in given.resume]
        return await resumed(asked, answers, given.thread_id)
    texts = [_text(each) for each in given.messages if isinstance(each, ui.UserMessage)]
    if not texts:
        raise InvalidArgumentError("A run begins with a user message: send one.")
    begun = await begin(
        asked,
        texts[-1],
        agent=agent,
        thread_id=given.thread_id,
        task_id=f"ag-ui-{names_digest(asked.visitor.key, given.thread_id, given.run_id)}",
        extra_state=given.state or None,
    )
    return begun, 0


def _answer(given: ui.ResumeEntry) -> Answer:
    said = as_object(given.payload)
    approved = given.status == "resolved" and said.get("approved") is True
    return Answer(given.interrupt_id, approved, str(said.get("reason", "")), said.get("arguments"))


async def _events(
    asked: Access, given: ui.RunAgentInput, task_id: str, after: int
) -> AsyncGenerator[str]:
    """Yield the events of a run, each with the offset of what it tells."""
    runner, told = asked.runner, _Told()
    yield _sent(ui.RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id))
    async with aclosing(runner.stream_events(task_id, offset=after, until="waiting")) as following:
        async for event in following:
            found = [*told.events(event)]
            if told.is_void:
                told.is_void = False
                said = [*given.messages, *await _said(runner, task_id, event.offset)]
                found.append(ui.MessagesSnapshotEvent(messages=said))
            for each in found:
                yield _sent(each, event.offset if each is found[-1] else None)
    for each in (*told.close(), *await _end(asked, given, task_id)):
        yield _sent(each)


class _Told:
    """Makes AG-UI's events of a task's. It begins anywhere: a stream that is cut off goes on.

    Attributes:
        is_void: Whether something that was told does not count any more.
    """

    def __init__(self) -> None:
        self._message = ""
        self.is_void = False

    def events(self, event: StreamEvent) -> Iterator[ui.BaseEvent]:
        """Yield what tells of an event."""
        match event:
            case RawResponsesStreamEvent(data=data):
                yield from self._raw(data, event.attempt)
            case RunItemStreamEvent(name="tool_called", item=item):
                said = item.shown_item()
                if "call_id" in said:  # the provider's own tools have run already
                    yield ui.ToolCallChunkEvent(
                        tool_call_id=said["call_id"],
                        tool_call_name=said["name"],
                        delta=said["arguments"],
                    )
            case RunItemStreamEvent(name="tool_output", item=item):
                said = item.shown_item()
                call, text = said["call_id"], said["output"]
                yield ui.ToolCallResultEvent(
                    message_id=f"result-{call}", tool_call_id=call, content=_as_text(text)
                )
            case StepUndoneStreamEvent():
                yield from self.close()
                self.is_void = True
            case _:
                pass

    def _raw(self, data: Any, attempt: int) -> Iterator[ui.BaseEvent]:
        match data.type:
            case "response.created":
                yield from self.close()
                self.is_void = attempt > 1
            case "response.output_text.delta" | "response.refusal.delta":
                if self._message != data.item_id:
                    yield from self.close()
                    self._message = data.item_id
                    yield ui.TextMessageStartEvent(message_id=data.item_id, role="assistant")
                yield ui.TextMessageContentEvent(message_id=data.item_id, delta=data.delta)
            case "response.output_text.done" | "response.refusal.done":
                yield from self.close()
            case _:
                pass

    def close(self) -> Iterator[ui.BaseEvent]:
        """Yield the end of a message that is open."""
        if self._message:
            yield ui.TextMessageEndEvent(message_id=self._message)
            self._message = ""


async def _end(asked: Access, given: ui.RunAgentInput, task_id: str) -> Sequence[ui.BaseEvent]:
    """Return how a run has ended: the state, then its outcome."""
    runner, task = asked.runner, await settled(asked, task_id)
    ended = ui.RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id)
    match task.status:
        case "finished" | "answered":
            ended.result = (await runner.response(task_id)).response
        case "waiting" if waits := await runner.pending_approvals(task_id):
            found = [_interrupt(each) for each in waits]
            ended.outcome = ui.RunFinishedInterruptOutcome(interrupts=found)
        case "abandoned":
            ended.outcome = ui.RunFinishedCancelledOutcome()
        case _:
            why = task.error or task.paused or f"The task is {task.status}."
            return (ui.RunErrorEvent(message=why, code=task.status),)
    return ui.StateSnapshotEvent(snapshot=task.extra_state), ended


def _interrupt(approval: Approval) -> ui.Interrupt:
    return ui.Interrupt(
        id=approval.id,
        reason=approval.kind,
        message=question_of(approval),
        tool_call_id=approval.call_id or None,
        response_schema=ANSWER_SCHEMA,
        metadata={"tool": approval.tool, "arguments": approval.as_agreed},
    )


async def _said(runner: AgentRunner, task_id: str, until: int) -> list[ui.Message]:
    """Return what a task has said up to an event, without what does not count any more."""
    found: dict[int, ui.Message] = {}
    async with aclosing(runner.stream_events(task_id, until="waiting")) as following:
        async for event in following:
            if event.offset > until:
                break
            if isinstance(event, StepUndoneStreamEvent):
                found = {at: each for at, each in found.items() if not event.is_void(at)}
            elif isinstance(event, RunItemStreamEvent):
                made = _message(f"{task_id}-{event.offset}", event.item.shown_item())
                found |= {} if made is None else {event.offset: made}
    return [*found.values()]


def _message(id: str, item: Any) -> ui.Message | None:
    match item:
        case {"type": "message", "content": [*parts]}:
            said = "".join(each.get("text", "") for each in parts)
            return ui.AssistantMessage(id=id, content=said)
        case {"type": "function_call", "call_id": str(call), "name": name, "arguments": given}:
            made = ui.FunctionCall(name=name, arguments=given)
            return ui.AssistantMessage(id=id, tool_calls=[ui.ToolCall(id=call, function=made)])
        case {"type": "function_call_output", "call_id": str(call), "output": output}:
            return ui.ToolMessage(id=id, content=_as_text(output), tool_call_id=call)
        case _:
            return None


def _as_text(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output)


def _text(message: ui.UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return only_text([p.text if isinstance(p, ui.TextPart) else None for p in message.content])


def _sent(event: ui.BaseEvent, offset: int | None = None) -> str:
    is_asking = isinstance(getattr(event, "outcome", None), ui.RunFinishedInterruptOutcome)
    data = without_secrets(event.model_dump(by_alias=True), covered if is_asking else redact)
    mark = "" if offset is None else f"id: {offset}\n"
    return f"{mark}{_encoder.encode(type(event).model_validate(data))}"


def _failed(error: HoldfastError) -> str:
    name = type(error).__name__.removesuffix("Error")
    return _sent(ui.RunErrorEvent(message=message_of(error), code=name))
