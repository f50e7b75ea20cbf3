"""Large texts, images and files of tasks: history refers to their bytes in the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from temporalio import activity

from holdfast.activities.data.cache import Cache
from holdfast.archive.archive import Archive
from holdfast.archive.contents import (
    check_reference,
    refer,
    refer_any,
    rehydrate,
    resolve,
    resolve_message,
    store_image,
    with_parts,
)
from holdfast.errors import ArchiveError
from holdfast.models.openai.hosted_items import outlines
from holdfast.task.data.calls import Outcome
from holdfast.task.data.wire import INLINE_BYTES
from holdfast.values.base import Json, digest, in_order
from holdfast.values.messages import (
    Blob,
    Content,
    FilePart,
    ImagePart,
    ImageRef,
    Message,
    Part,
    TextPart,
    clean,
)
from holdfast.values.parts.images import Image, Kind, write_file_data
from holdfast.values.parts.sources import SourceNode, read_nodes

T = TypeVar("T")

PATIENCE_SECONDS = (0.1, 0.4, 1, 2, 4, 8, 15, 25)
"""Waits between the attempts to store a value that must not be lost."""


class LargeValues:
    """Reads and stores the large values of one archive for the activities of a worker process.

    Attributes:
        archive: The archive.
        cache: Texts and images that were read or stored last.
    """

    def __init__(self, archive: Archive, cache: Cache) -> None:
        """Use this archive and this cache."""
        self.archive = archive
        self.cache = cache

    async def resolve(self, message: Message) -> Message:
        """Put what is archived of a message into it."""
        return await resolve_message(message, self.text)

    async def content(self, content: Content) -> Content:
        """Read the texts of a content that are in the archive."""
        return await resolve(content, self.text)

    async def nodes(self, outcome: Outcome) -> tuple[SourceNode, ...]:
        """Read what a result rests on."""
        nodes = outcome.nodes
        return read_nodes(await self.text(nodes)) if isinstance(nodes, Blob) else nodes

    async def text(self, blob: Blob) -> str:
        """Read a text of the archive."""
        text = self.cache.texts.get(blob.sha256)
        if text is None:
            text = (await self.archive.aget(blob.sha256)).decode("utf-8", "surrogatepass")
            self.cache.texts.keep(blob.sha256, text)
        return text

    async def rehydrate(self, message: Message) -> Message:
        """Put the bytes of its images into a message that is about to be sent to a model."""
        return await rehydrate(message, self._data)

    async def _data(self, kind: Kind, ref: ImageRef) -> str:
        await check_reference(kind, ref, self)
        name = f"{ref.media_type} {ref.sha256}"
        data = self.cache.images.get(name)
        if data is None:
            data = write_file_data(ref.media_type, await self.archive.aget(ref.sha256))
            self.cache.images.keep(name, data)
        return data

    async def offload(self, message: Message) -> Message:
        """Move large texts, large provider items and the bytes of images to the archive."""
        kept = await self.store_json(list(message.items)) if message.items else None
        if kept is not None:
            short = outlines(message.items)
            message = message.model_copy(update={"items": short, "kept": kept})
        if not isinstance(message.content, str):
            return await with_parts(message, self._offload_part)
        text = clean(message.content)
        content = await self.store(text) or text
        if content == message.content:
            return message
        return message.model_copy(update={"content": content})

    async def _offload_part(self, part: Part) -> Part:
        if not isinstance(part, TextPart):
            return await refer_any(part, self)
        text = clean(part.text)
        stored = await self.store(text) or part.stored
        return TextPart(kind="text", text="" if stored else text, stored=stored)

    async def refer(self, part: ImagePart) -> ImagePart:
        """Name an image by reference, its bytes in the archive."""
        return await refer(part, self)

    async def store_result(self, said: str | Sequence[str | Image | FilePart]) -> Content:
        """Return a tool's result as history holds it: large texts, images, files by reference."""
        if isinstance(said, str):
            return await self.store(clean(said)) or clean(said)
        parts = [
            await store_image(each, self)
            if isinstance(each, Image)
            else await self._offload_part(
                each if isinstance(each, FilePart) else TextPart(kind="text", text=each)
            )
            for each in said
        ]
        return tuple(parts)

    async def store(self, text: str, *, is_json: bool = False) -> Blob | None:
        """Store a text if it is too large for history."""
        if len(text) <= INLINE_BYTES // 4:  # four bytes a character is the most
            return None
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= INLINE_BYTES:
            return None
        blob = Blob(sha256=await self.aput(data), size=len(data), is_json=is_json)
        self.cache.texts.keep(blob.sha256, text)
        return blob

    async def store_json(self, data: Json) -> Blob | None:
        """Store JSON data if it is too large for history."""
        plain = isinstance(data, str)
        text = data if plain else in_order(data).decode("utf-8", "surrogatepass")
        return await self.store(clean(text), is_json=not plain)

    async def archived(self, text: str) -> Blob:
        """Store a text whatever its size; one that was just stored is not written again."""
        data = text.encode("utf-8", "surrogatepass")
        sha256 = digest(data)
        if self.cache.texts.get(sha256) is None:
            await self.aput(data)
            self.cache.texts.keep(sha256, text)
        return Blob(sha256=sha256, size=len(data))

    async def aput(self, data: bytes) -> str:
        """Store bytes with patience: what they say has been paid for, or has taken effect.

        Raises:
            ArchiveError: The archive could not be written for about a minute.
        """
        return await _patiently(lambda: self.archive.aput(data))

    async def amac(self, text: str) -> str:
        """Make the code of a reference, with the same patience."""
        return await _patiently(lambda: self.archive.amac(text))

    async def written(self, outcome: Outcome) -> None:
        """Write an outcome as Temporal will write it, and read it again; wait for the archive.

        Raises:
            ArchiveError: It is large, and the archive could not be written for about a minute.
            Exception: It cannot be written, or what is written cannot be read.
        """
        converter = activity.client().data_converter
        payloads = await _patiently(lambda: converter.encode([outcome]))
        await converter.decode(payloads, [Outcome])


async def _patiently(write: Callable[[], Awaitable[T]]) -> T:
    """Write to the archive, again and again while it refuses.

    Raises:
        ArchiveError: It did so for about a minute.
    """
    for wait in PATIENCE_SECONDS:
        try:
            return await write()
        except ArchiveError:
            await asyncio.sleep(wait)
    return await write()
