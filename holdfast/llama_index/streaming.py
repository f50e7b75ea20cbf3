"""An answer that is read while it is being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from queue import Queue
from typing import Any

from holdfast.llama_index.blocking import blocking
from holdfast.llama_index.tasks import Tasks
from holdfast.llama_index.tools import ToolOutput
from holdfast.llama_index.values import AgentChatResponse
from holdfast.values.steps import AgentResponse
from holdfast.workers.react.parser import AnswerFilter

Piece = str | BaseException | None
"""A piece of the answer, what ended the reading, or None at the end."""


class StreamingAgentChatResponse:
    """An answer that is read while it is being made.

    The chat goes on whether or not it is read. What a model says before it calls a tool is among
    the pieces; `response` is the answer alone.
    """

    is_dummy_stream = False

    def __init__(self, tasks: Tasks, task_id: str, *, reads_react: bool) -> None:
        """Read a task of a runner.

        Args:
            tasks: The runner's tasks.
            task_id: The task.
            reads_react: Whether its model answers in ReAct's form; then only the answer in it
                counts.
        """
        self._tasks = tasks
        self._task_id = task_id
        self._reads_react = reads_react
        self._pieces: Queue[Piece] = Queue()
        self._work: asyncio.Task[AgentResponse] | None = None
        self._made: AgentChatResponse | None = None

    async def start(self) -> None:
        """Start the chat, and the reading of its pieces; call it on the shared loop."""
        runner = await self._tasks.connect()
        self._work = asyncio.create_task(self._tasks.run_task(self._task_id))
        self._reading = asyncio.create_task(self._read(runner))

    async def _read(self, runner: Any) -> None:
        """Put the pieces into the queue, then None."""
        said = ""
        try:
            async with aclosing(runner.stream_events(self._task_id, until="waiting")) as events:
                reply = AnswerFilter()
                async for event in events:
                    kind = getattr(getattr(event, "data", None), "type", "")
                    if kind == "response.created":
                        reply = AnswerFilter()
                    elif kind == "response.output_text.delta":
                        piece = event.data.delta
                        piece = reply.feed(piece) if self._reads_react else piece
                        said += piece
                        self._put(piece)
                    elif kind == "response.completed" and self._reads_react:
                        piece = reply.finish()
                        said += piece
                        self._put(piece)
            text = (await self._result()).response
            if not said.endswith(text):
                self._put(text.removeprefix(said))
        except BaseException as error:
            self._pieces.put(error)
            raise
        finally:
            self._pieces.put(None)

    def _put(self, piece: str) -> None:
        if piece:
            self._pieces.put(piece)

    async def _result(self) -> AgentResponse:
        if self._work is None:
            raise RuntimeError("The chat is not started.")
        await asyncio.wait([self._work])
        return self._work.result()

    @blocking
    async def _final(self) -> AgentChatResponse:
        if self._made is None:
            self._made = await self._tasks.answer(await self._result())
        return self._made

    @property
    def is_done(self) -> bool:
        """Whether the chat is over, with an answer or an error."""
        return self._work is not None and self._work.done()

    @property
    def response_gen(self) -> Iterator[str]:
        """The pieces of the answer, as they come; a piece is read once."""
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                self._final()  # raises the error of the chat, if it is that
                raise piece
            yield piece
        self._pieces.put(None)  # who reads again finds the end

    async def async_response_gen(self) -> AsyncIterator[str]:
        """Give the pieces of the answer, as they come; they can be read once."""
        pieces = self.response_gen
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    def print_response_stream(self) -> None:
        """Print the pieces of the answer, as they come."""
        for piece in self.response_gen:
            print(piece, end="", flush=True)

    async def aprint_response_stream(self) -> None:
        """Print the pieces of the answer, as they come."""
        async for piece in self.async_response_gen():
            print(piece, end="", flush=True)

    @property
    def response(self) -> str:
        """The whole answer; waits for it."""
        return self._final().response

    @property
    def sources(self) -> list[ToolOutput]:
        """Results of tools; waits for the answer."""
        return self._final().sources

    @property
    def source_nodes(self) -> list[Any]:
        """What those results rest on; waits for the answer."""
        return self._final().source_nodes

    def __str__(self) -> str:
        """Return the whole answer."""
        return self.response
