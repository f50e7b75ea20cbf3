"""Public names of the Agents SDK that Holdfast has not, and what to use in their place."""

from __future__ import annotations

HOSTED = (
    "of the provider's tools there are WebSearchTool, FileSearchTool, CodeInterpreterTool,"
    " ImageGenerationTool and HostedMCPTool; for others use a function tool (@tool)"
)
SHELL = "ShellTool runs commands by an executor of yours; containers of the provider are not used"
COMPUTER = "there is no computer tool; use function tools (@tool) that click and type"
CUSTOM_DATA = (
    "items of a run are read from the task's record, which keeps what the model reads; keep other"
    " data in ctx.state or ctx.context"
)
SOCKET = "models are called over HTTP; use OpenAIResponsesModel"
OTEL = (
    "traces are OpenTelemetry's; add a SpanProcessor to its TracerProvider, and give that to"
    " holdfast.tracing.instrument, see docs/tracing.md"
)
SEARCH = "the provider does not search tools; Agent(tool_retriever=KeywordToolRetriever([...]))"

_BY_REASON: dict[str, str] = {
    HOSTED: "ProgrammaticToolCallingTool",
    SHELL: "ShellToolSkillReference ShellToolInlineSkillSource ShellToolInlineSkill"
    " ShellToolContainerSkill ShellToolContainerNetworkPolicyDomainSecret"
    " ShellToolContainerNetworkPolicyAllowlist ShellToolContainerNetworkPolicyDisabled"
    " ShellToolContainerNetworkPolicy ShellToolContainerAutoEnvironment"
    " ShellToolContainerReferenceEnvironment ShellToolHostedEnvironment",
    COMPUTER: "Computer AsyncComputer Environment Button ComputerTool ComputerProvider"
    " resolve_computer dispose_resolved_computers",
    CUSTOM_DATA: "FunctionToolCustomDataContext FunctionToolCustomDataExtractor"
    " ComputerToolCustomDataContext ComputerToolCustomDataExtractor CustomToolCustomDataContext"
    " CustomToolCustomDataExtractor ApplyPatchToolCustomDataContext"
    " ApplyPatchToolCustomDataExtractor",
    SOCKET: "OpenAIResponsesWSModel OpenAIResponsesWebSocketOptions ResponsesWebSocketSession"
    " responses_websocket_session set_default_openai_responses_transport",
    OTEL: "TracingProcessor add_trace_processor set_trace_processors set_trace_provider",
    SEARCH: "ToolSearchTool tool_namespace",
    "the exporter of the OpenTelemetry provider has the key": "set_tracing_export_api_key",
    "agents are not registered at the provider": "OpenAIAgentRegistrationConfig"
    " set_default_openai_harness set_default_openai_agent_registration",
    "a model call that takes too long is repeated; the StepFailedError of the last attempt is what"
    " to catch": "ModelTimeoutError",
    "a call that an MCP server cuts off is made again where that is safe, else the task waits for a"
    " person; a server's own error is the tool's result, see docs/mcp.md": (
        "MCPToolCancellationError"
    ),
    "there are no sandboxes; give the agent tools that work in one": "sandbox",
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
"""Name to what to use in its place."""
