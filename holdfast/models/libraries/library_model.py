"""What the models behind LiteLLM and any-llm share: both speak in the words of Chat Completions."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, cast

from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.models.base import ModelAnswer, ModelRequest, Tell
from holdfast.models.libraries.failures import library_error
from holdfast.models.openai.chat import chat_body, read_answer
from holdfast.models.openai.chat_stream import CompletionStream
from holdfast.models.openai.http.failures import malformed, too_slow
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_array, as_object
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown


class LibraryModel(ABC):
    """A model that is called through a library which knows many providers.

    Each call is one attempt: the library's own retries are switched off, and Temporal repeats what
    may pass with time.
    """

    library: ClassVar[str]
    """Name of the library: the prefix of the names of its models."""

    def __init__(self, model: str, base_url: str | None = None, api_key: str | None = None) -> None:
        """Remember how to reach the model; the library is imported at the first call.

        Args:
            model: Provider and name, as `anthropic/claude-sonnet-4-5`.
            base_url: Address of the provider's API; None takes the provider's own, or that of the
                environment variable which the library reads.
            api_key: Key; None takes that of the provider's environment variable.

        Raises:
            InvalidArgumentError: The name is empty.
        """
        if not isinstance(cast("object", model), str) or not model.strip("/ "):
            known = f"{self.library}/{model}" if isinstance(cast("object", model), str) else model
            msg = (
                f"Model name {shown(known)} lacks the name: write"
                f" {self.library}/PROVIDER/NAME, as {self.library}/anthropic/claude-sonnet-4-5."
            )
            raise InvalidArgumentError(msg)
        self.model = model
        self._base_url = base_url
        self._api_key = api_key

    @property
    def name(self) -> str:
        """Model name, with the library before it: by it the model can be made again."""
        return f"{self.library}/{self.model}"

    @property
    def provider(self) -> str:
        """The provider, as traces name it."""
        return self.model.partition("/")[0]

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request, in one attempt.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        body = (await chat_body(self.name, request)).data()
        try:
            async with asyncio.timeout(request.settings.seconds_per_attempt):
                answer = self._data(await self._complete(body, request.settings))
        except Exception as error:  # noqa: BLE001  mapped and raised again
            raise self._failure(error) from None
        return self._read(answer)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request as `respond` does, and pass on the pieces meanwhile.

        Raises:
            ModelUnavailableError: It may pass with time, as an answer that was cut off.
            ModelRequestError: A person must fix the cause.
        """
        tells_usage = request.settings.include_usage is not False
        streamed: dict[str, Json] = {
            "stream": True,
            "stream_options": {"include_usage": tells_usage},
        }
        body = (await chat_body(self.name, request)).joined(streamed).data()
        coming = CompletionStream(tell)
        try:
            async with asyncio.timeout(request.settings.seconds_per_attempt):
                pieces: AsyncIterator[Any] = await self._complete(body, request.settings)
                try:
                    async for piece in pieces:
                        coming.take(self._data(piece))
                finally:
                    close = getattr(pieces, "aclose", None)
                    if close is not None:
                        await close()
        except Exception as error:  # noqa: BLE001  mapped and raised again
            raise self._failure(error) from None
        if coming.body is None:
            raise coming.missing(self.name)
        return self._read(coming.body)

    def _data(self, given: Any) -> dict[str, Json]:
        """Return a completion, or a chunk of one, as data."""
        made: dict[str, Json] = given.model_dump(mode="json", exclude_none=True, warnings=False)
        for choice in map(as_object, as_array(made.get("choices"))):
            for said in ("message", "delta"):
                if said in choice:
                    choice[said] = self._said(as_object(choice[said]))
        return made

    def _read(self, body: dict[str, Json]) -> ModelAnswer:
        """Read an answer; where a body was no answer, the library may make an empty one of it."""
        answer = read_answer(body, model=self.name)
        is_empty = not answer.text and not answer.message.calls
        if is_empty and answer.finish == "stop" and not answer.usage.total_tokens:
            raise malformed(self.name, "it is empty")
        return answer

    def _said(self, given: dict[str, Json]) -> dict[str, Json]:
        """Return what a message or a delta says, in the words that `read_answer` knows."""
        return given

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, HoldfastError):
            return error
        if isinstance(error, TimeoutError):
            return too_slow(self.name)
        # Its cause is not kept: a cause is stored with the task, and its text may hold the key.
        return library_error(error, model=self.name, key=self._api_key)

    @abstractmethod
    async def _complete(self, body: dict[str, Json], settings: ModelSettings) -> Any:
        """Make one attempt: return the completion, or the chunks of one if `stream` is set."""
