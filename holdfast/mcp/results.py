"""Results of calls at MCP servers, as tools return them: texts, images, structured content."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.values.parts.images import Image
from holdfast.values.tool_result import ErrorResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock, ImageContent


def read_call_result(result: CallToolResult, *, structured: bool) -> Any:
    """Return a result as a tool's value.

    Args:
        result: The result.
        structured: Whether structured content goes instead of the rest, if there is some. An
            error's texts say what is wrong, so they stay.
    """
    if structured and result.structured_content and not result.is_error:
        return json.dumps(result.structured_content, ensure_ascii=False)
    parts = [_part(block) for block in result.content]
    value: Any = parts[0] if len(parts) == 1 else parts
    if all(part["type"] == "text" for part in parts):
        value = "\n".join(str(part["text"]) for part in parts)
    return ErrorResult(value) if result.is_error else value


def _part(block: ContentBlock) -> dict[str, Any]:
    """Return a block as an output of the Agents SDK's kind; what models do not know, as JSON.

    Binary data that no model reads is named and left out.
    """
    match block.type:
        case "text":
            return {"type": "text", "text": block.text}
        case "image":
            return _image(block)
        case "audio":
            return _left_out("audio", block.mime_type, block.data)
        case "resource" if "blob" in type(block.resource).model_fields:
            data: Any = block.resource
            return _left_out(f"resource {data.uri}", data.mime_type or "no type", data.blob)
        case _:
            text = block.model_dump_json(by_alias=True, exclude_none=True)
            return {"type": "text", "text": text}


def _image(block: ImageContent) -> dict[str, Any]:
    """Return an image; one that models do not read must not cost the rest of the result."""
    url = f"data:{block.mime_type};base64,{block.data}"
    try:
        Image.from_url(url)
    except InvalidArgumentError:
        return _left_out("image", block.mime_type, block.data)
    return {"type": "image", "image_url": url}


def _left_out(what: str, media_type: str, data: str) -> dict[str, Any]:
    """Say what is left out of a result: the model would read Base64 that tells it nothing."""
    size = f"{len(data) * 3 // 4:,} bytes"
    return {"type": "text", "text": f"[{what} of type {media_type}, {size}, was left out]"}
