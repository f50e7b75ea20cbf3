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
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast.errors import InvalidArgumentError
from holdfast.testing.fake_api import replies as make
from holdfast.testing.fake_api.replies import Reply, as_reply
from holdfast.testing.fake_api.requests import Dialect, FakeRequest
from holdfast.testing.fake_api.script import Place, Responder, Script
from holdfast.testing.fake_api.server import ServerThread
from holdfast.values.base import Json
from holdfast.values.messages import Usage
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class FakeOpenAI:
    """The fake API, served on a free port of this machine by a thread of its own.

    It speaks OpenAI's two APIs, and from the same script those of `dialects`.

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
            msg = (
                f"FakeOpenAI takes a function of a request, not {shown(given)}. Replies are"
                " scripted by its methods: api.reply('text'), api.call('tool', {}), api.add(...)."
            )
            raise InvalidArgumentError(msg)
        self._script = Script(responder, dialects)
        self._strict = strict
        self._port = port
        self._running: ServerThread | None = None

    # Scripting

    def reply(
        self,
        text: str,
        *,
        reasoning: str = "",
        finish: Literal["", "length", "content_filter"] = "",
        usage: Usage | None = None,
        match: str = "",
    ) -> None:
        """Answer with text."""
        self.add(make.reply(text, reasoning=reasoning, finish=finish, usage=usage, match=match))

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Json] | str | None = None,
        *,
        text: str = "",
        reasoning: str = "",
        id: str = "",
        namespace: str = "",
        usage: Usage | None = None,
        match: str = "",
    ) -> None:
        """Ask for one tool call."""
        self.add(
            make.call(
                tool,
                arguments,
                text=text,
                reasoning=reasoning,
                id=id,
                namespace=namespace,
                usage=usage,
                match=match,
            )
        )

    def calls(
        self,
        wanted: Iterable[make.Wanted],
        *,
        text: str = "",
        reasoning: str = "",
        usage: Usage | None = None,
        match: str = "",
    ) -> None:
        """Ask for several tool calls at once."""
        self.add(make.calls(wanted, text=text, reasoning=reasoning, usage=usage, match=match))

    def refuse(self, text: str, *, match: str = "") -> None:
        """Decline."""
        self.add(make.refuse(text, match=match))

    def raw(self, body: Mapping[str, Json], *, match: str = "") -> None:
        """Answer with a given body, unchanged."""
        self.add(make.raw(body, match=match))

    def fail(
        self,
        status: int,
        *,
        message: str = "scripted failure",
        retry_after: float | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        match: str = "",
    ) -> None:
        """Answer with an error."""
        self.add(
            make.fail(
                status,
                message=message,
                retry_after=retry_after,
                code=code,
                headers=headers,
                match=match,
            )
        )

    def slow(self, seconds: float, then: Reply | str | None = None, *, match: str = "") -> None:
        """Answer after a while; `then=None` takes the next reply when the time is over."""
        self.add(make.slow(seconds, then, match=match))

    def hang(self, then: Reply | str | None = None, *, match: str = "") -> None:
        """Hold a request until `release`; `then=None` takes the next reply after that."""
        self.add(make.hang(then, match=match))

    def paced(
        self,
        then: Reply | str,
        *,
        piece: int = 8,
        hold_after: int | None = None,
        cut_after: int | None = None,
        match: str = "",
    ) -> None:
        """Answer in pieces; hold the stream until `release`, or cut it, after so many of them."""
        self.add(
            make.paced(then, piece=piece, hold_after=hold_after, cut_after=cut_after, match=match)
        )

    def cut(self, *, match: str = "") -> None:
        """End the connection in the middle of the body."""
        self.add(make.cut(match=match))

    def malformed(self, *, match: str = "") -> None:
        """Answer 200 with a body that is not JSON."""
        self.add(make.malformed(match=match))

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop serving; with `strict`, check that all went as scripted."""
        self.stop()
        if self._strict and kind is None:
            self.assert_done()

    async def __aenter__(self) -> Self:
        """Serve."""
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop serving; with `strict`, check that all went as scripted."""
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _serving(self) -> ServerThread:
        if self._running is None:
            raise RuntimeError("The fake API is not served. Use it in `with FakeOpenAI() as api:`.")
        return self._running
