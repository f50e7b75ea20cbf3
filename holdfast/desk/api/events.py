"""Routes that follow a task by server-sent events, which a client resumes where it was cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from holdfast.desk.api.access import Access, Asked, IdRoute
from holdfast.desk.identity.problems import problem_of
from holdfast.desk.views.words import without_secrets
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.reading.streams.reader import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
)
from holdfast.values.base import Json
from holdfast.values.text.shown import shortened

KEEP_ALIVE_SECONDS = 15.0
RETRY_MS = 1000
MOST_DIGITS = 20
"""Digits of the longest number that an event can have."""

events = APIRouter(route_class=IdRoute)

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}

Last = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="Go on after this event: the `id` of the last one."),
]
After = Annotated[str | None, Query(description="As Last-Event-ID, for clients without headers.")]


@events.get("/tasks/{task_id:path}/events", response_class=StreamingResponse, responses=_STREAM)
async def task_events(
    asked: Asked,
    task_id: str,
    *,
    last: Last = None,
    after: After = None,
    until: Literal["closed", "answered"] = "closed",
) -> StreamingResponse:
    """Follow what happens in a task: an event for each step, call, wait and decision."""
    begin = event_number(last or after, -1)
    await asked.runner.get_task(task_id)  # a task that does not exist is no stream

    async def sent() -> AsyncGenerator[str]:
        following = asked.runner.step_events(task_id, after=begin, until=until)
        async for event in following:
            body = event.model_dump(mode="json")
            yield _event(str(event.number), str(body.get("kind", "event")), body)

    return streamed(asked, sent())


@events.get("/tasks/{task_id:path}/stream", response_class=StreamingResponse, responses=_STREAM)
async def task_stream(
    asked: Asked,
    task_id: str,
    *,
    last: Last = None,
    after: After = None,
    until: Literal["closed", "waiting"] = "closed",
) -> StreamingResponse:
    """Follow a task token by token, if it streams: events of the OpenAI Agents SDK."""
    begin = event_number(last or after, 0)
    await asked.runner.get_task(task_id)

    async def sent() -> AsyncGenerator[str]:
        following = asked.runner.stream_events(task_id, offset=begin, until=until)
        async with aclosing(following):
            async for event in following:
                yield _event(str(event.offset), event.type, _data_of(event))

    return streamed(asked, sent())


def event_number(given: str | None, default: int) -> int:
    """Return the number of the last event that a client has.

    Raises:
        InvalidArgumentError: It is not one.
    """
    if not given:
        return default
    if len(given) > MOST_DIGITS or not given.removeprefix("-").isdecimal():
        shown = shortened(given, 2 * MOST_DIGITS)
        msg = f"Last-Event-ID is the id of an event of this stream, a number; it was {shown!r}."
        raise InvalidArgumentError(msg)
    return int(given)


def streamed(
    asked: Access,
    sent: AsyncGenerator[str],
    *,
    end: str | None = None,
    failed: Callable[[HoldfastError], str] | None = None,
) -> StreamingResponse:
    """Answer by server-sent events.

    Args:
        asked: The request.
        sent: The events.
        end: The last one; `end` by default.
        failed: Makes the last one for an error; that of the desk's API by default.
    """
    last = _event("", "end", {}) if end is None else end
    alive = _alive(asked, sent, last, failed or _failed)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(alive, media_type="text/event-stream", headers=headers)


async def _alive(
    asked: Access, sent: AsyncGenerator[str], end: str, failed: Callable[[HoldfastError], str]
) -> AsyncIterator[str]:
    """Yield what is sent, a comment in the pauses, and an error as the last event.

    The client reconnects after an error and goes on behind the last event that it has.
    """
    yield f"retry: {RETRY_MS}\n\n"
    queue: asyncio.Queue[tuple[str | None, Sequence[str]]] = asyncio.Queue(100)

    async def put(each: str | None) -> None:
        await queue.put((each, asked.reads))  # of what it tells; what follows may read other things

    async def read() -> None:
        try:
            async with aclosing(sent):
                async for each in sent:
                    await put(each)
            await put(end)
        except HoldfastError as error:
            await put(failed(error))
        except Exception:
            await put(None)
            raise
        await put(None)

    reading, reads = asyncio.create_task(read()), asked.reads
    try:
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    each, reads = await queue.get()
            except TimeoutError:
                each = ": still here\n\n"
            if each is None:
                await reading
                return
            try:
                await asked.check(reads)
            except HoldfastError as error:
                yield failed(error)
                return
            yield each
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


def _failed(error: HoldfastError) -> str:
    return _event("", "error", json.loads(bytes(problem_of(error).body)))


def _event(number: str, name: str, data: Json) -> str:
    text = json.dumps(without_secrets(data), ensure_ascii=False, separators=(",", ":"))
    mark = f"id: {number}\n" if number else ""
    return f"{mark}event: {name}\ndata: {text}\n\n"


def _data_of(event: StreamEvent) -> dict[str, Json]:
    match event:
        case AgentUpdatedStreamEvent(new_agent=agent):
            return {"agent": agent if isinstance(agent, str) else agent.name}
        case RawResponsesStreamEvent(data=data, attempt=attempt):
            return {"attempt": attempt, "data": _json(data)}
        case RunItemStreamEvent(name=name, item=item):
            return {"name": name, "item": {"type": item.type, "raw_item": item.shown_item()}}
        case StepUndoneStreamEvent(steps=steps, void=void, by=by, reason=reason):
            return {"steps": [*steps], "void": [*map(list, void)], "by": by, "reason": reason}


def _json(thing: Any) -> Json:
    return thing.model_dump(mode="json") if isinstance(thing, BaseModel) else thing
