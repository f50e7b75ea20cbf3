"""LlamaIndex's LLM objects as models: whatever has `metadata` and `achat` is taken as it is.

This module imports LlamaIndex only when such an object is called, so it need not be installed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.errors import ModelRequestError
from holdfast.models.base import Model, ModelAnswer, ModelRequest, ToolSpec, foreign_errors
from holdfast.models.openai.item_contents import all_parts
from holdfast.values.base import Json
from holdfast.values.messages import FilePart, ImagePart, Message, TextPart, ToolCall, Usage

_ANSWER_IN_JSON = "Answer with one JSON value that fits this JSON Schema, and nothing else:\n"


class LLM(Protocol):
    """What of LlamaIndex's LLM is needed to take it as a model."""

    @property
    def metadata(self) -> Any:
        """What the LLM says of itself: `model_name`, `is_function_calling_model`."""
        ...

    async def achat(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a conversation."""
        ...


def is_llm(given: object) -> bool:
    """Whether an object is one of LlamaIndex's LLMs, or works like one."""
    return (
        callable(getattr(given, "achat", None))
        and not isinstance(given, type | str | Model)
        and hasattr(given, "metadata")
    )


def as_model(given: Any) -> Any:
    """Return an LLM of LlamaIndex as a model, and anything else as it is."""
    return LlamaIndexModel(given) if is_llm(given) else given


class LlamaIndexModel:
    """Asks an LLM of LlamaIndex.

    An LLM that calls functions is offered the tools; any other gets the conversation alone. Each
    request is one attempt, as far as the LLM's own settings for retries allow it.

    Attributes:
        llm: The LLM.
    """

    provider = "llama_index"
    """As traces name it."""

    def __init__(self, llm: Any) -> None:
        """Take an LLM."""
        self.llm = llm

    def __eq__(self, other: object) -> bool:
        """Whether both ask one LLM."""
        return isinstance(other, LlamaIndexModel) and other.llm is self.llm

    def __hash__(self) -> int:
        """Go by the LLM."""
        return id(self.llm)

    @property
    def name(self) -> str:
        """Name of the model behind the LLM."""
        named = getattr(self.llm.metadata, "model_name", "") or getattr(self.llm, "model", "")
        return str(named or type(self.llm).__name__)

    @property
    def calls_functions(self) -> bool:
        """Whether the LLM is one that calls functions."""
        said = getattr(self.llm.metadata, "is_function_calling_model", False)
        return bool(said) and callable(getattr(self.llm, "achat_with_tools", None))

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        messages = [_foreign(message) for message in _with_rules(request)]
        with foreign_errors(f"{self.name!r} of LlamaIndex"):
            response = await self._ask(messages, request)
        return self._read(response)

    async def _ask(self, messages: list[Any], request: ModelRequest) -> Any:
        settings = request.settings
        options: dict[str, Any] = {}
        if settings.temperature is not None:
            options["temperature"] = settings.temperature
        if settings.max_tokens is not None:
            options["max_tokens"] = settings.max_tokens
        tools = _offered(request)
        if tools and self.calls_functions:
            return await self.llm.achat_with_tools(
                tools=[_foreign_tool(tool) for tool in tools],
                chat_history=messages,
                allow_parallel_tool_calls=settings.parallel_tool_calls is not False,
                **_required(request.tool_choice),
                **options,
            )
        if any(base.__name__ == "CustomLLM" for base in type(self.llm).__mro__):
            # Its async methods call the sync ones, which would block the loop of all tools.
            return await asyncio.to_thread(self.llm.chat, messages, **options)
        return await self.llm.achat(messages, **options)

    def _read(self, response: Any) -> ModelAnswer:
        message = response.message
        calls: tuple[ToolCall, ...] = ()
        if self.calls_functions:
            chosen = self.llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
            calls = tuple(_call(each) for each in chosen)
        text = str(message.content or "")
        return ModelAnswer(
            message=Message(role="assistant", content=text, calls=calls),
            usage=_usage(response),
            model=self.name,
            finish="tool_calls" if calls else "stop",
        )


def _with_rules(request: ModelRequest) -> list[Message]:
    """Return the conversation with the instructions, and the form of the answer, before it."""
    rules = [request.instructions] if request.instructions else []
    if request.output is not None:
        schema = json.dumps(request.output.json_schema, ensure_ascii=False)
        rules.append(_ANSWER_IN_JSON + schema)
    head = [Message(role="system", content="\n\n".join(rules))] if rules else []
    return [*head, *request.messages]


def _offered(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the LLM may call: of a named choice only that one."""
    if request.tool_choice == "none":
        return ()
    named = tuple(tool for tool in request.tools if tool.name == request.tool_choice)
    return named or request.tools


def _call(selection: Any) -> ToolCall:
    arguments = json.dumps(selection.tool_kwargs, ensure_ascii=False, default=str)
    return ToolCall(id=str(selection.tool_id), name=selection.tool_name, arguments=arguments)


def _foreign(message: Message) -> Any:
    """Write a message as LlamaIndex's ChatMessage."""
    from llama_index.core.base.llms import types

    has_blocks = "blocks" in getattr(types.ChatMessage, "model_fields", ())  # since 0.12
    blocks: list[Any] = []
    for part in (message.content,) if isinstance(message.content, str) else all_parts(message):
        if isinstance(part, str | TextPart):
            text = part if isinstance(part, str) else part.text
            blocks += [types.TextBlock(text=text) if has_blocks else text] if text else []
        elif isinstance(part, ImagePart) and has_blocks:
            blocks.append(types.ImageBlock(url=_image_url(part)))
        elif isinstance(part, ImagePart):
            msg = "LLMs of llama-index-core before 0.12 are given no images."
            raise ModelRequestError(msg, remedy="Install llama-index-core 0.12 or newer.")
        else:
            what = "files" if isinstance(part, FilePart) else f"parts of type {part.get('type')!r}"
            msg = f"LLMs of LlamaIndex take no {what}."
            raise ModelRequestError(msg, remedy="Give texts and images, or use another model.")
    extra: dict[str, Any] = {}
    if message.calls:
        block = getattr(types, "ToolCallBlock", None)
        if block is not None:
            blocks += [
                block(tool_call_id=call.id, tool_name=call.bare_name, tool_kwargs=_decoded(call))
                for call in message.calls
            ]
        else:
            extra["tool_calls"] = [_openai_call(call) for call in message.calls]
    if message.role == "tool":
        extra["tool_call_id"] = message.call_id
    given: dict[str, Any] = {"blocks": blocks} if has_blocks else {"content": "\n".join(blocks)}
    role = types.MessageRole(message.role)
    return types.ChatMessage(role=role, additional_kwargs=extra, **given)


def _required(tool_choice: str) -> dict[str, Any]:
    """Say whether a tool must be called, in the form of this version of LlamaIndex."""
    from llama_index.core.llms.function_calling import FunctionCallingLLM

    if "tool_required" in inspect.signature(FunctionCallingLLM.achat_with_tools).parameters:
        return {"tool_required": tool_choice != "auto"}
    return {} if tool_choice == "auto" else {"tool_choice": "required"}


def _image_url(part: ImagePart) -> str:
    """Return the address of an image.

    Raises:
        ModelRequestError: It is named by its id at the provider.
    """
    if part.file_id:
        msg = f"LLMs of LlamaIndex take no image by its id at the provider, as {part.file_id!r} is."
        raise ModelRequestError(msg, remedy="Give the image by URL or by its bytes.")
    return part.url


def _decoded(call: ToolCall) -> Json:
    try:
        decoded: Json = json.loads(call.arguments)
    except ValueError:
        return call.arguments
    return decoded


def _openai_call(call: ToolCall) -> dict[str, Json]:
    function = {"name": call.bare_name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _foreign_tool(tool: ToolSpec) -> Any:
    """Make a tool that LlamaIndex can offer; it is never called there."""
    from llama_index.core.tools import FunctionTool, ToolMetadata

    class Offered(ToolMetadata):
        """Has the JSON Schema that our tool has."""

        def get_parameters_dict(self) -> dict[str, Any]:
            return dict(tool.parameters)

    def offered(**arguments: Any) -> str:
        return str(arguments)

    return FunctionTool(fn=offered, metadata=Offered(name=tool.name, description=tool.description))


def _usage(response: Any) -> Usage:
    """Read what a call cost, where the provider's raw answer says so in OpenAI's words."""
    from holdfast.models.openai.model import read_usage

    found = _get(_get(response, "raw"), "usage")
    taken = _get(found, "prompt_tokens") or _get(found, "input_tokens")
    given = _get(found, "completion_tokens") or _get(found, "output_tokens")
    return read_usage({"input_tokens": taken, "output_tokens": given}, "input", "output")


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  anything may be there
