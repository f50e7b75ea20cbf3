"""Large contents of messages in transit to the archive and back: texts, and bytes of images."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hmac import compare_digest
from typing import NoReturn, Protocol, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.messages import (
    Blob,
    Content,
    FilePart,
    ImagePart,
    ImageRef,
    Message,
    Part,
    TextPart,
)
from holdfast.values.parts.images import (
    LARGEST_IMAGE_BYTES,
    Image,
    Kind,
    Named,
    named_in,
    read_data_url,
    read_file_data,
    reference,
    reference_in,
    renamed,
    sniff,
)
from holdfast.values.text.shown import shown

ReadText = Callable[[Blob], Awaitable[str]]
"""Reads a text of the archive."""
ReadData = Callable[[Kind, ImageRef], Awaitable[str]]
"""Reads an image or file of the archive as a `data:` URL; a file perhaps as plain Base64."""


class Store(Protocol):
    """Where the bytes of images and files are kept, such as an `Archive`."""

    def aput(self, data: bytes) -> Awaitable[str]:
        """Store bytes and return their SHA-256."""
        ...

    async def amac(self, text: str) -> str:
        """Return the code of a text that only the archive's programs can make."""
        ...


async def read_json(output: Json, stored: Blob | None, text: ReadText) -> Json:
    """Return JSON data that is recorded as it is, or in the archive when it is large."""
    if stored is None:
        return output
    read = await text(stored)
    return json.loads(read) if stored.is_json else read


async def store_image(image: Image, store: Store) -> ImagePart:
    """Store an image's bytes; return the part that names them."""
    if image.url or image.file_id:
        return image.part()
    ref = await _kept("image", image.data, image.media_type, store)
    return ImagePart(kind="image", stored=ref, detail=image.detail)


async def store_images(images: Iterable[Image | ImagePart], store: Store) -> tuple[ImagePart, ...]:
    """Store the bytes of several images, after checking all of them.

    Raises:
        InvalidArgumentError: One is not an image, and nothing was stored; or one is a reference
            that was not made for this archive.
    """
    if not isinstance(cast("object", images), Iterable):
        msg = f"images must be a list of Images; it was {shown(images)} ({type(images).__name__})."
        raise InvalidArgumentError(msg)
    given = list(images)
    for image in given:
        if not isinstance(cast("object", image), Image | ImagePart):
            raise InvalidArgumentError(
                f"images holds {type(image).__name__}, not Image. Make one with Image.from_path,"
                " Image.from_url or Image.from_bytes."
            )
    return tuple(
        [
            await (store_image(each, store) if isinstance(each, Image) else refer(each, store))
            for each in given
        ]
    )


async def refer(part: ImagePart, store: Store) -> ImagePart:
    """Store what a `data:` URL holds and name it by reference; check a reference that is given.

    Images of the web stay as they are. The media type stays the one in the URL, so that a
    model is sent what was given; which types it reads is for its provider to say.

    Raises:
        InvalidArgumentError: It cannot be decoded, or holds more than 20 MB; or it is a reference
            that was not made for this archive.
    """
    if part.stored is not None or part.url[:9].lower() == "holdfast:":
        return await checked(part, store)
    if part.url[:5].lower() != "data:":
        return part
    told, data = read_data_url(part.url)
    if len(data) > LARGEST_IMAGE_BYTES:
        msg = f"An image of a message has {len(data)} bytes; {LARGEST_IMAGE_BYTES} are the most."
        raise InvalidArgumentError(msg)
    media_type = told or sniff(data) or "application/octet-stream"
    ref = await _kept("image", data, media_type, store)
    return part.model_copy(update={"url": "", "stored": ref})


async def checked(part: ImagePart, store: Store) -> ImagePart:
    """Return a part whose reference the archive's programs have made.

    The digest alone must not do: it would give other users' images to any caller with the digest.

    Raises:
        InvalidArgumentError: It has no code, or a wrong one; or it is not a reference.
    """
    if part.stored is None:
        _refuse("image", part.url)
    await check_reference("image", part.stored, store)
    return part


async def refer_file(part: FilePart, store: Store) -> FilePart:
    """Do with a file what `refer` does with an image.

    Raises:
        InvalidArgumentError: The data cannot be decoded or is too large, or as for `refer`.
    """
    if part.stored is not None:
        await check_reference("file", part.stored, store)
        return part
    if not part.data:
        return part
    if part.data[:9].lower() == "holdfast:":
        _refuse("file", part.data)
    media_type, data = read_file_data(part.data)
    ref = await _kept("file", data, media_type, store)
    return part.model_copy(update={"data": "", "stored": ref})


async def check_reference(kind: Kind, ref: ImageRef, store: Store) -> None:
    """Refuse a reference that the archive's programs have not made.

    Raises:
        InvalidArgumentError: Its code is missing or wrong.
    """
    if not (ref.mac.isascii() and compare_digest(ref.mac, await _mac(kind, ref, store))):
        _refuse(kind, reference(ref))


def _refuse(kind: Kind, what: str) -> NoReturn:
    raise InvalidArgumentError(
        f"The {kind} {shown(what, 300)} is not a reference that was made for this archive: its"
        f" code (mac) is missing or wrong. Give the {kind} itself, or its reference unchanged, as a"
        " run or a session of the same archive gave it."
    )


def _true_form(named: Named) -> ImageRef:
    """Read the reference in an item."""
    return reference_in(named.url) or _refuse(named.kind, named.url)


async def _kept(kind: Kind, data: bytes, media_type: str, store: Store) -> ImageRef:
    """Store the bytes of an image or file and make the reference to them."""
    ref = ImageRef(sha256=await store.aput(data), size=len(data), media_type=media_type)
    return ref.model_copy(update={"mac": await _mac(kind, ref, store)})


async def _mac(kind: Kind, ref: ImageRef, store: Store) -> str:
    """Return the code of a reference: for what it is, its digest, size and type."""
    return await store.amac(f"{kind} {ref.sha256} {ref.size} {ref.media_type}")


async def refer_any(part: ImagePart | FilePart, store: Store) -> ImagePart | FilePart:
    """Name an image or file by reference."""
    return await (refer(part, store) if isinstance(part, ImagePart) else refer_file(part, store))


async def refer_all(messages: Sequence[Message], store: Store) -> list[Message]:
    """Name the images of messages that are given by reference; check references in their items.

    Raises:
        InvalidArgumentError: As for `refer`; or a text is a reference to the archive.
    """

    async def change(part: Part) -> Part:
        return part if isinstance(part, TextPart) else await refer_any(part, store)

    for message in messages:
        check_whole(message)
        for named in named_in(message.items):
            await check_reference(named.kind, _true_form(named), store)
    return [await with_parts(message, change) for message in messages]


def check_whole(message: Message) -> None:
    """Refuse a given message whose text or items are a reference to the archive.

    Only Holdfast makes such messages, and gives them out with their texts put in.

    Raises:
        InvalidArgumentError: It has one.
    """
    if isinstance(message.content, str) and message.kept is None:
        return
    parts = message.content if isinstance(message.content, tuple) else ()
    texts = [part.stored for part in parts if isinstance(part, TextPart)]
    whole = message.content if isinstance(message.content, Blob) else None
    found = next((blob for blob in (whole, message.kept, *texts) if blob is not None), None)
    if found is not None:
        raise InvalidArgumentError(
            f"A message that is given holds its text; the one of role {message.role!r} names the"
            f" blob {found.sha256[:8]}.. of the archive in its place. Give the text itself."
        )


async def resolve(content: Content, read: ReadText) -> Content:
    """Put archived texts into a content; images stay references."""
    if isinstance(content, Blob):
        return await read(content)
    if isinstance(content, str):
        return content
    return tuple([await _resolved(part, read) for part in content])


async def resolve_message(message: Message, read: ReadText) -> Message:
    """Put archived texts and provider items into a message; images stay references."""
    if isinstance(message.content, str) and message.kept is None:
        return message
    changes: dict[str, object] = {"content": await resolve(message.content, read)}
    if message.kept is not None:
        changes |= {"items": tuple(json.loads(await read(message.kept))), "kept": None}
    return message.model_copy(update=changes)


async def _resolved(part: Part, read: ReadText) -> Part:
    if not isinstance(part, TextPart) or part.stored is None:
        return part
    return TextPart(kind="text", text=await read(part.stored))


async def rehydrate(message: Message, data_of: ReadData) -> Message:
    """Put the bytes of its images and files into a message, as texts: for the model alone.

    Also into items that are kept whole, where what a run gave is next to parts unknown here.

    Raises:
        InvalidArgumentError: An item names an image or file by something other than a reference.
    """

    async def change(part: Part) -> Part:
        if isinstance(part, TextPart) or part.stored is None:
            return part
        if isinstance(part, ImagePart):
            data = {"url": await data_of("image", part.stored)}
        else:
            data = {"data": await data_of("file", part.stored)}
        return part.model_copy(update={**data, "stored": None})

    named = set(named_in(message.items))
    if named:
        found = {each: await data_of(each.kind, _true_form(each)) for each in named}
        message = message.model_copy(update={"items": renamed(message.items, found)})
    return await with_parts(message, change)


async def with_parts(message: Message, change: Callable[[Part], Awaitable[Part]]) -> Message:
    """Change the parts of a message that has parts."""
    if isinstance(message.content, str | Blob):
        return message
    parts = tuple([await change(part) for part in message.content])
    return message if parts == message.content else message.model_copy(update={"content": parts})
