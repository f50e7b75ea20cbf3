"""Vercel's AI SDK: a durable task as the answer to a message of `useChat`.

A chat is a session, and a message of the user begins a task. Who sends the same message again gets
what its task has done; a page that is loaded again reads on. A call that waits for an approval is
decided by `addToolApprovalResponse`. A message that comes before that is answered with the open
approval; its task waits, and its answer follows that of the task before.

Source: AI SDK 6, "Stream Protocols" (the UI message stream), and its `UIMessage`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field

from holdfast.values.code.extras import needing

with needing("fastapi", "holdfast.contrib.ai_sdk"):
    from fastapi import APIRouter, Depends
    from starlette.responses import Response, StreamingResponse

    from holdfast.contrib.fastapi import known_by
    from holdfast.contrib.threads import (
        Answer,
        begin,
        line_of,
        names_digest,
        only_text,
        question_of,
        resumed,
        settled,
        thread,
    )
    from holdfast.desk.api.access import Access, Asked, IdRoute, unread
    from holdfast.desk.api.events import streamed
    from holdfast.desk.identity.tokens import May
    from holdfast.desk.views.words import without_secrets

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError, message_of
from holdfast.reading.streams.reader import (
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
)
from holdfast.values.checks.gate import as_object, data_of
from holdfast.values.checks.ids import check_name
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import Task
from holdfast.values.text.decided import covered
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import shown

_DONE = "data: [DONE]\n\n"
_TEXTS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}

Part = dict[str, Any]


class UIMessage(BaseModel):
    """A message as the frontend has it."""

    id: str
    role: Literal["system", "user", "assistant"]
    parts: list[Part]


class ChatRequest(BaseModel):
    """What `useChat` sends."""

    id: str
    messages: list[UIMessage] = Field(min_length=1)
    trigger: str = "submit-message"


def ai_sdk_router(
    runner: AgentRunner,
    *,
    agent: str | None = None,
    identity: Callable[..., Any],
    may: May | None = None,
    path: str = "/api/chat",
) -> APIRouter:
    """Make a router with the endpoints that `useChat` asks: to send a message, and to read on.

    The last message is the input; the session has what was said before. Each text and call
    has its task and the offset of its last event as `providerMetadata.holdfast`. A part `data-void`
    has a task, and the pairs of offsets, from the first one on and before the second one, of its
    parts that do not count any more, as an answer was made again or a step undone.

    Args:
        runner: Runs the tasks. Your app starts and closes it.
        agent: Name of the agent; that of the runner by default.
        identity: As for `tasks_router`.
        may: Likewise.
        path: Address of the endpoint, as `api` of the transport.
    """
    sender = Depends(known_by(runner, identity, may))
    router = APIRouter(dependencies=[sender], route_class=IdRoute)

    async def send(asked: Asked, given: ChatRequest) -> StreamingResponse:
        task_id, known = await _task(asked, given, agent or runner.agent)
        said = [each.id for each in given.messages if each.role == "assistant"]
        said = said if given.messages[-1].role == "assistant" else [task_id]
        return _streamed(asked, _parts(asked, given.id, said, task_id, known))

    async def read_on(asked: Annotated[Access, Depends(unread)], chat: str) -> Response:
        if not (line := await line_of(asked, chat)):
            return Response(status_code=204)
        asked.reads = line[:1]
        await asked.check(asked.reads)
        return _streamed(asked, _parts(asked, chat, line[-1:], line[-1], {}))

    router.post(path, response_class=StreamingResponse)(send)
    router.get(path + "/{chat:path}/stream", response_class=StreamingResponse)(read_on)
    return router


async def _task(asked: Access, given: ChatRequest, agent: str) -> tuple[str, dict[str, int]]:
    """Begin the task of a message, or decide what it waits for; return it, and what is known.

    Raises:
        InvalidArgumentError: The request asks for what tasks do not have.
    """
    check_name("The id of a chat", given.id)
    last = given.messages[-1]
    check_name("The id of a message", last.id)
    if given.trigger != "submit-message":
        msg = "An answer is not made again: what it did stays done. Send a new message."
        raise InvalidArgumentError(msg)
    if last.role == "assistant" and (answers := [*_answers(last.parts)]):
        task_id, after = await resumed(asked, answers, given.id)
        return task_id, _known(given.messages) | ({task_id: after} if after else {})
    if last.role != "user":
        raise InvalidArgumentError("The last message is one of the user, or answers approvals.")
    begun = await begin(
        asked,
        only_text([p.get("text") if p.get("type") == "text" else None for p in last.parts]),
        agent=agent,
        thread_id=given.id,
        on_busy="queue",
        task_id=f"ai-sdk-{names_digest(asked.visitor.key, given.id, last.id)}",
    )
    return begun, {}


def _answers(parts: list[Part]) -> Iterator[Answer]:
    """Yield the answers to approvals.

    Raises:
        InvalidArgumentError: One is neither a yes nor a no.
    """
    for part in parts:
        said = as_object(part.get("approval"))
        if part.get("state") != "approval-responded":
            continue
        approved = said.get("approved")
        reason = str(said.get("reason") or ("" if approved else "It was denied."))
        if not isinstance(approved, bool):
            msg = f"approved is true or false; it was {shown(approved)}."
            raise InvalidArgumentError(msg)
        yield Answer(str(said.get("id")), approved, reason)


def _known(messages: Sequence[UIMessage]) -> dict[str, int]:
    """Return the offset of the last event that messages have of each task."""
    found = dict[str, int]()
    for part in (part for each in messages for part in each.parts):
        made = as_object(part.get("providerMetadata") or part.get("callProviderMetadata"))
        at = as_object(made.get("holdfast"))
        task, offset = at.get("task"), at.get("offset")
        if isinstance(task, str) and isinstance(offset, int):
            found[task] = max(offset, found.get(task, 0))
    return found


async def _is_of(asked: Access, chat: str, message: str) -> bool:
    """Whether a message is the answer of a task of a chat."""
    session = asked.runner.session
    with suppress(NotFoundError, InvalidArgumentError):  # the ids of messages are the frontend's
        task = await asked.runner.get_task(message)
        return session(task.session).id == session(thread(asked.visitor, chat)).id
    return False


def _streamed(asked: Access, parts: AsyncGenerator[str]) -> StreamingResponse:
    found = streamed(asked, parts, end=_DONE, failed=_failed)
    found.headers["x-vercel-ai-ui-message-stream"] = "v1"
    return found


async def _parts(
    asked: Access, chat: str, said: Sequence[str], task_id: str, known: Mapping[str, int]
) -> AsyncGenerator[str]:
    """Yield the parts of the last message of the assistant.

    Args:
        asked: The request.
        chat: The chat.
        said: Ids of the messages of the assistant: those of tasks. The last one's answer ends it.
        task_id: The task whose answer begins it.
        known: Offset of the last event of each task which is known.
    """
    yield _sent({"type": "start", "messageId": said[-1]})
    line, told = await line_of(asked, chat), cast("_Told | None", None)
    tasks = line[: line.index(said[-1]) + 1] if said[-1] in line else ()
    if task_id not in tasks:  # it has ended, and maybe some that came after it
        later = said[said.index(task_id) + 1 :] if task_id in said else said[-1:]
        over = [each for each in later if each not in line and await _is_of(asked, chat, each)]
        tasks = (task_id, *over, *tasks)
    ended: Task | None = None
    for each in tasks:
        asked.reads = [each]
        told = _Told(each) if told or each == task_id else None  # what comes before has been told
        following = asked.runner.stream_events(each, offset=known.get(each, 0), until="waiting")
        async with aclosing(following):
            async for event in following:
                for part in told.parts(event) if told else ():
                    yield _sent(part)
        for part in told.close() if told else ():
            yield _sent(part)
        ended = await settled(asked, each)
        if ended.status not in CLOSED:  # those after it wait for the same person
            break
    async for end in _end(asked, cast("Task", ended)):
        yield end


class _Told:
    """Makes parts of a task's events."""

    def __init__(self, task_id: str) -> None:
        self._task = task_id
        self._open: Part = {}
        self._begun: int | None = None

    def parts(self, event: StreamEvent) -> Iterator[Part]:
        """Yield what tells of an event."""
        at = {"providerMetadata": {"holdfast": {"task": self._task, "offset": event.offset}}}
        match event:
            case RawResponsesStreamEvent(data=data):
                yield from self._raw(data, event, at)
            case RunItemStreamEvent(name="tool_called", item=item):
                said = item.shown_item()
                if "call_id" in said:  # the provider's own tools have run already
                    yield from self.close()
                    yield _call(said["call_id"], said["name"], said["arguments"]) | at
            case RunItemStreamEvent(name="tool_output", item=item):
                said = item.shown_item()
                yield {
                    "type": "tool-output-available",
                    "toolCallId": said["call_id"],
                    "output": said["output"],
                }
            case StepUndoneStreamEvent(void=void):
                yield from self.close()
                yield self._void(void)
            case _:
                pass

    def _raw(self, data: Any, event: RawResponsesStreamEvent, at: Part) -> Iterator[Part]:
        if data.type == "response.created":
            yield from self.close()
            if self._begun is not None:  # and was cut off
                yield self._void([(self._begun, event.offset)])
            self._begun = event.offset
            yield {"type": "start-step"}
        elif kind := _TEXTS.get(data.type):
            yield from self._more(kind, data.item_id, data.delta, at)
        elif data.type in ("response.completed", "response.incomplete"):
            self._begun = None
            yield from self.close()
            yield {"type": "finish-step"}

    def _more(self, kind: str, id: str, text: str, at: Part) -> Iterator[Part]:
        now = {"type": f"{kind}-end", "id": id}
        if self._open != now:
            yield from self.close()
            self._open = now
            yield {"type": f"{kind}-start", "id": id} | at
        yield {"type": f"{kind}-delta", "id": id, "delta": text} | at

    def _void(self, offsets: Any) -> Part:
        return {"type": "data-void", "data": {"task": self._task, "offsets": [*map(list, offsets)]}}

    def close(self) -> Iterator[Part]:
        """Yield the end of a text that is open."""
        if self._open:
            yield self._open
            self._open = {}


async def _end(asked: Access, task: Task) -> AsyncGenerator[str]:
    """Yield how an answer has ended."""
    match task.status:
        case "finished" | "answered":
            yield _sent({"type": "finish", "finishReason": "stop"})
        case "waiting" if waits := await asked.runner.pending_approvals(task.task_id):
            for each in waits:
                # A call of a child task, or the question of a step, was not told before.
                call = each.call_id or each.id
                yield _sent(_call(call, each.tool or each.kind, each.as_agreed), covered)
                about = {"kind": each.kind, "text": question_of(each)}
                asks = {"approvalId": each.id, "toolCallId": call, "approvalDescriptor": about}
                yield _sent({"type": "tool-approval-request", **asks}, covered)
            yield _sent({"type": "finish", "finishReason": "tool-calls"})
        case "abandoned":
            yield _sent({"type": "abort", "reason": task.error or "It was abandoned."})
        case _:
            why = task.error or task.paused or f"The task is {task.status}."
            yield _sent({"type": "error", "errorText": why})


def _call(id: str, name: str, arguments: str) -> Part:
    given = data_of(arguments or "{}")
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        given = arguments
    return {"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": given}


def _sent(part: Part, clean: Callable[[str], str] = redact) -> str:
    return f"data: {json.dumps(without_secrets(part, clean))}\n\n"


def _failed(error: HoldfastError) -> str:
    return _sent({"type": "error", "errorText": message_of(error)}) + _DONE
