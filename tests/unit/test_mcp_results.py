"""Results of MCP servers as values of tools."""

import base64
from typing import Any

import pytest
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

from holdfast.mcp.results import read_call_result
from holdfast.values.parts.images import Image
from holdfast.values.tool_result import read_result

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4"
        "890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
SVG = base64.b64encode(b"<svg/>").decode()
TEXT = TextContent(text="charged, receipt 17")


def read(*content: Any) -> Any:
    """Return what the model reads of a result."""
    return read_result(read_call_result(CallToolResult(content=[*content]), structured=False))


def test_an_image_that_models_read_is_one() -> None:
    told, image = read(TEXT, ImageContent(data=PNG, mime_type="image/png"))
    assert told == "charged, receipt 17"
    assert isinstance(image, Image)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (
            ImageContent(data=SVG, mime_type="image/svg+xml"),
            "[image of type image/svg+xml, 6 bytes, was left out]",
        ),
        (
            ImageContent(data="no Base64!", mime_type="image/png"),
            "[image of type image/png, 7 bytes, was left out]",
        ),
        (
            AudioContent(data=SVG, mime_type="audio/wav"),
            "[audio of type audio/wav, 6 bytes, was left out]",
        ),
        (
            EmbeddedResource(resource=BlobResourceContents(uri="file:///a.bin", blob=SVG)),
            "[resource file:///a.bin of type no type, 6 bytes, was left out]",
        ),
    ],
)
def test_what_no_model_reads_is_named_and_costs_nothing_else(block: Any, said: str) -> None:
    assert read(TEXT, block) == f"charged, receipt 17\n{said}"
