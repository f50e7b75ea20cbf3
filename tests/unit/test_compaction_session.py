"""A session of the caller's that folds its items, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from openai import AsyncOpenAI

from holdfast import OpenAIResponsesCompactionSession, SQLiteSession

ITEMS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
FOLDED = {"type": "compaction", "encrypted_content": "..."}


class Api:
    """Stands in for the client; what comes in while it folds is added to the session."""

    def __init__(self, session: SQLiteSession, meanwhile: list[Any]) -> None:
        self.responses = self
        self._session, self._meanwhile = session, meanwhile
        self.sent: list[dict[str, Any]] = []

    async def compact(self, **sent: Any) -> SimpleNamespace:
        """Note the request, and answer."""
        self.sent.append(sent)
        await self._session.add_items(self._meanwhile)
        return SimpleNamespace(output=[{**FOLDED, "created_by": "someone"}])


async def folded(meanwhile: list[Any]) -> tuple[Api, list[Any]]:
    """Fold a session of two items; return the API, and what the session has then."""
    session = SQLiteSession("s")
    await session.add_items(list(ITEMS))
    api = Api(session, meanwhile)
    folding = OpenAIResponsesCompactionSession("s", session, client=cast("AsyncOpenAI", api))
    await folding.run_compaction({"force": True})
    return api, await session.get_items()


async def test_items_are_exchanged_for_those_that_the_api_has_made_of_them() -> None:
    api, items = await folded([])
    assert (items, api.sent) == ([FOLDED], [{"model": "gpt-4.1", "input": ITEMS}])


async def test_what_comes_in_while_the_api_folds_is_kept() -> None:
    late = {"role": "user", "content": "late"}
    _, items = await folded([late])
    assert items == [*ITEMS, late]


async def test_who_decides_whether_to_fold_reads_what_would_be_sent() -> None:
    session, told = SQLiteSession("s"), list[dict[str, Any]]()
    await session.add_items(list(ITEMS))

    def decide(about: dict[str, Any]) -> bool:
        told.append(about)
        return False

    folding = OpenAIResponsesCompactionSession("s", session, should_trigger_compaction=decide)
    await folding.run_compaction({"response_id": "r1"})
    await folding.run_compaction({"response_id": "r1", "store": False})
    assert [(each["response_id"], each["compaction_mode"]) for each in told] == [
        ("r1", "previous_response_id"),
        ("r1", "input"),
    ]


async def test_more_items_than_may_be_folded_are_refused_before_the_api_is_called() -> None:
    session = SQLiteSession("s")
    await session.add_items(list(ITEMS))
    api = Api(session, [])
    client = cast("AsyncOpenAI", api)
    few = OpenAIResponsesCompactionSession("s", session, client=client, max_rollback_items=1)
    with pytest.raises(ValueError, match="more items than max_rollback_items=1"):
        await few.run_compaction({"force": True})
    assert (await session.get_items(), api.sent) == (ITEMS, [])
    enough = OpenAIResponsesCompactionSession("s", session, client=client, max_rollback_items=2)
    await enough.run_compaction({"force": True})
    assert await session.get_items() == [FOLDED]
    with pytest.raises(ValueError, match="must be positive"):
        OpenAIResponsesCompactionSession("s", session, max_rollback_items=0)
