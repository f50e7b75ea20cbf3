"""What a function tool returned, made anew of what is recorded of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from holdfast.agents.tools.functions.signature import names_of, return_annotation_of


def returned_object(function: Callable[..., Any], text: str) -> Any:
    """Return the object that a function has returned, of the JSON text that is recorded of it.

    Args:
        function: The function. It says that it returns a pydantic model or a dataclass.
        text: Its recorded result.

    Returns:
        An equal object; None if the function returns something else, the text does not fit, or
        pydantic cannot read objects of the class.
    """
    kind: Any = return_annotation_of(function, names_of(function, inspect.unwrap(function)))
    if not isinstance(kind, type) or not _has_fields(cast("type[Any]", kind)):
        return None
    known: Any = kind  # a type is hashable, which mypy does not see
    try:
        return _reader_of(known).validate_json(text)
    except ValidationError:  # a failure's text, or one that a guardrail has put in its place
        return None
    except (PydanticUserError, NameError, TypeError):  # a field of a class that is none of data
        return None


@functools.lru_cache(maxsize=256)
def _reader_of(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter[Any](kind)


def _has_fields(kind: type[Any]) -> bool:
    return issubclass(kind, BaseModel) or is_dataclass(kind)
