"""How the two OpenAI models reach their server: one client per event loop, made on first use."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from weakref import WeakKeyDictionary

import openai
from openai import AsyncOpenAI

from holdfast.errors import ModelRequestError
from holdfast.models.failures import (
    cut_off,
    malformed,
    model_error,
    refuse_missing_key,
    status_error,
    too_slow,
)
from holdfast.models.shapes import is_object
from holdfast.models.sse import EventReader
from holdfast.settings import ModelSettings
from holdfast.values import Json

_CONNECT_SECONDS = 15.0
_Place = tuple[int, str | None, str]


class Connection:
    """The clients of one model.

    A client belongs to the event loop and process that made it, so each gets its own. The
    environment is read at each call: a key that was set later is found.

    Attributes:
        model: Model name, for error texts.
    """

    def __init__(
        self, model: str, client: AsyncOpenAI | None, base_url: str | None, api_key: str | None
    ) -> None:
        """Keep what the model was made with; nothing is opened yet."""
        self.model = model
        self._given = None if client is None else client.with_options(max_retries=0)
        self._base_url = base_url
        self._api_key = api_key
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Place, AsyncOpenAI]] = (
            WeakKeyDictionary()
        )

    @property
    def secret(self) -> str:
        """The key in use, to be kept out of texts."""
        if self._given is not None:
            return self._given.api_key
        return (self._api_key or os.environ.get("OPENAI_API_KEY") or "").strip()

    def client(self) -> AsyncOpenAI:
        """Return the client for the running loop, without retries of its own.

        Raises:
            ModelRequestError: There is no API key, or one that cannot be sent.
        """
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        place = (os.getpid(), self._base_url or os.environ.get("OPENAI_BASE_URL"), self.secret)
        made = self._made.setdefault(loop, {})
        if place not in made:
            made[place] = self._make(place)
        return made[place]

    def _make(self, place: _Place) -> AsyncOpenAI:
        _, base_url, key = place
        if not key:
            refuse_missing_key(self.model)
        if not (key.isascii() and key.isprintable()):
            raise ModelRequestError(
                f"Model {self.model!r} cannot be called: the API key holds characters that no key"
                " has, such as a line break. Copy it again, then run the step again."
            )
        try:
            return AsyncOpenAI(api_key=key, base_url=base_url or None, max_retries=0)
        except openai.OpenAIError as error:
            raise model_error(error, model=self.model, secret=key) from None

    async def close(self) -> None:
        """Close the clients made for the running loop; one that was given stays open."""
        for client in self._made.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

    async def ask(
        self, create: Callable[..., Awaitable[Any]], body: dict[str, Json], settings: ModelSettings
    ) -> tuple[dict[str, Json], str | None]:
        """Make one attempt; return the answer's body and the provider's request id.

        Args:
            create: The client's method, in its form that gives the raw response: only so is a body
                that is not JSON told from an answer.
            body: The request.
            settings: Transport settings, and fields that go as they are.

        Raises:
            ModelUnavailableError: Time can heal it.
            ModelRequestError: A person must heal it.
        """
        seconds = settings.seconds_per_attempt
        try:
            # The client's own timeout is per read: a server that trickles would never meet it.
            async with asyncio.timeout(seconds):
                raw = await create(
                    **body,
                    extra_body=_extra(body, settings),
                    extra_headers=settings.extra_headers,
                    extra_query=settings.extra_query,
                    timeout=openai.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
                )
        except TimeoutError:
            raise too_slow(self.model) from None
        except openai.OpenAIError as error:
            # Not `from error`: a cause is stored with the task, and its text may hold the key.
            raise model_error(error, model=self.model, secret=self.secret) from None
        request_id = raw.headers.get("x-request-id")
        return self._read(raw.text, request_id), request_id

    async def follow(
        self,
        create: Callable[..., AbstractAsyncContextManager[Any]],
        body: dict[str, Json],
        settings: ModelSettings,
        take: Callable[[dict[str, Json]], None],
    ) -> tuple[dict[str, Json] | None, str | None]:
        """Make one attempt and hand on each event of the answer as it comes.

        Args:
            create: The client's method, in its form that gives the response while it comes.
            body: The request; `stream` is added.
            settings: As for `ask`.
            take: Takes an event.

        Returns:
            The answer's body if the server did not stream it, and the provider's request id.

        Raises:
            ModelUnavailableError: Time can heal it; the answer was cut off, for example.
            ModelRequestError: A person must heal it.
        """
        seconds = settings.seconds_per_attempt
        try:
            async with (
                asyncio.timeout(seconds),
                create(
                    **body,
                    stream=True,
                    extra_body=_extra(body, settings),
                    extra_headers=settings.extra_headers,
                    extra_query=settings.extra_query,
                    timeout=openai.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
                ) as raw,
            ):
                request_id: str | None = raw.headers.get("x-request-id")
                if "event-stream" not in raw.headers.get("content-type", ""):
                    whole = b"".join([chunk async for chunk in self._chunks(raw)])
                    return self._read(whole.decode("utf-8", "replace"), request_id), request_id
                reader = EventReader()
                async for chunk in self._chunks(raw):
                    for data in reader.feed(chunk):
                        event = self._read(data, request_id)
                        self._refuse_error(event)
                        take(event)
                return None, request_id
        except TimeoutError:
            raise too_slow(self.model) from None
        except openai.OpenAIError as error:
            raise model_error(error, model=self.model, secret=self.secret) from None

    async def _chunks(self, raw: Any) -> AsyncIterator[bytes]:
        try:
            async for chunk in raw.iter_bytes():
                yield chunk
        except Exception as error:  # noqa: BLE001  raised anew
            # The client maps only what happens before the first byte, and its HTTP library is its
            # own affair: whatever it raises here, the rest of the answer does not come.
            raise cut_off(self.model, type(error).__name__) from None

    def _refuse_error(self, event: dict[str, Json]) -> None:
        """Raise what an event tells of that is no part of an answer.

        Raises:
            ModelUnavailableError: Always, if there is such an error.
        """
        error: Json = event.get("error")
        if is_object(error) and error.get("message"):
            raise cut_off(self.model, str(error["message"]), secret=self.secret)

    def _read(self, body: str, request_id: str | None) -> dict[str, Json]:
        try:
            data: object = json.loads(body)
        except ValueError:
            raise malformed(self.model, "the body is not JSON", request_id=request_id) from None
        if not is_object(data):
            raise malformed(self.model, "the body is no JSON object", request_id=request_id)
        error = data.get("error")
        if is_object(error) and isinstance(error.get("code"), int):
            raise status_error(error["code"], error, model=self.model, secret=self.secret)
        return data


def _extra(body: dict[str, Json], settings: ModelSettings) -> dict[str, Json]:
    """Return the fields that the user adds to a body.

    Raises:
        ModelRequestError: Arguments would take the place of what other settings say.
    """
    added, body = settings.extra_args or {}, {**body}
    taken = sorted(name for name in added if name in body)
    if taken:
        raise ModelRequestError(
            f"ModelSettings.extra_args has {', '.join(map(repr, taken))}, which the request holds"
            " already. Set it by its own field, or change what is sent by extra_body."
        )
    body |= added
    return {**added, **_joined(body, settings.extra_body or {})}


def _joined(body: dict[str, Json], extra: dict[str, Json]) -> dict[str, Json]:
    """Join extra fields with what stands in their places: the client would put them there alone.

    An object of another `type` is another choice, and is not joined.
    """
    return {key: _over(body.get(key), extra[key]) for key in extra}


def _over(under: Json, extra: Json) -> Json:
    if not (is_object(under) and is_object(extra)):
        return extra
    if "type" in extra and extra["type"] != under.get("type"):
        return extra
    return {**under, **_joined(under, extra)}
