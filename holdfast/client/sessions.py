"""Session: the durable memory that an agent's tasks share."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive import Archive
from holdfast.client.names import queue_of, session_id
from holdfast.messages import Blob, Message
from holdfast.segments import read_messages, turns, write_messages
from holdfast.wire import CommitRef, SessionState


class Session:
    """One session. It holds no state: any process may hold one.

    Attributes:
        name: The name that people use.
        id: Workflow id.
    """

    def __init__(self, name: str, *, app: str, client: Client, archive: Archive) -> None:
        """Name a session; it begins to exist with its first message."""
        self.name = name
        self.id = session_id(app, name)
        self._app = app
        self._client = client
        self._archive = archive

    async def chat_history(self) -> list[Message]:
        """Read the committed messages, oldest first."""
        try:
            state = await self._client.get_workflow_handle(self.id).query(
                "state", result_type=SessionState
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return []
            raise
        messages: list[Message] = []
        for turn in await turns(self._archive, state):
            messages.extend(await read_messages(self._archive, turn.sha256))
        return [await self._resolve(message) for message in messages]

    async def append(self, messages: Sequence[Message]) -> None:
        """Commit messages as one turn."""
        if messages:
            sha256 = await write_messages(self._archive, messages)
            await self._commit(CommitRef(task=_unique(), sha256=sha256, count=len(messages)))

    async def reset(self) -> None:
        """Forget everything; tasks that have begun keep what they saw."""
        await self._commit(CommitRef(task=_unique()))

    async def _resolve(self, message: Message) -> Message:
        if not isinstance(message.content, Blob):
            return message
        data = await self._archive.aget(message.content.sha256)
        return message.model_copy(update={"content": data.decode("utf-8", "surrogatepass")})

    async def _commit(self, turn: CommitRef) -> None:
        await self._client.start_workflow(
            "Session",
            SessionState(),
            id=self.id,
            task_queue=queue_of(self._app),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="commit",
            start_signal_args=[turn],
        )


def _unique() -> str:
    return f"-{uuid.uuid4().hex[:12]}"
