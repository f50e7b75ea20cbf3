"""A session of a program's own, which notes how it is used."""

import threading
from typing import Any

from holdfast.agents_sdk import SessionABC

Items = list[dict[str, Any]]


class Kept(SessionABC):
    """A session in memory that notes the thread of each call, and fails when it is told to."""

    def __init__(self, session_id: str = "mine", items: Items | None = None) -> None:
        self.session_id = session_id
        self.items: Items = list(items or [])
        self.reads: list[int | None] = []
        self.adds: list[Items] = []
        self.threads: set[int] = set()
        self.fails = False

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self.threads.add(threading.get_ident())
        self.reads.append(limit)
        return list(self.items) if limit is None else self.items[-limit:] if limit else []

    async def add_items(self, items: list[Any]) -> None:
        self.threads.add(threading.get_ident())
        if self.fails:
            msg = "the disk is full"
            raise OSError(msg)
        self.adds.append(items)
        self.items.extend(items)

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()

    @property
    def said(self) -> list[tuple[Any, Any]]:
        return [(each.get("role", each.get("type")), worded(each)) for each in self.items]


def worded(item: Any) -> Any:
    """Return the content of an item; the text of an answer."""
    content: Any = item.get("content")
    return content if isinstance(content, str | None) else content[0]["text"]
