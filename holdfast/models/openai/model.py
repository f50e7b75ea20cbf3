"""What the models behind OpenAI's two APIs share: the connection, and the way of one attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from openai import AsyncOpenAI

from holdfast.errors import ModelError
from holdfast.models.base import ModelAnswer, ModelRequest, Tell
from holdfast.models.openai.bodies import RequestBody
from holdfast.models.openai.connection import Connection
from holdfast.values.base import Json


class Incoming(Protocol):
    """A streamed answer, put together event by event."""

    @property
    def body(self) -> dict[str, Json] | None:
        """The body that the API would have sent in one piece; None before the answer's end."""

    def take(self, event: dict[str, Json], /) -> None:
        """Take the next event."""

    def missing(self, model: str) -> ModelError:
        """Make the error for a stream without its last event."""
        ...


class OpenAIModel(ABC):
    """A model called through one of OpenAI's APIs.

    The client is made on first use, one per event loop, without retries of its own: Temporal
    repeats what time can heal.
    """

    provider = "openai"
    """As traces name it."""

    path: ClassVar[str]
    """Path of the API's requests."""

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
            client: A client to use as it is, apart from its retries; it must belong to the loop
                that calls the model. Without client, base_url and api_key, that of
                `set_default_openai_client` is used, if there is one.
            base_url: Address of the API; None takes OPENAI_BASE_URL, else OpenAI's.
            api_key: Key; None takes that of `set_default_openai_key`, else OPENAI_API_KEY, at each
                call.
            organization: Organization that the calls belong to; None takes OPENAI_ORG_ID.
            project: Project that the calls belong to; None takes OPENAI_PROJECT_ID.
        """
        self._name = name
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
            ModelUnavailableError: Time can heal it.
            ModelRequestError: A person must heal it.
        """
        body = await self._body(request)
        answer, request_id = await self._connection.ask(self.path, body, request.settings)
        return self._read(answer, request_id)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request as `respond` does, and pass on the pieces meanwhile.

        Raises:
            ModelUnavailableError: Time can heal it; also an answer that was cut off.
            ModelRequestError: A person must heal it.
        """
        coming = self._incoming(tell)
        body = (await self._body(request)).joined(self._stream_options(request))
        whole, request_id = await self._connection.follow(
            self.path, body, request.settings, coming.take
        )
        found = whole or coming.body
        if found is None:
            raise coming.missing(self._name)
        return self._read(found, request_id)

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
