"""A model behind OpenAI's Chat Completions API, or any server that speaks it.

What a server adds to its messages and wants back (a signature next to a tool call, the reasoning of
a turn with tool calls) is kept in `Message.items` as `chat.call` and `chat.message`; items of the
Responses API have no place here and are left out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import assert_never

from pydantic import ValidationError

from holdfast.errors import InvalidArgumentError, ModelRequestError
from holdfast.models.base import ModelAnswer, ModelRequest, Tell, refuse_hosted
from holdfast.models.openai.chat_stream import CompletionStream, as_streamed, text_of
from holdfast.models.openai.http.bodies import RequestBody, dumps, encoded_messages
from holdfast.models.openai.http.failures import first_problem, malformed
from holdfast.models.openai.item_contents import all_parts, written_content
from holdfast.models.openai.local_items import shell_text, shell_told
from holdfast.models.openai.model import Incoming, MadeAsInSDK, OpenAIModel, read_usage
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import as_array, as_object, as_text
from holdfast.values.messages import Blob, FilePart, ImagePart, Message, Part, TextPart, ToolCall
from holdfast.values.parts.images import address, file_data
from holdfast.values.text.shown import shown

ChatMessage = dict[str, Json]
KEPT_OF_CALL = "chat.call"
KEPT_OF_MESSAGE = "chat.message"


def chat_message(message: Message) -> tuple[ChatMessage]:
    """Write a message for Chat Completions.

    Tool messages hold text only there, so the images and files of tool results follow in a user
    message of their own, after all results of the turn: see `result_files`.

    Raises:
        InvalidArgumentError: A content is a reference to the archive.
    """
    match message.role:
        case "system" | "user":
            return ({"role": message.role, "content": _given(message)},)
        case "assistant":
            return (_assistant(message),)
        case "tool":
            text = _result_text(message)
            return ({"role": "tool", "tool_call_id": message.call_id, "content": text},)
        case _:
            assert_never(message.role)


def files_message(files: Sequence[ChatMessage]) -> ChatMessage:
    """Write the user message with the images and files of a turn's tool results."""
    return {"role": "user", "content": list(files)}


def result_files(message: Message) -> list[ChatMessage]:
    """Return the parts of a tool result that are images or files.

    Raises:
        InvalidArgumentError: The API does not take one.
    """
    return [_part(part) for part in all_parts(message) if not isinstance(part, TextPart)]


def _assistant(message: Message) -> ChatMessage:
    written: ChatMessage = {"role": "assistant", "content": written_content(message.content, _part)}
    if message.calls:
        written["content"] = written["content"] or None
        written["tool_calls"] = [
            {
                **_kept(message.items, KEPT_OF_CALL, call),
                "id": call.id,
                "type": "function",
                "function": {"name": call.bare_name, "arguments": _arguments(call)},
            }
            for call in message.calls
        ]
    return {**_kept(message.items, KEPT_OF_MESSAGE), **written}


def _arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON: the text of a custom tool has to be wrapped for that."""
    is_text = call.kind == "custom_tool_call"
    return json.dumps({"input": call.arguments}, ensure_ascii=False) if is_text else call.arguments


def _kept(
    items: Sequence[dict[str, Json]], kind: str, call: ToolCall | None = None
) -> dict[str, Json]:
    """Return what the server added to the message, or to one of its calls."""
    for item in items:
        if item.get("type") == kind and (call is None or item.get("call_id") == call.id):
            return {key: item[key] for key in item if key not in ("type", "call_id")}
    return {}


def _given(message: Message) -> Json:
    """Write what a user or a program said, with parts that only the item has."""
    parts = all_parts(message)
    return [_part(part) for part in parts] if parts else written_content(message.content, _part)


def _part(part: Part | ChatMessage) -> ChatMessage:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart():
            return _image(part)
        case FilePart():
            return _file(part)
        case {"type": "input_audio" | "video_url"}:
            return part
        case {"type": "input_image" | "image_url"}:
            raise InvalidArgumentError(f"An image without an address names no image: {shown(part)}")
        case dict():
            raise InvalidArgumentError(
                f"The Chat Completions API does not take a part of type {part.get('type')!r}:"
                f" {shown(part)}. Use the Responses API, or leave it out."
            )
        case _:
            assert_never(part)


def _image(part: ImagePart) -> ChatMessage:
    if part.file_id:
        raise InvalidArgumentError(
            f"The image {part.file_id!r} is named by its id at the provider, which the Chat"
            " Completions API does not take. Use the Responses API, or give the image by URL or"
            " by its bytes."
        )
    image: dict[str, Json] = {"url": address(part)}
    if part.detail != "auto":  # some compatible servers do not know the field
        # "original" is of the Responses API alone.
        image["detail"] = "high" if part.detail == "original" else part.detail
    return {"type": "image_url", "image_url": image}


def _file(part: FilePart) -> ChatMessage:
    data = file_data(part)
    if not data and not part.file_id:
        how = f"by its address {part.url!r} alone" if part.url else "neither by data nor by an id"
        raise InvalidArgumentError(
            f"A file is named {how}, which the Chat Completions API does not take. Use the"
            " Responses API, or give the file by its data or its id at the provider."
        )
    file: dict[str, Json] = {"file_data": data} if data else {"file_id": part.file_id}
    if part.filename:
        file["filename"] = part.filename
    return {"type": "file", "file": file}


def _result_text(message: Message) -> str:
    """Return a tool result's text; one of images alone says where they are."""
    if isinstance(message.content, Blob):
        written_content(message.content, _part)
    if message.text or not result_files(message):
        is_shell = any(item.get("type") == "shell_call_output" for item in message.items)
        told = shell_told(message.text) if is_shell else {}
        return shell_text(told) if told else message.text
    what = "image" if message.images else "file"
    return f"The result is the {what} in the next user message."


WITHHELD = "The provider's content filter has withheld the answer."
"""The refusal that an empty answer is, when a filter has emptied it."""


class ChatCompletionsModel(OpenAIModel):
    """A model called through the Chat Completions API, which most other servers speak."""

    path = "/chat/completions"

    async def _body(self, request: ModelRequest) -> RequestBody:
        return await chat_body(self._name, request)

    def _incoming(self, tell: Tell) -> Incoming:
        return CompletionStream(tell)

    def _read(self, body: dict[str, Json], request_id: str | None) -> ModelAnswer:
        return read_answer(as_streamed(body) or body, model=self._name, request_id=request_id)

    def _stream_options(self, request: ModelRequest) -> dict[str, Json]:
        tells_usage = request.settings.include_usage is not False
        return {"stream_options": {"include_usage": tells_usage}}


class OpenAIChatCompletionsModel(MadeAsInSDK, ChatCompletionsModel):
    """A `ChatCompletionsModel` with the constructor of the Agents SDK."""


async def chat_body(model: str, request: ModelRequest) -> RequestBody:
    """Write the body of a Chat Completions request.

    Raises:
        ModelRequestError: The run goes on from a conversation that the provider keeps, or has
            tools or a prompt of the provider.
        UserError: Tools are in namespaces or deferred.
    """
    if request.previous_response_id or request.conversation_id:
        raise ModelRequestError(
            f"Model {model!r} is called through Chat Completions, which keeps no conversation; the"
            " run was begun with previous_response_id, conversation_id or"
            " auto_previous_response_id.",
            remedy="Use the Responses API, or begin without them.",
        )
    refuse_hosted(None, request)
    return await request_body(model, request)


async def request_body(model: str, request: ModelRequest) -> RequestBody:
    """Write the body of a Chat Completions request; what is not set is not sent."""
    settings = request.settings
    reasoning = settings.reasoning_options or {}
    has_logprobs = settings.top_logprobs is not None
    body: dict[str, Json] = {
        "model": model,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
        "max_completion_tokens": settings.max_tokens,
        "reasoning_effort": reasoning.get("effort"),
        "verbosity": settings.verbosity,
        "logprobs": True
        if has_logprobs and "logprobs" not in (settings.extra_args or {})
        else None,
        "top_logprobs": settings.top_logprobs,
        "prompt_cache_retention": settings.prompt_cache_retention,
        "prompt_cache_options": settings.prompt_cache_options,
        "metadata": settings.metadata,
        "store": settings.store,
    }
    if request.output is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": request.output.name,
                "schema": request.output.json_schema,
                "strict": request.output.strict,
            },
        }
    if request.tools:
        body["tools"] = list(_tools(request))
        body["tool_choice"] = _tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = settings.parallel_tool_calls
    fields = {key: value for key, value in body.items() if value is not None}
    return RequestBody(fields, "messages", await _conversation(request))


async def _conversation(request: ModelRequest) -> list[bytes]:
    """Encode the conversation: the instructions first, images of results after their turn."""
    messages = request.messages
    pieces = await encoded_messages.pieces(messages, chat_message)
    conversation: list[bytes] = []
    if request.instructions:
        conversation.append(dumps({"role": "system", "content": request.instructions}))
    files: list[ChatMessage] = []
    for message, piece in zip(messages, pieces, strict=True):
        if message.role != "tool" and files:
            conversation.append(dumps(files_message(files)))
            files = []
        conversation.append(piece)
        if message.role == "tool":
            files += result_files(message)
    return [*conversation, dumps(files_message(files))] if files else conversation


def _tools(request: ModelRequest) -> Iterator[dict[str, Json]]:
    for tool in request.tools:
        function: dict[str, Json] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        # Off is the default here, and some compatible servers do not know the field.
        if tool.strict:
            function["strict"] = True
        yield {"type": "function", "function": function}


def _tool_choice(choice: str) -> Json:
    match choice:
        case "auto":
            return None
        case "none" | "required":
            return choice
        case name:
            return {"type": "function", "function": {"name": name}}


class _Function(Value):
    name: str | None = None
    arguments: str | dict[str, Json] | None = None


class _Call(Value):
    id: str | None = None
    function: _Function
    extra_content: Json = None
    provider_specific_fields: Json = None


class _Said(Value):
    content: Json = None
    refusal: str | None = None
    tool_calls: tuple[_Call, ...] | None = None
    reasoning_content: str | None = None
    thinking_blocks: tuple[dict[str, Json], ...] | None = None
    extra_content: Json = None
    annotations: tuple[dict[str, Json], ...] | None = None
    function_call: Json = None

    @property
    def calls(self) -> tuple[_Call, ...]:
        """Its calls; some servers still send the one of the time before there were several."""
        old = as_object(self.function_call)
        if self.tool_calls or not old:
            return self.tool_calls or ()
        return (_Call(function=_Function.model_validate(old)),)


class _Logprobs(Value):
    content: tuple[dict[str, Json], ...] | None = None


class _Choice(Value):
    message: _Said
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Reply(Value):
    id: str | None = None
    model: str | None = None
    choices: tuple[_Choice, ...]


def read_answer(body: dict[str, Json], *, model: str, request_id: str | None = None) -> ModelAnswer:
    """Read the body of a Chat Completions answer.

    Raises:
        ModelUnavailableError: It is not of the expected shape.
    """
    usage = read_usage(body.get("usage"), "prompt", "completion")
    wrong = partial(malformed, model, request_id=request_id, usage=usage)
    try:
        reply = _Reply.model_validate(body)
    except ValidationError as error:
        raise wrong(first_problem(error)) from None
    if not reply.choices:
        raise wrong("it holds no choice")
    choice = reply.choices[0]
    calls, kept = _read_calls(choice.message)
    finish = choice.finish_reason or "stop"
    refusal = choice.message.refusal or ""
    refusal = refusal if refusal.strip() else ""
    text = text_of(choice.message.content) or refusal
    is_empty = not text and not calls
    if is_empty and finish == "content_filter":
        text = refusal = WITHHELD
    logprobs = (choice.logprobs.content if choice.logprobs is not None else None) or ()
    annotations = choice.message.annotations or ()
    if text and (logprobs or annotations):
        kept = (_with_details(text, logprobs, annotations), *kept)
    return ModelAnswer(
        message=Message(role="assistant", content=text, calls=calls, items=kept),
        usage=usage,
        model=reply.model or model,
        response_id=reply.id or "",
        # Some servers say "stop" beside calls, and "function_call" is the old word.
        finish="tool_calls" if calls and finish in ("stop", "function_call") else finish,
        refusal=refusal,
        is_incomplete=is_empty and finish == "length",
    )


def _read_calls(said: _Said) -> tuple[tuple[ToolCall, ...], tuple[dict[str, Json], ...]]:
    """Return the calls, and what the server wants back next to them."""
    calls: list[ToolCall] = []
    kept: list[dict[str, Json]] = []
    for call in said.calls:
        # Some servers leave the id out; a result cannot be matched without one.
        call_id = call.id or f"call_{uuid.uuid4().hex[:24]}"
        arguments = call.function.arguments or {}  # none, as some servers write it
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(ToolCall(id=call_id, name=call.function.name or "", arguments=text))
        signed = {
            name: value
            for name in ("extra_content", "provider_specific_fields")
            if (value := getattr(call, name)) is not None
        }
        if signed:
            kept.append({"type": KEPT_OF_CALL, "call_id": call_id, **signed})
    # Servers that send it want it back in a turn with calls, and refuse it in any other.
    thought: dict[str, Json] = {}
    if said.reasoning_content:
        thought["reasoning_content"] = said.reasoning_content
    if said.thinking_blocks:
        thought["thinking_blocks"] = list(said.thinking_blocks)
    if said.extra_content is not None:
        thought["extra_content"] = said.extra_content
    if calls and thought:
        kept.append({"type": KEPT_OF_MESSAGE, **thought})
    return tuple(calls), tuple(kept)


def _with_details(
    text: str, found: Sequence[dict[str, Json]], annotations: Iterable[dict[str, Json]]
) -> dict[str, Json]:
    """Write an answer's text with what belongs to it, in the form of the Responses API."""
    logprobs = [
        {
            **_token(each),
            "top_logprobs": [_token(as_object(o)) for o in as_array(each.get("top_logprobs"))],
        }
        for each in found
    ]
    part: dict[str, Json] = {
        "type": "output_text",
        "text": text,
        "annotations": [_annotation(each) for each in annotations],
    }
    if logprobs:
        part["logprobs"] = logprobs
    return {"type": "message", "role": "assistant", "content": [part]}


def _annotation(given: dict[str, Json]) -> dict[str, Json]:
    """Write an annotation flat: Chat Completions puts its fields under the name of its type."""
    kind = as_text(given.get("type"))
    fields = as_object(given.get(kind))
    return {"type": kind, **fields} if fields else given


def _token(given: dict[str, Json]) -> dict[str, Json]:
    return {
        "token": given.get("token"),
        "logprob": given.get("logprob"),
        "bytes": as_array(given.get("bytes")),
    }
