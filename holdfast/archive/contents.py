"""Large contents of messages on their way to the archive and back: texts, and bytes of images."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.images import LARGEST_IMAGE_BYTES, Image, read_data_url, sniff
from holdfast.values.messages import Blob, Content, ImagePart, ImageRef, Message, Part, TextPart
from holdfast.values.text.shown import shown

Put = Callable[[bytes], Awaitable[str]]
"""Stores bytes and returns their SHA-256."""
ReadText = Callable[[Blob], Awaitable[str]]
"""Reads a text of the archive."""
ImageUrl = Callable[[ImageRef], Awaitable[str]]
"""Reads an image of the archive as a `data:` URL."""


async def read_json(output: Json, stored: Blob | None, text: ReadText) -> Json:
    """Return JSON data that is recorded as it is, or in the archive when it is large."""
    if stored is None:
        return output
    read = await text(stored)
    return json.loads(read) if stored.is_json else read


async def store_image(image: Image, put: Put) -> ImagePart:
    """Store an image's bytes; return the part that names them."""
    if image.url or image.file_id:
        return image.part()
    ref = ImageRef(sha256=await put(image.data), size=len(image.data), media_type=image.media_type)
    return ImagePart(kind="image", stored=ref, detail=image.detail)


async def store_images(images: Iterable[Image | ImagePart], put: Put) -> tuple[ImagePart, ...]:
    """Store the bytes of several images, after checking all of them.

    Raises:
        InvalidArgumentError: One of them is no image; nothing was stored.
    """
    if not isinstance(cast("object", images), Iterable):
        msg = f"images must be a list of Images; it was {shown(images)} ({type(images).__name__})."
        raise InvalidArgumentError(msg)
    given = list(images)
    for image in given:
        if not isinstance(cast("object", image), Image | ImagePart):
            msg = (
                f"images holds {type(image).__name__}, not Image. Make one with Image.from_path,"
                " Image.from_url or Image.from_bytes."
            )
            raise InvalidArgumentError(msg)
    return tuple(
        [
            await (store_image(each, put) if isinstance(each, Image) else refer(each, put))
            for each in given
        ]
    )


async def refer(part: ImagePart, put: Put) -> ImagePart:
    """Store what a `data:` URL holds and name it by reference; other images stay as they are.

    The media type stays the one that the URL tells, so that a model is sent what was given; which
    types it reads is for its provider to say.

    Raises:
        InvalidArgumentError: It cannot be decoded, or holds more than 20 MB.
    """
    if part.url[:5].lower() != "data:":
        return part
    told, data = read_data_url(part.url)
    if len(data) > LARGEST_IMAGE_BYTES:
        msg = f"An image of a message has {len(data)} bytes; {LARGEST_IMAGE_BYTES} are the most."
        raise InvalidArgumentError(msg)
    media_type = told or sniff(data) or "application/octet-stream"
    ref = ImageRef(sha256=await put(data), size=len(data), media_type=media_type)
    return part.model_copy(update={"url": "", "stored": ref})


async def refer_all(messages: Sequence[Message], put: Put) -> list[Message]:
    """Name the images of messages by reference."""

    async def change(part: Part) -> Part:
        return await refer(part, put) if isinstance(part, ImagePart) else part

    return [await with_parts(message, change) for message in messages]


async def resolve(content: Content, read: ReadText) -> Content:
    """Put archived texts into a content; images stay references."""
    if isinstance(content, Blob):
        return await read(content)
    if isinstance(content, str):
        return content
    return tuple([await _resolved(part, read) for part in content])


async def resolve_message(message: Message, read: ReadText) -> Message:
    """Put archived texts and provider items into a message; images stay references."""
    changes: dict[str, object] = {"content": await resolve(message.content, read)}
    if message.kept is not None:
        changes |= {"items": tuple(json.loads(await read(message.kept))), "kept": None}
    return message.model_copy(update=changes)


async def _resolved(part: Part, read: ReadText) -> Part:
    if not isinstance(part, TextPart) or part.stored is None:
        return part
    return TextPart(kind="text", text=await read(part.stored))


async def rehydrate(message: Message, url_of: ImageUrl) -> Message:
    """Put the bytes of its images into a message, as `data:` URLs: for the model alone."""

    async def change(part: Part) -> Part:
        if not isinstance(part, ImagePart) or part.stored is None:
            return part
        return part.model_copy(update={"url": await url_of(part.stored), "stored": None})

    return await with_parts(message, change)


async def with_parts(message: Message, change: Callable[[Part], Awaitable[Part]]) -> Message:
    """Change the parts of a message that has parts."""
    if isinstance(message.content, str | Blob):
        return message
    parts = tuple([await change(part) for part in message.content])
    return message if parts == message.content else message.model_copy(update={"content": parts})
