"""Results of calls at MCP servers, as tools return them: texts, images, structured content."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.values.tool_result import ErrorResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock


def read_call_result(result: CallToolResult, *, structured: bool) -> Any:
    """Return a result as a tool's value.

    Args:
        result: The result.
        structured: Whether structured content goes in the place of the rest, if there is some. An
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
    """Return a block as an output of the Agents SDK's kind; what models do not know, as JSON."""
    match block.type:
        case "text":
            return {"type": "text", "text": block.text}
        case "image":
            url = f"data:{block.mime_type};base64,{block.data}"
            return {"type": "image", "image_url": url}
        case _:
            text = block.model_dump_json(by_alias=True, exclude_none=True)
            return {"type": "text", "text": text}
