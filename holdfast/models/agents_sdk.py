"""Models with the methods of the Agents SDK: `get_response` and `stream_response`."""

from __future__ import annotations

import enum
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from holdfast.models.base import Model as OneMethodModel
from holdfast.models.base import (
    ModelAnswer,
    ModelRequest,
    OutputSpec,
    Tell,
    ToolSpec,
    foreign_errors,
)
from holdfast.models.openai.hosted_items import without_lost_searches
from holdfast.models.openai.item_contents import without_status
from holdfast.models.openai.items import shown_items
from holdfast.values.base import Json
from holdfast.values.messages import qualified_name
from holdfast.values.settings import MCPToolChoice, ModelSettings


class ModelTracing(enum.Enum):
    """Whether a model makes spans of its calls. Holdfast makes them, so models get DISABLED."""

    DISABLED = 0
    ENABLED = 1
    ENABLED_WITHOUT_DATA = 2

    def is_disabled(self) -> bool:
        """Whether no spans are made."""
        return self is ModelTracing.DISABLED

    def include_data(self) -> bool:
        """Whether spans hold inputs and outputs."""
        return self is ModelTracing.ENABLED


class Model(ABC):
    """Base class for models of one's own, with the signatures of the Agents SDK.

    A call makes one attempt: Temporal repeats it when what it raised may pass (a lost
    connection, status 408, 409, 425, 429 or 5xx). Other errors leave the task waiting.
    """

    @abstractmethod
    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],
        model_settings: Any,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any,
    ) -> Any:
        """Answer one request with a ModelResponse.

        Args:
            system_instructions: The agent's instructions.
            input: The conversation, as items of the Responses API.
            model_settings: ModelSettings.
            tools: What may be called, handoffs included: objects with `name`, `description`,
                `params_json_schema` and `strict_json_schema`; tools that the provider runs have
                `name` and `tool_config`.
            output_schema: Structure of the answer; None for a text.
            handoffs: Always empty: they are among the tools.
            tracing: Always DISABLED.
            previous_response_id: The response that this call goes on from.
            conversation_id: The provider's conversation.
            prompt: A prompt that is kept at the provider.
        """

    @abstractmethod
    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Answer one request with events of the Responses API, the last one `response.completed`.

        One that raises NotImplementedError is not streamed: `get_response` is asked then.
        Arguments are those of `get_response`.
        """

    async def close(self) -> None:  # noqa: B027  a model may have nothing to release
        """Release what the model holds; Holdfast never calls it."""


class ModelProvider(ABC):
    """Base class for what makes models of names, for `RunConfig(model_provider=...)`."""

    @abstractmethod
    def get_model(self, model_name: str | None) -> Any:
        """Return the model of a name; of None, the provider's default."""

    async def aclose(self) -> None:  # noqa: B027  as for a model
        """Release what the provider holds; Holdfast never calls it."""


class AskedModel(Protocol):
    """What of the Agents SDK's models is needed to take an object as a model."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        """Answer one request."""
        ...


def is_asked(given: object) -> bool:
    """Whether an object is a model with the Agents SDK's methods and without ours."""
    # The attribute first: a test against a protocol reads every attribute of the protocol.
    return callable(getattr(given, "get_response", None)) and not isinstance(
        given, type | str | OneMethodModel
    )


@dataclass(frozen=True)
class OfferedTool:
    """A tool or handoff, as a model of the Agents SDK reads it.

    Attributes:
        name: Its name, without that of its namespace.
        description: What it does.
        params_json_schema: JSON Schema of the arguments object.
        strict_json_schema: Whether the provider may enforce it.
        defer_loading: Whether the model sees it only once a tool search has loaded it.
        namespace: Namespace that it belongs to; empty for none.
        namespace_description: What tools of that namespace are for.
    """

    name: str
    description: str
    params_json_schema: dict[str, Json]
    strict_json_schema: bool
    defer_loading: bool = False
    namespace: str = ""
    namespace_description: str = ""

    @property
    def qualified_name(self) -> str:
        """Its name, after that of its namespace if it has one."""
        return qualified_name(self.name, self.namespace)


@dataclass(frozen=True)
class OfferedHostedTool:
    """A tool that the provider runs, as a model of the Agents SDK reads it.

    Attributes:
        name: Its kind, as "web_search".
        tool_config: Its definition, as the Responses API has it.
    """

    name: str
    tool_config: dict[str, Json]


@dataclass(frozen=True)
class AskedOutput:
    """Structure of an answer, with the methods of the Agents SDK's output schemas."""

    spec: OutputSpec

    def is_plain_text(self) -> bool:
        """Return False: a text has no structure."""
        return False

    def name(self) -> str:
        """Name of the structure."""
        return self.spec.name

    def json_schema(self) -> dict[str, Json]:
        """JSON Schema of the answer."""
        return self.spec.json_schema

    def is_strict_json_schema(self) -> bool:
        """Whether the provider may enforce it."""
        return self.spec.strict

    def validate_json(self, json_str: str) -> Any:
        """Decode an answer; Holdfast validates it when it is recorded."""
        return json.loads(json_str)


class AskingModel:
    """Asks a model of the Agents SDK.

    Attributes:
        model: That model.
    """

    provider = "custom"
    """As traces name it."""

    has_unique_ids = True
    """The Agents SDK takes the ids of calls so, of any model."""

    serves_hosted = True
    """It gets hosted tools and prompts, and knows itself what it can do with them."""

    def __init__(self, model: Any) -> None:
        """Take a model that `is_asked` says yes to."""
        self.model = model

    @property
    def name(self) -> str:
        """Its `model` or `name`, if that is a text, else its class's name."""
        named = (getattr(self.model, each, None) for each in ("model", "name"))
        return next((each for each in named if isinstance(each, str) and each), self._kind)

    @property
    def _kind(self) -> str:
        return type(self.model).__name__

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        with foreign_errors(repr(self.name)):
            found = await self.model.get_response(**_arguments(request))
        return self._read(found.output, found.usage, found.response_id)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request, and pass on the pieces meanwhile.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        from holdfast.models.openai.responses import ResponseStream, read_answer

        if not callable(getattr(self.model, "stream_response", None)):
            return await self.respond(request)
        coming = ResponseStream(tell)
        with foreign_errors(repr(self.name)):
            try:
                events = self.model.stream_response(**_arguments(request))
                if inspect.isawaitable(events):
                    events = await events
                async for event in events:
                    coming.take(_data(event))
            except NotImplementedError:
                return await self.respond(request)
        if coming.body is None:
            raise coming.missing(self.name)
        return read_answer(coming.body, model=self.name)

    def _read(self, output: Any, usage: Any, response_id: str | None) -> ModelAnswer:
        from holdfast.models.openai.responses import read_answer

        body: dict[str, Json] = {
            "id": response_id,
            "status": "completed",
            "output": [_data(item) for item in output],
            "usage": _usage(usage),
        }
        return read_answer(body, model=self.name)


def _arguments(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of `get_response` for a request."""
    word = None if request.tool_choice == "auto" else request.tool_choice
    choice = None if word is None else MCPToolChoice.of(word) or word
    given = shown_items(request.messages)
    return {
        "system_instructions": request.instructions or None,
        "input": [without_status(item) for item in without_lost_searches(given)],
        "model_settings": _settings(request.settings, choice),
        "tools": [_offered(tool) for tool in request.tools],
        "output_schema": None if request.output is None else AskedOutput(request.output),
        "handoffs": [],
        "tracing": ModelTracing.DISABLED,
        "previous_response_id": request.previous_response_id or None,
        "conversation_id": request.conversation_id or None,
        "prompt": request.prompt and {"version": None, "variables": None, **request.prompt},
    }


def _settings(settings: ModelSettings, choice: object) -> ModelSettings:
    """Return settings as the Agents SDK's models read them: `reasoning` has attributes."""
    reasoning: object = settings.reasoning_options
    if settings.reasoning_options is not None:
        from openai.types.shared import Reasoning

        reasoning = Reasoning.construct(**settings.reasoning_options)
    changes = {"tool_choice": choice, "reasoning": reasoning, "reasoning_effort": None}
    return settings.model_copy(update=changes)


def _offered(tool: ToolSpec) -> OfferedTool | OfferedHostedTool:
    if tool.hosted is not None:
        return OfferedHostedTool(tool.name, dict(tool.hosted))
    return OfferedTool(
        tool.bare_name,
        tool.description,
        dict(tool.parameters),
        tool.strict,
        defer_loading=tool.deferred,
        namespace=tool.namespace,
        namespace_description=tool.namespace_description,
    )


def _data(given: Any) -> dict[str, Json]:
    """Return an item or event as data."""
    if hasattr(given, "model_dump"):
        made: dict[str, Json] = given.model_dump(mode="json", exclude_unset=True, warnings=False)
        return made
    return dict(cast("Mapping[str, Json]", given))


def _usage(usage: Any) -> Json:
    """Return what an answer has cost, in the words of the Responses API."""
    if usage is None:
        return None
    details = {
        f"{side}_tokens_details": {name: getattr(of, name, 0) or 0 for name in names}
        for side, names in (
            ("input", ("cached_tokens", "cache_write_tokens")),
            ("output", ("reasoning_tokens",)),
        )
        if (of := getattr(usage, f"{side}_tokens_details", None)) is not None
    }
    counts = ("input_tokens", "output_tokens")
    return {name: getattr(usage, name, 0) or 0 for name in counts} | details
