"""Ids of a session's items: which of them a provider is sent again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from holdfast.models.openai.item_checks import FAKE_ID
from holdfast.values.checks.json_shapes import is_array, is_object


def without_plain_ids(items: Sequence[Any]) -> list[Any]:
    """Return items without the ids of answers that the provider need not know again.

    It needs them next to reasoning and items of its own tools. Other providers refuse them.
    """
    found: list[Any] = []
    for is_said, some in groupby(items, _is_said):
        block = list(some)
        is_plain = not any(map(_needs_ids, block))
        found += [
            {key: item[key] for key in item if key != "id"}
            if is_said and (is_plain or item.get("id") == FAKE_ID)
            else item
            for item in block
        ]
    return found


def _is_said(item: object) -> bool:
    """Whether an item is of an answer."""
    if not is_object(item) or item.get("type") == "function_call_output":
        return False
    return bool(item.get("role", "assistant") == "assistant")


def _needs_ids(item: Any) -> bool:
    """Whether an item has its meaning for the provider by its id, as those next to it have."""
    if not is_object(item) or item.get("type") == "function_call":
        return False
    content = item.get("content")
    parts = filter(is_object, content) if is_array(content) else ()
    has_more = any(part.get("logprobs") or part.get("annotations") for part in parts)
    return item.get("type", "message") != "message" or "phase" in item or has_more
