"""What a tool returned, as text for the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_json

from holdfast.errors import HoldfastError
from holdfast.images import Image
from holdfast.sources import content_of


class ToolResultError(HoldfastError):
    """A tool returned something that cannot be shown to a model. Counts as a failed call.

    Attributes:
        tool: Tool name, empty when not known.
        type_name: Class of the value.
    """

    def __init__(self, tool: str, value: object, reason: str) -> None:
        """Name the tool, the type and the remedy."""
        self.tool = tool
        self.type_name = type(value).__qualname__
        super().__init__(
            f"{f'Tool {tool!r}' if tool else 'A tool'} returned a value of type"
            f" {self.type_name!r}, which cannot be written as JSON: {reason}. Return a str, or"
            " numbers, lists, dicts, dataclasses or pydantic models of such."
        )


def read_result(value: Any, *, tool: str = "") -> str | list[str | Image]:
    """Return what the model is told: a text, or texts and images in their order.

    Args:
        value: What the tool returned: anything for `render_result`, an Image, or a list or tuple
            that holds Images beside such things.
        tool: Tool name, for the error text.

    Raises:
        ToolResultError: As for `render_result`.
    """
    if isinstance(value, Image):
        return [value]
    if isinstance(value, list | tuple):
        several = cast("Sequence[Any]", value)
        if any(isinstance(each, Image) for each in several):
            return [
                each if isinstance(each, Image) else render_result(each, tool=tool)
                for each in several
            ]
    return render_result(value, tool=tool)


def render_result(value: Any, *, tool: str = "") -> str:
    """Return the text that the model reads: strings as they are, None as "None", the rest as JSON.

    Args:
        value: What the tool returned; of a result that carries source nodes only its content.
        tool: Tool name, for the error text.

    Raises:
        ToolResultError: JSON cannot express the value.
    """
    value = content_of(value)
    if value is None:
        return "None"
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return to_json(value).decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolResultError(tool, value, str(error).removesuffix(".")) from error
