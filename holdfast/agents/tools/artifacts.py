"""`read_artifact`: lets an agent read the files that tools of its task have kept."""

from __future__ import annotations

from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.tool import Tool

PAGE = 16_000
"""Most characters of an artifact that a call returns."""


async def _read_artifact(ctx: ToolContext, reference: str, offset: int = 0) -> str:
    """Read a file that a tool has kept: its text, up to 16,000 characters at once.

    Args:
        reference: The reference of the file as it was told, or its name.
        offset: How many characters to leave out at the beginning.
    """
    found, data = await ctx.artifacts.find(reference)
    what = f"{found.reference} ({found.media_type}, {len(data):,} bytes)"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{what} is no text, and cannot be shown here."
    if not 0 <= offset <= len(text):
        raise ValueError(f"{what} has {len(text):,} characters; offset={offset} is not among them.")
    page = text[offset : offset + PAGE]
    end = offset + len(page)
    rest = f"\n[{len(text) - end:,} more characters: offset={end}]" if end < len(text) else ""
    return f"{what}:\n{page}{rest}"


read_artifact = Tool.from_function(_read_artifact, name="read_artifact", effect="read")
"""Lets an agent read artifacts: those of its task by name, of near tasks by reference."""
