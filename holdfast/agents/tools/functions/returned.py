"""What a function tool returned, rebuilt from what is recorded of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json, to_json

from holdfast.agents.tools.functions.signature import names_of, return_annotation_of
from holdfast.values.code.typed_data import DATA, TEXT, Returned, class_name


def returned_object(function: Callable[..., Any] | None, text: str, returned: Returned) -> Any:
    """Return what a tool has returned, of the text that is recorded of it.

    Args:
        function: The tool's function, whose annotation names the class that the record cannot name;
            None where there is none.
        text: Its recorded result.
        returned: What is recorded next to it.

    Returns:
        An object of the same class, which has what the text has; where the class is not known here,
        the data.
    """
    made = returned.object_of(text)
    if returned.kind in (DATA, TEXT) or (returned.kind and class_name(made) == returned.kind):
        return made
    return made if function is None else _as_annotated(function, text, made)


def _as_annotated(function: Callable[..., Any], text: str, data: Any) -> Any:
    """Make the object of the class that a function says it returns, or return the data."""
    kind: Any = return_annotation_of(function, names_of(function, inspect.unwrap(function)))
    try:
        made = _reader_of(kind).validate_json(text)
        return made if from_json(to_json(made)) == data else data
    except (ValidationError, PydanticUserError, NameError, TypeError, ValueError):
        return data  # it says something else, or names a class that is none of data


@functools.lru_cache(maxsize=256)
def _reader_of(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter[Any](kind)
