"""Images and files in provider items: how one is read, and references in items kept whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_text, is_array, is_object
from holdfast.values.messages import Detail, ImagePart
from holdfast.values.parts.images import part_at

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
