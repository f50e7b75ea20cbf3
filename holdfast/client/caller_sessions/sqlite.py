"""SQLiteSession: a session of the caller's in a SQLite file, or in memory."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from holdfast.agents.run_config import SessionSettings, as_session_settings
from holdfast.client.caller_sessions.protocol import SessionABC
from holdfast.errors import InvalidArgumentError
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import LONGEST_KNOWN, check_name

T = TypeVar("T")

BUSY_SECONDS = 30.0
"""How long a call waits for another process that writes to the file."""


class SQLiteSession(SessionABC):
    """A conversation in a SQLite database, which the calling process reads and writes.

    A file may hold many sessions, and be used by several processes at a time. Each call of
    `add_items` is one transaction. The tables are those of the Agents SDK's class of this name.

    Attributes:
        session_id: Names the conversation.
        session_settings: How runs read it that say nothing else.
        db_path: The file, or ":memory:".
    """

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        """Open a session; its file and tables are made if they are missing.

        Args:
            session_id: Names the conversation, at most 500 characters.
            db_path: A file; ":memory:" for a conversation that ends with this object.
            sessions_table: Name of the table of sessions.
            messages_table: Name of the table of items.
            session_settings: How the session is read: a SessionSettings, or a dict of its fields.

        Raises:
            InvalidArgumentError: A name cannot be used, or the path is neither text nor Path.
            sqlite3.Error: The file cannot be opened, or is not a database.
        """
        check_arguments(SQLiteSession.__init__, db_path=db_path)
        self.session_id = check_name("session_id", session_id, LONGEST_KNOWN)
        self.session_settings = as_session_settings(session_settings) or SessionSettings()
        self.db_path = db_path
        self.sessions_table = _table("sessions_table", sessions_table)
        self.messages_table = _table("messages_table", messages_table)
        self._lock = threading.Lock()
        self._is_closed = False
        self._db = sqlite3.connect(
            str(db_path), timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        try:
            self._run(self._make_tables)
        except BaseException:
            self._db.close()
            raise

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first; one that is not JSON is left out.

        Args:
            limit: Number of the newest items; None for what session_settings say.

        Raises:
            RuntimeError: The session is closed.
            sqlite3.Error: The database cannot be read.
        """
        wanted = self.session_settings.limit if limit is None else limit
        return await asyncio.to_thread(self._run, lambda: self._newest(wanted), "BEGIN")

    async def add_items(self, items: list[Any]) -> None:
        """Add items behind the others: all of them, or none if this fails.

        Raises:
            TypeError: An item is not JSON data.
            RuntimeError: The session is closed.
            sqlite3.Error: The database cannot be written.
        """
        rows = [(self.session_id, json.dumps(item)) for item in items]
        await _finished(lambda: self._run(lambda: self._insert(rows)))

    async def pop_item(self) -> Any:
        """Take out the newest item and return it; None without one.

        Raises:
            RuntimeError: The session is closed.
            sqlite3.Error: The database cannot be written.
        """
        return await _finished(lambda: self._run(self._pop))

    async def clear_session(self) -> None:
        """Remove all items.

        Raises:
            RuntimeError: The session is closed.
            sqlite3.Error: The database cannot be written.
        """
        await _finished(lambda: self._run(self._clear))

    def close(self) -> None:
        """Close the database; a conversation in memory is gone then."""
        with self._lock:
            self._is_closed = True
            self._db.close()

    def _run(self, work: Callable[[], T], begin: str = "BEGIN IMMEDIATE") -> T:
        """Do some work in a transaction of its own."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"SQLiteSession is closed (session {self.session_id!r}).")
            self._db.execute(begin)
            try:
                done = work()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            return done

    def _make_tables(self) -> None:
        sessions, messages = self.sessions_table, self.messages_table
        self._db.execute(
            f"CREATE TABLE IF NOT EXISTS {sessions} (session_id TEXT PRIMARY KEY,"
            " created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,"
            " updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
        )
        self._db.execute(
            f"CREATE TABLE IF NOT EXISTS {messages} (id INTEGER PRIMARY KEY AUTOINCREMENT,"
            " session_id TEXT NOT NULL, message_data TEXT NOT NULL,"
            " created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,"
            f" FOREIGN KEY (session_id) REFERENCES {sessions} (session_id) ON DELETE CASCADE)"
        )
        self._db.execute(
            f"CREATE INDEX IF NOT EXISTS idx_{messages}_session_id ON {messages} (session_id, id)"
        )

    def _newest(self, limit: int | None) -> list[Any]:
        found: list[Any] = []
        with closing(self._rows()) as rows:
            for _, text in rows:
                if limit is not None and len(found) >= max(limit, 0):
                    break
                found.extend(_read(text))
        return found[::-1]

    def _rows(self) -> sqlite3.Cursor:
        """Return the items' rows, newest first."""
        return self._db.execute(
            f"SELECT id, message_data FROM {self.messages_table} WHERE session_id = ?"
            " ORDER BY id DESC",
            (self.session_id,),
        )

    def _insert(self, rows: list[tuple[str, str]]) -> None:
        if not rows:
            return
        self._db.execute(
            f"INSERT INTO {self.sessions_table} (session_id) VALUES (?) ON CONFLICT (session_id)"
            " DO UPDATE SET updated_at = CURRENT_TIMESTAMP",
            (self.session_id,),
        )
        self._db.executemany(
            f"INSERT INTO {self.messages_table} (session_id, message_data) VALUES (?, ?)", rows
        )

    def _pop(self) -> Any:
        while True:
            with closing(self._rows()) as rows:
                newest = rows.fetchone()
            if newest is None:
                return None
            row, text = newest
            self._db.execute(f"DELETE FROM {self.messages_table} WHERE id = ?", (row,))
            for item in _read(text):
                return item

    def _clear(self) -> None:
        for table in (self.messages_table, self.sessions_table):
            self._db.execute(f"DELETE FROM {table} WHERE session_id = ?", (self.session_id,))


def _read(text: str) -> list[Any]:
    """Return the item of a row in a list; an empty one when it is not JSON."""
    try:
        return [json.loads(text)]
    except (TypeError, ValueError):
        return []


def _table(name: str, given: object) -> str:
    """Return the name of a table, which SQL cannot take as a parameter.

    Raises:
        InvalidArgumentError: It is not a plain name.
    """
    if isinstance(given, str) and given.isidentifier() and given.isascii():
        return given
    msg = f"{name} must be a name of letters, digits and underscores; it was {given!r}."
    raise InvalidArgumentError(msg)


async def _finished(work: Callable[[], T]) -> T:
    """Do some work in a thread; one who is cancelled meanwhile is so when it is done."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise
