"""The context object of a run: the caller's value, kept as JSON data in the task's state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object, is_array, is_object
from holdfast.values.code.checker_imports import adapter_of, note_parts
from holdfast.values.code.code_refs import refer
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown, type_shown

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
            f"The context of type {type_shown(context)} cannot be stored as JSON: {reason}. A"
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
        UserError: The data do not fit the class, which has changed since, or the class has an
            annotation that names something unknown.
    """
    if kind is None or data is None:
        return data
    adapter = adapter_of(kind)
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

    def __init__(self, context: Any, known: Json = None) -> None:
        """Take an object.

        Args:
            context: The object.
            known: The data that it was last brought up to, if an earlier call of its run did that.
        """
        self.object: Any = context
        self._kind: type[Any] | None = context.__class__ if is_typed(context) else None
        self._known = known

    def begins(self) -> None:
        """Note the data with which a new run begins.

        Of members that the class does not give back, as those of a subclass of what an annotation
        says, a warning tells: tools would not get them.

        So it does of a class with an annotation that names something unknown.

        Raises:
            UserError: JSON cannot represent the data.
        """
        if self.object is None:
            return
        self._known = dump(self.object)
        if self._kind is None:
            return
        note_parts(self.object)
        try:
            adapter_of(self._kind)
        except UserError as error:
            log.warning("Tools cannot get the context of this run: %s", error)
            return
        except Exception:  # noqa: BLE001  a type that pydantic does not know: each use says so
            return
        lost = ""
        with suppress(Exception):  # of the class's own code: each use of the data says so
            kept = dump(load(self._known, self._kind))
            lost = _missing(to_jsonable_python(self.object, serialize_as_any=True), kept, "context")
        if lost:
            log.warning(
                "Tools get the context of type %s without %s: the annotation there has no such"
                " member. Name the classes of what it may hold",
                self._kind.__name__,
                lost,
            )

    def goes_on(self) -> None:
        """Note the data with which a run goes on, if the object's are not known yet."""
        if self._known is None and self.object is not None:
            with suppress(UserError):  # what is no data gets nothing: the task has its own
                self._known = dump(self.object)

    def update(self, data: Json) -> None:
        """Change in the object what differs between the data it began with and those of the run.

        Lists, dicts and sets are changed in place: other variables may hold them.

        Raises:
            UserError: The data do not fit the class, which has changed since.
        """
        if self.object is None or merge_patch.same(data, self._known):
            return
        was, now = as_object(self._known), as_object(data)
        changed = {key for key in now if key not in was or not merge_patch.same(was[key], now[key])}
        if is_object(self.object):
            _update_dict(self.object, now, changed, gone=was.keys() - now.keys())
        elif self._kind is not None:
            _update_fields(self.object, load(data, self._kind), changed)
        self._known = data


def _update_dict(
    own: dict[Any, Any], now: Mapping[str, Json], changed: Collection[str], *, gone: Collection[str]
) -> None:
    names = {str(name): name for name in own}  # JSON has texts as keys
    for key in gone:
        own.pop(names.get(key, key), None)
    for key in (each for each in now if each in changed):
        name = names.get(key, key)
        own[name] = _into(own.get(name), now[key])


def _update_fields(own: Any, made: Any, changed: Collection[str]) -> None:
    """Set the fields of a dataclass or pydantic model whose data have changed.

    Args:
        own: The caller's object.
        made: An object made of the new data.
        changed: Their changed members.
    """
    for name, key in _fields(made).items():
        if key in changed:
            value = _into(getattr(own, name, None), getattr(made, name, None))
            object.__setattr__(own, name, value)
            if isinstance(own, BaseModel):
                own.__pydantic_fields_set__.add(name)
    more: dict[str, Any] | None = getattr(made, "__pydantic_extra__", None)
    for name in more or ():
        if name in changed:
            setattr(own, name, (more or {})[name])


def _fields(context: Any) -> dict[str, str]:
    """Return the fields of a dataclass or a pydantic model, with their names in its data."""
    if not isinstance(context, BaseModel):
        return {field.name: field.name for field in dataclasses.fields(context)}
    fields = type(context).model_fields.items()
    return {name: each.serialization_alias or each.alias or name for name, each in fields}


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
