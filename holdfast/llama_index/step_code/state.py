"""The state of step logic of a user's own, as JSON data and back.

LlamaIndex kept such state in memory, so it holds anything. What is data is recorded: text, numbers,
lists, dicts, tuples, sets, enums, dataclasses, pydantic models and memories. A dataclass or model
that is in several places is recorded once, so that it is one object again. What is a tool of
the program (a model, a query engine) must be the worker's, and is recorded by its name there; of a
QueryPipeline the state is recorded as well.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import ChatMemoryBuffer
from holdfast.llama_index.query_pipeline import QueryPipeline
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_object
from holdfast.values.messages import Message

KIND = "$kind"
"""Key of an object that stands for what JSON cannot say."""

SEQUENCES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}

LABEL = "label"
"""Key of the label of an object that is in several places."""


class Labels:
    """The labels of the objects that one step reads and writes, in all parts of its state.

    Each part (a key of the task's state, the state of a step) is written whole, so that each can be
    read alone. An object that is in several parts has the same label in all of them, and keeps
    it when a later step writes it again: read together, they give one object.
    """

    def __init__(self, scope: str) -> None:
        """Take what distinguishes the labels from the ones of other steps."""
        self.read: dict[Any, Any] = {}
        self._scope = scope
        self._given = 0
        self._known: dict[int, tuple[object, Json]] = {}
        self._first: dict[int, tuple[object, dict[str, Json]]] = {}

    def keep(self, label: Json, made: object) -> None:
        """Note an object that was read."""
        self.read[label] = made
        self._known[id(made)] = made, label

    def note(self, value: object, written: dict[str, Json]) -> None:
        """Note the record of an object; in the second part it gets a label in both."""
        if id(value) in self._known:
            written[LABEL] = self._known[id(value)][1]
        elif id(value) in self._first:
            written[LABEL] = self.label(value)
        else:
            self._first[id(value)] = value, written

    def label(self, value: object) -> Json:
        """Return the label of an object that was noted; without one, it gets the next."""
        if id(value) not in self._known:
            self._given += 1
            label = f"{self._scope}.{self._given}"
            self._known[id(value)] = value, label
            self._first[id(value)][1][LABEL] = label
        return self._known[id(value)][1]


class StateCodec:
    """Writes and reads the state of one step, or of a task before its first."""

    def __init__(self, owned: Mapping[str, Any], scope: str = "") -> None:
        """Take the objects of the program that the state may hold, by name, and the step's id."""
        self._owned = dict(owned)
        self._labels = Labels(scope)

    def encode(self, value: Any, at: str = "state") -> Json:
        """Write a value as JSON data.

        Args:
            value: The value.
            at: Its place, for the error.

        Raises:
            InvalidArgumentError: It cannot be kept; the text says where it is and what to do.
        """
        try:
            return _Writer(self._owned, self._labels).encode(value, at)
        except RecursionError:
            msg = f"{at} nests objects in objects deeper than a durable step can record."
            raise InvalidArgumentError(msg) from None

    def decode(self, value: Any) -> Any:
        """Read what `encode` wrote; it shares nothing with what was written.

        Where an object was read before by this codec, it is that object: read the newest first.

        Raises:
            InvalidArgumentError: The program has no such class or object any more.
        """
        return _Reader(self._owned, value, self._labels).decode(value)


class _Writer:
    """Writes one value, and what it holds."""

    def __init__(self, owned: Mapping[str, Any], labels: Labels) -> None:
        self._owned = owned
        self._written: set[int] = set()  # the labels keep the objects alive
        self._around: set[int] = set()
        self._labels = labels

    def encode(self, value: Any, at: str) -> Json:
        match value:
            case bool() | None | int() if not isinstance(value, Enum):
                return value
            case float() if math.isfinite(value):
                return float(value)
            case str() if not isinstance(value, Enum):
                return str(value)
            case list() | dict() | tuple() | set() | frozenset():
                return self._container(value, at)
            case _:
                return self._object(value, at)

    def _container(self, value: Any, at: str) -> Json:
        """Write lists and the like, which must not hold themselves."""
        if id(value) in self._around:
            raise InvalidArgumentError(
                f"{at} is a {type(value).__name__} that holds itself, which a durable step cannot"
                " record. Dataclasses and pydantic models may refer to each other."
            )
        self._around.add(id(value))
        try:
            if is_object(value):
                return self._dict(value, at)
            held = [self.encode(each, f"{at}[{k}]") for k, each in _items(value)]
        finally:
            self._around.discard(id(value))
        if isinstance(value, list):
            return held
        kind = type(cast("object", value)).__name__
        return {KIND: kind if kind in SEQUENCES else "tuple", "value": held}

    def _dict(self, value: dict[Any, Any], at: str) -> Json:
        if KIND not in value and all(isinstance(key, str) for key in value):
            return {key: self.encode(each, f"{at}[{key!r}]") for key, each in value.items()}
        pairs = [[self.encode(k, at), self.encode(v, f"{at}[{k!r}]")] for k, v in value.items()]
        return {KIND: "dict", "value": cast("Json", pairs)}

    def _object(self, value: Any, at: str) -> Json:
        if id(value) in self._written:
            return {KIND: "same", LABEL: self._labels.label(value)}
        origin = value.origin if _is_pipeline(value) else value
        for name, owned in self._owned.items():
            if owned is origin:
                return self._named(name, value, at)
        if isinstance(value, ChatMemoryBuffer):
            return {KIND: "memory", "value": [each.wire() for each in value.messages]}
        if isinstance(value, type) or callable(getattr(value, "__get__", None)):
            raise _unkept(value, at)
        named = f"{type(value).__module__}:{type(value).__qualname__}"
        if isinstance(value, Enum):
            return {KIND: "enum", "class": named, "value": self.encode(value.value, at)}
        if callable(getattr(value, "to_string", None)) and hasattr(value, "from_string"):
            return {KIND: "string", "class": named, "value": value.to_string()}
        if isinstance(value, BaseModel):
            return self._fields("model", value, dict(value), at)
        if dataclasses.is_dataclass(value):
            held = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return self._fields("dataclass", value, held, at)
        try:
            plain = to_jsonable_python(value)
        except ValueError as error:
            raise _unkept(value, at) from error
        return self.encode(plain, at)

    def _named(self, name: str, value: Any, at: str) -> Json:
        """Write the name of an object of the program, and the state of a pipeline."""
        made: dict[str, Json] = {KIND: "owned", "name": name}
        if _is_pipeline(value) and value.state:
            made["value"] = self.encode(value.state, f"{at}.state")
        return made

    def _fields(self, kind: str, value: object, held: Mapping[str, Any], at: str) -> Json:
        named = f"{type(value).__module__}:{type(value).__qualname__}"
        made: dict[str, Json] = {KIND: kind, "class": named}
        self._written.add(id(value))  # before what it holds, which may lead back to it
        self._labels.note(value, made)
        made["value"] = {name: self.encode(each, f"{at}.{name}") for name, each in held.items()}
        return made


class _Reader:
    """Reads one value that a _Writer wrote."""

    def __init__(self, owned: Mapping[str, Any], whole: Any, labels: Labels) -> None:
        self._owned = owned
        self._whole = whole
        self._labels = labels

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(each) for each in _listed(value)]
        if not isinstance(value, dict):
            return value
        known = cast("dict[str, Any]", value)
        if KIND not in known:
            return {key: self.decode(each) for key, each in known.items()}
        held: Any = known.get("value")
        match known[KIND]:
            case "tuple" | "set" | "frozenset" as kind:
                return SEQUENCES[kind](self.decode(each) for each in held)
            case "dict":
                return {self.decode(key): self.decode(each) for key, each in held}
            case "owned":
                return self._own(str(known["name"]), held)
            case "memory":
                return ChatMemoryBuffer([Message.model_validate(each) for each in held])
            case "same":
                return self._same(known[LABEL])
            case "enum":
                return _class(known)(self.decode(held))
            case "string":
                return _class(known).from_string(self.decode(held))
            case _:
                return self._object(known)

    def _own(self, name: str, state: Any) -> Any:
        if name not in self._owned:
            msg = f"The state names the object {name!r} of the worker, which it no longer has."
            raise InvalidArgumentError(msg)
        owned = self._owned[name]
        return owned.with_state(self.decode(state or {})) if _is_pipeline(owned) else owned

    def _object(self, known: Mapping[str, Any]) -> Any:
        """Make a dataclass or model; what it holds may lead back to it."""
        label = known.get(LABEL)
        if label is not None and label in self._labels.read:
            return self._labels.read[label]
        kind = _class(known)
        made = kind.__new__(kind)
        if label is not None:
            self._labels.keep(label, made)
        if known[KIND] == "dataclass":
            _check_fields(kind, known["value"])
        held = {name: self.decode(each) for name, each in known["value"].items()}
        if known[KIND] == "model":
            built = kind.model_construct(**held)
            for name in BaseModel.__slots__:
                object.__setattr__(made, name, getattr(built, name))
            return made
        fields = {each.name: each for each in dataclasses.fields(kind)}
        made.__init__(**{name: each for name, each in held.items() if fields[name].init})
        for name, each in held.items():
            if not _is_read_only(kind, name):
                object.__setattr__(made, name, each)  # as it was, whatever the class made of it
        return made

    def _same(self, label: Any) -> Any:
        """Return the object with a label, which may be further on: JSON may be sorted."""
        if label not in self._labels.read:
            self._object(next(_labelled(self._whole, label)))
        return self._labels.read[label]


def _labelled(value: Any, label: Any) -> Iterator[Mapping[str, Any]]:
    """Find the object that has a label."""
    if isinstance(value, list):
        for each in _listed(value):
            yield from _labelled(each, label)
    elif isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        if known.get(LABEL) == label and known.get(KIND) in ("model", "dataclass"):
            yield known
        for each in known.values():
            yield from _labelled(each, label)


def _is_pipeline(value: object) -> bool:
    return isinstance(value, QueryPipeline)


def _listed(value: Any) -> list[Any]:
    return list(value)


def _items(value: Any) -> list[tuple[int, Any]]:
    return list(enumerate(_listed(value)))


KINDS: dict[str, Callable[[type], bool]] = {
    "enum": lambda kind: issubclass(kind, Enum),
    "string": lambda kind: hasattr(kind, "to_string") and hasattr(kind, "from_string"),
    "model": lambda kind: issubclass(kind, BaseModel),
    "dataclass": dataclasses.is_dataclass,
}
"""What a class must be for its objects to be made from what is recorded of them."""


def _class(known: Mapping[str, Any]) -> Any:
    """Return the class of an object that was written.

    Anyone who may start a task chooses what its state names. So no module is imported for a name,
    and only a class of the recorded kind is called.

    Raises:
        InvalidArgumentError: The program has no such class, or one of another kind.
    """
    kind, (module, _, path) = known[KIND], str(known.get("class")).partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name, None)  # getattr could import
    if not isinstance(found, type):
        raise InvalidArgumentError(
            f"The state holds a {path} of module {module!r}, a class that cannot be found."
            " Import its module where the worker is made, or give the class back."
        )
    if kind not in KINDS or not KINDS[kind](found):
        msg = f"The state holds a {module}.{path}, which is no {kind} any more."
        raise InvalidArgumentError(msg)
    return found


def _check_fields(kind: Any, held: Mapping[str, Json]) -> None:
    """Make sure that a dataclass has the fields that are recorded, and needs no others.

    Raises:
        InvalidArgumentError: It has changed.
    """
    named = f"{kind.__module__}.{kind.__qualname__}"
    fields = {each.name: each for each in dataclasses.fields(kind)}
    for name in held:
        if name not in fields:
            msg = f"The state holds a {named} with a field {name!r}, which the class no longer has."
            raise InvalidArgumentError(msg)
    for name, each in fields.items():
        if each.init and name not in held and _has_no_default(each):
            msg = f"The state holds a {named} without {name!r}, a new field that has no default."
            raise InvalidArgumentError(msg)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _is_read_only(kind: type, name: str) -> bool:
    """Whether a field is a property that the class makes itself."""
    found = getattr(kind, name, None)
    return isinstance(found, property) and found.fset is None


def _unkept(value: object, at: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{at} holds a {type(value).__name__}, which a durable step cannot record. Keep data in the"
        " state, and give such an object to the worker: as an entry of its initial_state, or as an"
        " attribute."
    )
