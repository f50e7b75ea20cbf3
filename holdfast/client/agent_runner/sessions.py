"""Session: the durable memory that the tasks of an app share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import cast, overload

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import writing_for
from holdfast.archive.contents import refer_all
from holdfast.archive.segments import commit_at, committing_tasks, turns, write_messages
from holdfast.archive.session_commits import commit_turn, send_rule
from holdfast.engine.converter import without_plumbing
from holdfast.errors import CommandRefusedError, InvalidArgumentError, TaskNotFoundError
from holdfast.models.openai.items import from_response_items, shown_items
from holdfast.reading.audit.verification import Verification, verified_session
from holdfast.reading.queries import server_errors
from holdfast.reading.reader import Reader
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.commands import Receipt, compose
from holdfast.task.data.state import CommitRef, SessionState
from holdfast.values.base import Json
from holdfast.values.checks.gate import Count, check_arguments, flaw
from holdfast.values.checks.ids import check_app, check_by, check_name, queue_of, session_id
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Message, Usage
from holdfast.values.text.shown import shown


@without_plumbing
class Session:
    """One session. It holds no state: any process may hold one.

    A subclass that has a `get_items` of its own is a session of yours, as one of any other class.

    Attributes:
        name: The name that people use; `session_id` is the same.
        id: Workflow id.
        queue: Task queue.
    """

    @overload
    def __init__(self) -> None: ...

    @overload
    def __init__(
        self, name: str, *, app: str, client: Client, archive: Archive, queue: str = ""
    ) -> None: ...

    def __init__(
        self,
        name: str | None = None,
        *,
        app: str = "",
        client: Client | None = None,
        archive: Archive | None = None,
        queue: str = "",
    ) -> None:
        """Name a session; its first message creates it.

        Args:
            name: Its name, at most 160 characters. An app has one session of a name, for all of its
                agents. Only a session of yours may have none.
            app: Name of the app.
            client: Temporal client.
            archive: The namespace's archive.
            queue: Task queue of the session; the app's own by default.

        Raises:
            InvalidArgumentError: The name is empty, over-long or not a string.
        """
        if name is None and type(self).get_items is not Session.get_items:
            return
        if name is None or client is None or archive is None:
            msg = "A Session needs more than its name: AgentRunner.session(name) makes one."
            raise InvalidArgumentError(msg)
        check_arguments(Session.__init__, client=client, archive=archive, queue=queue)
        self.name = self.session_id = name
        self.id = session_id(check_app(app), name)
        self.queue = queue or queue_of(app)
        self._client = client
        self._archive = archive
        self._reader = Reader(client, archive)

    async def chat_history(self, *, legible: bool = False) -> list[Message]:
        """Read the committed messages, oldest first.

        Args:
            legible: Whether they are read to be shown, to no model: in place of one that the
                archive has lost, a text says so.

        Raises:
            BlobMissingError: The archive lacks one of them.
            DigestMismatchError: One of them was changed.
            NoWorkerError: No worker process is up to answer.
            ConnectError: The server could not be reached.
        """
        state = await self._reader.session_so_far(self.id)
        found = await turns(self._archive, state)
        read = partial(self._reader.turn, legible=legible)
        read_all = await some_at_once(read, [turn.sha256 for turn in found])
        return [message for messages in read_all for message in messages]

    async def verify(self) -> Verification:
        """Compare the archive's turns with the digests that the session itself has.

        Returns:
            What is wrong, nothing if all turns since the last reset are intact, with `proved` and
            `unproved`.

        Raises:
            NoWorkerError: No worker process is up to answer.
            ConnectError: The server could not be reached.
        """
        return await verified_session(self._reader, self.id)

    async def usage(self) -> Usage:
        """Sum what the tasks of the session have cost: all with a turn in it, also before a reset.

        Tasks that have not committed a turn, or never will, are not known to a session.

        Raises:
            NoWorkerError: As for chat_history.
            ConnectError: As for chat_history.
            TaskNotFoundError: The record of a task was deleted.
        """
        state = await self._reader.session_so_far(self.id)
        tasks = await some_at_once(self._reader.task, await committing_tasks(self._archive, state))
        return sum((task.usage for task in tasks), Usage())

    async def standing_rules(self, *, ended: bool = False) -> list[StandingRule]:
        """List the decisions that hold for later calls in all tasks of the session, oldest first.

        Args:
            ended: Whether to list those as well that a person has revoked, with who has, and those
                whose time is over. A session remembers the newest 100 of them, next to the newest
                100 that are valid. One in transit from its task is listed by
                `AgentRunner.standing_rules`.

        Raises:
            NoWorkerError: As for chat_history.
            ConnectError: As for chat_history.
        """
        try:
            found = await self._reader.standing_rules(self.id)
            if ended and not found:  # one that rests has ended rules only
                found = list((await self._reader.session(self.id)).rules)
        except TaskNotFoundError:
            return []
        now = time.time()
        return [rule for rule in found if ended or rule.stands(now)]

    async def revoke_rule(self, rule: StandingRule | str, by: str) -> Receipt:
        """End a decision for later calls; calls that it has decided stay as they are.

        Args:
            rule: The rule, or its id: that of the approval with which it was given.
            by: Who revokes it.

        Raises:
            CommandRefusedError: The session has no such rule, or it was ended before.
            NoWorkerError: As for chat_history.
            ConnectError: As for chat_history.
        """
        wanted = rule.id if isinstance(rule, StandingRule) else rule
        name = check_by(by)
        if not name:
            raise InvalidArgumentError("To revoke a standing rule, say who does so: by=...")
        known = {each.id: each for each in await self.standing_rules(ended=True)}
        coming = None if wanted in known else await self._coming(wanted)
        if wanted not in known and coming is None:  # it may have arrived in between
            known = {each.id: each for each in await self.standing_rules(ended=True)}
        if coming is None and (wanted not in known or not known[wanted].stands(time.time())):
            listed = ", ".join(each.id for each in known.values() if each.stands(time.time()))
            listed = listed or "none"
            msg = f"No standing rule of session {self.name!r} is {wanted!r}; there are: {listed}."
            raise CommandRefusedError(msg)
        ended = (coming or known[wanted]).model_copy(update={"revoked": name})
        with server_errors():
            await send_rule(self._client, self._archive, self.id, self.queue, ended)
        if coming is not None:  # its task must not go by it either until it has arrived
            sent = compose("", "revoke", by=name, body={"rule": wanted}).sent()
            task = self._client.get_workflow_handle(wanted.rpartition(":")[0])
            # Not found is a task that has closed meanwhile: its session knows the rule's end.
            with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):
                await task.signal("revoke", sent)
        return Receipt(id=wanted, verb="revoke", status="applied")

    async def _coming(self, wanted: str) -> StandingRule | None:
        """Return a rule of this id that is in transit from its task; None for none."""
        task_id = wanted.rpartition(":")[0]
        try:
            found = await self._reader.standing_rules(task_id) if task_id else []
        except TaskNotFoundError:
            return None
        mine = (each for each in found if (each.id, each.session) == (wanted, self.name))
        return next(mine, None)

    async def append(self, messages: Sequence[Message], *, once: str = "") -> None:
        """Commit messages as one turn; images in `data:` URLs are stored by reference.

        Args:
            messages: The messages.
            once: Names the turn: sent again with the same name, it is committed once, as long as
                it is among the newest 1,000.

        Raises:
            InvalidArgumentError: One is not a Message, or no valid text, or a `data:` URL cannot be
                decoded, or holds more than 20 MB.
            SessionClosedError: The session was ended with Temporal's own tools.
            ConnectError: The server could not be reached.
        """
        named = {"task": f"-{check_name('once', once)}"} if once else {}
        if turn := await self._turn(messages):
            await self._commit(turn.model_copy(update=named))

    async def replace(self, messages: Sequence[Message]) -> None:
        """Replace all turns by one of these messages, which are stored first.

        Raises:
            InvalidArgumentError: As for append; nothing was forgotten.
            SessionClosedError: As for append.
            ConnectError: As for append.
        """
        turn = await self._turn(messages)
        await self.reset()
        if turn is not None:
            await self._commit(turn)

    async def _turn(self, messages: Sequence[Message]) -> CommitRef | None:
        """Store messages as a turn; None for no messages."""
        given = cast("object", messages)
        if isinstance(given, str | bytes) or not isinstance(given, Sequence):
            msg = f"A session takes a list of Messages; it was given {shown(messages)}."
            raise InvalidArgumentError(msg)
        if not messages:
            return None
        for each in messages:
            if not isinstance(cast("object", each), Message):
                msg = f"A session keeps Messages; {shown(each)} is not one. add_items takes dicts."
                raise InvalidArgumentError(msg)
            if wrong := flaw(each.wire(), "The message", largest=1 << 60):
                raise InvalidArgumentError(wrong)
        with writing_for(self.id):
            sha256 = await write_messages(self._archive, await refer_all(messages, self._archive))
        return CommitRef(task=_unique(), sha256=sha256, count=len(messages))

    async def reset(self) -> None:
        """Forget all turns; tasks that have begun keep the turns that they read.

        Raises:
            SessionClosedError: As for append.
            ConnectError: As for append.
        """
        await self._commit(CommitRef(task=_unique()))

    async def get_items(self, limit: Count | None = None) -> list[dict[str, Json]]:
        """Read the committed messages as items of the Responses API.

        Args:
            limit: Number of the newest items to give; None for all.

        Raises:
            NoWorkerError: As for chat_history.
            ConnectError: As for chat_history.
        """
        check_arguments(Session.get_items, limit=limit)
        items = shown_items(await self.chat_history())
        return items if limit is None else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: Sequence[dict[str, Json]]) -> None:
        """Commit items of the Responses API as one turn, like `append`.

        Raises:
            InvalidArgumentError: An item cannot be read, or as for append.
            SessionClosedError: As for append.
            ConnectError: As for append.
        """
        await self.append(from_response_items(items))

    async def pop_item(self) -> dict[str, Json] | None:
        """Take the newest item out of the session and return it; None without one.

        Tasks that have begun keep the item if they have read it.

        Raises:
            NoWorkerError: As for chat_history.
            SessionClosedError: As for append.
            ConnectError: As for append.
        """
        while True:
            state = await self._reader.session_so_far(self.id)
            replaced, items = await self._newest_turn(state)
            if not items:
                return None
            left = from_response_items(items[:-1])
            seen = state.base + len(state.commits)
            empty = CommitRef(task=_unique(), sha256=await write_messages(self._archive, []))
            turn = await self._turn(left) or empty
            turn = turn.model_copy(update={"replaces": replaced, "after": seen})
            await self._commit(turn)
            state = await self._reader.session(self.id)
            if await commit_at(self._archive, state, seen) == turn:
                return items[-1]  # else another turn came first: the newest item is another one

    async def _newest_turn(self, state: SessionState) -> tuple[int, list[dict[str, Json]]]:
        """Read the newest turn that has items.

        Returns:
            Number of turns from it to the newest, and its items; 0 and no items for an empty
            session.
        """
        found = await turns(self._archive, state)
        for count, turn in enumerate(reversed(found), start=1):
            items = shown_items(await self._reader.turn(turn.sha256, legible=False))
            if items:
                return count, items
        return 0, []

    async def clear_session(self) -> None:
        """Forget all turns, like `reset`.

        Raises:
            SessionClosedError: As for append.
            ConnectError: As for append.
        """
        await self.reset()

    async def _commit(self, turn: CommitRef) -> None:
        with server_errors():
            await commit_turn(self._client, self._archive, self.id, self.queue, turn)


def _unique() -> str:
    return f"-{uuid.uuid4().hex[:12]}"
