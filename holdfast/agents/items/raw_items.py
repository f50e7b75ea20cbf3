"""Items in the form of the Responses API, as dicts or as objects of the openai package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from holdfast.errors import WrongTypeError
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_array, is_object
from holdfast.values.text.shown import shown

OUTPUT_ONLY = "created_by"
"""Member of items of a provider that it does not take back as input."""


class RawItem(dict[str, Any]):  # noqa: PLW1641  it may change, as any dict
    """An item in the form of the Responses API; its members can be read as attributes as well."""

    def __getattr__(self, name: str) -> Any:
        """Return a member."""
        try:
            return _readable(self[name])
        except KeyError:
            msg = f"This item has {', '.join(map(repr, self))}; there is no {name!r} in it."
            raise AttributeError(msg) from None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same item, also as an object of `openai.types.responses`."""
        if isinstance(other, Mapping):
            return super().__eq__(cast("Mapping[str, Any]", other))
        return hasattr(other, "model_dump") and _without_none(self) == _without_none(plain(other))

    def __ne__(self, other: object) -> bool:
        """Whether it is another item."""
        return not self == other


def plain(raw: Any) -> dict[str, Json]:
    """Return an item as a dict.

    Args:
        raw: A mapping, or a pydantic object as `openai.types.responses` has them.

    Raises:
        WrongTypeError: It is neither.
    """
    if isinstance(raw, Mapping):
        return dict(cast("Mapping[str, Json]", raw))
    dump = getattr(raw, "model_dump", None)
    if dump is None or isinstance(raw, type):
        msg = (
            "An item is a dict in the form of the Responses API, or an object of"
            f" openai.types.responses; it was {shown(raw)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        )
        raise WrongTypeError(msg)
    # Parts of a streamed answer that was not validated may have members of any type.
    made: dict[str, Json] = dump(by_alias=True, exclude_unset=True, warnings=False)
    return made


def member(raw: Any, *names: str) -> Any:
    """Return the first of an item's members that is neither missing nor empty, or None."""
    for name in names:
        found = _get(raw, name)
        if found is not None and found != "":
            return found
    return None


def _get(raw: Any, name: str) -> Any:
    if isinstance(raw, Mapping):
        return cast("Mapping[str, Any]", raw).get(name)
    return getattr(raw, name, None)


def replayable(raw: Any) -> dict[str, Json]:
    """Return an item of an answer as input for another call, without what is of output only.

    Raises:
        WrongTypeError: It is not an item.
    """
    item = plain(raw)
    item.pop(OUTPUT_ONLY, None)
    if item.get("type") == "shell_call_output" and is_array(item.get("output")):
        item["output"] = [
            {key: value for key, value in part.items() if key != OUTPUT_ONLY}
            if is_object(part)
            else part
            for part in item["output"]
        ]
    return item


def dumped(value: Any) -> Json:
    """Copy data so that `json.dumps` takes them: objects become dicts, other iterables lists."""
    if isinstance(value, Mapping):
        return {key: dumped(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return dumped(plain(value))
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [dumped(each) for each in value]  # pyright: ignore[reportUnknownVariableType]  anything is copied
    return value


def _without_none(value: Any) -> Any:
    """Leave out members that are None: the API has them, and they say nothing."""
    if is_object(value):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if is_array(value) else value


def _readable(value: Any) -> Any:
    if is_object(value):
        return RawItem(value)
    return [_readable(each) for each in value] if is_array(value) else value
