"""MCP servers as sources of tools, under the names of the Agents SDK's `agents.mcp`.

The `mcp` package, of the extra `mcp`, is needed once a server is used.
"""

from holdfast.values.code.stub_names import late_names

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
