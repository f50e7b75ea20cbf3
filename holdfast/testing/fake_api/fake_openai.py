"""A controllable fake of the OpenAI HTTP API, for tests that need a real client and a real wire.

A test::

    with FakeOpenAI() as api:
        api.call("add", {"a": 1, "b": 2})
        api.reply("The sum is 3.")
        ...  # OPENAI_BASE_URL=api.base_url, any OPENAI_API_KEY
        assert api.requests[1].results == {"call_1": "3"}

As a process of its own, for tests that kill processes: `python -m holdfast.testing.fake_api --port
0 --script FILE.json` prints one JSON line with its base_url. Its state is read at GET /_fake/calls;
POST /_fake/script appends replies, /_fake/release releases held requests, /_fake/reset clears
everything.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, cast

from holdfast.errors import InvalidArgumentError
from holdfast.testing.fake_api import replies as make
from holdfast.testing.fake_api.replies import Reply, as_reply
from holdfast.testing.fake_api.requests import Dialect, FakeRequest
from holdfast.testing.fake_api.script import Place, Responder, Script
from holdfast.testing.fake_api.server import ServerThread
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI

P = ParamSpec("P")


def _scripted(made: Callable[P, Reply]) -> Callable[Concatenate[FakeOpenAI, P], None]:
    """Make the method that appends a reply to the script."""

    @functools.wraps(made)
    def add(self: FakeOpenAI, *args: P.args, **kwargs: P.kwargs) -> None:
        self.add(made(*args, **kwargs))

    return cast("Callable[Concatenate[FakeOpenAI, P], None]", add)


class FakeOpenAI:
    """The fake API, served on a free port of this machine by a thread of its own.

    It speaks OpenAI's two APIs, also in batches, which are done at the first look, and from the
    same script those of `dialects`.

    Each of reply, call, calls, refuse, raw, fail, slow, hang, paced, cut and malformed appends
    one reply to the script; they take the arguments of the functions of the same name in
    `holdfast.testing.fake_api.replies`. With `match="..."` a reply waits for a request that holds
    the text, so that tasks running at once get their own answers.

    Args:
        responder: Answers requests that no rule and no reply of the script answers; None counts as
            exhausted.
        strict: Whether leaving the context fails when a request found no reply, when the real API
            would have refused one, or when replies are left over.
        port: Port; 0 takes a free one.
        dialects: Other APIs that it speaks.
    """

    def __init__(
        self,
        responder: Responder | None = None,
        *,
        strict: bool = True,
        port: int = 0,
        dialects: Sequence[Dialect] = (),
    ) -> None:
        """Make the fake; it serves from `start` or `with` on.

        Raises:
            InvalidArgumentError: The responder cannot be called.
        """
        given: object = responder  # a list is a natural mistake
        if given is not None and not callable(given):
            raise InvalidArgumentError(
                f"FakeOpenAI takes a function of a request, not {shown(given)}. Replies are"
                " scripted by its methods: api.reply('text'), api.call('tool', {}), api.add(...)."
            )
        self._script = Script(responder, dialects)
        self._strict = strict
        self._port = port
        self._running: ServerThread | None = None

    # Scripting

    reply = _scripted(make.reply)
    call = _scripted(make.call)
    calls = _scripted(make.calls)
    refuse = _scripted(make.refuse)
    raw = _scripted(make.raw)
    fail = _scripted(make.fail)
    slow = _scripted(make.slow)
    hang = _scripted(make.hang)
    paced = _scripted(make.paced)
    cut = _scripted(make.cut)
    malformed = _scripted(make.malformed)

    def add(self, *replies: Reply | str) -> None:
        """Append replies to the script."""
        self._script.add(replies)

    def when(
        self,
        condition: Callable[[FakeRequest], bool],
        reply: Reply | str,
        *,
        times: int | None = None,
    ) -> None:
        """Answer with `reply` whenever `condition` holds; rules go before the script."""
        self._script.add_rule(condition, as_reply(reply), times)

    def place(self) -> Place:
        """Return the position in the script, for `go_to`."""
        return self._script.place()

    def go_to(self, place: Place) -> None:
        """Go back to a position in the script: replies used since then are given again."""
        self._script.go_to(place)

    def release(self) -> None:
        """Release every request that is held now."""
        self._serving().release()

    def reset(self) -> None:
        """Clear script, rules, responder and requests; held requests are released."""
        self._script.reset()
        if self._running is not None:
            self.release()

    # What happened

    @property
    def requests(self) -> list[FakeRequest]:
        """Every request so far, in order of arrival, refused ones too."""
        return self._script.requests

    @property
    def held(self) -> int:
        """Requests being held now."""
        return self._script.held

    def wait_requests(self, count: int, *, timeout: float = 30.0) -> None:
        """Block until `count` requests have arrived.

        Raises:
            TimeoutError: They have not within `timeout` seconds.
        """
        what = f"{count} requests"
        self._script.wait_until(lambda: len(self._script.requests) >= count, timeout, what)

    def wait_held(self, count: int = 1, *, timeout: float = 30.0) -> None:
        """Block until at least `count` requests are held; 0 waits until none is.

        Raises:
            TimeoutError: They are not within `timeout` seconds.
        """
        script = self._script
        what = f"{count} held requests"
        if count:
            script.wait_until(lambda: script.held >= count, timeout, what)
        else:
            script.wait_until(lambda: script.held == 0, timeout, what)

    async def until_requests(self, count: int) -> None:
        """Wait as `wait_requests` does, without blocking the event loop."""
        await asyncio.to_thread(self.wait_requests, count)

    async def until_held(self, count: int = 1) -> None:
        """Wait as `wait_held` does, without blocking the event loop."""
        await asyncio.to_thread(self.wait_held, count)

    @property
    def problems(self) -> list[str]:
        """Requests that found no reply, or that the real API would have refused."""
        return self._script.problems

    @property
    def left(self) -> int:
        """Replies of the script not yet used."""
        return self._script.left

    def assert_done(self) -> None:
        """Check that every request was valid and answered by the script, and all of it was used.

        Raises:
            AssertionError: Something was not; the text lists it.
        """
        problems = self._script.problems
        if self._script.left:
            problems.append(f"{self._script.left} replies of the script were not used")
        if problems:
            raise AssertionError("The fake API is not content:\n  " + "\n  ".join(problems))

    # Serving

    @property
    def origin(self) -> str:
        """Address without a path, http://127.0.0.1:PORT."""
        return f"http://127.0.0.1:{self._serving().port}"

    @property
    def base_url(self) -> str:
        """Address for the client: http://127.0.0.1:PORT/v1."""
        return f"{self.origin}/v1"

    def client(self, **options: Any) -> AsyncOpenAI:
        """Make a client of this API, without retries; `options` are AsyncOpenAI's."""
        from openai import AsyncOpenAI

        given: dict[str, Any] = {
            "base_url": self.base_url,
            "api_key": "fake-key",
            "max_retries": 0,
            **options,
        }
        return AsyncOpenAI(**given)

    def start(self) -> None:
        """Serve, until `stop`."""
        if self._running is None:
            self._running = ServerThread(self._script, self._port)

    def stop(self) -> None:
        """Refuse held requests (status 503) and stop serving."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def __enter__(self) -> Self:
        """Serve."""
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop serving; with `strict`, check that all went as scripted."""
        self.stop()
        if self._strict and kind is None:
            self.assert_done()

    async def __aenter__(self) -> Self:
        """Serve."""
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Stop serving; with `strict`, check that all went as scripted."""
        await asyncio.to_thread(self.__exit__, kind)

    def _serving(self) -> ServerThread:
        if self._running is None:
            raise RuntimeError("The fake API is not served. Use it in `with FakeOpenAI() as api:`.")
        return self._running
