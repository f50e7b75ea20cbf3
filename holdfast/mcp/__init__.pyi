# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.agents.tools.foreign.servers import MCPConfig as MCPConfig
from holdfast.mcp.manager import (
    MCPServerManager as MCPServerManager,
    MCPUtil as MCPUtil,
)
from holdfast.mcp.server import MCPServer as MCPServer
from holdfast.mcp.tools import (
    HttpClientFactory as HttpClientFactory,
    LocalMCPApprovalCallable as LocalMCPApprovalCallable,
    MCPServerSseParams as MCPServerSseParams,
    MCPServerStdioParams as MCPServerStdioParams,
    MCPServerStreamableHttpParams as MCPServerStreamableHttpParams,
    MCPToolMetaContext as MCPToolMetaContext,
    MCPToolMetaResolver as MCPToolMetaResolver,
    RequireApprovalObject as RequireApprovalObject,
    RequireApprovalSetting as RequireApprovalSetting,
    RequireApprovalToolList as RequireApprovalToolList,
    ToolFilter as ToolFilter,
    ToolFilterCallable as ToolFilterCallable,
    ToolFilterContext as ToolFilterContext,
    ToolFilterStatic as ToolFilterStatic,
    create_static_tool_filter as create_static_tool_filter,
)
from holdfast.mcp.transports import (
    MCPServerSse as MCPServerSse,
    MCPServerStdio as MCPServerStdio,
    MCPServerStreamableHttp as MCPServerStreamableHttp,
)
