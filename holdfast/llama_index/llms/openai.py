"""Models by LlamaIndex's names, for programs without its packages.

One model may change what another one reads or answers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.blocking import blocking, on_shared_loop
from holdfast.llama_index.llms.messages import CORE, chat_message, to_message
from holdfast.models.base import (
    Model,
    ModelAnswer,
    ModelRequest,
    OutputSpec,
    Tell,
    ToolSpec,
    streamed,
)
from holdfast.models.choices import choice_of
from holdfast.models.libraries.llama_index import as_model
from holdfast.models.resolve import resolve_model
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall
from holdfast.values.settings import ModelSettings
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


def request_of(
    model: str, messages: Sequence[Any], options: Mapping[str, Any] | None = None
) -> ModelRequest:
    """Make a request of anybody's chat messages.

    Args:
        model: Name of the model.
        messages: The messages.
        options: `tools`, `tool_choice`, settings, and fields of the request's body.
    """
    left = dict(options or {})
    tools = left.pop("tools", None) or ()
    choice = choice_of(left.pop("tool_choice", None))
    return ModelRequest(
        model=model,
        messages=tuple(to_message(each) for each in messages),
        tools=tuple(_spec(each) for each in tools),
        tool_choice=choice or "auto",
        settings=settings_of(left),
    )


def settings_of(options: Mapping[str, Any]) -> ModelSettings:
    """Return settings; other options are fields of the request's body."""
    known = {name: each for name, each in options.items() if name in ModelSettings.model_fields}
    body = {name: each for name, each in options.items() if name not in known}
    if body:
        known["extra_args"] = {**body, **(known.get("extra_args") or {})}
    return ModelSettings(**known)


def _spec(tool: Any) -> ToolSpec:
    """Read a tool: in the form of OpenAI's API, or one with metadata.

    Raises:
        InvalidArgumentError: It is neither.
    """
    metadata: Any = getattr(tool, "metadata", None)
    given: Any = tool if metadata is None else metadata.to_openai_tool()
    read: Any = given.get("function", given) if hasattr(given, "get") else {}
    if not hasattr(read, "get") or "name" not in read:
        msg = f"{shown(tool)} is not a tool. Pass FunctionTools, or what to_openai_tool() gives."
        raise InvalidArgumentError(msg)
    return ToolSpec(
        name=str(read["name"]),
        description=str(read.get("description") or ""),
        parameters=dict(read.get("parameters") or {}),
    )


class _Response(BaseModel):
    """What a model gave.

    Attributes:
        delta: The text, as the one piece of a stream.
        raw: The provider's answer, of an LLM of the program's own.
        additional_kwargs: What else such an LLM says.
        logprobs: Log probabilities, of such an LLM.
    """

    delta: str | None = None
    raw: Any = None
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    logprobs: Any = None


class CompletionResponse(_Response):
    """What a model wrote after a prompt.

    Attributes:
        text: The text.
    """

    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class ChatResponse(_Response):
    """What a model said in a conversation.

    Attributes:
        message: The message.
    """

    message: Any

    def __str__(self) -> str:
        """Say who says what."""
        return str(self.message)


class _Settings:
    """What holds for all agents that are not given anything else.

    Attributes:
        llm: The model.
        callback_manager: Kept, and handed to no one.
    """

    def __init__(self) -> None:
        self.llm: Any = None
        self.callback_manager: Any = None


Settings = _Settings()
"""What holds for all agents that are not given anything else; LlamaIndex's own is read as well."""


def default_llm(given: Any) -> Any:
    """Return the model to use: the one given, or that of Settings, or None for Holdfast's."""
    if given is not None:
        return given
    if Settings.llm is not None:
        return Settings.llm
    core = sys.modules.get(CORE)
    return None if core is None else getattr(core.Settings, "_llm", None)


def default_callbacks() -> Any:
    """Return a callback manager of LlamaIndex's, if the program uses that; else None.

    Step logic written for LlamaIndex finds one always, as by `trace_method`.
    """
    core = sys.modules.get(CORE)
    if core is None:
        return None
    from llama_index.core.callbacks import CallbackManager

    return CallbackManager([])


class LLMMetadata(BaseModel):
    """What a model says of itself.

    Attributes:
        model_name: Its name.
        is_chat_model: Whether it is made for conversations.
        is_function_calling_model: Whether it calls functions.
        context_window: Tokens that it reads at most.
        num_output: Tokens that it writes at most; -1 when nothing is known.
    """

    model_name: str
    is_chat_model: bool = True
    is_function_calling_model: bool = True
    context_window: int = 128_000
    num_output: int = -1


class AnotherModel:
    """A model that asks another one."""

    _made: Model | None

    @property
    def _model(self) -> Model:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> Model:
        """Return the other one, where it is made only when it is asked."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request of an agent."""
        return self._read(await self._model.respond(self._asked(request)))

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request of an agent, in pieces if the model can."""
        return self._read(await streamed(self._model, self._asked(request), tell))

    def _asked(self, request: ModelRequest) -> ModelRequest:
        return request

    def _read(self, answer: ModelAnswer) -> ModelAnswer:
        return answer


class ChatModel:
    """What LlamaIndex's programs call a model by: `chat`, `complete`, `predict` and so on.

    It is a model of Holdfast too: agents take it.
    """

    callback_manager: Any = None

    @property
    def name(self) -> str:
        """Name of the model."""
        raise NotImplementedError

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.name

    @property
    def metadata(self) -> LLMMetadata:
        """What the model says of itself."""
        return LLMMetadata(model_name=self.name)

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request of an agent."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what serves where a program of LlamaIndex's own wants more of a model."""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}. Programs, engines and"
                " workflows of LlamaIndex need an LLM of LlamaIndex: keep its import (from"
                " llama_index.llms.openai import OpenAI). Agents of holdfast.llama_index take it."
            )

    @on_shared_loop
    async def achat(self, messages: Sequence[Any], **options: Any) -> ChatResponse:
        """Go on with a conversation.

        Args:
            messages: The conversation.
            options: `tools` and `tool_choice`, settings such as `temperature`, and fields of the
                request's body.
        """
        answer = await self.respond(request_of(self.name, messages, options))
        return ChatResponse(message=chat_message(answer.message), delta=answer.text)

    chat = blocking(achat)
    """Do what `achat` does, and block."""

    async def acomplete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponse:
        """Answer a prompt; the options are those of `achat`."""
        del formatted
        response = await self.achat([prompt], **options)
        return CompletionResponse(text=response.delta or "", delta=response.delta)

    complete = blocking(acomplete)
    """Do what `acomplete` does, and block."""

    def stream_chat(self, messages: Sequence[Any], **options: Any) -> Iterator[ChatResponse]:
        """Go on with a conversation; the answer comes in one piece."""
        yield self.chat(messages, **options)

    def stream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> Iterator[CompletionResponse]:
        """Answer a prompt; the answer comes in one piece."""
        yield self.complete(prompt, formatted, **options)

    async def apredict(self, prompt: Any, **values: Any) -> str:
        """Fill in a prompt and answer it."""
        return (await self.achat(prompt.format_messages(**values))).delta or ""

    predict = blocking(apredict)
    """Do what `apredict` does, and block."""

    @on_shared_loop
    async def astructured_predict(self, output_cls: Any, prompt: Any, **values: Any) -> Any:
        """Fill in a prompt and answer it with an object of a pydantic class."""
        request = request_of(self.name, prompt.format_messages(**values))
        schema: dict[str, Json] = output_cls.model_json_schema()
        output = OutputSpec(name=output_cls.__name__, json_schema=schema, strict=False)
        answer = await self.respond(request.model_copy(update={"output": output}))
        return output_cls.model_validate_json(answer.text)

    structured_predict = blocking(astructured_predict)
    """Do what `astructured_predict` does, and block."""


class OpenAI(AnotherModel, ChatModel):
    """A model of OpenAI, or behind any server that speaks its Chat Completions API.

    For programs without llama-index-llms-openai.

    The model "offline" is Holdfast's built-in one.
    """

    def __init__(
        self,
        model: str = "gpt-5-mini",
        temperature: float | None = None,
        max_tokens: int | None = None,
        *,
        api_key: str | None = None,
        api_base: str | None = None,
        base_url: str | None = None,
        additional_kwargs: Mapping[str, Any] | None = None,
        default_headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        callback_manager: Any = None,
        **_: Any,
    ) -> None:
        """Remember how to reach the model; nothing is opened yet.

        Args:
            model: Name of the model.
            temperature: Sampling temperature; the provider's own by default.
            max_tokens: Most output tokens of one call.
            api_key: Key; `OPENAI_API_KEY` by default.
            api_base: Address; `OPENAI_BASE_URL` by default, else OpenAI's.
            base_url: The same.
            additional_kwargs: More settings, and fields of the body of each request.
            default_headers: More headers of each request.
            timeout: Longest time of one attempt, in seconds.
            callback_manager: Kept as it is.
        """
        self._name = model
        self.callback_manager = callback_manager
        own = {"temperature": temperature, "max_tokens": max_tokens, "timeout": timeout}
        self._settings = settings_of(
            {**own, "extra_headers": default_headers, **(additional_kwargs or {})}
        )
        self._address = (api_base or base_url, api_key)
        self._made = None

    def _make(self) -> Model:
        base_url, api_key = self._address
        api = os.environ.get("HOLDFAST_MODEL_API") or "chat"
        if self._name == "offline" or not (base_url or api_key):
            prefix = "" if self._name == "offline" or ":" in self._name else f"{api}:"
            return resolve_model(f"{prefix}{self._name}")
        from holdfast.models.openai.chat import ChatCompletionsModel

        return ChatCompletionsModel(self._name, base_url=base_url, api_key=api_key)

    def _asked(self, request: ModelRequest) -> ModelRequest:
        settings = self._settings.resolve(request.settings)
        return request.model_copy(update={"settings": settings})


class HoldfastLLM(AnotherModel, ChatModel):
    """Any model of Holdfast, for a program that calls its model by LlamaIndex's names."""

    def __init__(self, model: str | Model | None = None) -> None:
        """Take a model or its name."""
        self._made = resolve_model(model)


def llm_of(given: Any) -> Any:
    """Return a model that has `chat`: a model of Holdfast gets it, another has it."""
    return given if callable(getattr(given, "chat", None)) else HoldfastLLM(given)


CallParser = Callable[[Any], Mapping[str, Any]]
"""Returns the arguments of a call of OpenAI's API, or raises one of UNREADABLE."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)
"""What a parser raises for a text that it does not expect, or in which it finds nothing."""


class PrefixedModel(AnotherModel):
    """A model that reads some messages before each conversation, as examples for it.

    Attributes:
        prefix: The messages.
    """

    def __init__(self, model: Any, prefix: Sequence[Message]) -> None:
        """Take a model, its name or None, and the messages."""
        self._made = resolve_model(as_model(model))
        self.prefix = tuple(prefix)

    def _asked(self, request: ModelRequest) -> ModelRequest:
        return request.model_copy(update={"messages": (*self.prefix, *request.messages)})


class CallParsingModel(AnotherModel):
    """A model whose calls are read by a function, for arguments that are no JSON."""

    def __init__(self, model: Any, parser: CallParser) -> None:
        """Take a model, its name or None, and the function."""
        self._made = resolve_model(as_model(model))
        self._parser = parser

    def _read(self, answer: ModelAnswer) -> ModelAnswer:
        calls = tuple(self._call(each) for each in answer.message.calls)
        message = answer.message.model_copy(update={"calls": calls})
        return answer.model_copy(update={"message": message})

    def _call(self, call: ToolCall) -> ToolCall:
        """Write the arguments as JSON; unreadable ones stay, and the model gets an error.

        Nothing else knows them: the items of a message leave the arguments of calls out.
        """
        function = SimpleNamespace(name=call.name, arguments=call.arguments)
        try:
            read = self._parser(SimpleNamespace(id=call.id, type="function", function=function))
            arguments = json.dumps(dict(read), ensure_ascii=False)
        except UNREADABLE as error:
            log.warning("tool_call_parser could not read a call of %s: %r", call.name, error)
            return call
        return call.model_copy(update={"arguments": arguments})
