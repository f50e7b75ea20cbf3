"""Clients that are called like `AsyncOpenAI` and are none: proxies that trace, fakes of tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import openai

from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    ModelRequestError,
    ModelUnavailableError,
)
from holdfast.models.base import is_passing
from holdfast.models.openai.http.failures import cleaned, model_error, too_slow
from holdfast.values.base import Json
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown

_RESOURCES = {"/responses": ("responses",), "/chat/completions": ("chat", "completions")}
_PLAIN = str | int | float | bool | None


class StandIn:
    """Calls `responses.create` or `chat.completions.create` of an object.

    Such a client walks through the whole conversation at each call, as `AsyncOpenAI` does there.

    Attributes:
        secret: Its key, to be kept out of texts; empty if it shows none.
    """

    def __init__(self, client: Any, model: str) -> None:
        """Take a client.

        Args:
            client: The client.
            model: Model name, for error texts.

        Raises:
            InvalidArgumentError: It has neither method.
        """
        if not any(_create(client, path) for path in _RESOURCES):
            msg = (
                f"client={shown(client)} cannot call model {shown(model)}: it is no"
                " openai.AsyncOpenAI, and has neither responses.create nor chat.completions.create."
                " Pass base_url and api_key in its place, or nothing."
            )
            raise InvalidArgumentError(msg)
        key = getattr(client, "api_key", "")
        self.secret: str = key if isinstance(key, str) else ""
        self._client = client
        self._model = model

    async def ask(self, path: str, data: dict[str, Json], settings: ModelSettings) -> Json:
        """Make one attempt; return the answer's body.

        Raises:
            ModelUnavailableError: Time can heal it.
            ModelRequestError: A person must heal it.
        """
        return _data(await self._called(path, data, settings))

    async def follow(
        self,
        path: str,
        data: dict[str, Json],
        settings: ModelSettings,
        take: Callable[[dict[str, Json]], None],
    ) -> None:
        """Make one attempt and hand on each event of the answer; errors as for `ask`."""

        async def read(coming: Any) -> None:
            async for event in coming:
                take(_data(event))

        await self._called(path, {**data, "stream": True}, settings, read)

    async def _called(
        self,
        path: str,
        data: dict[str, Json],
        settings: ModelSettings,
        read: Callable[[Any], Awaitable[None]] | None = None,
    ) -> Any:
        create = _create(self._client, path)
        if create is None:
            msg = f"client={shown(self._client)} has no {'.'.join(_RESOURCES[path])}.create."
            raise InvalidArgumentError(msg)
        more = {
            "extra_headers": settings.extra_headers,
            "extra_query": settings.extra_query,
            "extra_body": settings.extra_body,
        }
        given = {name: value for name, value in more.items() if value is not None}
        try:
            async with asyncio.timeout(settings.seconds_per_attempt):
                made = create(**data, **given)
                answer = await made if inspect.isawaitable(made) else made
                if read is not None:
                    await read(answer)
        except TimeoutError:
            raise too_slow(self._model) from None
        except openai.OpenAIError as error:
            raise model_error(error, model=self._model, secret=self.secret) from None
        except HoldfastError:
            raise
        except Exception as error:  # noqa: BLE001  raised anew
            said = cleaned(f"{type(error).__name__}: {error}", self.secret)
            msg = f"The client of model {self._model!r} raised {said}"
            kind = ModelUnavailableError if is_passing(error) else ModelRequestError
            raise kind(msg) from None
        return answer


def _create(client: Any, path: str) -> Callable[..., Any] | None:
    found = client
    for name in (*_RESOURCES[path], "create"):
        found = getattr(found, name, None)
    return cast("Callable[..., Any]", found) if callable(found) else None


def _data(value: Any) -> Any:
    """Return an object of an answer as JSON data: a model of the API, or one of a fake."""
    if isinstance(value, _PLAIN):
        return value
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json", warnings=False)
    if isinstance(value, Mapping):
        return {str(name): _data(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]  anything may be there
    if isinstance(value, Sequence):
        return [_data(each) for each in value]  # pyright: ignore[reportUnknownVariableType]  likewise
    public = (name for name in dir(value) if not name.startswith("_"))
    members = {name: getattr(value, name) for name in public}
    return {name: _data(each) for name, each in members.items() if not callable(each)}
