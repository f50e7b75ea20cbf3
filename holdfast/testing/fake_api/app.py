"""The fake API as a web application."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import assert_never

from holdfast.testing.fake_api.batches import BATCHES, FakeBatches
from holdfast.testing.fake_api.checks.requests import find_problem
from holdfast.testing.fake_api.rendering import render
from holdfast.testing.fake_api.replies import (
    Answer,
    Cut,
    Fail,
    Hang,
    Malformed,
    Paced,
    Raw,
    Refusal,
    Reply,
    Slow,
    read_script,
)
from holdfast.testing.fake_api.requests import Dialect, FakeRequest
from holdfast.testing.fake_api.script import Script
from holdfast.testing.fake_api.streaming import is_delta, stream_events
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_object
from holdfast.values.code.extras import needing

with needing("testing", "The fake OpenAI API"):
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

_SECRETS = frozenset({"authorization", "api-key", "cookie", "x-api-key", "x-goog-api-key"})
_EXHAUSTED = (
    "The script of the fake API is exhausted: no reply fits this request. Add one with reply(),"
    " call() or when()."
)


class FakeApp:
    """Answers requests from a script.

    Attributes:
        script: Where the replies come from.
        app: The ASGI application.
    """

    def __init__(self, script: Script) -> None:
        """Route the endpoints."""
        self.script = script
        self._gate = asyncio.Event()
        self._is_stopping = False
        self._batches = FakeBatches(self._answer_line, script.next_id)
        post = partial(Route, methods=["POST"])
        self.app = Starlette(
            routes=[
                post("/v1/responses", partial(self._answer, "responses", None)),
                post("/v1/chat/completions", partial(self._answer, "chat", None)),
                Route("/v1/models", _models, methods=["GET"]),
                *self._batches.routes,
                *(
                    post(path, partial(self._answer, each.name, each))
                    for each in script.dialects
                    for path in each.routes
                ),
                Route("/_fake/calls", self._show_calls, methods=["GET"]),
                Route("/_fake/script", self._add_script, methods=["POST"]),
                Route("/_fake/release", self._release, methods=["POST"]),
                Route("/_fake/reset", self._reset, methods=["POST"]),
            ]
        )

    def release(self) -> None:
        """Release the requests held now. In the server's event loop only."""
        gate, self._gate = self._gate, asyncio.Event()
        gate.set()

    def stop(self) -> None:
        """Refuse the requests held now. In the server's event loop only."""
        self._is_stopping = True
        self.release()

    async def _answer(self, endpoint: str, dialect: Dialect | None, http: Request) -> Response:
        body = _parse(await http.body())
        return await self._answered(http, endpoint, body, http.url.path, dialect)

    async def _answer_line(self, http: Request, endpoint: str, body: dict[str, Json]) -> Response:
        return await self._answered(http, endpoint, body, BATCHES)

    async def _answered(
        self,
        http: Request,
        endpoint: str,
        body: dict[str, Json] | None,
        path: str,
        dialect: Dialect | None = None,
    ) -> Response:
        headers = {
            key: "[redacted]" if key in _SECRETS else value for key, value in http.headers.items()
        }
        at, query = time.monotonic(), dict(http.query_params)
        query = {key: "[redacted]" if key == "key" else value for key, value in query.items()}
        request = self.script.record(
            lambda number: FakeRequest(
                number, endpoint, path, body or {}, headers, at, query, dialect
            )
        )
        if body is None:
            return self._refuse(request, "We could not parse the JSON body of your request.")
        problem = find_problem(request)
        if problem is not None:
            return self._refuse(request, problem.message, problem.param, problem.code)
        return await self._serve(http, request, self.script.choose(request))

    def _refuse(
        self, request: FakeRequest, message: str, param: str | None = None, code: str | None = None
    ) -> Response:
        self.script.record_problem(request, f"the real API would refuse it: {message}")
        return _error(400, message, request, code=code, param=param)

    async def _serve(self, http: Request, request: FakeRequest, reply: Reply | None) -> Response:
        match reply:
            case None:
                self.script.record_problem(request, "the script was exhausted")
                # Without this header a client repeats the call, and the test waits for that.
                headers = {"x-should-retry": "false"}
                code = "fake_script_exhausted"
                return _error(500, _EXHAUSTED, request, code=code, headers=headers)
            case Answer() | Refusal():
                return _send(render(reply, request, self.script.next_id), request)
            case Raw(body=body):
                return _send(body, request)
            case Fail():
                return _fail(reply, request)
            case Slow(seconds=seconds):
                await asyncio.sleep(seconds)
            case Hang():
                if not await self._hold(http):
                    return _error(503, "The fake API was stopped.", request)
            case Paced() if not request.is_stream:
                return _send(render(reply.then, request, self.script.next_id), request)
            case Paced():
                pieces = self._paced(http, request, reply)
                kind = "text/event-stream"
                return _OpenEnded(pieces, media_type=kind, headers=_id_of(request))
            case Cut():
                answer = Answer(text="This answer will not arrive in one piece.")
                return _CutResponse(_send(render(answer, request, self.script.next_id), request))
            case Malformed(body=body):
                return Response(body, media_type="text/html", headers=_id_of(request))
            case _:
                assert_never(reply)
        then = reply.then or self.script.choose(request)
        return await self._serve(http, request, then)

    async def _paced(self, http: Request, request: FakeRequest, reply: Paced) -> AsyncIterator[str]:
        body = render(reply.then, request, self.script.next_id)
        sent = 0
        for event in stream_events(body, request, piece=reply.piece):
            yield event
            sent += is_delta(event)
            if is_delta(event) and sent == reply.hold_after and not await self._hold(http):
                raise _Cut
            if sent == reply.cut_after:
                raise _Cut

    async def _hold(self, http: Request) -> bool:
        """Wait for the release; False when client or server went away before."""
        gate = asyncio.ensure_future(self._gate.wait())
        gone = asyncio.ensure_future(_disconnected(http))
        self.script.hold(1)
        try:
            await asyncio.wait({gate, gone}, return_when=asyncio.FIRST_COMPLETED)
            return gate.done() and not self._is_stopping
        finally:
            gate.cancel()
            gone.cancel()
            self.script.hold(-1)

    async def _show_calls(self, _: Request) -> Response:
        return JSONResponse(
            {
                "requests": [_shown(request) for request in self.script.requests],
                "problems": self.script.problems,
                "left": self.script.left,
                "held": self.script.held,
            }
        )

    async def _add_script(self, http: Request) -> Response:
        try:
            replies = read_script(await http.body())
        except ValueError as error:
            return JSONResponse({"error": {"message": str(error)}}, status_code=400)
        self.script.add(replies)
        return JSONResponse({"left": self.script.left})

    async def _release(self, _: Request) -> Response:
        self.release()
        return JSONResponse({})

    async def _reset(self, _: Request) -> Response:
        self.script.reset()
        self._batches.reset()
        self.release()
        return JSONResponse({})


class _Cut(Exception):  # noqa: N818  no error of anybody's
    """The connection is to end here."""


class _OpenEnded(StreamingResponse):
    """A stream that may be cut: the server closes the connection of an unfinished body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI's signature
        try:
            await self.stream_response(send)
        except _Cut:
            return


class _CutResponse(Response):
    """Promises a whole body and sends half of it: the server then closes the connection."""

    def __init__(self, whole: Response) -> None:
        super().__init__(bytes(whole.body), media_type=whole.media_type)
        self.headers["content-type"] = whole.headers["content-type"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI's signature
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        half = bytes(self.body)[: len(self.body) // 2]
        await send(start)
        await send({"type": "http.response.body", "body": half, "more_body": True})


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _models(_: Request) -> Response:
    model = {"id": "fake-model", "object": "model", "created": 0, "owned_by": "fake"}
    return JSONResponse({"object": "list", "data": [model]})


def _parse(body: bytes) -> dict[str, Json] | None:
    try:
        data: object = json.loads(body)
    except ValueError:
        return None
    return data if is_object(data) else None


def _send(body: dict[str, Json], request: FakeRequest) -> Response:
    if not request.is_stream:
        return JSONResponse(body, headers=_id_of(request))
    events = "".join(stream_events(body, request))
    return Response(events, media_type="text/event-stream", headers=_id_of(request))


def _fail(reply: Fail, request: FakeRequest) -> Response:
    headers = dict(reply.headers)
    if reply.retry_after is not None:
        headers["retry-after"] = f"{reply.retry_after:g}"
    return _error(reply.status, reply.message, request, code=reply.code, headers=headers)


def _error(
    status: int,
    message: str,
    request: FakeRequest,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    body: dict[str, Json] = {"error": error}
    if request.dialect is not None:
        body = request.dialect.error(status, message)
    return JSONResponse(body, status_code=status, headers={**_id_of(request), **(headers or {})})


def _id_of(request: FakeRequest) -> dict[str, str]:
    name = "x-request-id" if request.dialect is None else request.dialect.request_id
    return {name: f"req_{request.number}"}


def _shown(request: FakeRequest) -> dict[str, Json]:
    return {
        "number": request.number,
        "endpoint": request.endpoint,
        "path": request.path,
        "body": request.body,
        "headers": request.headers,
        "at": request.at,
        "query": request.query,
    }
