"""A session of the caller's that folds its items, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

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
        return SimpleNamespace(output=[FOLDED])


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
