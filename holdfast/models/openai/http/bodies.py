"""Bodies of requests: each message is encoded once, and the pieces are joined for each request.

The client's own methods (`client.responses.create`) walk through the whole conversation at each
call, so that a run costs the square of its length.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.messages import Blob, Message, TextPart

HEAVY_BYTES = 64 * 1024
"""From this size on, encoding and decoding leave the event loop, which heartbeats need."""

LIMIT_BYTES = 64 * 1024 * 1024
"""Most bytes of encoded messages that a process keeps."""

_REFERENCE = re.compile(rb'"(?:image_url|file_data)":(?:\{"url":)?"holdfast:')
"""In texts there is a backslash before each quotation mark."""

Write = Callable[[Message], Sequence[Json]]
"""Writes one message as items of a conversation."""


class EncodedMessages:
    """The messages that were sent last, encoded; bounded in bytes.

    A message is known by its identity: worker processes keep the messages of a task's transcript
    from step to step, and messages are never changed. Used from several threads.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._size = 0
        self._kept: OrderedDict[tuple[Write, int], tuple[Message, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    async def pieces(self, messages: Sequence[Message], write: Write) -> list[bytes]:
        """Return messages as JSON, their items separated by commas; empty where there are none.

        Args:
            messages: The messages.
            write: Writes one; the same function is the same form.

        Raises:
            InvalidArgumentError: A content, or an image or file, is a reference to the archive.
            ValueError: JSON cannot represent a message.
        """
        with self._lock:
            found = [self._known(message, write) for message in messages]
        missing = [k for k, piece in enumerate(found) if piece is None]
        if missing:
            new = [messages[k] for k in missing]
            is_heavy = sum(map(_weight, new)) > HEAVY_BYTES
            made = await asyncio.to_thread(_all, new, write) if is_heavy else _all(new, write)
            with self._lock:
                for k, piece in zip(missing, made, strict=True):
                    found[k] = piece
                    self._keep(messages[k], write, piece)
        return [piece for piece in found if piece is not None]

    def _known(self, message: Message, write: Write) -> bytes | None:
        key = (write, id(message))
        kept = self._kept.get(key)
        if kept is None or kept[0] is not message:
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def _keep(self, message: Message, write: Write, piece: bytes) -> None:
        key = (write, id(message))  # the id stays its own as long as the message is kept here
        if key in self._kept or message.images or message.files:
            return  # those are made again for each call: history and memories lack their bytes
        self._kept[key] = (message, piece)
        self._size += len(piece)
        while self._size > LIMIT_BYTES and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._size -= len(dropped)


encoded_messages = EncodedMessages()
"""Those of this process."""


@dataclass(frozen=True)
class RequestBody:
    """The body of one request.

    Attributes:
        fields: All fields but the conversation.
        name: Name of the field of the conversation: "input" or "messages".
        conversation: The conversation as pieces of JSON, items separated by commas.
    """

    fields: dict[str, Json]
    name: str
    conversation: Sequence[bytes]

    def __contains__(self, name: str) -> bool:
        """Whether the body has this field."""
        return name == self.name or name in self.fields

    def joined(self, extra: dict[str, Json]) -> RequestBody:
        """Return the body with fields put over its own."""
        fields = {**self.fields, **extra}
        return RequestBody(fields, "" if self.name in extra else self.name, self.conversation)

    def encoded(self) -> bytes:
        """Return the body as JSON."""
        fields = dumps(self.fields)
        if not self.name:
            return fields
        rest = b"," + fields[1:] if self.fields else fields[1:]
        return b"".join((b"{", dumps(self.name), b":", self._items(), rest))

    def data(self) -> dict[str, Json]:
        """Return the body as JSON data."""
        if not self.name:
            return self.fields
        return {self.name: json.loads(self._items()), **self.fields}

    def _items(self) -> bytes:
        """Return the conversation as a JSON array."""
        return b"[" + b",".join(filter(None, self.conversation)) + b"]"


def dumps(data: Json) -> bytes:
    """Write JSON as the client does.

    Raises:
        ValueError: A number is not finite, or a text is not Unicode.
    """
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _all(messages: Sequence[Message], write: Write) -> list[bytes]:
    return [_resolved(b",".join(map(dumps, write(message)))) for message in messages]


def _resolved(piece: bytes) -> bytes:
    """Refuse a reference that no one could resolve: it would tell its code to the provider.

    Raises:
        InvalidArgumentError: There is one.
    """
    if b'"holdfast:' in piece and _REFERENCE.search(piece):  # the first is much faster
        raise InvalidArgumentError(
            "An image or a file of the conversation is still a reference to the archive, which"
            " no model can read. Give it itself, in an item of a message or of a function's output."
        )
    return piece


def _weight(message: Message) -> int:
    return sum(_lengths(message))


def _lengths(message: Message) -> Iterator[int]:
    content = message.content
    if isinstance(content, str):
        yield len(content)
    elif not isinstance(content, Blob):
        for part in content:
            yield len(part.text) if isinstance(part, TextPart) else len(part.url)
            yield len(getattr(part, "data", ""))
    for call in message.calls:
        yield len(call.arguments)
    for item in message.items:
        yield sum(len(value) if isinstance(value, str) else 200 for value in item.values())
