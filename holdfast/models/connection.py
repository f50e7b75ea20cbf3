"""How the two OpenAI models reach their server: one client per event loop, made on first use."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import openai
from openai import AsyncOpenAI

from holdfast.errors import ModelRequestError
from holdfast.models.failures import (
    malformed,
    model_error,
    refuse_missing_key,
    status_error,
    too_slow,
)
from holdfast.models.shapes import is_object
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
        seconds = settings.timeout_seconds
        try:
            # The client's own timeout is per read: a server that trickles would never meet it.
            async with asyncio.timeout(seconds):
                raw = await create(
                    **body,
                    extra_body=settings.extra_body,
                    extra_headers=settings.extra_headers,
                    timeout=openai.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
                )
        except TimeoutError:
            raise too_slow(self.model) from None
        except openai.OpenAIError as error:
            # Not `from error`: a cause is stored with the task, and its text may hold the key.
            raise model_error(error, model=self.model, secret=self.secret) from None
        request_id = raw.headers.get("x-request-id")
        return self._read(raw.text, request_id), request_id

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
