"""Whether a model was shown all that a session holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.client.caller_sessions.tail import Item
from holdfast.values.base import Json, canonical
from holdfast.values.checks.json_shapes import is_array, is_object

_SAID = ("role", "call_id", "name", "arguments", "output", "summary", "encrypted_content")


def was_shown(items: Iterable[Item], shown: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all items are among those of a model's last call, in their order.

    Args:
        items: What a session holds.
        shown: What the call was sent, and its answer.
    """
    left = iter([_said(each) for each in shown])
    return all(_said(item) in left for item in items)  # `in` goes on behind what it has found


def _said(item: Mapping[str, Any]) -> bytes:
    """Return what an item says, whatever form a session gives it."""
    kind = item.get("type") or "message"
    return canonical(
        {
            "type": kind,
            "content": _content(item.get("content")),
            **{key: item[key] for key in _SAID if item.get(key) is not None},
        }
    )


def _content(given: Json) -> Json:
    if not is_array(given):
        return [] if given is None else [given]
    return [part["text"] if is_object(part) and "text" in part else _known(part) for part in given]


def _known(part: Json) -> Json:
    return {k: v for k, v in part.items() if v is not None} if is_object(part) else part
