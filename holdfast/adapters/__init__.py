"""Tools and agents of other frameworks as tools, with the options of `@tool`.

`Agent(tools=[...])` takes them as they are, too; then each counts as irreversible. The frameworks
are not installed with Holdfast.
"""

from __future__ import annotations

from holdfast.agents.tools.foreign.frameworks import (
    agents_sdk_tool,
    langchain_tool,
    pydantic_ai_tool,
)

__all__ = ["agents_sdk_tool", "langchain_tool", "pydantic_ai_tool"]
