"""ToolOrigin: where the tool of an item comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast


class ToolOriginType(str, Enum):  # noqa: UP042  str() of a member is as in the Agents SDK
    """Kinds of sources of tools."""

    FUNCTION = "function"
    MCP = "mcp"
    AGENT_AS_TOOL = "agent_as_tool"


@dataclass(frozen=True)
class ToolOrigin:
    """Where the tool of an item comes from.

    Attributes:
        type: Kind of source.
        mcp_server_name: The server of a tool of an MCP server.
        agent_name: The agent that is called as a tool.
        agent_tool_name: Name of that tool.
    """

    type: ToolOriginType
    mcp_server_name: str | None = None
    agent_name: str | None = None
    agent_tool_name: str | None = None

    def to_json_dict(self) -> dict[str, str]:
        """Return the fields that are set, as JSON data."""
        names = {name: value for name, value in vars(self).items() if name != "type"}
        return {"type": self.type.value} | {k: v for k, v in names.items() if v is not None}

    @classmethod
    def from_json_dict(cls, data: Any) -> ToolOrigin | None:
        """Read the data of `to_json_dict`; None if they are no such data."""
        if not isinstance(data, Mapping):
            return None
        given = cast("Mapping[str, Any]", data)
        try:
            kind = ToolOriginType(given.get("type"))
        except ValueError:
            return None
        texts = ("mcp_server_name", "agent_name", "agent_tool_name")
        known = {name: given[name] for name in texts if isinstance(given.get(name), str)}
        return cls(kind, **known)
