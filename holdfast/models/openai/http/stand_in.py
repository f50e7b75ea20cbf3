"""Clients that are called like `AsyncOpenAI` and are none: proxies that trace, fakes of tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import openai
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.models.base import foreign_error
from holdfast.models.openai.http.failures import cleaned, model_error, too_slow
from holdfast.values.base import Json
from holdfast.values.settings import ModelSettings
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

_RESOURCES = {"/responses": ("responses",), "/chat/completions": ("chat", "completions")}


class StandIn:
    """Calls `responses.create` or `chat.completions.create` of an object.

    Such a client walks through the whole conversation at each call, as `AsyncOpenAI` does there. It
    keeps retries of its own: another client made of it would not be what was given.
    """

    def __init__(self, client: Any, model: str) -> None:
        """Take a client.

        Args:
            client: The client.
            model: Model name, for error texts.

        Raises:
            InvalidArgumentError: It has neither method, or blocks.
        """
        if isinstance(client, openai.OpenAI):
            raise InvalidArgumentError(
                f"client={shown(client)} of model {shown(model)} would block all other tasks of the"
                " process while it waits. Pass an openai.AsyncOpenAI."
            )
        if not any(_create(client, path) for path in _RESOURCES):
            raise InvalidArgumentError(
                f"client={shown(client)} cannot call model {shown(model)}: it is not an"
                " openai.AsyncOpenAI, and has neither responses.create nor chat.completions.create."
                " Pass base_url and api_key in its place, or nothing."
            )
        self._client = client
        self._model = model
        most: object = getattr(client, "max_retries", 0)
        if isinstance(most, int) and most > 0:
            log.warning(
                "The client of model %r makes up to %d more calls of each failed call, beyond those"
                " of the task: make it with max_retries=0",
                model,
                most,
            )

    @property
    def secret(self) -> str:
        """Its key now, to be kept out of texts; empty if it shows none."""
        key = getattr(self._client, "api_key", "")
        return key if isinstance(key, str) else ""

    async def ask(self, path: str, data: dict[str, Json], settings: ModelSettings) -> Json:
        """Make one attempt; return the answer's body.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """

        async def read(answer: Any) -> Json:
            return _data(answer)

        return await self._called(path, data, settings, read)

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
        read: Callable[[Any], Awaitable[Json]],
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
                return await read(await made if inspect.isawaitable(made) else made)
        except TimeoutError:
            raise too_slow(self._model) from None
        except openai.OpenAIError as error:
            raise model_error(error, model=self._model, secret=self.secret) from None
        except HoldfastError:
            raise
        except Exception as error:  # noqa: BLE001  raised again
            said = cleaned(f"{type(error).__name__}: {error}", self.secret)
            msg = f"The client of model {self._model!r} raised {said}"
            raise foreign_error(error, msg) from None


def _create(client: Any, path: str) -> Callable[..., Any] | None:
    found = client
    for name in (*_RESOURCES[path], "create"):
        found = getattr(found, name, None)
    return cast("Callable[..., Any]", found) if callable(found) else None


def _data(value: Any) -> Any:
    """Return an object of an answer as JSON data: a model of the API, or one of a fake.

    Raises:
        Exception: It is not data, or code of its own fails.
    """
    return to_jsonable_python(value, by_alias=False, fallback=_members)


def _members(value: Any) -> Json:
    """Return what an object of a fake, or a proxy of an object, has in public."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", warnings=False)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Json]", value))
    if isinstance(value, Sequence):
        return list(cast("Any", value))
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump()
    public = (name for name in dir(value) if not name.startswith("_"))
    members = {name: getattr(value, name) for name in public}
    return {name: each for name, each in members.items() if not callable(each)}
