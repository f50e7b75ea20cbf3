"""The state of step logic of a user's own, as JSON data and back.

LlamaIndex kept such state in memory, so it holds anything. What is data is recorded: text, numbers,
lists, dicts, tuples, sets, enums, dataclasses, pydantic models and memories. What is a tool of the
program (a model, a query engine) must be the worker's, and is recorded by its name there.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.memory import ChatMemoryBuffer
from holdfast.values.base import Json
from holdfast.values.messages import Message

KIND = "$kind"
"""Key of an object that stands for what JSON cannot say."""


class StateCodec:
    """Writes and reads the state of one worker's steps."""

    def __init__(self, owned: Mapping[str, Any]) -> None:
        """Take the objects of the program that the state may hold, by name."""
        self._owned = dict(owned)

    def encode(self, value: Any, at: str = "state") -> Json:
        """Write a value as JSON data.

        Args:
            value: The value.
            at: Where it stands, for the error.

        Raises:
            InvalidArgumentError: It cannot be kept; the text says where it is and what to do.
        """
        match value:
            case bool() | None | int() if not isinstance(value, Enum):
                return value
            case float() if math.isfinite(value):
                return float(value)
            case str() if not isinstance(value, Enum):
                return str(value)
            case list():
                return [self.encode(each, f"{at}[{k}]") for k, each in _items(value)]
            case dict():
                return self._dict(cast("Any", value), at)
            case tuple() | set() | frozenset():
                kind = type(cast("object", value)).__name__
                kind = kind if kind in ("tuple", "set", "frozenset") else "tuple"
                held = [self.encode(each, f"{at}[{k}]") for k, each in _items(value)]
                return {KIND: kind, "value": held}
            case _:
                return self._object(value, at)

    def _dict(self, value: dict[Any, Any], at: str) -> Json:
        if KIND not in value and all(isinstance(key, str) for key in value):
            return {key: self.encode(each, f"{at}[{key!r}]") for key, each in value.items()}
        pairs = [[self.encode(k, at), self.encode(v, f"{at}[{k!r}]")] for k, v in value.items()]
        return {KIND: "dict", "value": cast("Json", pairs)}

    def _object(self, value: Any, at: str) -> Json:
        for name, owned in self._owned.items():
            if owned is value:
                return {KIND: "owned", "name": name}
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
            return {KIND: "model", "class": named, "value": self._fields(dict(value), at)}
        if dataclasses.is_dataclass(value):
            held = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return {KIND: "dataclass", "class": named, "value": self._fields(held, at)}
        try:
            plain = to_jsonable_python(value)
        except ValueError as error:
            raise _unkept(value, at) from error
        return self.encode(plain, at)

    def _fields(self, held: Mapping[str, Any], at: str) -> Json:
        return {name: self.encode(each, f"{at}.{name}") for name, each in held.items()}

    def decode(self, value: Any) -> Any:
        """Read what `encode` wrote; it shares nothing with what was written.

        Raises:
            InvalidArgumentError: The program has no such class or object any more.
        """
        if isinstance(value, list):
            return [self.decode(each) for each in _listed(value)]
        if not isinstance(value, dict):
            return value
        known = cast("dict[str, Any]", value)
        if KIND not in known:
            return {key: self.decode(each) for key, each in known.items()}
        held: Any = known.get("value")
        match known[KIND]:
            case "tuple":
                return tuple(self.decode(each) for each in held)
            case "set":
                return {self.decode(each) for each in held}
            case "frozenset":
                return frozenset(self.decode(each) for each in held)
            case "dict":
                return {self.decode(key): self.decode(each) for key, each in held}
            case "owned":
                return self._own(str(known["name"]))
            case "memory":
                return ChatMemoryBuffer([Message.model_validate(each) for each in held])
            case kind:
                return self._made(str(kind), _class(str(known["class"])), self.decode(held))

    def _own(self, name: str) -> Any:
        if name in self._owned:
            return self._owned[name]
        msg = f"The state names the object {name!r} of the worker, which it no longer has."
        raise InvalidArgumentError(msg)

    def _made(self, kind: str, made: Any, held: Any) -> Any:
        match kind:
            case "enum":
                return made(held)
            case "string":
                return made.from_string(held)
            case "model":
                return made.model_construct(**held)
            case _:
                return made(**held)


def _listed(value: Any) -> list[Any]:
    return list(value)


def _items(value: Any) -> list[tuple[int, Any]]:
    return list(enumerate(_listed(value)))


def _class(named: str) -> Any:
    """Return a class by the name under which it was written.

    Raises:
        InvalidArgumentError: There is none.
    """
    module, _, path = named.partition(":")
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        msg = f"The state holds a {path} of module {module!r}, which cannot be found: {error}"
        raise InvalidArgumentError(msg) from error
    return found


def _unkept(value: object, at: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{at} holds a {type(value).__name__}, which a durable step cannot record. Keep data in the"
        " state, and give such an object to the worker: as an entry of its initial_state, or as an"
        " attribute."
    )
