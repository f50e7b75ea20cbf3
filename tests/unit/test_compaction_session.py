"""A session of the caller's that folds its items, without a server."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from openai import AsyncOpenAI

from holdfast import SQLiteSession
from holdfast.agents_sdk import OpenAIConversationsSession, OpenAIResponsesCompactionSession
from holdfast.client.caller_sessions.store import was_shown
from holdfast.errors import InvalidArgumentError

ITEMS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
FOLDED = {"type": "compaction", "encrypted_content": "..."}


class Api:
    """Stands in for the client; what comes in while it folds is added to the session.

    Attributes:
        sent: What it was sent.
        during: Called while it folds.
    """

    def __init__(
        self, session: SQLiteSession, meanwhile: list[Any], gives: list[Any] | None = None
    ) -> None:
        self.responses = self
        self.during: Callable[[], object] = list
        self._session, self._meanwhile = session, meanwhile
        self._gives = [{**FOLDED, "created_by": "someone"}] if gives is None else gives
        self.sent: list[dict[str, Any]] = []

    async def compact(self, **sent: Any) -> SimpleNamespace:
        """Note the request, and answer."""
        self.sent.append(sent)
        self.during()
        await asyncio.sleep(0)
        if self._meanwhile:
            await self._session.add_items(self._meanwhile)
        return SimpleNamespace(output=self._gives)


def folds(session: SQLiteSession, api: Api, **options: Any) -> OpenAIResponsesCompactionSession:
    """Make a session that folds another one by an API."""
    client = cast("AsyncOpenAI", api)
    return OpenAIResponsesCompactionSession("s", session, client=client, **options)


async def filled(
    meanwhile: list[Any] | None = None, gives: list[Any] | None = None
) -> tuple[SQLiteSession, Api, OpenAIResponsesCompactionSession]:
    """Make a session of two items, an API that folds it, and the session that asks it to."""
    session = SQLiteSession("s")
    await session.add_items(list(ITEMS))
    api = Api(session, meanwhile or [], gives)
    return session, api, folds(session, api)


LATE = {"role": "user", "content": "late"}


@pytest.mark.parametrize(("meanwhile", "kept"), [([], [FOLDED]), ([LATE], [*ITEMS, LATE])])
async def test_items_are_exchanged_for_what_the_api_makes_of_them_unless_more_have_come(
    meanwhile: list[Any], kept: list[Any]
) -> None:
    session, api, folding = await filled(meanwhile)
    await folding.run_compaction({"force": True})
    assert await session.get_items() == kept
    assert api.sent == [{"model": "gpt-4.1", "input": ITEMS}]


async def test_more_items_than_may_be_folded_are_refused_before_the_api_is_called() -> None:
    session, api, _ = await filled()
    with pytest.raises(ValueError, match="more items than max_rollback_items=1"):
        await folds(session, api, max_rollback_items=1).run_compaction({"force": True})
    assert (await session.get_items(), api.sent) == (ITEMS, [])
    await folds(session, api, max_rollback_items=2).run_compaction({"force": True})
    assert await session.get_items() == [FOLDED]
    with pytest.raises(ValueError, match="must be positive"):
        OpenAIResponsesCompactionSession("s", session, max_rollback_items=0)


class Failing(SQLiteSession):
    """Takes its items and then fails, or is cancelled, as often as it is told to."""

    def __init__(self, error: BaseException | None = None, *, on_clear: bool = False) -> None:
        super().__init__("s")
        self.error, self.on_clear = error, on_clear

    def _fail(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    async def clear_session(self) -> None:
        """Remove all items, then fail."""
        await super().clear_session()
        if self.on_clear:
            self._fail()

    async def add_items(self, items: list[Any]) -> None:
        """Add items, then fail."""
        await super().add_items(items)
        if not self.on_clear:
            self._fail()


@pytest.mark.parametrize("on_clear", [True, False])
@pytest.mark.parametrize("error", [OSError("disk"), asyncio.CancelledError()], ids=repr)
async def test_items_are_put_back_when_the_exchange_fails(
    error: BaseException, *, on_clear: bool
) -> None:
    session = Failing(on_clear=on_clear)
    await session.add_items(list(ITEMS))
    session.error = error
    folding = folds(session, Api(session, []))
    with pytest.raises(type(error)):
        await folding.run_compaction({"force": True})
    assert await session.get_items() == ITEMS


async def test_an_error_that_a_session_raises_when_it_is_put_back_shows_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Failing):
        async def add_items(self, items: list[Any]) -> None:
            msg = "no connection to postgresql://ann:hunter22@host/db"
            raise OSError(msg)

    session = Broken()
    await SQLiteSession.add_items(session, list(ITEMS))
    folding = folds(session, Api(SQLiteSession("other"), []))
    with pytest.raises(OSError, match="no connection"):
        await folding.run_compaction({"force": True})
    assert "has lost its items" in caplog.text
    assert "hunter22" not in caplog.text


class Living(Failing):
    """A session that gives the list that it keeps."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(error)
        self.kept: list[Any] = list(ITEMS)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the list itself."""
        return self.kept

    async def add_items(self, items: list[Any]) -> None:
        """Fail, or add items."""
        self._fail()
        self.kept.extend(items)

    async def clear_session(self) -> None:
        """Remove all items."""
        self.kept.clear()


@pytest.mark.parametrize("stored", [[], [FOLDED]], ids=["nothing", "all"])
async def test_what_others_have_added_is_kept_when_the_exchange_fails(stored: list[Any]) -> None:
    others = {"role": "user", "content": "of another process"}

    class Shared(Living):
        async def add_items(self, items: list[Any]) -> None:
            if self.error is not None:
                self.kept.extend([*stored, others])
            await super().add_items(items)

    session = Shared(OSError("disk"))
    folding = folds(session, Api(session, []))
    with pytest.raises(OSError, match="disk"):
        await folding.run_compaction({"force": True})
    assert session.kept == [*ITEMS, others]


class Halting(Living):
    """Waits before it adds items, and says when it does."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(error)
        self.waits, self.may = asyncio.Event(), asyncio.Event()

    async def add_items(self, items: list[Any]) -> None:
        """Wait, and then add items or fail."""
        self.waits.set()
        await self.may.wait()
        await super().add_items(items)


async def test_who_reads_a_session_while_its_items_are_exchanged_waits() -> None:
    session = Halting()
    folding = folds(session, Api(session, []))
    work = asyncio.ensure_future(folding.run_compaction({"force": True}))
    await session.waits.wait()
    reading = asyncio.ensure_future(folding.get_items())
    await asyncio.sleep(0)
    session.may.set()
    assert list(await reading) == [FOLDED]
    await work


async def test_what_the_api_has_made_is_kept_in_the_form_in_which_it_takes_it() -> None:
    answer: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant", "content": []}
    image = {"type": "input_image", "image_url": "https://x.example/a.png"}
    user = {"type": "message", "role": "user", "content": [{**image, "file_id": None}]}
    thought: dict[str, Any] = {"id": "r1", "type": "reasoning", "summary": []}
    kept_user = {**user, "content": [image]}
    kept = {key: value for key, value in answer.items() if key != "id"}
    for gives, made in (
        ([user, answer], [kept_user, kept]),
        ([thought, answer], [thought, answer]),
    ):
        session, _, folding = await filled(gives=gives)
        await folding.run_compaction({"force": True})
        assert await session.get_items() == made


def test_a_conversation_that_the_provider_keeps_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="provider keeps its items"):
        OpenAIResponsesCompactionSession("s", OpenAIConversationsSession())


def seen(image: str) -> dict[str, Any]:
    """Write a message with an image."""
    parts = [{"type": "input_text", "text": "q"}, {"type": "input_image", "image_url": image}]
    return {"role": "user", "content": parts}


CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


SHOWN: list[tuple[list[Any], list[Any], bool]] = [
    ([*ITEMS], [*ITEMS], True),
    ([ITEMS[0], SAID], [{"role": "system", "content": "x"}, *ITEMS], True),
    ([CALL, OUTPUT], [{**CALL, "id": "f1", "status": "completed"}, OUTPUT], True),
    ([*ITEMS], [ITEMS[0]], False),
    ([CALL, OUTPUT], [CALL, {**OUTPUT, "output": "hidden"}], False),
    ([ITEMS[0], *ITEMS], [*ITEMS], False),
    ([ITEMS[1], ITEMS[0]], [*ITEMS], False),
    ([], [*ITEMS], True),
    ([seen("data:image/png;base64,AA")], [seen("holdfast:image/1")], True),
    ([seen("data:image/png;base64,AA")], [{"role": "user", "content": []}], False),
]


@pytest.mark.parametrize(("items", "shown", "was"), SHOWN)
def test_what_a_model_was_shown_is_found_in_its_order(
    items: list[Any], shown: list[Any], *, was: bool
) -> None:
    assert was_shown(items, shown) is was
