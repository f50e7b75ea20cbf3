"""What a tool returned, as text for the model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.values.messages import Detail, FilePart
from holdfast.values.parts.images import LONGEST_URL, Image, read_file_data
from holdfast.values.parts.sources import SourceNode, content_of, nodes_of
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import shown

LONGEST_CUT = 500
"""Most characters that the model sees of a result that cannot be recorded."""


class ToolResultError(HoldfastError):
    """A tool returned something that cannot be shown to a model. Counts as a failed call.

    Attributes:
        tool: Tool name, empty when not known.
        type_name: Class of the value.
    """

    def __init__(self, tool: str, value: object, reason: str) -> None:
        """Say that the tool ran, what it returned, and the remedy."""
        self.tool = tool
        self.type_name = type(value).__qualname__
        name = f"Tool {tool!r}" if tool else "A tool"
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            super().__init__(
                f"{name} returned a {self.type_name} that no one has awaited, so what it stands for"
                " has not run. Did its code forget `await`?"
            )
            return
        super().__init__(
            f"{name} ran. Its result, of type {self.type_name!r}, cannot be recorded as data:"
            f" {_cut(value)}. Do not call it again for that. ({reason}. Return a str, or"
            " numbers, lists, dicts, dataclasses or pydantic models of such.)"
        )


def _cut(value: object) -> str:
    """Return the beginning of a value's `str`, or of what can be shown of it."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  the __str__ of a user's class may raise anything
        return shown(value)
    return redact(text[:LONGEST_CUT]) + ("..." if len(text) > LONGEST_CUT else "")


def read_whole(
    value: Any, *, tool: str
) -> tuple[str | list[str | Image | FilePart], tuple[SourceNode, ...]]:
    """Return what the model reads, and the source nodes that the result carries.

    Raises:
        ToolResultError: The result cannot be read. Its own code may raise any error, but the tool
            has run.
    """
    try:
        return read_result(value, tool=tool), nodes_of(value)
    except ToolResultError:
        raise
    except Exception as error:
        raise ToolResultError(tool, value, str(error).removesuffix(".")) from error


def read_result(value: Any, *, tool: str = "") -> str | list[str | Image | FilePart]:
    """Return what the model reads: a text, or texts, images and files in their order.

    Args:
        value: What the tool returned: anything for `render_result`, an Image, or a list or tuple
            that holds Images next to such things. The Agents SDK's ToolOutputText, ToolOutputImage
            and ToolOutputFileContent, as objects or as dicts, are a text, an Image and a file.
        tool: Tool name, for the error text.

    Raises:
        ToolResultError: As for `render_result`.
    """
    read = _shown(value, tool)
    if read is not None:
        return read if isinstance(read, str) else [read]
    if isinstance(value, list | tuple):
        several = cast("Sequence[Any]", value)
        parts = [_shown(each, tool) for each in several]
        if any(isinstance(part, Image | FilePart) for part in parts) or (
            parts and None not in parts
        ):
            return [
                render_result(each, tool=tool) if part is None else part
                for each, part in zip(several, parts, strict=True)
            ]
    return render_result(value, tool=tool)


def _shown(value: Any, tool: str) -> str | Image | FilePart | None:
    """Read an Image, or what the Agents SDK calls ToolOutputText, ...Image and ...FileContent.

    None for anything else.

    Raises:
        ToolResultError: It is an image whose URL cannot be read, or a file whose data cannot.
    """
    if isinstance(value, Image):
        return value
    match _output_fields(value):
        case {"type": "text", "text": str(text), **rest} if not rest:
            return text
        case {"type": "image", "file_id": str(file_id), **rest} if file_id and _is_look(rest):
            return Image(file_id=file_id, detail=rest.get("detail") or "auto")
        case {"type": "image", "image_url": str(url), **rest} if rest.keys() <= {"detail"}:
            detail = rest.get("detail")
            try:
                return Image.from_url(url, detail="auto" if detail is None else detail)
            except InvalidArgumentError as error:
                raise ToolResultError(tool, value, str(error).removesuffix(".")) from error
        case {"type": "file", **rest} if _is_file(rest):
            return _file(value, rest, tool)
        case _:
            return None


def _is_file(rest: dict[str, Any]) -> bool:
    """Whether these fields name a file."""
    return (
        rest.keys() <= {*_PLACES, "filename"}
        and all(isinstance(each, str | None) for each in rest.values())
        and any(rest.get(place) for place in _PLACES)
    )


def _file(value: Any, fields: dict[str, Any], tool: str) -> FilePart:
    data, url, file_id = (fields.get(place) or "" for place in _PLACES)
    if url[:5].lower() == "data:":
        data, url = data or url, ""
    names = {"file_url": url, "file_id": file_id, "filename": fields.get("filename") or ""}
    for field, text in names.items():
        if len(text) > LONGEST_URL:
            why = f"its {field} has {len(text)} characters; {LONGEST_URL} are the most"
            raise ToolResultError(tool, value, why)
    if data:
        try:
            read_file_data(data)
        except InvalidArgumentError as error:
            raise ToolResultError(tool, value, str(error).removesuffix(".")) from error
    name = fields.get("filename") or ""
    return FilePart(kind="file", data=data, url=url, file_id=file_id, filename=name)


_PLACES = ("file_data", "file_url", "file_id")


def _is_look(rest: dict[str, Any]) -> bool:
    """Whether the other fields of an image say at most how closely to look at it."""
    known = rest.get("image_url") is None and rest.keys() <= {"detail", "image_url"}
    return known and rest.get("detail") in (None, *get_args(Detail))


def _output_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dict or model that says its type; empty for anything else."""
    if isinstance(value, BaseModel) and "type" in type(value).model_fields:
        fields = value.model_dump(exclude_none=True)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
    else:
        return {}
    return fields if fields.get("type") in ("text", "image", "file") else {}


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


class ErrorResult:
    """A result of a call that reports an error: the model reads it as one.

    The tool has run, and may have taken effect.

    Attributes:
        value: What would be the result, as `read_result` takes it.
    """

    def __init__(self, value: Any) -> None:
        """Wrap what the model reads."""
        self.value = value
