"""The context object of a run: the caller's value, kept as JSON data in the task's state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.code.code_refs import refer
from holdfast.values.text.shown import shown

KEY = "context"
"""Member of a task's extra_state that holds the context."""


def dump(context: Any) -> Json:
    """Return a context as JSON data.

    Raises:
        UserError: JSON cannot represent it.
    """
    try:
        return merge_patch.written(context, "context")
    except InvalidArgumentError as cause:
        reason = str(cause).rstrip(".")
        msg = (
            f"The context of type {type(context).__name__} cannot be stored as JSON: {reason}. A"
            " run may outlive this process, so its context must be data: None, a dict, a dataclass"
            " or a pydantic model. Let tools open connections and the like themselves."
        )
        raise UserError(msg) from cause


def initial_state(context: Any) -> dict[str, Json]:
    """Return the extra_state of a task that begins with this context.

    Raises:
        UserError: JSON cannot represent it.
    """
    return {} if context is None else {KEY: dump(context)}


def is_typed(context: Any) -> bool:
    """Whether a context is a dataclass or pydantic model, not plain JSON data."""
    kind: Any = type(context)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(context, BaseModel) or dataclasses.is_dataclass(kind)


def type_ref(context: Any) -> str:
    """Return a reference to a context's class; empty for plain JSON data."""
    return refer(type(context)) if is_typed(context) else ""


def kind_of(named: Any) -> type[Any]:
    """Check that the object of a task's reference is a context class, before it is called.

    Raises:
        UserError: It is neither a dataclass nor a pydantic model.
    """
    if isinstance(named, type):
        kind: type[Any] = named
        if issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind):
            return kind
    msg = f"The context's class must be a dataclass or a pydantic model; it was {shown(named)}."
    raise UserError(msg)


def load(data: Json, kind: type[Any] | None) -> Any:
    """Make the context object from JSON data.

    Args:
        data: JSON data from `dump`, perhaps changed since.
        kind: Its class; None for plain JSON data.

    Raises:
        UserError: The data do not fit the class, which has changed since.
    """
    if kind is None or data is None:
        return data
    adapter = TypeAdapter(kind)
    try:
        try:
            return adapter.validate_python(data)
        except ValidationError:  # a strict class takes a date, a tuple or an enum only from JSON
            return adapter.validate_json(json.dumps(data))
    except ValidationError as cause:
        msg = f"The recorded context does not fit {kind.__name__} any more: {cause}"
        raise UserError(msg) from cause


def bring_up_to_date(context: Any, data: Json, kind: type[Any] | None) -> None:
    """Update the caller's own context object in place to the recorded context."""
    if context is None:
        return
    if isinstance(context, dict):
        own = cast("dict[str, Any]", context)
        own.clear()
        own.update(cast("Mapping[str, Any]", data or {}))
        return
    if kind is None:
        return
    now = load(data, kind)
    names = (
        list(type(context).model_fields)
        if isinstance(context, BaseModel)
        else [field.name for field in dataclasses.fields(context)]
    )
    for name in names:
        if getattr(context, name) != getattr(now, name):
            object.__setattr__(context, name, getattr(now, name))
