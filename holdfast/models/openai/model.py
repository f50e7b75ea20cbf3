"""What the models behind OpenAI's two APIs share: the connection, and the way of one attempt."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol, Self, get_args

from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseCompletedEvent, ResponseStreamEvent

from holdfast.errors import ModelError
from holdfast.models.base import ModelAnswer, ModelRequest, Tell
from holdfast.models.openai.http.bodies import RequestBody
from holdfast.models.openai.http.connection import Connection, extra_fields
from holdfast.models.openai.items import from_response_items, made_items
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import LONGEST_KNOWN, check_name
from holdfast.values.messages import Usage as AnswerUsage
from holdfast.values.messages import user
from holdfast.values.runs.usage import Usage
from holdfast.values.settings import ModelSettings


class Incoming(Protocol):
    """A streamed answer, put together event by event."""

    @property
    def body(self) -> dict[str, Json] | None:
        """The body that the API would have sent in one piece; None before the answer's end."""

    def take(self, event: dict[str, Json], /) -> None:
        """Take the next event."""

    def end(self) -> None:
        """Take it that nothing follows: the server has said "[DONE]"."""

    def missing(self, model: str) -> ModelError:
        """Make the error for a stream without its last event."""
        ...


@dataclass(frozen=True)
class DirectAnswer:
    """The answer to a request that code of the user's has made without a run.

    Attributes:
        output: Its items, as objects of `openai.types.responses`.
        usage: Its cost.
        response_id: The provider's id of the answer, or None.
    """

    output: list[Any]
    usage: Usage
    response_id: str | None


class OpenAIModel(ABC):
    """A model called through one of OpenAI's APIs.

    The client is made on first use, one per event loop, without retries of its own: Temporal
    repeats what may pass with time.
    """

    provider = "openai"
    """As traces name it."""

    path: ClassVar[str]
    """Path of the API's requests."""

    tells_responses: ClassVar[bool] = False
    """Whether its streams have the events of the Responses API."""

    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        organization: str | None = None,
        project: str | None = None,
    ) -> None:
        """Remember how to reach the model; nothing is opened yet.

        Args:
            name: Model name, as the provider knows it.
            client: A client to use as it is, apart from the retries of an AsyncOpenAI; it must
                belong to the loop that calls the model. A proxy of one keeps its retries: make that
                with max_retries=0. Without client, base_url and api_key, that of
                `set_default_openai_client` is used, if there is one.
            base_url: Address of the API; None takes OPENAI_BASE_URL, else OpenAI's.
            api_key: Key; None takes that of `set_default_openai_key`, else OPENAI_API_KEY, at each
                call.
            organization: Organization that the calls belong to; None takes OPENAI_ORG_ID.
            project: Project that the calls belong to; None takes OPENAI_PROJECT_ID.

        Raises:
            InvalidArgumentError: The name is not text, or says nothing.
        """
        self._name = check_name("name", name, LONGEST_KNOWN)
        place = {"organization": organization, "project": project}
        options = {key: value for key, value in place.items() if value is not None}
        self._connection = Connection(name, client, base_url, api_key, options)

    @property
    def name(self) -> str:
        """Model name."""
        return self._name

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request, in one attempt.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        body = await self._body(request)
        answer, request_id = await self._connection.ask(self.path, body, request.settings)
        return self._read(answer, request_id)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request as `respond` does, and pass on the pieces meanwhile.

        Raises:
            ModelUnavailableError: It may pass with time, as an answer that was cut off.
            ModelRequestError: A person must fix the cause.
        """
        coming = self._incoming(tell)
        body = (await self._body(request)).joined(self._stream_options(request))
        whole, request_id = await self._connection.follow(
            self.path, body, request.settings, coming.take, coming.end
        )
        found = whole or coming.body
        if found is None:
            raise coming.missing(self._name)
        return self._read(found, request_id)

    async def get_response(  # noqa: PLR0917  the Agents SDK's signature
        self,
        system_instructions: str | None,
        input: str | list[Any],
        model_settings: ModelSettings,
        tools: Sequence[Any],
        output_schema: Any,
        handoffs: Sequence[Any],
        tracing: Any = None,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: dict[str, Json] | None = None,
    ) -> DirectAnswer:
        """Answer one request by the signature of the Agents SDK: outside of runs, nothing durable.

        Args:
            system_instructions: System prompt.
            input: The conversation: a text, or items of the Responses API.
            model_settings: How the model is called.
            tools: Tools that it may call; nothing runs them.
            output_schema: AgentOutputSchema of the answer, or None for text.
            handoffs: Handoffs that it may call.
            tracing: Not used: OpenTelemetry sees the call.
            previous_response_id: The response that this call goes on from.
            conversation_id: The provider's conversation.
            prompt: A prompt that the provider keeps.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        request = self._asked(
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            tracing,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )
        answer = await self.respond(request)
        items = made_items(answer.message)
        return DirectAnswer(
            output=Response.construct(output=items).output,
            usage=Usage.of(answer.usage),
            response_id=answer.response_id or None,
        )

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        """Answer as `get_response` does, with the provider's events as they come.

        Events of types that the `openai` package does not know are left out.

        Raises:
            NotImplementedError: The API has other events: Chat Completions.
            ModelUnavailableError: It may pass with time, as an answer that was cut off.
            ModelRequestError: A person must fix the cause.
        """
        if not self.tells_responses:
            msg = "Only models of the Responses API stream its events; call get_response here."
            raise NotImplementedError(msg)
        request = self._asked(*given, **more)
        body = (await self._body(request)).joined(self._stream_options(request))
        coming: asyncio.Queue[dict[str, Json] | None] = asyncio.Queue()
        asking = asyncio.create_task(
            self._connection.follow(
                self.path, body, request.settings, coming.put_nowait, lambda: None
            )
        )
        asking.add_done_callback(lambda _: coming.put_nowait(None))
        try:
            while (event := await coming.get()) is not None:
                kind = _event_kinds().get(str(event.get("type")))
                if kind is not None:
                    yield kind.construct(**event)
            whole, _ = await asking
            if whole is not None:  # the server does not stream
                response = Response.construct(**whole)
                yield ResponseCompletedEvent(
                    type="response.completed", response=response, sequence_number=0
                )
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def _asked(  # noqa: PLR0917  the Agents SDK's signature
        self,
        system_instructions: str | None,
        input: str | list[Any],
        model_settings: ModelSettings,
        tools: Sequence[Any],
        output_schema: Any,
        handoffs: Sequence[Any],
        tracing: Any = None,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: dict[str, Json] | None = None,
    ) -> ModelRequest:
        """Make the request of the arguments of `get_response`."""
        del tracing
        said = (user(input),) if isinstance(input, str) else from_response_items(input)
        schema = None if output_schema is None or output_schema.is_plain_text() else output_schema
        return ModelRequest(
            model=self._name,
            instructions=system_instructions or "",
            messages=said,
            tools=tuple(tool.spec() for tool in (*tools, *handoffs)),
            tool_choice=model_settings.choice or "auto",
            settings=model_settings,
            output=None if schema is None else schema.spec(),
            previous_response_id=previous_response_id or "",
            conversation_id=conversation_id or "",
            prompt=prompt,
        )

    def reached_by(self, change: Callable[[Connection], Connection]) -> Self:
        """Return this model with another connection, made of its own."""
        made = copy(self)
        vars(made)["_connection"] = change(self._connection)
        return made

    @property
    def secret(self) -> str:
        """The key in use, to be kept out of texts."""
        return self._connection.secret

    def client(self) -> AsyncOpenAI:
        """Return the client for the running loop, for what else the API can do.

        Raises:
            ModelRequestError: There is no API key, or one that cannot be sent.
        """
        return self._connection.client()

    async def written(self, request: ModelRequest) -> bytes:
        """Write the body of a request that is answered later."""
        body = await self._body(request)
        return body.joined(extra_fields(body, request.settings)).encoded()

    def read(self, body: object, request_id: str | None) -> ModelAnswer:
        """Read the body of an answer to such a request.

        Raises:
            ModelUnavailableError: It cannot be used.
            ModelRequestError: It tells of a failure that time does not mend.
        """
        return self._read(self._connection.checked(body, request_id), request_id)

    async def close(self) -> None:
        """Close the connections made for the running event loop; the next call opens new ones."""
        await self._connection.close()

    @abstractmethod
    async def _body(self, request: ModelRequest) -> RequestBody:
        """Write the body of a request."""

    @abstractmethod
    def _incoming(self, tell: Tell) -> Incoming:
        """Begin to read a streamed answer."""

    @abstractmethod
    def _read(self, body: dict[str, Json], request_id: str | None) -> ModelAnswer:
        """Read the body of an answer."""

    def _stream_options(self, request: ModelRequest) -> dict[str, Json]:  # noqa: ARG002  for others
        """Return what a streamed request says besides."""
        return {}


@cache
def _event_kinds() -> dict[str, Any]:
    """Return the classes of the events of the Responses API by their types."""
    kinds = get_args(get_args(ResponseStreamEvent)[0])
    return {get_args(each.model_fields["type"].annotation)[0]: each for each in kinds}


def read_usage(given: Json, asked: str, answered: str) -> AnswerUsage:
    """Read what an answer has used, field by field; a value that is not a count is 0.

    The answer is paid for: what only counts never makes it useless.

    Args:
        given: What the server says, of any shape.
        asked: How the API calls the tokens of a request.
        answered: How it calls those of an answer.
    """
    usage = as_object(given)
    read = as_object(usage.get(f"{asked}_tokens_details"))
    made = as_object(usage.get(f"{answered}_tokens_details"))
    return AnswerUsage(
        requests=1,
        input_tokens=_count(usage.get(f"{asked}_tokens")),
        output_tokens=_count(usage.get(f"{answered}_tokens")),
        cached_tokens=_count(read.get("cached_tokens")),
        cache_write_tokens=_count(read.get("cache_write_tokens")),
        reasoning_tokens=_count(made.get("reasoning_tokens")),
    )


def _count(given: Json) -> int:
    return int(given) if isinstance(given, int | float) and 0 <= given < 1 << 53 else 0


class MadeAsInSDK(OpenAIModel):
    """A model with the constructor of the Agents SDK."""

    def __init__(self, model: str, openai_client: AsyncOpenAI | None = None) -> None:
        """Remember how to reach the model; nothing is opened yet.

        Args:
            model: Model name, as the provider knows it.
            openai_client: A client to use as it is, apart from the retries of an AsyncOpenAI.
        """
        super().__init__(model, client=openai_client)
        self.model = model
        self._client = openai_client  # programs read the address of their client there
