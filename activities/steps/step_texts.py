"""Large texts of a step: moved to the archive before history gets to see them, and read back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.activities.data.source import Source
from holdfast.archive.contents import read_json
from holdfast.archive.segments import write_messages
from holdfast.task.data.records import Handed, JournalEntry, OpenStep
from holdfast.task.data.wire import Advanced
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.steps import TaskStep


class StepTexts:
    """Moves large texts of a task's steps to its archive, and reads them back."""

    def __init__(self, source: Source) -> None:
        """Use this source of task data."""
        self._source = source

    async def with_references(self, steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
        """Name the images of steps by reference, before history gets to see them."""
        return tuple(
            [
                step.model_copy(
                    update={"images": tuple([await self._source.refer(i) for i in step.images])}
                )
                for step in steps
            ]
        )

    async def whole(self, opened: OpenStep) -> OpenStep:
        """Put an archived input into the step."""
        if opened.stored is None:
            return opened
        text = await self._source.text(opened.stored)
        return opened.model_copy(update={"step": opened.step.model_copy(update={"input": text})})

    async def inputs(self, opened: OpenStep) -> dict[str, Json]:
        """Read the outputs of the steps that this one waited for."""
        found = await asyncio.gather(*map(self._source.output, opened.inputs.values()))
        return dict(zip(opened.inputs, found, strict=True))

    async def resolve(self, entry: JournalEntry) -> JournalEntry:
        """Put archived contents into a journal entry."""
        if entry.memo is not None:
            kept = await read_json(entry.memo.output, entry.memo.stored, self._source.text)
            memo = Handed(output=kept)
            return entry.model_copy(update={"memo": memo})
        answer = entry.answer
        if answer is not None:
            message = await self._source.resolve(answer.message)
            return entry.model_copy(
                update={"answer": answer.model_copy(update={"message": message})}
            )
        outcomes = [
            o.model_copy(
                update={
                    "content": await self._source.content(o.content),
                    "nodes": await self._source.nodes(o),
                }
            )
            for o in entry.outcomes
        ]
        return entry.model_copy(update={"outcomes": tuple(outcomes)})

    async def keep_messages(self, messages: Sequence[Message]) -> str:
        """Store what another agent sees; images by reference, as everywhere."""
        kept = [await self._source.offload(message) for message in messages]
        return await write_messages(self._source.archive, kept)

    async def compact_memo(self, entry: JournalEntry) -> JournalEntry:
        """Move a large memo to the archive."""
        if entry.memo is None:
            return entry
        stored = await self._source.store_json(entry.memo.output)
        return entry if stored is None else entry.model_copy(update={"memo": Handed(stored=stored)})

    async def compact_answer(self, advanced: Advanced) -> dict[str, object]:
        """Move a large answer to the archive, before history gets to see it."""
        if advanced.answer is None:
            return {}
        message = await self._source.offload(advanced.answer.message)
        usage = advanced.answer.usage.model_copy(update={"requests": 0})  # the ledger counts
        changes: dict[str, object] = {"message": message, "usage": usage}
        return {"answer": advanced.answer.model_copy(update=changes)}

    async def compact_result(self, advanced: Advanced) -> dict[str, object]:
        """Move large texts of a result to the archive."""
        result = advanced.result
        if result is None:
            return {}
        adds = [
            await self._source.offload(add) if isinstance(add, Message) else add
            for add in result.adds
        ]
        following = await self.with_references(result.next)
        changes: dict[str, object] = {"adds": tuple(adds), "next": following}
        if result.output is not None:
            stored = await self._source.store_json(result.output)
            if stored is not None:
                changes |= {"output": None, "stored": stored}
        return {"result": result.model_copy(update=changes)}
