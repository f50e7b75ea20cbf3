"""Whether a model was shown all that a session holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.client.caller_sessions.tail import Item
from holdfast.values.base import Json, canonical
from holdfast.values.checks.json_shapes import is_array, is_object

_PARTS = ("content", "output", "summary")
_SAID = ("role", "call_id", "name", "arguments", "encrypted_content")


def was_shown(items: Iterable[Item], shown: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all items are among those of a model's last call, in their order.

    An image or file counts as any other: sessions and records keep them in forms of their own.

    Args:
        items: What a session holds.
        shown: What the call was sent, and its answer.
    """
    left = iter([_said(each) for each in shown])
    return all(_said(item) in left for item in items)  # `in` goes on behind what it has found


def _said(item: Mapping[str, Any]) -> bytes:
    """Return what an item says, whatever form a session gives it."""
    said = {key: item[key] for key in _SAID if item.get(key) is not None}
    parts: Item = {key: _parts(item.get(key)) for key in _PARTS}
    return canonical({"type": item.get("type") or "message", **parts, **said})


def _parts(given: Json) -> list[Json]:
    if not is_array(given):
        return [] if given is None else [given]
    return [_part(part) if is_object(part) else part for part in given]


def _part(part: Mapping[str, Json]) -> Json:
    return part["text"] if "text" in part else {"type": part.get("type")}
