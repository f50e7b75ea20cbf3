"""The context object in the JSON form of a RunState."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel

from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_object
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

Serializer = Callable[[Any], Any]
"""Makes a dict of a context object."""

Deserializer = Callable[[Mapping[str, Any]], Any]


def written(
    context: Any, *, serializer: Serializer | None = None, strict: bool = False
) -> dict[str, Json]:
    """Return the member `context` of a state's JSON form: the data, and how they were made.

    Args:
        context: The context object.
        serializer: Makes a mapping of an object that is not one.
        strict: Whether an object that is not a mapping needs a serializer.

    Raises:
        UserError: There is no serializer where one is needed, or it did not return a mapping.
    """
    if context is None:
        return _entry(None, "none", "none")
    if isinstance(context, Mapping):
        return _entry(dict(cast("Mapping[str, Json]", context)), "mapping", "mapping")
    if serializer is not None:
        data: Any = serializer(context)
        if not is_object(data):
            msg = f"context_serializer must return a dict; it returned {shown(data)}."
            raise UserError(msg)
        made = dict(data)
        return _entry(made, _kind(context), "context_serializer", lost=True)
    if strict:
        msg = (
            f"The context is {_named(context)}, which is not a mapping, and strict_context is set:"
            " pass context_serializer, a function that makes a mapping of it."
        )
        raise UserError(msg)
    return _by_itself(context)


def _by_itself(context: Any) -> dict[str, Json]:
    kind = _kind(context)
    if kind == "custom":
        log.warning(
            "The context, %s, is not serializable and left out of the state. Pass"
            " context_serializer, or context= where the state is run.",
            _named(context),
        )
        return _entry({}, kind, "omitted", omitted=True)
    label = "Pydantic model" if kind == "pydantic" else "dataclass"
    log.warning(
        "The context is the %s %s; the state has its data only. Pass context_deserializer to"
        " RunState.from_json, or context= where the state is run.",
        label,
        _named(context),
    )
    if isinstance(context, BaseModel):
        return _entry(context.model_dump(mode="json"), kind, "model_dump", lost=True)
    return _entry(dataclasses.asdict(context), kind, "asdict", lost=True)


def read(entry: Any, *, deserializer: Deserializer | None = None, strict: bool = False) -> Any:
    """Return the context object of the member `context` of a state's JSON form.

    Args:
        entry: The member.
        deserializer: Makes the object of the data.
        strict: Whether an object whose class was lost needs a deserializer.

    Raises:
        UserError: There is no deserializer where one is needed.
    """
    meta: dict[str, Any] = entry.get("context_meta") or {}
    data = entry.get("context")
    if deserializer is not None and data is not None:
        return deserializer(data)
    if meta.get("requires_deserializer") or meta.get("omitted"):
        msg = (
            f"The state was made with a context that was {meta.get('class_path') or 'an object'}:"
            " pass context_deserializer or context_override, else the context is plain data."
        )
        if strict:
            raise UserError(msg)
        log.warning(msg)
    return data


def as_wrapper(context: Any) -> RunContextWrapper[Any] | None:
    """Return a context as a RunContextWrapper; None for None."""
    if context is None:
        return None
    if isinstance(context, RunContextWrapper):
        return context  # pyright: ignore[reportUnknownVariableType]  cast is redundant for mypy
    return RunContextWrapper(context)


def _entry(
    data: Json, kind: str, via: str, *, lost: bool = False, omitted: bool = False
) -> dict[str, Json]:
    meta = {
        "original_type": kind,
        "serialized_via": via,
        "requires_deserializer": lost,
        "omitted": omitted,
    }
    return {"context": data, "context_meta": meta}


def _kind(context: Any) -> str:
    if isinstance(context, BaseModel):
        return "pydantic"
    return "dataclass" if dataclasses.is_dataclass(context) else "custom"


def _named(context: Any) -> str:
    kind: type[Any] = type(context)  # pyright: ignore[reportUnknownVariableType]  anything is named
    return f"{kind.__module__}.{kind.__qualname__}"
