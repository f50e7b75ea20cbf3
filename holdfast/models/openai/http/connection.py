"""How the two OpenAI models reach their server: one client per event loop, made on first use."""

from __future__ import annotations

import asyncio
import json
import os
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import openai
from openai import AsyncOpenAI, AsyncStream

from holdfast.errors import ModelError, ModelRequestError
from holdfast.models.defaults import default_client, default_key
from holdfast.models.openai.http.bodies import HEAVY_BYTES, RequestBody
from holdfast.models.openai.http.failures import (
    ErrorStatus,
    cleaned,
    codes_of,
    cut_off,
    lost,
    malformed,
    model_error,
    refuse_missing_key,
    status_error,
    too_slow,
    unopened,
)
from holdfast.models.openai.http.stand_in import StandIn
from holdfast.models.providers import misdirected
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_object
from holdfast.values.settings import ModelSettings
from holdfast.values.text.logs import log

DONE = "[DONE]"


class EventReader:
    """Puts pieces of a body together into events.

    Lines end as `bytes.splitlines` knows: a JSON text may hold every other separator that
    `str.splitlines` knows.

    Attributes:
        has_begun: Whether data has come. Without it, the body is not a stream, whatever its type.
        is_done: Whether the last word "[DONE]" has come; what follows it is not read.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.has_begun = self.is_done = False
        self._rest: list[bytes] = []  # pieces of a line that is not complete
        self._may_feed = False  # whether a line feed would belong to the end of the last line
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the data of the events that are complete now, without the last word "[DONE]"."""
        left = chunk.removeprefix(b"\n") if self._may_feed else chunk
        self._may_feed = chunk.endswith(b"\r")
        for piece in left.splitlines(keepends=True):
            self._rest.append(piece.rstrip(b"\r\n"))
            if self.is_done or len(self._rest[-1]) == len(piece):  # the line goes on
                return
            line = b"".join(self._rest).removeprefix(BOM_UTF8)
            self._rest.clear()
            if line.startswith(b"data:"):
                self.has_begun = True
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data = b"\n".join(self._data).decode("utf-8", "replace")
                self._data.clear()
                if data == DONE:
                    self.is_done = True
                elif data:
                    yield data


LARGEST_BODY_BYTES = 32 * 1024 * 1024
"""Most bytes of an answer that are read, streamed or not."""

_LARGEST_ERROR_BYTES = 64 * 1024
_CONNECT_SECONDS = 15.0
_UTF8 = ("utf-8-sig", "replace")
_REFUSALS = {
    "authentication_error": 401,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "permission_error": 403,
}
"""Statuses of what a server tells of with a status of success, and time does not mend."""

_ANSWER = frozenset({"choices", "output", "type"})
"""Each answer, and each event of one, has at least one of these members."""

_WORDS = ("detail", "message", "msg", "errors")
"""Members by which servers say what is wrong, with a status of success and without an `error`."""

_POOL_REQUESTS = 32
"""Requests at once by one client. Its HTTP library looks at all connections for each request."""

_Place = tuple[int, str | None, str]


@dataclass
class _Pool:
    """A client, and how many requests it makes now."""

    client: AsyncOpenAI
    requests: int = 0

    @contextmanager
    def used(self) -> Generator[AsyncOpenAI]:
        """Make a request with the client until the block ends."""
        self.requests += 1
        try:
            yield self.client
        finally:
            self.requests -= 1


class Connection:
    """The clients of one model.

    A client belongs to the event loop and process that made it, so each gets its own. The
    environment is read at each call: a key that was set later is found.

    Attributes:
        model: Model name, for error texts.
    """

    def __init__(
        self,
        model: str,
        client: Any,
        base_url: str | None,
        api_key: str | None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Keep what the model was made with; nothing is opened yet.

        Raises:
            InvalidArgumentError: The client is of another type.
        """
        self.model = model
        is_own = isinstance(client, AsyncOpenAI | None)
        self._stand_in = None if is_own else StandIn(client, model)
        self._own = client.with_options(max_retries=0) if isinstance(client, AsyncOpenAI) else None
        self._shared: tuple[AsyncOpenAI, AsyncOpenAI] | None = None
        self._options = dict(options or {})
        self._base_url = base_url
        self._api_key = api_key
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Place, list[_Pool]]] = (
            WeakKeyDictionary()
        )

    @property
    def _given(self) -> AsyncOpenAI | None:
        """The client to use as it is: the model's, else the process's default."""
        shared = None if self._base_url or self._api_key else default_client()
        if self._own is not None or shared is None:
            return self._own
        if self._shared is None or self._shared[0] is not shared:
            self._shared = shared, shared.with_options(max_retries=0)
        return self._shared[1]

    @property
    def secret(self) -> str:
        """The key in use, to be kept out of texts."""
        if self._stand_in is not None:
            return self._stand_in.secret
        if (given := self._given) is not None:
            return given.api_key
        key = self._api_key or default_key() or os.environ.get("OPENAI_API_KEY")
        return (key or "").strip()

    def client(self) -> AsyncOpenAI:
        """Return the client for the running loop, without retries of its own.

        Raises:
            ModelRequestError: There is no API key, or one that cannot be sent.
        """
        return self._pool().client

    def _pool(self) -> _Pool:
        if (given := self._given) is not None:
            return _Pool(given)
        place = (os.getpid(), self._base_url or os.environ.get("OPENAI_BASE_URL"), self.secret)
        pools = self._made.setdefault(asyncio.get_running_loop(), {}).setdefault(place, [])
        # The first that has room, so that few requests at once use the connections of few.
        pool = next((each for each in pools if each.requests < _POOL_REQUESTS), None)
        if pool is None:
            pools.append(pool := _Pool(self._make(place)))
        return pool

    def _make(self, place: _Place) -> AsyncOpenAI:
        _, base_url, key = place
        if wrong := misdirected(self.model, base_url):
            raise ModelRequestError(wrong, remedy="Then run the step again.")
        if not key:
            refuse_missing_key(self.model)
        if not (key.isascii() and key.isprintable()):
            raise ModelRequestError(
                f"Model {self.model!r} cannot be called: the API key holds characters that no key"
                " has, such as a line break.",
                remedy="Copy it again, then run the step again.",
            )
        try:
            sender = openai.DefaultAsyncHttpxClient(event_hooks={"response": [_read_error]})
            return AsyncOpenAI(
                api_key=key,
                base_url=base_url or None,
                max_retries=0,
                http_client=sender,
                organization=self._options.get("organization"),
                project=self._options.get("project"),
            )
        except openai.OpenAIError as error:
            raise model_error(error, model=self.model, secret=key) from None

    async def close(self) -> None:
        """Close the clients made for the running loop; one that was given stays open."""
        for pools in self._made.pop(asyncio.get_running_loop(), {}).values():
            for pool in pools:
                await pool.client.close()

    async def ask(
        self, path: str, body: RequestBody, settings: ModelSettings
    ) -> tuple[dict[str, Json], str | None]:
        """Make one attempt; return the answer's body and the provider's request id.

        Args:
            path: Path of the API's requests.
            body: The request.
            settings: Transport settings, and fields that go as they are.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        if self._stand_in is not None:
            sent = _with_arguments(body, settings)
            return self.checked(await self._stand_in.ask(path, sent, settings), None), None
        async with self._response(path, body, settings) as raw:
            request_id: str | None = raw.headers.get("x-request-id")
            return await self._whole(raw, request_id), request_id

    async def follow(
        self,
        path: str,
        body: RequestBody,
        settings: ModelSettings,
        take: Callable[[dict[str, Json]], None],
        end: Callable[[], None],
    ) -> tuple[dict[str, Json] | None, str | None]:
        """Make one attempt and hand on each event of the answer as it comes.

        Args:
            path: As for `ask`.
            body: The request; `stream` is added.
            settings: As for `ask`.
            take: Takes an event.
            end: Called once the server has said that the answer is whole.

        Returns:
            The answer's body if the server did not stream it, and the provider's request id.

        Raises:
            ModelUnavailableError: It may pass with time, such as an answer that was cut off.
            ModelRequestError: A person must fix the cause.
        """
        if self._stand_in is not None:
            await self._stand_in.follow(path, _with_arguments(body, settings), settings, take)
            return None, None
        async with self._response(path, body.joined({"stream": True}), settings) as raw:
            request_id: str | None = raw.headers.get("x-request-id")
            reader, before = EventReader(), list[bytes]()
            async for chunk in self._chunks(raw, request_id, cut_off):
                for data in reader.feed(chunk):
                    take(self._read(data, request_id))
                if not reader.has_begun:
                    before.append(chunk)
            whole = b"" if reader.has_begun else b"".join(before).strip()
            if whole and not whole.startswith(b":"):
                return await self._decoded(whole, request_id), request_id
            if reader.is_done:
                end()
            return None, request_id

    @asynccontextmanager
    async def _response(
        self, path: str, body: RequestBody, settings: ModelSettings
    ) -> AsyncGenerator[Any]:
        """Send a request and give its response, whose body comes while it is read.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        seconds = settings.seconds_per_attempt
        whole = body.joined(extra_fields(body, settings))
        options: dict[str, Any] = {
            "headers": settings.extra_headers,
            "params": settings.extra_query,
            "timeout": openai.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
        }
        given = {name: value for name, value in options.items() if value is not None}
        try:
            # The client's own timeout is per read: a server that trickles would never meet it.
            async with asyncio.timeout(seconds), self._opened(path, whole, given) as raw:
                yield raw
        except TimeoutError:
            raise too_slow(self.model) from None
        except openai.OpenAIError as error:
            # Not `from error`: a cause is stored with the task, and its text may hold the key.
            raise model_error(error, model=self.model, secret=self.secret) from None

    @asynccontextmanager
    async def _opened(
        self, path: str, body: RequestBody, options: dict[str, Any]
    ) -> AsyncGenerator[Any]:
        """Send a request by the client's low-level call and give the bare response.

        As a stream, so that its body comes while it is read: only so can a body that is not JSON be
        detected, and an endless one be broken off.
        """
        with self._pool().used() as client:
            # Clients of other classes, such as Azure's, choose the address by the data of the body.
            is_plain = type(client) is AsyncOpenAI
            sent: dict[str, Any] = (
                {"content": body.encoded()} if is_plain else {"body": body.data()}
            )
            try:
                stream = await client.post(
                    path,
                    cast_to=object,
                    options=cast("Any", options),
                    stream=True,
                    stream_cls=AsyncStream[object],
                    **sent,
                )
            except (openai.OpenAIError, TimeoutError):
                raise
            except Exception as error:  # noqa: BLE001  raised again
                raise unopened(error, model=self.model, secret=self.secret) from None
            try:
                yield stream.response
            finally:
                await stream.close()

    async def _whole(self, raw: Any, request_id: str | None) -> dict[str, Json]:
        return await self._decoded(
            b"".join([chunk async for chunk in self._chunks(raw, request_id, lost)]), request_id
        )

    async def _decoded(self, whole: bytes, request_id: str | None) -> dict[str, Json]:
        if len(whole) > HEAVY_BYTES:
            return await asyncio.to_thread(self._read, whole.decode(*_UTF8), request_id)
        return self._read(whole.decode(*_UTF8), request_id)

    async def _chunks(
        self, raw: Any, request_id: str | None, broken: Callable[[str, str], ModelError]
    ) -> AsyncIterator[bytes]:
        left = LARGEST_BODY_BYTES
        try:
            async for chunk in raw.aiter_bytes():
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
        except Exception as error:  # noqa: BLE001  raised again
            # The client maps only what happens before the first byte, and its HTTP library is its
            # own affair: whatever it raises here, the rest of the answer does not come.
            if type(error).__name__ == "DecodingError":
                reason = "its content-encoding is another"
                raise malformed(self.model, reason, request_id=request_id) from None
            raise broken(self.model, type(error).__name__) from None
        if left < 0:
            reason = f"it has more than {LARGEST_BODY_BYTES} bytes and was not read to its end"
            raise malformed(self.model, reason, request_id=request_id)

    def _read(self, body: str, request_id: str | None) -> dict[str, Json]:
        try:
            data: object = json.loads(body)
        except RecursionError:
            raise malformed(self.model, "it is nested too deep", request_id=request_id) from None
        except ValueError:
            is_part = body.lstrip().startswith("{")  # of an answer, which no error quotes
            said = "" if is_part else f": {body.strip()}"
            reason = cleaned(f"the body is not JSON{said}", self.secret)
            raise malformed(self.model, reason, request_id=request_id) from None
        return self.checked(data, request_id)

    def checked(self, data: object, request_id: str | None) -> dict[str, Json]:
        """Return a body that came with a status of success, if it is an answer.

        Raises:
            ModelUnavailableError: It tells of a failure, or is not JSON of an answer.
            ModelRequestError: It tells of one that time does not mend.
        """
        if not is_object(data):
            raise malformed(self.model, "the body is not a JSON object", request_id=request_id)
        given = data if data.get("object") == "error" else data.get("error")
        error = given if is_object(given) else {"message": given}
        if not data.keys() & {*_ANSWER, "error"} and any(data.get(name) for name in _WORDS):
            reason = f"it has no answer, but says {json.dumps(data, ensure_ascii=False)}"
            raise malformed(self.model, cleaned(reason, self.secret), request_id=request_id)
        code = error.get("code") or error.get("type")
        status = code if isinstance(code, int) else _REFUSALS.get(str(code))
        if "output" in data and not isinstance(code, int):  # the API's own answer, which failed
            return data
        if status is not None:
            raise status_error(status, error, model=self.model, secret=self.secret)
        if error.get("message"):
            said, codes = str(error["message"]), codes_of(error)
            raise cut_off(self.model, said, secret=self.secret, codes=codes)
        return data


async def _read_error(response: Any) -> None:
    """Read the body of an error, as far as it comes and no further than an error is long.

    The client would read all of it, and would not report the status if the body is broken.

    Raises:
        ErrorStatus: The response is an error.
    """
    if not response.is_error:
        return
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _LARGEST_ERROR_BYTES:
                break
    except Exception as error:  # noqa: BLE001  its HTTP library is the client's own affair
        log.debug("The body of an error could not be read: %s", type(error).__name__)
    raise ErrorStatus(response.status_code, response.headers, body[:_LARGEST_ERROR_BYTES])


def extra_fields(body: RequestBody, settings: ModelSettings) -> dict[str, Json]:
    """Return the fields that the user adds to a body.

    Raises:
        ModelRequestError: Arguments would take the place of what other settings say.
    """
    added = _arguments(body, settings)
    return {**added, **_joined({**body.fields, **added}, settings.extra_body or {})}


def _with_arguments(body: RequestBody, settings: ModelSettings) -> dict[str, Json]:
    """Return a body as the arguments of a client's own method, which takes `extra_body` apart.

    Raises:
        ModelRequestError: As for `extra_fields`.
    """
    return body.joined(_arguments(body, settings)).data()


def _arguments(body: RequestBody, settings: ModelSettings) -> dict[str, Json]:
    added = settings.extra_args or {}
    taken = sorted(name for name in added if name in body)
    if taken:
        raise ModelRequestError(
            f"ModelSettings.extra_args has {', '.join(map(repr, taken))}, which the request holds"
            " already. Set it by its own field, or change what is sent by extra_body."
        )
    return added


def _joined(body: dict[str, Json], extra: dict[str, Json]) -> dict[str, Json]:
    """Join extra fields with what is in their places: the client would put them there alone.

    An object of another `type` is another choice, and is not joined.
    """
    return {key: _over(body.get(key), extra[key]) for key in extra}


def _over(under: Json, extra: Json) -> Json:
    if not (is_object(under) and is_object(extra)):
        return extra
    if "type" in extra and extra["type"] != under.get("type"):
        return extra
    return {**under, **_joined(under, extra)}
