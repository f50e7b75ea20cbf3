"""Defaults of arguments that functions make: `default_factory` of a field."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from holdfast.values.base import Json

MADE_LATER = "made by the tool when it runs"
"""What people are shown of a default that is another one each time."""


class MadeDefaults(GenerateJsonSchema):
    """Tells the defaults that functions make as well, which pydantic leaves out."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a value that may be left out."""
        found = {**super().default_schema(schema)}
        if "default_factory" in schema:
            found["default"] = self._made(schema["default_factory"])
        return found

    def _made(self, make: Callable[..., Any]) -> Json:
        """Return what a function makes, if it makes the same each time."""
        try:
            first, second = (self.encode_default(make()) for _ in range(2))
        except Exception:  # noqa: BLE001  it takes other arguments, or the call tells how it fails
            return MADE_LATER
        return first if first == second else MADE_LATER


@lru_cache(maxsize=256)
def makes_defaults(model: type[BaseModel]) -> bool:
    """Whether a model has a default that a function makes, at any depth."""
    parts: list[Any] = [model.__pydantic_core_schema__]
    for part in parts:  # it grows while it is read
        if isinstance(part, dict):
            if "default_factory" in part:
                return True
            parts.extend(cast("dict[str, Any]", part).values())
        elif isinstance(part, list | tuple):
            parts.extend(cast("list[Any]", part))
    return False
