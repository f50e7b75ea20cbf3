"""What the models behind LiteLLM and any-llm share: both speak in the words of Chat Completions.

Such a library raises errors of its own, or those of each provider's client. All of them are read by
what they carry: a status, the headers of the response, the name of their class. They become one of
the two kinds that a task knows: wait, or ask a person.
"""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from copy import copy
from http import HTTPStatus
from typing import Any, ClassVar, Self, cast

from holdfast.errors import HoldfastError, InvalidArgumentError, ModelError, ModelRequestError
from holdfast.models.base import ModelAnswer, ModelRequest, Tell, origins, status_in
from holdfast.models.openai.chat import chat_body, read_answer
from holdfast.models.openai.chat_stream import CompletionStream
from holdfast.models.openai.http.failures import (
    SHORTEST_KEY,
    codes_of,
    cut_off,
    lost,
    malformed,
    status_error,
    too_slow,
)
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown

_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHORTEST_SECRET = 8
_LATE = frozenset({"Timeout", "APITimeoutError", "TimeoutException", "TimeoutError"})
_LOST = frozenset({"APIConnectionError", "TransportError", "ClientConnectionError", "RemoteError"})
_CUT = frozenset({"ClientPayloadError"})
"""Of aiohttp: it counts as a status 400, which the provider has not sent."""

_IN_STREAM = frozenset({"APIError"})
"""Of the providers' clients: what a stream told of, under a status of success or none."""

_ADVICE = {401: "Check the key of the model's provider: its environment variable, or api_key=."}


def library_error(error: Exception, *, model: str, key: str | None = None) -> ModelError:
    """Return ours for an error of a library or of a provider's client.

    Args:
        error: What was raised.
        model: Model name, for the text.
        key: The key in use, if it was given; it is cut out of the text, as are those of the
            environment.
    """
    text = _without_secrets(_message_of(error), key)
    chain = origins(error)
    named = [({base.__name__ for base in type(each).__mro__}, each) for each in chain]
    if any(names & _CUT for names, _ in named):
        return cut_off(model, text)
    found = None
    for names, each in named:
        found = status_in(each)
        if found is not None and not names & _LOST:
            break
        if names & _LATE or isinstance(each, TimeoutError):
            return too_slow(model)
        if names & _LOST or isinstance(each, ConnectionError):
            return lost(model, text)
    body: dict[str, Json] = {
        "message": text,
        "code": _word(chain, "code"),
        "type": _word(chain, "type"),
    }
    if (found is None or found == HTTPStatus.UNPROCESSABLE_ENTITY) and _is_misread(error):
        return malformed(model, text.rstrip("."))
    if found is None and any(names & _IN_STREAM for names, _ in named):
        return cut_off(model, text, codes=codes_of(body))
    if found is None:
        return ModelRequestError(
            f"The call of model {model!r} could not be made: {type(error).__name__}:"
            f" {text.rstrip('.')}.",
            remedy="Fix the cause, then run the step again.",
        )
    headers = next((held for each in chain if (held := _headers_of(each))), None)
    return status_error(found, body, model=model, headers=headers, advice=_ADVICE)


def _is_misread(error: BaseException) -> bool:
    """Whether the library met a body that is not an answer of the provider's API."""
    wrapped = (error, getattr(error, "original_exception", None), error.__cause__)
    return any(isinstance(each, AttributeError | LookupError) for each in wrapped) or any(
        isinstance(each, json.JSONDecodeError) for each in origins(error)
    )


def _headers_of(error: BaseException) -> dict[str, str]:
    """Return the headers of the provider's response, with names in lower case."""
    response: Any = getattr(error, "response", None)
    for found in (
        getattr(error, "litellm_response_headers", None),
        getattr(response, "headers", None),
    ):
        if isinstance(found, Mapping) and found:
            given = cast("Mapping[str, Any]", found)
            return {name.lower(): str(value) for name, value in given.items()}
    return {}


def _message_of(error: Exception) -> str:
    said: object = getattr(error, "message", None)
    return said if isinstance(said, str) and said else str(error) or type(error).__name__


def _word(chain: Iterable[BaseException], name: str) -> str | None:
    words: Iterator[object] = (getattr(each, name, None) for each in chain)
    return next((word for word in words if isinstance(word, str) and word), None)


def _without_secrets(text: str, key: str | None) -> str:
    """Cut out the key, and every value that the environment keeps under the name of a secret."""
    named = (value for name, value in os.environ.items() if name.upper().endswith(_SECRET))
    for secret in sorted({key or "", *named}, key=len, reverse=True):
        if len(secret) >= (SHORTEST_KEY if secret == key else _SHORTEST_SECRET):
            text = text.replace(secret, "[key]")
    return text


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
            raise InvalidArgumentError(
                f"Model name {shown(known)} lacks the name: write"
                f" {self.library}/PROVIDER/NAME, as {self.library}/anthropic/claude-sonnet-4-5."
            )
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

    @property
    def secret(self) -> str:
        """The key that was given, to be kept out of texts; empty where the library finds one."""
        return self._api_key or ""

    def with_key(self, key: str) -> Self:
        """Return this model with a key."""
        made = copy(self)
        vars(made)["_api_key"] = key
        return made

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request, in one attempt.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        body = (await chat_body(self.name, request)).data()
        try:
            async with asyncio.timeout(request.settings.seconds_per_attempt):
                answer = self.data(await self._complete(body, request.settings))
        except Exception as error:  # noqa: BLE001  mapped and raised again
            raise self.failure(error) from None
        return self.read(answer)

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
                        coming.take(self.data(piece))
                finally:
                    close = getattr(pieces, "aclose", None)
                    if close is not None:
                        await close()
        except Exception as error:  # noqa: BLE001  mapped and raised again
            raise self.failure(error) from None
        if coming.body is None:
            raise coming.missing(self.name)
        return self.read(coming.body)

    def data(self, given: Any) -> dict[str, Json]:
        """Return a completion, or a chunk of one, as data."""
        made: dict[str, Json] = given.model_dump(mode="json", exclude_none=True, warnings=False)
        for choice in map(as_object, as_array(made.get("choices"))):
            for said in ("message", "delta"):
                if said in choice:
                    choice[said] = self._said(as_object(choice[said]))
        return made

    def read(self, body: dict[str, Json]) -> ModelAnswer:
        """Read an answer; where a body was no answer, the library may make an empty one of it."""
        answer = read_answer(body, model=self.name)
        is_empty = not answer.text and not answer.message.calls
        if is_empty and answer.finish == "stop" and not answer.usage.total_tokens:
            raise malformed(self.name, "it is empty")
        return answer

    def _said(self, given: dict[str, Json]) -> dict[str, Json]:
        """Return what a message or a delta says, in the words that `read_answer` knows."""
        return given

    def failure(self, error: Exception) -> Exception:
        """Return ours for an error of the library."""
        if isinstance(error, HoldfastError):
            return error
        # Its cause is not kept: a cause is stored with the task, and its text may hold the key.
        return library_error(error, model=self.name, key=self._api_key)

    @abstractmethod
    async def _complete(self, body: dict[str, Json], settings: ModelSettings) -> Any:
        """Make one attempt: return the completion, or the chunks of one if `stream` is set."""
