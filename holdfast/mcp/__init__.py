"""MCP servers as sources of tools, under the names of the Agents SDK's `agents.mcp`.

The `mcp` package, of the extra `mcp`, is needed once a server is used.
"""

from __future__ import annotations

from holdfast.agents.tools.foreign.servers import MCPConfig
from holdfast.mcp.manager import MCPServerManager, MCPUtil
from holdfast.mcp.server import MCPServer
from holdfast.mcp.tools import (
    HttpClientFactory,
    LocalMCPApprovalCallable,
    MCPServerSseParams,
    MCPServerStdioParams,
    MCPServerStreamableHttpParams,
    MCPToolMetaContext,
    MCPToolMetaResolver,
    RequireApprovalObject,
    RequireApprovalSetting,
    RequireApprovalToolList,
    ToolFilter,
    ToolFilterCallable,
    ToolFilterContext,
    ToolFilterStatic,
    create_static_tool_filter,
)
from holdfast.mcp.transports import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp

__all__ = [
    "HttpClientFactory",
    "LocalMCPApprovalCallable",
    "MCPConfig",
    "MCPServer",
    "MCPServerManager",
    "MCPServerSse",
    "MCPServerSseParams",
    "MCPServerStdio",
    "MCPServerStdioParams",
    "MCPServerStreamableHttp",
    "MCPServerStreamableHttpParams",
    "MCPToolMetaContext",
    "MCPToolMetaResolver",
    "MCPUtil",
    "RequireApprovalObject",
    "RequireApprovalSetting",
    "RequireApprovalToolList",
    "ToolFilter",
    "ToolFilterCallable",
    "ToolFilterContext",
    "ToolFilterStatic",
    "create_static_tool_filter",
]
