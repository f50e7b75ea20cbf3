"""The context object of a run: the caller's value, kept as JSON data in the task's state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, is_array, is_object
from holdfast.values.code.checker_imports import adapter_of
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
        raise UserError(
            f"The context of type {type_shown(context)} cannot be stored as JSON: {reason}. A"
            " run may outlive this process, so its context must be data: None, a dict, a dataclass"
            " or a pydantic model. Let tools open connections and the like themselves."
        ) from cause


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
            made = adapter.validate_python(data)
        except ValidationError:  # a strict class takes a date, a tuple or an enum only from JSON
            made = adapter.validate_json(json.dumps(data))
        _fill(made, data)
    except ValidationError as cause:
        msg = f"The recorded context does not fit {kind.__name__} any more: {cause}"
        raise UserError(msg) from cause
    return made


def _fill(made: Any, data: Json) -> None:
    """Set what `__init__` does not take, `field(init=False)`, in what was made of data."""
    kind: Any = type(made)  # pyright: ignore[reportUnknownVariableType]
    if is_array(data) and kind in (list, tuple):
        for pair in zip(made, data, strict=False):
            _fill(*pair)
    if not is_object(data):
        return
    if dataclasses.is_dataclass(kind):
        unset = [each.name for each in dataclasses.fields(kind) if not each.init]
        hints = get_type_hints(kind, include_extras=True) if unset else {}
        for name in (each for each in unset if each in data):
            value = TypeAdapter(hints[name]).validate_python(data[name])
            object.__setattr__(made, name, value)
    for name, value in data.items():
        _fill(made.get(name) if kind is dict else getattr(made, name, None), value)


class CallersContext:
    """The context object of a run's caller, which gets what the run changes in it.

    What the caller or its hooks change meanwhile stays, unless the run changes it as well.

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
        says, or private ones, a warning tells: tools would not get them.

        So it does of a class with an annotation that names something unknown.

        Raises:
            UserError: JSON cannot represent the data, or the class makes something else of them.
        """
        if self.object is None:
            return
        if used_up := _used_up(self.object, "context", set()):
            raise UserError(
                f"{used_up} can be read once, as a generator or an open file: a run, whose tools"
                " get the context as data, would use it up. Let tools open it themselves."
            )
        self._known = dump(self.object)
        if self._kind is None:
            return
        try:
            adapter_of(self._kind)
        except UserError as error:
            log.warning("Tools cannot get the context of this run: %s", error)
            return
        except Exception:  # noqa: BLE001  a type that pydantic does not know: each use says so
            return
        try:
            made = load(self._known, self._kind)
            kept = dump(made)
        except Exception as cause:  # the class's own code
            raise self._refused(str(cause)) from cause
        if changed := _differs(self._known, kept, "context", gone=False):
            raise self._refused(f"{changed} is another one then")
        lost = _differs(_all_of(self.object), _all_of(made), "context")
        if lost:
            log.warning(
                "Tools get the context of type %s without %s: it is private, or the annotation"
                " there has no such member. Name the classes of what it may hold",
                self._kind.__name__,
                lost,
            )

    def _refused(self, why: str) -> UserError:
        return UserError(
            f"The context of type {type_shown(self.object)} cannot be made again of its data, as"
            f" each tool gets it: {why.rstrip('.')}. Let `__init__` take, and leave as it is, what"
            " the object holds."
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


def _differs(given: Json, kept: Json, path: str, *, gone: bool = True) -> str:
    """Return the path of what is another value, or with `gone` is not there any more, else empty.

    The order of a list does not count: it may be that of a set.
    """
    pairs: list[tuple[str, Json, Json]] = []
    if is_object(given) and is_object(kept):
        left = [name for name in given if name not in kept]
        if gone and left:
            return f"{path}.{left[0]}"
        pairs = [(f"{path}.{name}", given[name], kept[name]) for name in given if name in kept]
    elif is_array(given) and is_array(kept) and len(given) == len(kept):
        if sorted(map(str, given)) == sorted(map(str, kept)):
            return ""
        pairs = [(f"{path}[{i}]", *both) for i, both in enumerate(zip(given, kept, strict=True))]
    elif not merge_patch.same(given, kept):
        return path
    found = (_differs(had, has, where, gone=gone) for where, had, has in pairs)
    return next(filter(None, found), "")


def _all_of(context: Any) -> Json:
    """Return the data of an object, also its private data."""
    kind: Any = type(context)  # pyright: ignore[reportUnknownVariableType]
    own: dict[str, Any] = getattr(context, "__dict__", {})
    private: dict[str, Any] = getattr(context, "__pydantic_private__", None) or {}
    found: dict[str, Json] = {}
    for name, value in (own | private).items():
        if not isinstance(getattr(kind, name, None), cached_property):
            with suppress(ValueError):  # it is no data
                found[name] = to_jsonable_python(value, serialize_as_any=True)
    return found or to_jsonable_python(context, serialize_as_any=True)


def _used_up(value: Any, path: str, seen: set[int]) -> str:
    """Return the path of a value that can be read once only; empty for none."""
    if isinstance(value, Iterator):
        return path
    if id(value) in seen:
        return ""
    seen.add(id(value))
    members: dict[str, Any] = {}
    if is_object(value):
        members = {f".{name}": each for name, each in value.items()}
    elif type(value) in (list, tuple):
        members = {f"[{i}]": each for i, each in enumerate(value)}
    elif is_typed(value):
        members = {f".{name}": getattr(value, name, None) for name in _fields(value)}
    found = (_used_up(each, f"{path}{name}", seen) for name, each in members.items())
    return next(filter(None, found), "")


def _into(held: Any, value: Any) -> Any:
    """Put a value into the container that a field holds, if it holds one of its kind."""
    kind: Any = held.__class__
    if kind is not type(value) or kind not in (list, dict, set):
        return value
    held.clear()
    (held.extend if kind is list else held.update)(value)
    return held
