"""The fake API as a web application."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import assert_never

from holdfast.testing.fake_api.batches import BATCHES, FakeBatches
from holdfast.testing.fake_api.checks.requests import find_problem
from holdfast.testing.fake_api.replies import (
    Answer,
    CallSpec,
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
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_object
from holdfast.values.code.extras import needing
from holdfast.values.messages import Usage

# Cut a finished body into the server-sent events that a streaming request gets.
#
# Pure. The deltas joined give exactly the body, so a test passes either with both or with neither.

PIECE = 8
"""Characters of a delta, unless a reply has its own."""


def stream_events(body: dict[str, Json], request: FakeRequest, *, piece: int = PIECE) -> list[str]:
    """Write a finished body as the events of the request's endpoint.

    Args:
        body: The body.
        request: The request that it answers.
        piece: Characters of a delta.
    """
    if request.dialect is not None:
        told = request.dialect.events(body, piece)
        return [_event(event, name=as_text(event.get("type"))) for event in told]
    if request.endpoint == "responses":
        return [
            _event({**event, "sequence_number": number}, name=event["type"])
            for number, event in enumerate(_response_events(body, piece))
        ]
    options = as_object(request.body.get("stream_options"))
    has_usage = options.get("include_usage") is True
    chunks = _completion_chunks(body, piece, has_usage=has_usage)
    return [*map(_event, chunks), "data: [DONE]\n\n"]


def _event(data: dict[str, Json], name: str = "") -> str:
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _response_events(body: dict[str, Json], size: int) -> Iterator[dict[str, Json]]:
    begun = {**body, "status": "in_progress", "output": list[Json](), "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(as_array(body.get("output"))):
        yield from _item_events(item, index, size)
    yield {"type": f"response.{body.get('status', 'completed')}", "response": body}


def _item_events(item: dict[str, Json], index: int, size: int) -> Iterator[dict[str, Json]]:
    place = {"item_id": item.get("id", ""), "output_index": index}
    kind = item.get("type")
    empty: dict[str, Json] = {
        "content": [],
        "arguments": "",
        "summary": [],
        "status": "in_progress",
    }
    # Arguments of a search are an object, which comes whole.
    pieces = [key for key in empty if key in item and isinstance(item[key], type(empty[key]))]
    begun = {**item, **{key: empty[key] for key in pieces}}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    if kind == "message":
        for number, part in enumerate(item["content"]):
            yield from _part_events(part, {**place, "content_index": number}, size)
    elif kind == "reasoning":
        yield from _summary_events(item, place, size)
    elif kind == "function_call":
        name = "response.function_call_arguments"
        for piece in _pieces(item["arguments"], size):
            yield {"type": f"{name}.delta", **place, "delta": piece}
        yield {"type": f"{name}.done", **place, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _summary_events(
    item: dict[str, Json], place: dict[str, Json], size: int
) -> Iterator[dict[str, Json]]:
    name = "response.reasoning_summary"
    for number, part in enumerate(item["summary"]):
        at = {**place, "summary_index": number}
        yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
        for piece in _pieces(part["text"], size):
            yield {"type": f"{name}_text.delta", **at, "delta": piece}
        yield {"type": f"{name}_text.done", **at, "text": part["text"]}
        yield {"type": f"{name}_part.done", **at, "part": part}


def _part_events(
    part: dict[str, Json], place: dict[str, Json], size: int
) -> Iterator[dict[str, Json]]:
    is_refusal = part.get("type") == "refusal"
    key, name = ("refusal", "refusal") if is_refusal else ("text", "output_text")
    more: dict[str, Json] = {} if is_refusal else {"logprobs": []}
    yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
    for piece in _pieces(as_text(part.get(key)), size):
        yield {"type": f"response.{name}.delta", **place, "delta": piece, **more}
    yield {"type": f"response.{name}.done", **place, key: part.get(key), **more}
    yield {"type": "response.content_part.done", **place, "part": part}


def _completion_chunks(
    body: dict[str, Json], size: int, *, has_usage: bool
) -> Iterator[dict[str, Json]]:
    head = {key: body.get(key) for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    # If usage is requested, the API sends it in a chunk of its own and null in all others.
    usage: dict[str, Json] = {"usage": None} if has_usage else {}
    for choice in body.get("choices", []):
        message = as_object(choice.get("message"))
        deltas = [{"role": "assistant"}, *_message_deltas(message, size)]
        for delta in deltas:
            part = {"index": choice["index"], "delta": delta, "finish_reason": None}
            yield {**head, **usage, "choices": [part]}
        end: dict[str, Json] = {
            "index": choice["index"],
            "delta": {},
            "finish_reason": choice["finish_reason"],
        }
        yield {**head, **usage, "choices": [end]}
    if has_usage:
        yield {**head, "choices": [], "usage": body.get("usage")}


def _message_deltas(message: dict[str, Json], size: int) -> Iterator[dict[str, Json]]:
    for key in ("reasoning_content", "content", "refusal"):
        for piece in _pieces(as_text(message.get(key)), size):
            yield {key: piece}
    for index, call in enumerate(as_array(message.get("tool_calls"))):
        function = call["function"]
        start = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": start}]}
        for piece in _pieces(function["arguments"], size):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def is_delta(event: str) -> bool:
    """Whether an event carries a piece of the answer."""
    data: object = json.loads(event.partition("data: ")[2]) if "[DONE]" not in event else None
    event_data = as_object(data)
    if as_text(event_data.get("type")).endswith((".delta", "block_delta")):
        return True
    if "candidates" in event_data and "usageMetadata" not in event_data:
        return True
    choices: Json = event_data.get("choices")
    return any(as_object(each["delta"]).keys() - {"role"} for each in as_array(choices))


# Write scripted answers as the bodies that the endpoints send.

NextId = Callable[[str], str]
"""Returns the next id for a prefix: "call_" gives call_1, call_2, ..."""


def render(answer: Answer | Refusal, request: FakeRequest, next_id: NextId) -> dict[str, Json]:
    """Write an answer as the body of the request's endpoint."""
    usage = _usage(answer, request)
    if (other := request.dialect) is not None:
        return other.render(answer, model=request.model, usage=usage, next_id=next_id)
    write = _response if request.endpoint == "responses" else _completion
    return write(answer, request, usage, next_id)


def _usage(answer: Answer | Refusal, request: FakeRequest) -> Usage:
    if isinstance(answer, Answer) and answer.usage is not None:
        return answer.usage
    length = len(answer.text)
    if isinstance(answer, Answer):
        length += len(answer.reasoning)
        length += sum(len(call.name) + len(call.argument_text) for call in answer.calls)
    return Usage(input_tokens=len(request.text.encode()) // 4, output_tokens=length // 4 + 1)


def _response(
    answer: Answer | Refusal, request: FakeRequest, usage: Usage, next_id: NextId
) -> dict[str, Json]:
    finish = answer.finish if isinstance(answer, Answer) else ""
    reason = "max_output_tokens" if finish == "length" else finish
    body = request.body
    return {
        "id": next_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if finish else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if finish else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": request.model,
        "output": _output(answer, next_id),
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text", {"format": {"type": "text"}}),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


def _output(answer: Answer | Refusal, next_id: NextId) -> list[Json]:
    if isinstance(answer, Refusal):
        return [_message([{"type": "refusal", "refusal": answer.text}], next_id)]
    output: list[Json] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        output.append({"id": next_id("rs_"), "type": "reasoning", "summary": summary})
    for item in answer.items:
        prefix = f"{str(item.get('type', 'item')).removesuffix('_call')}_"
        output.append({"id": item.get("id") or next_id(prefix), **item})
    if answer.text or not (answer.calls or answer.items):
        text: dict[str, Json] = {
            "type": "output_text",
            "text": answer.text,
            "annotations": [],
            "logprobs": [],
        }
        output.append(_message([text], next_id))
    output.extend(
        {
            "id": next_id("fc_"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.id or next_id("call_"),
            "name": call.name,
            "arguments": call.argument_text,
            **({"namespace": call.namespace} if call.namespace else {}),
        }
        for call in answer.calls
    )
    return output


def _message(content: list[dict[str, Json]], next_id: NextId) -> dict[str, Json]:
    return {
        "id": next_id("msg_"),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _completion(
    answer: Answer | Refusal, request: FakeRequest, usage: Usage, next_id: NextId
) -> dict[str, Json]:
    message: dict[str, Json] = {"role": "assistant", "content": None, "refusal": None}
    finish = "stop"
    if isinstance(answer, Refusal):
        message["refusal"] = answer.text
    else:
        message["content"] = None if answer.calls and not answer.text else answer.text
        finish = answer.finish or ("tool_calls" if answer.calls else "stop")
        if answer.calls:
            message["tool_calls"] = [_tool_call(call, next_id) for call in answer.calls]
    return {
        "id": next_id("chatcmpl_"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        },
    }


def _tool_call(call: CallSpec, next_id: NextId) -> dict[str, Json]:
    return {
        "id": call.id or next_id("call_"),
        "type": "function",
        "function": {"name": call.name, "arguments": call.argument_text},
    }


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
    names = ("number", "endpoint", "path", "body", "headers", "at", "query")
    return {name: getattr(request, name) for name in names}
