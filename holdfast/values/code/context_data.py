"""The context object of a run: the caller's value, kept as JSON data in the task's state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object, is_array, is_object
from holdfast.values.code.code_refs import refer
from holdfast.values.text.logs import log
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


class CallersContext:
    """The context object of a run's caller, which gets what the run changes in it.

    What the caller or its hooks change meanwhile stays, unless the run changes it, too.

    Attributes:
        object: The object; None for none.
    """

    def __init__(self, context: Any) -> None:
        """Take an object, with which no run has begun yet."""
        self.object: Any = context
        self._kind: type[Any] | None = context.__class__ if is_typed(context) else None
        self._known: Json = None

    def begins(self) -> None:
        """Note the data with which a call of a run begins.

        Of data that the class does not give back, as members of a subclass of what an annotation
        says, a warning tells: tools would not get them.

        Raises:
            UserError: JSON cannot represent them.
        """
        if self.object is None:
            return
        self._known = dump(self.object)
        if self._kind is None:
            return
        with suppress(UserError):  # the class does not take its own data: each use says so
            kept = dump(load(self._known, self._kind))
            lost = _missing(to_jsonable_python(self.object, serialize_as_any=True), kept, "context")
            if lost:
                log.warning(
                    "Tools get the context of type %s without %s: the annotation there has no such"
                    " member. Name the classes of what it may hold",
                    self._kind.__name__,
                    lost,
                )

    def update(self, data: Json) -> None:
        """Change in the object what differs between the data it began with and those of the run.

        Lists, dicts and sets are changed in place: other variables may hold them.

        Raises:
            UserError: The data do not fit the class, which has changed since.
        """
        if self.object is None or data == self._known:
            return
        own = self.object
        if is_object(own):
            was, now = as_object(self._known), as_object(data)
            for name in was.keys() - now.keys():
                own.pop(name, None)
            for name in _changed(was, now):
                own[name] = _into(own.get(name), now[name])
        elif self._kind is not None:
            was, now = (_fields(load(each, self._kind)) for each in (self._known, data))
            for name in _changed(was, now):
                object.__setattr__(own, name, _into(getattr(own, name, None), now[name]))
        self._known = data


def _fields(context: Any) -> dict[str, Any]:
    """Return the fields of a context that is a dataclass or a pydantic model."""
    if context is None:
        return {}
    names = (
        list(type(context).model_fields)
        if isinstance(context, BaseModel)
        else [field.name for field in dataclasses.fields(context)]
    )
    return {name: getattr(context, name) for name in names if hasattr(context, name)}


def _changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [name for name in now if name not in was or was[name] != now[name]]


def _missing(given: Json, kept: Json, path: str) -> str:
    """Return the path of a member that the data had and have no more; empty for none."""
    pairs: list[tuple[str, Json, Json]] = []
    if is_object(given) and is_object(kept):
        gone = next((name for name in given if name not in kept), None)
        if gone is not None:
            return f"{path}.{gone}"
        pairs = [(f"{path}.{name}", given[name], kept[name]) for name in given]
    elif is_array(given) and is_array(kept):
        pairs = [(f"{path}[{i}]", *both) for i, both in enumerate(zip(given, kept, strict=False))]
    found = (_missing(had, has, where) for where, had, has in pairs)
    return next(filter(None, found), "")


def _into(held: Any, value: Any) -> Any:
    """Put a value into the container that a field holds, if it holds one of its kind."""
    kind: Any = held.__class__
    if kind is not type(value) or kind not in (list, dict, set):
        return value
    held.clear()
    (held.extend if kind is list else held.update)(value)
    return held
