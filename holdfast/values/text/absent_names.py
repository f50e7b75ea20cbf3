"""Public names of the Agents SDK that Holdfast has not, and what to use in their place."""

from __future__ import annotations

HOSTED = (
    "of the provider's tools there are WebSearchTool, FileSearchTool, CodeInterpreterTool,"
    " ImageGenerationTool, ToolSearchTool and HostedMCPTool; for others use a function tool (@tool)"
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
SANDBOX = "there are no sandboxes; give the agent tools that work in one"

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
    "agents are not registered at the provider": "OpenAIAgentRegistrationConfig"
    " set_default_openai_harness set_default_openai_agent_registration",
    "a model call that takes too long is repeated; the StepFailedError of the last attempt is what"
    " to catch": "ModelTimeoutError",
    "a call that an MCP server cuts off is made again where that is safe, else the task waits for a"
    " person; a server's own error is the tool's result, see docs/mcp.md": (
        "MCPToolCancellationError"
    ),
    SANDBOX: "sandbox",
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
"""Name to what to use in its place."""

IN_MCP = "MCP servers are names of holdfast.mcp; write from holdfast.mcp import {name}"
IN_MODELS = (
    "models of other libraries are names of holdfast.models; write from holdfast.models import"
)
SAME = (
    "names of that module are names of holdfast itself; write from holdfast import NAME, or import"
    " holdfast as {name}"
)
OF_SDK = (
    "sessions of the Agents SDK are taken as they are; leave the line as it was: from"
    " agents.extensions.memory import {name}"
)
VOICE = "there are no voices and no realtime agents; run the text of a turn with Runner"

_BESIDE_BY_REASON: dict[str, str] = {
    IN_MCP: "LocalMCPApprovalCallable MCPConfig MCPServer MCPServerManager MCPServerSse"
    " MCPServerSseParams MCPServerStdio MCPServerStdioParams MCPServerStreamableHttp"
    " MCPServerStreamableHttpParams MCPToolMetaContext MCPToolMetaResolver MCPUtil"
    " RequireApprovalObject RequireApprovalSetting RequireApprovalToolList ToolFilter"
    " ToolFilterCallable ToolFilterContext ToolFilterStatic create_static_tool_filter",
    f"{IN_MODELS} {{name}}": "AnyLLMModel LitellmModel",
    SAME: "agent agent_output decorators editor exceptions extensions guardrail handoffs items"
    " lifecycle memory model_settings prompts repl result retry run run_config run_context"
    " run_error_handlers run_state stream_events tool_context tool_guardrails usage",
    OF_SDK: "AdvancedSQLiteSession AsyncSQLiteSession DAPR_CONSISTENCY_EVENTUAL"
    " DAPR_CONSISTENCY_STRONG DaprSession EncryptedSession MongoDBSession RedisSession"
    " SQLAlchemySession",
    COMPUTER: "computer",
    CUSTOM_DATA: "MCPToolCustomDataContext MCPToolCustomDataExtractor",
    SANDBOX: "SandboxArchiveLimits SandboxConcurrencyLimits SandboxRunConfig",
    "models of LiteLLM are named 'litellm/PROVIDER/NAME', without a provider": "LitellmProvider",
    "models of any-llm are named 'any-llm/PROVIDER/NAME', without a provider": "AnyLLMProvider",
    "results are a RunResult, or a RunResultStreaming of run_streamed": "RunResultBase",
    "the arguments of a run are given by their names": "RunOptions",
    "a function as RunConfig(call_model_input_filter=...) can shorten what tools gave": (
        "ToolOutputTrimmer"
    ),
    VOICE: "AudioInput RealtimeAgent RealtimeRunner RealtimeSession SingleAgentVoiceWorkflow"
    " StreamedAudioInput VoicePipeline VoicePipelineConfig VoiceWorkflowBase realtime voice",
    OTEL: "BackendSpanExporter BatchTraceProcessor ConsoleSpanExporter TraceCtxManager"
    " TraceProvider TracingConfig TracingExporter get_trace_provider",
    "a team is not drawn; holdfast show TASK and the desk show what it did": "draw_graph"
    " get_main_graph",
    "a subclass of Runner is called by its own name": "set_default_agent_runner"
    " get_default_agent_runner",
    "subclass RunHooks": "RunHooksBase",
    "subclass AgentHooks": "AgentHooksBase",
}

BESIDE = {
    name: reason.format(name=name)
    for reason, names in _BESIDE_BY_REASON.items()
    for name in names.split()
}
"""Name of the SDK's modules that are not among the public names of `agents`, likewise."""
