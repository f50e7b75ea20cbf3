"""Images and files for a model, as parts of messages and as a provider's items hold them.

An image has its bytes, its address on the web or its id at the provider. A file is what a tool
returns as one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, Self, cast, get_args
from urllib.parse import unquote_to_bytes

from pydantic import ConfigDict, Field, model_serializer

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Worded
from holdfast.values.checks.gate import as_text, is_array, is_object
from holdfast.values.messages import Detail, FilePart, ImagePart, ImageRef
from holdfast.values.text.shown import shown

LARGEST_IMAGE_BYTES = 20 * 1024 * 1024
LONGEST_URL = 8192
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The kinds of images that models read."""

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL)
_REFERENCE = re.compile(
    r"holdfast:([^;]*);size=(\d{1,12});sha256=([0-9a-f]{64})(?:;mac=([0-9a-f]{32}))?"
)


class Image(Worded):
    """A picture; make one with `from_path`, `from_url` or `from_bytes`.

    Holdfast stores its bytes once, in the archive. Messages, steps and results hold an `ImagePart`
    that names them, and the bytes are put in right before a model is called.

    Attributes:
        data: The bytes; empty for an image of the web.
        url: Its address; empty for an image with bytes.
        media_type: As in "image/png"; empty for an image of the web.
        file_id: The provider's id of an image that was uploaded there; empty for others. Only the
            Responses API takes it.
        detail: How closely the model looks at it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: bytes = Field(default=b"", repr=False)
    url: str = ""
    media_type: str = ""
    file_id: str = ""
    detail: Detail = "auto"

    @classmethod
    def from_path(cls, path: str | Path, *, detail: Detail = "auto") -> Self:
        """Read a file.

        Raises:
            InvalidArgumentError: It cannot be read, is above 20 MB, or is not a PNG, JPEG, GIF
                or WebP image.
        """
        if not isinstance(cast("object", path), str | Path):
            msg = f"The path of an image is a str or a Path; it was {shown(path)}."
            raise InvalidArgumentError(msg)
        try:
            size = Path(path).stat().st_size
            if size > LARGEST_IMAGE_BYTES:
                _too_large(f"The image {str(path)!r}", size)
            data = Path(path).read_bytes()
        except OSError as cause:
            reason = cause.strerror or type(cause).__name__
            msg = f"The image {str(path)!r} cannot be read: {reason}. Check the path."
            raise InvalidArgumentError(msg) from cause
        except ValueError as cause:  # a null byte, or characters that no file name has
            msg = f"The image {shown(str(path))} cannot be read: {cause}. Check the path."
            raise InvalidArgumentError(msg) from cause
        return cls._made(data, None, detail, f"The image {str(path)!r}")

    @classmethod
    def from_url(cls, url: str, *, detail: Detail = "auto") -> Self:
        """Name an image of the web, which the provider fetches, or read a `data:` URL.

        Args:
            url: An address that begins with `https:`, at most 8,192 characters, or a `data:` URL.
            detail: How closely the model looks at it.

        Raises:
            InvalidArgumentError: It is neither, or a `data:` URL holds something else, or is larger
                than 20 MB.
        """
        if not isinstance(cast("object", url), str):
            raise InvalidArgumentError(f"The URL of an image is a text; it was {shown(url)}.")
        if url[:5].lower() == "data:":
            media_type, data = read_data_url(url)
            return cls._made(data, media_type, detail, "The image in the data: URL")
        if url[:8].lower() != "https://" or not url[8:].strip():
            raise InvalidArgumentError(
                f"The URL of an image begins with https: or data:, not as {url[:100]!r} does. For a"
                " file use Image.from_path, for bytes Image.from_bytes."
            )
        if len(url) > LONGEST_URL:
            msg = f"The URL of an image has at most {LONGEST_URL} characters; this has {len(url)}."
            raise InvalidArgumentError(msg)
        return cls(url=url, detail=_detail(detail))

    @classmethod
    def from_bytes(
        cls, data: bytes, media_type: str | None = None, *, detail: Detail = "auto"
    ) -> Self:
        """Take the bytes of an image.

        Args:
            data: The file's bytes.
            media_type: As in "image/png"; None finds it out from the first bytes.
            detail: How closely the model looks at it.

        Raises:
            InvalidArgumentError: They are no PNG, JPEG, GIF or WebP image, are not what
                `media_type` says, or are more than 20 MB.
        """
        return cls._made(data, media_type, detail, "The image")

    @classmethod
    def _made(cls, data: bytes, media_type: str | None, detail: Detail, what: str) -> Self:
        if not isinstance(cast("object", data), bytes):
            msg = f"{what} must be given as bytes, not as {type(data).__name__}."
            raise InvalidArgumentError(msg)
        if len(data) > LARGEST_IMAGE_BYTES:
            _too_large(what, len(data))
        found = sniff(data)
        if not found:
            begins = data[:8].hex(" ") or "nothing"
            raise InvalidArgumentError(
                f"{what} is not a PNG, JPEG, GIF or WebP image: its {len(data)} bytes begin with"
                f" {begins}. Convert it to one of these."
            )
        if media_type and media_type.lower().replace("image/jpg", "image/jpeg") != found:
            msg = f"{what} is said to be {media_type!r}, but its first bytes are those of {found}."
            raise InvalidArgumentError(msg)
        return cls(data=data, media_type=found, detail=_detail(detail))

    def part(self) -> ImagePart:
        """Return the part of a message for this image, as an AgentWorker adds it.

        It holds the bytes as a `data:` URL, which becomes a reference before history sees it.
        """
        if self.file_id:
            return ImagePart(kind="image", file_id=self.file_id, detail=self.detail)
        url = self.url or data_url(self.media_type, self.data)
        return ImagePart(kind="image", url=url, detail=self.detail)

    @model_serializer
    def _no_json(self) -> Json:
        msg = "an Image is not JSON data; give it itself, or in a list of texts and images"
        raise ValueError(msg)

    def __str__(self) -> str:
        """Name its kind and size, or its address."""
        if self.url or self.file_id:
            return f"[image {(self.url or self.file_id)[:100]}]"
        return f"[image {self.media_type.removeprefix('image/')} {len(self.data)} bytes]"


def sniff(data: bytes) -> str:
    """Return the media type that the first bytes tell of, or empty."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def read_data_url(url: str) -> tuple[str, bytes]:
    """Return the media type that a `data:` URL tells (perhaps empty), and its bytes (RFC 2397).

    Raises:
        InvalidArgumentError: It cannot be decoded.
    """
    found = _DATA_URL.fullmatch(url)
    if found is None:
        msg = f"The URL {url[:40]!r} is not a data: URL, which reads data:image/png;base64,..."
        raise InvalidArgumentError(msg)
    media_type, options, body = found.groups()
    raw = unquote_to_bytes(body)
    if ";base64" not in options.lower():
        return media_type.lower(), raw
    try:
        return media_type.lower(), base64.b64decode(raw, validate=True)
    except binascii.Error as cause:
        msg = f"The data: URL of type {media_type!r} does not hold Base64: {cause}."
        raise InvalidArgumentError(msg) from cause


def data_url(media_type: str, data: bytes) -> str:
    """Write bytes as a `data:` URL."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def address(part: ImagePart) -> str:
    """Return the URL of an image; one of the archive has a `holdfast:` URL, which holds no bytes.

    Items in the form of the Responses API name images by it, so that what a run gave can be the
    input of another one.
    """
    if part.stored is None:
        return part.url
    return reference(part.stored)


def reference(stored: ImageRef) -> str:
    """Write a reference to the archive as a URL."""
    mac = f";mac={stored.mac}" if stored.mac else ""
    return f"holdfast:{stored.media_type};size={stored.size};sha256={stored.sha256}{mac}"


def reference_in(url: str) -> ImageRef | None:
    """Read what `reference` writes; None for any other text."""
    found = _REFERENCE.fullmatch(url)
    if found is None:
        return None
    media_type, size, sha256, mac = found.groups("")
    return ImageRef(sha256=sha256, size=int(size), media_type=media_type, mac=mac)


def part_at(url: str, detail: Detail = "auto") -> ImagePart:
    """Make the part for an address; whether a reference is genuine is not known yet."""
    stored = reference_in(url)
    if stored is None:
        return ImagePart(kind="image", url=url, detail=detail)
    return ImagePart(kind="image", stored=stored, detail=detail)


def _detail(detail: Detail) -> Detail:
    if detail not in get_args(Detail):
        msg = f"detail={detail!r} is not one of {', '.join(map(repr, get_args(Detail)))}."
        raise InvalidArgumentError(msg)
    return detail


def _too_large(what: str, size: int) -> NoReturn:
    raise InvalidArgumentError(
        f"{what} has {size} bytes; an image may have at most {LARGEST_IMAGE_BYTES} (20 MB). Scale"
        " it down: models see images at a few megapixels."
    )


LARGEST_FILE_BYTES = 20 * 1024 * 1024


def file_data(part: FilePart) -> str:
    """Return the data of a file as items hold it; of one of the archive its `holdfast:` URL."""
    return part.data if part.stored is None else reference(part.stored)


def file_with(data: str, *, url: str = "", file_id: str = "", filename: str = "") -> FilePart:
    """Make the part of a file whose data items hold so."""
    stored = reference_in(data)
    return FilePart(
        kind="file",
        data="" if stored else data,
        stored=stored,
        url=url,
        file_id=file_id,
        filename=filename,
    )


def read_file_data(data: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of `file_data`; the type of plain Base64 is empty.

    Raises:
        InvalidArgumentError: It is neither a `data:` URL nor Base64, or holds more than 20 MB.
    """
    if data[:5].lower() == "data:":
        media_type, found = read_data_url(data)
        media_type = media_type or "application/octet-stream"
    else:
        try:
            media_type, found = "", base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as cause:
            msg = f"The data of a file is Base64 or a data: URL; it begins with {data[:20]!r}."
            raise InvalidArgumentError(msg) from cause
    if len(found) > LARGEST_FILE_BYTES:
        msg = f"A file has {len(found)} bytes; {LARGEST_FILE_BYTES} (20 MB) are the most."
        raise InvalidArgumentError(msg)
    return media_type, found


def write_file_data(media_type: str, data: bytes) -> str:
    """Write the bytes of a file as they were given: in a `data:` URL, or as plain Base64."""
    return data_url(media_type, data) if media_type else base64.b64encode(data).decode()


Item = dict[str, Json]
Kind = Literal["image", "file"]
_KINDS: dict[str, Kind] = {"image_url": "image", "file_data": "file"}
"""Members that name an image or a file."""


def read_image(part: Item) -> ImagePart | None:
    """Read an `input_image` by its address, or else by its id at the provider; None without."""
    told: Json = part.get("detail")
    detail: Detail = told if told in get_args(Detail) else "auto"
    url, file_id = part.get("image_url"), as_text(part.get("file_id"))
    if file_id and not url:
        return ImagePart(kind="image", file_id=file_id, detail=detail)
    return part_at(url, detail) if isinstance(url, str) else None


class Named(NamedTuple):
    """An image or file that an item names.

    Attributes:
        kind: Which of them.
        url: Its `holdfast:` URL, true or not.
    """

    kind: Kind
    url: str


def named_in(items: Sequence[Json]) -> Iterator[Named]:
    """Yield what items name by `holdfast:` URLs, at any depth."""
    ahead = list(items)
    while ahead:
        data = ahead.pop()
        if is_array(data):
            ahead += data
        elif is_object(data):
            ahead += data.values()
            found = (_named(key, data[key]) for key in _KINDS if key in data)
            yield from (each for each in found if each is not None)


def renamed(items: Sequence[Item], found: Mapping[Named, str]) -> tuple[Item, ...]:
    """Return items with other addresses instead of those found."""
    return tuple({key: _renamed(key, item[key], found) for key in item} for item in items)


def _renamed(key: str, data: Json, found: Mapping[Named, str]) -> Json:
    if is_object(data):
        return {each: _renamed(each, data[each], found) for each in data}
    if is_array(data):
        return [_renamed("", each, found) for each in data]
    named = _named(key, data)
    return data if named is None else found[named]


def _named(key: str, data: Json) -> Named | None:
    kind = _KINDS.get(key)
    if kind is None or not isinstance(data, str) or data[:9].lower() != "holdfast:":
        return None
    return Named(kind, data)
