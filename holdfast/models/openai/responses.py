"""A model behind OpenAI's Responses API, or any server that speaks it."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal, cast

from pydantic import ValidationError

from holdfast.errors import InvalidArgumentError, ModelError, ModelUnavailableError, message_of
from holdfast.models.base import Delta, ModelAnswer, ModelRequest, Tell
from holdfast.models.openai.hosted_items import (
    APPROVAL_REQUEST,
    is_passed_on,
    told_in_stream,
    without_lost_searches,
)
from holdfast.models.openai.http.bodies import RequestBody, encoded_messages
from holdfast.models.openai.http.failures import cut_off, first_problem, malformed, status_error
from holdfast.models.openai.item_contents import FAKE_ID, kind_of, without_status
from holdfast.models.openai.items import CALLS, Item, assistant_message, to_response_items
from holdfast.models.openai.local_items import LOCAL_CALLS, run_by_provider
from holdfast.models.openai.model import Incoming, MadeAsInSDK, OpenAIModel, read_usage
from holdfast.models.openai.response_tools import offered_tools, tool_choice
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array
from holdfast.values.messages import CallKind, Message, ToolCall

_STATUS_OF_CODE = {"rate_limit_exceeded": 429, "server_error": 500, "vector_store_timeout": 504}
_NOT_SENT = ("created_by", "provider_data")
"""Members of items that the API does not take back; other providers' items have the second."""

_FOUND_BY_ID = (
    "message",
    "function_call",
    "reasoning",
    "shell_call",
    "apply_patch_call",
    "custom_tool_call",
    "tool_search_call",
    "tool_search_output",
)
_LOGPROBS = "message.output_text.logprobs"
_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}
_TEXTS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "arguments",
}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesModel(OpenAIModel):
    """A model called through the Responses API."""

    path = "/responses"
    tells_responses = True
    has_unique_ids = True
    """Whether each call of a conversation has an id of its own."""

    serves_hosted = True
    """Whether it passes on tools and prompts of the provider."""

    async def _body(self, request: ModelRequest) -> RequestBody:
        return await request_body(self._name, request)

    def _incoming(self, tell: Tell) -> Incoming:
        return ResponseStream(tell)

    def _read(self, body: dict[str, Json], request_id: str | None) -> ModelAnswer:
        return read_answer(body, model=self._name, request_id=request_id)


class OpenAIResponsesModel(MadeAsInSDK, ResponsesModel):
    """A `ResponsesModel` with the constructor of the Agents SDK."""


async def request_body(model: str, request: ModelRequest) -> RequestBody:
    """Write the body of a Responses request; what is not set is not sent.

    Raises:
        ModelRequestError: The tool choice names a tool that the API cannot be told to use.
        UserError: The tools, or the choice, break a rule of tool search.
    """
    settings = request.settings
    write = _items_of_unstored if settings.store is False else _items_of_stored
    conversation = await encoded_messages.pieces(request.messages, write)
    body: dict[str, Json] = {
        "model": None if request.leaves_model else model,
        "prompt": request.prompt,
        "instructions": request.instructions or None,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "truncation": settings.truncation,
        "reasoning": settings.reasoning_options,
        "include": _include(request),
        "top_logprobs": settings.top_logprobs,
        "metadata": settings.metadata,
        "store": settings.store,
        "prompt_cache_retention": settings.prompt_cache_retention,
        "prompt_cache_options": settings.prompt_cache_options,
        "context_management": settings.context_management,
        "text": _text(request),
        "previous_response_id": request.previous_response_id or None,
        "conversation": request.conversation_id or None,
    }
    if request.tools:
        body["tools"] = offered_tools(request)
    if request.tools or request.prompt is not None:
        body["tool_choice"] = tool_choice(request)
        body["parallel_tool_calls"] = settings.parallel_tool_calls
    fields = {key: value for key, value in body.items() if value is not None}
    return RequestBody(fields, "input", conversation)


def _items_of_stored(message: Message) -> list[Item]:
    return list(_sendable(to_response_items([message]), is_stored=True))


def _items_of_unstored(message: Message) -> list[Item]:
    return list(_sendable(to_response_items([message]), is_stored=False))


def _include(request: ModelRequest) -> list[str] | None:
    settings = request.settings
    wanted = dict.fromkeys(tool.include for tool in request.tools if tool.include)
    wanted |= dict.fromkeys(settings.response_include or ())
    if settings.top_logprobs is not None:
        wanted[_LOGPROBS] = None
    return list(wanted) or None


def _text(request: ModelRequest) -> Json:
    """Say how the answer must be written, if anything is asked of it."""
    text: dict[str, Json] = {}
    if request.output is not None:
        text["format"] = {
            "type": "json_schema",
            "name": request.output.name,
            "schema": request.output.json_schema,
            "strict": request.output.strict,
        }
    if request.settings.verbosity is not None:
        text["verbosity"] = request.settings.verbosity
    return text or None


def _sendable(items: Iterable[Item], *, is_stored: bool) -> Iterator[Item]:
    """Leave out what the API would refuse.

    What is not stored cannot be found by its id, so ids go where the API can do without, except
    next to encrypted content, which is what reasoning is handed back by; reasoning that has nothing
    left is dropped.
    """
    for given in without_lost_searches(items):
        kind = kind_of(given)
        if kind.startswith("chat.") or (kind == "reasoning" and given.get("provider_data")):
            continue  # of another provider
        left_out = _NOT_SENT if given.get("id") != FAKE_ID else (*_NOT_SENT, "id")
        item = {key: given[key] for key in given if key not in left_out}
        if kind == "function_call_output":
            yield without_status(item)
        elif is_stored or item.get("encrypted_content") or kind not in _FOUND_BY_ID:
            yield item
        elif kind != "reasoning" or item.get("summary") or item.get("content"):
            yield {key: item[key] for key in item if key != "id"}


class _Failure(Value):
    code: str | None = None
    message: str = ""


class _Incomplete(Value):
    reason: str | None = None


class _Reply(Value):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: tuple[dict[str, Json], ...]
    error: _Failure | None = None
    incomplete_details: _Incomplete | None = None


def read_answer(body: dict[str, Json], *, model: str, request_id: str | None = None) -> ModelAnswer:
    """Read the body of a Responses answer.

    Raises:
        ModelUnavailableError: It is not of the expected shape, or tells of a passing failure.
        ModelRequestError: It tells of a failure that does not pass with time.
    """
    usage = read_usage(body.get("usage"), "input", "output")

    def wrong(reason: str) -> ModelUnavailableError:
        calls = _open_calls(body)
        return malformed(model, reason, request_id=request_id, usage=usage, calls=calls)

    try:
        reply = _Reply.model_validate(body)
        message = assistant_message([_complete(item) for item in reply.output])
    except ValidationError as error:
        raise wrong(first_problem(error)) from None
    except InvalidArgumentError as error:
        raise wrong(message_of(error)) from None
    if reply.error is not None or reply.status == "failed":
        failure = reply.error or _Failure()
        status = _STATUS_OF_CODE.get(failure.code or "server_error", 400)
        headers = {"x-request-id": request_id} if request_id else {}
        raise status_error(status, failure.model_dump(), model=model, headers=headers)
    if reply.status not in (None, "completed", "incomplete"):
        raise wrong(f"its status is {reply.status!r}")
    return ModelAnswer(
        message=message,
        usage=usage,
        model=reply.model or model,
        response_id=reply.id or "",
        finish=_finish(reply, message),
        refusal=_refusal(reply.output),
        is_incomplete=reply.status == "incomplete",
    )


def _complete(item: Item) -> Item:
    """Return an item of an answer with what some servers leave out of a call, or of a message."""
    if item.get("type") == "message" and item.get("content") is None:
        return {**item, "content": list[Json]()}
    if item.get("type") != "function_call":
        return item
    given, call_id = item.get("arguments"), item.get("call_id") or item.get("id")
    given = given if isinstance(given, str) else json.dumps(given or {})
    return {**item, "arguments": given, "call_id": call_id or f"call_{uuid.uuid4().hex[:24]}"}


def _open_calls(body: dict[str, Json]) -> Iterator[ToolCall]:
    """Yield the calls that the provider waits for, as far as a result must know them."""
    items = list(map(as_object, as_array(body.get("output"))))
    has_run = run_by_provider(items)
    for item in items:
        kind = as_text(item.get("type"))
        id = as_text(item.get("id" if kind == APPROVAL_REQUEST else "call_id"))
        if kind in CALLS and id and id not in has_run:
            server = kind if kind == APPROVAL_REQUEST else ""  # its label may be what is wrong
            local = cast("CallKind", kind if kind in LOCAL_CALLS else "")
            yield ToolCall(id=id, name="", server=server, kind=local)


def _finish(reply: _Reply, message: Message) -> str:
    if reply.status == "incomplete":
        reason = reply.incomplete_details.reason if reply.incomplete_details else None
        return _FINISH.get(reason or "", "length")
    return "tool_calls" if message.calls else "stop"


def _refusal(output: Iterable[Item]) -> str:
    """Return the refusal that the last message is, if it is one."""
    said = [item.get("content") for item in output if item.get("type") == "message"]
    last: Json = said[-1] if said else None
    parts = last if is_array(last) else []
    return "".join(part["refusal"] for part in parts if part.get("type") == "refusal")


class ResponseStream:
    """Reads the events of one streamed answer: the delta of each, and the body at its end.

    Attributes:
        body: The body of the answer, once the last event has come.
    """

    def __init__(self, tell: Tell) -> None:
        """Pass deltas to this function."""
        self.body: dict[str, Json] | None = None
        self._tell = tell
        self._items: list[Json] = []
        self._told: set[int] = set()  # places of items of which a piece was told
        # Of items that have begun and not ended: how each began, and its pieces.
        self._open: dict[int, dict[str, Json]] = {}
        self._pieces: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)

    def take(self, event: dict[str, Json]) -> None:
        """Take the next event."""
        kind = as_text(event.get("type"))
        index: Json = event.get("output_index")
        place = index if isinstance(index, int) else 0
        if kind in _TEXTS:
            piece = as_text(event.get("delta"))
            self._told.add(place)
            self._pieces[place].append((_TEXTS[kind], piece))
            self._tell(Delta(_TEXTS[kind], piece, place))  # type: ignore[arg-type]
        elif kind == "response.output_item.added":
            self._open[place] = as_object(event.get("item"))
            self._call(as_object(event.get("item")), place)
        elif kind == "response.output_item.done":
            self._open.pop(place, None)
            self._pieces.pop(place, None)
            self._items.append(event.get("item"))
            self._done(as_object(event.get("item")), place)
        elif kind in _ENDS:
            response = {"output": list[Json](), **as_object(event.get("response"))}
            if kind != "response.completed":  # whatever the body says
                response = {**response, "status": kind.removeprefix("response.")}
            self._end(response)
        elif kind in {"error", "response.error"}:
            failure = {"code": event.get("code"), "message": as_text(event.get("message"))}
            self.body = {"output": list[Json](), "status": "failed", "error": failure}

    def _call(self, item: dict[str, Json], place: int) -> bool:
        """Tell of the begin of a function call; other items have none."""
        if item.get("type") != "function_call":
            return False
        self._told.add(place)
        call_id = as_text(item.get("call_id") or item.get("id"))
        told = (as_text(item.get(key)) for key in ("name", "namespace"))
        self._tell(Delta("call", "", place, call_id, *told))
        return True

    def _done(self, item: dict[str, Json], place: int) -> None:
        """Tell of an item of the provider's own tools, or of one that came without its pieces."""
        kind = as_text(item.get("type"))
        if place not in self._told:
            if self._call(item, place):
                self._tell(Delta("arguments", as_text(item.get("arguments")), place))
            for part in map(as_object, as_array(item.get("content")) if kind == "message" else ()):
                said: Literal["refusal", "text"] = "refusal" if "refusal" in part else "text"
                self._tell(Delta(said, as_text(part.get(said)), place))
        if is_passed_on(kind):
            self._tell(Delta("item", told_in_stream(item), place, as_text(item.get("id")), kind))

    def _end(self, response: dict[str, Json]) -> None:
        """Keep the body; some servers leave out items that the events held."""
        output = as_array(response.get("output"))
        self._items += self._of_pieces()
        if self._items != output and any(_unlike(self._items, output)):
            whole = [*self._items, *_unlike(output, self._items)]
            response = {**response, "output": whole}
        self.body = response

    def end(self) -> None:
        """Take the items that have come as the answer where a server says "[DONE]" alone."""
        if self.body is None and (items := [*self._items, *self._of_pieces()]):
            self.body = {"output": items}

    def _of_pieces(self) -> Iterator[Json]:
        """Yield the items that came in pieces alone: some servers never send them whole."""
        for place in sorted({*self._open, *self._pieces}):
            item = self._open.get(place, {"type": "message", "role": "assistant"})
            pieces = self._pieces.get(place, [])
            kinds = {kind for kind, _ in pieces}
            whole = {kind: "".join([text for k, text in pieces if k == kind]) for kind in kinds}
            if item.get("type") == "function_call" and item.get("name"):
                yield {**item, "arguments": whole.get("arguments", item.get("arguments"))}
            for said, part in (("text", "output_text"), ("refusal", "refusal")):
                if item.get("type") == "message" and said in whole:
                    yield {**item, "content": [{"type": part, said: whole[said]}]}

    def missing(self, model: str) -> ModelError:
        """Make the error for a stream without its last event."""
        return cut_off(model, "there was no final response")


def _unlike(items: Iterable[Json], others: Iterable[Json]) -> Iterator[Json]:
    """Yield the items that others lack: calls by their `call_id`, the rest by type.

    The `id` does not tell: a proxy may give other ones in the answer's body than in its events.
    """
    known = {_key(item) for item in others}
    kinds = {kind for kind, _ in known}
    for item in items:
        kind, call_id = _key(item)
        if (kind, call_id) not in known and (call_id or kind not in kinds):
            yield item


def _key(item: Json) -> tuple[str, str]:
    fields = as_object(item)
    return as_text(fields.get("type")), as_text(fields.get("call_id"))
