"""Public names of the Agents SDK that Holdfast has not, and what to use in their place.

Some serve here as they are, where the SDK is installed: those are lent by it.
"""

from __future__ import annotations

import importlib
import re

from holdfast import agents_sdk

HOSTED = "use a function tool (@tool); docs/hosted_tools.md lists the hosted tools that there are"
SHELL = "ShellTool runs commands by an executor of yours; containers of the provider are not used"
COMPUTER = "use function tools (@tool) that click and type"
CUSTOM_DATA = "a task records what the model reads; keep other data in ctx.state or ctx.context"
SOCKET = "models are called over HTTP; use OpenAIResponsesModel"
OTEL = "add a SpanProcessor to OpenTelemetry's TracerProvider, see docs/tracing.md"
SANDBOX = "there are no sandboxes; give the agent tools that work in one"
VOICE = "there are no voices and no realtime agents; run the text of a turn with Runner"
CODEX = "the Codex program is not run; give the agent a tool that runs it"

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
    "catch the StepFailedError of the last attempt": "ModelTimeoutError",
    "a call that an MCP server cuts off is repeated where that is safe, or the task waits for a"
    " person, see docs/mcp.md": "MCPToolCancellationError",
    SANDBOX: "sandbox",
    VOICE: "SpeechGroupSpanData SpeechSpanData TranscriptionSpanData speech_group_span speech_span"
    " transcription_span",
}

ABSENT = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
"""Name to what to use in its place."""

IN_MCP = "MCP servers are names of holdfast.mcp; write from holdfast.mcp import {name}"
IN_MODELS = (
    "models of other libraries are names of holdfast.models; write from holdfast.models import"
)
SAME = (
    "names of that module are names of holdfast.agents_sdk; write from holdfast.agents_sdk import"
    " NAME, or from holdfast import agents_sdk as {name}"
)
SCRIPT = (
    "the scripted model of the Agents SDK serves as it is; leave the line as it was: from"
    " agents.testing import {name}"
)
RAW = "results, items and behaviours of tools are plain data here: a dict of that form serves"

_BESIDE_BY_REASON: dict[str, str] = {
    IN_MCP: "LocalMCPApprovalCallable MCPConfig MCPServer MCPServerManager MCPServerSse"
    " MCPServerSseParams MCPServerStdio MCPServerStdioParams MCPServerStreamableHttp"
    " MCPServerStreamableHttpParams MCPToolMetaContext MCPToolMetaResolver MCPUtil"
    " RequireApprovalObject RequireApprovalSetting RequireApprovalToolList ToolFilter"
    " ToolFilterCallable ToolFilterContext ToolFilterStatic create_static_tool_filter",
    f"{IN_MODELS} {{name}}": "AnyLLMModel LitellmModel",
    SAME: "agent agent_output decorators editor exceptions extensions guardrail handoff_filters"
    " handoff_prompt handoffs items lifecycle memory model_settings models prompts repl result"
    " retry run run_config run_context run_error_handlers run_state stream_events tool_context"
    " tool_guardrails tracing usage",
    COMPUTER: "computer",
    CUSTOM_DATA: "MCPToolCustomDataContext MCPToolCustomDataExtractor",
    SANDBOX: "BaseEntry Capabilities Capability Compaction CompactionModelInfo CompactionPolicy Dir"
    " DynamicCompactionPolicy ErrorCode ExecResult ExecTimeoutError ExecTransportError"
    " ExposedPortEndpoint ExposedPortUnavailableError File FileMode Filesystem FilesystemToolSet"
    " GitRepo Group LazySkillSource LocalDir LocalDirLazySkillSource LocalFile Manifest Memory"
    " MemoryGenerateConfig MemoryLayoutConfig MemoryReadConfig Permissions Shell ShellToolSet Skill"
    " SkillMetadata Skills StaticCompactionPolicy User WorkspaceArchiveReadError"
    " WorkspaceArchiveWriteError WorkspaceReadNotFoundError WorkspaceWriteTypeError"
    " resolve_snapshot resolve_workspace_path",
    "models of LiteLLM are named 'litellm/PROVIDER/NAME', without a provider": "LitellmProvider",
    "models of any-llm are named 'any-llm/PROVIDER/NAME', without a provider": "AnyLLMProvider",
    "results are a RunResult, or a RunResultStreaming of run_streamed": "RunResultBase",
    "the arguments of a run are given by their names": "RunOptions",
    VOICE: "AssistantMessageItem AssistantText AudioInput DEFAULT_MODEL_SETTINGS InputAudio"
    " InputText ScriptedTranscriptionSession SingleAgentVoiceWorkflow"
    " SingleAgentWorkflowCallbacks StreamedAudioInput"
    " StreamedAudioResult StreamedTranscriptionSession SystemMessageItem UserMessageItem"
    " get_api_key get_sentence_based_splitter pcm16_samples realtime realtime_handoff voice",
    CODEX: "AgentMessageItem ApprovalMode CommandExecutionItem ErrorItem FileChangeItem"
    " FileUpdateChange Input ItemCompletedEvent ItemStartedEvent ItemUpdatedEvent McpToolCallError"
    " McpToolCallItem McpToolCallResult ModelReasoningEffort OutputSchemaDescriptor"
    " RunStreamedResult Thread ThreadError ThreadErrorEvent ThreadEvent ThreadItem ThreadOptions"
    " ThreadStartedEvent TodoItem TodoListItem Turn TurnCompletedEvent TurnFailedEvent TurnOptions"
    " TurnStartedEvent UserInput WebSearchItem WebSearchMode",
    SCRIPT: "InvalidModelStep ModelCall ModelScriptError ModelStep ModelStepSpec"
    " UnconsumedModelSteps UnexpectedModelCall assistant_message function_call",
    f"{SCRIPT}; holdfast.testing has a ScriptedModel of its own": "ScriptedModel",
    RAW: "AllowBehavior ApplyPatchOnApprovalFunctionResult CustomToolOnApprovalFunctionResult"
    " RaiseExceptionBehavior RejectContentBehavior RunItemBase ShellOnApprovalFunctionResult",
    "agents of one request are not shown apart; use agents as tools": "HostedAgentMetadata"
    " HostedMultiAgentConfig OpenAIHostedMultiAgentModel get_hosted_agent_metadata",
    "get_default_model_settings(name) has no reasoning where a model takes none": (
        "gpt_5_reasoning_settings_required"
    ),
    "a Model of yours decides what it sends of the reasoning that it is given": (
        "ReasoningContentReplayContext ReasoningContentSource ShouldReplayReasoningContent"
        " default_should_replay_reasoning_content"
    ),
    "a function as should_trigger_compaction= decides alone": "default_should_trigger_compaction"
    " is_openai_model_name select_compaction_candidate_items",
    "the conversation is begun when OpenAIConversationsSession() is used": (
        "start_openai_conversations_session"
    ),
    OTEL: "BackendSpanExporter BatchTraceProcessor ConsoleSpanExporter DefaultTraceProvider"
    " NoOpSpan NoOpTrace SpanImpl SynchronousMultiTracingProcessor TraceCtxManager TraceImpl"
    " TraceProvider TracingConfig TracingExporter default_exporter default_processor"
    " get_trace_provider",
    "a team is not drawn; holdfast show TASK and the desk show what it did": "draw_graph"
    " get_main_graph",
    "a subclass of Runner is called by its own name": "AgentRunner set_default_agent_runner"
    " get_default_agent_runner",
}

BESIDE = {
    name: reason.format(name=name)
    for reason, names in _BESIDE_BY_REASON.items()
    for name in names.split()
}
"""Name of the SDK's modules that are not among the public names of `agents`, likewise."""

_LENT_BY_INSTALLED: dict[str, dict[str, str]] = {
    "openai-agents": {
        "agents.extensions": "ToolOutputTrimmer",
        "agents.extensions.memory": "AdvancedSQLiteSession",
    },
    "openai-agents aiosqlite": {"agents.extensions.memory": "AsyncSQLiteSession"},
    "'openai-agents[dapr]'": {
        "agents.extensions.memory": "DAPR_CONSISTENCY_EVENTUAL DAPR_CONSISTENCY_STRONG DaprSession"
    },
    "'openai-agents[encrypt]'": {
        "agents.extensions.memory": "EncryptedSession",
        "agents.extensions.memory.encrypt_session": "EncryptedEnvelope",
    },
    "'openai-agents[mongodb]'": {"agents.extensions.memory": "MongoDBSession"},
    "'openai-agents[redis]'": {"agents.extensions.memory": "RedisSession"},
    "'openai-agents[sqlalchemy]'": {"agents.extensions.memory": "SQLAlchemySession"},
}

LENT = {
    name: (module, installed)
    for installed, modules in _LENT_BY_INSTALLED.items()
    for module, names in modules.items()
    for name in names.split()
}
"""Name to the SDK's module that has it, and what pip must have installed for it."""

_FAMILIES = (
    (re.compile(r"(OpenAI|Scripted|Un\w+)?(Realtime|STT|TTS|Voice)\w*"), VOICE),
    (re.compile(r"\w*(Codex|codex)\w*"), CODEX),
    (re.compile(r"\w*(Sandbox|sandbox|Mount|Snapshot)\w*"), SANDBOX),
)


def instead_of(name: str) -> str:
    """Return what to use instead of a name of the Agents SDK; nothing if it is not such a name."""
    said = ABSENT.get(name) or BESIDE.get(name)
    said = said or next((said for names, said in _FAMILIES if names.fullmatch(name)), "")
    return said and f"{said}. See docs/from_agents_sdk.md"


def instead_in_holdfast(name: str) -> str:
    """Return the same for who asks `holdfast` itself, which has the names of the product only."""
    if name in agents_sdk.__all__ or name in LENT:
        said = f"it is a name of the Agents SDK; write from holdfast.agents_sdk import {name}"
        return f"{said}; what @tool makes is a holdfast.FunctionTool" if name == "Tool" else said
    return instead_of(name)


def lent(name: str) -> object:
    """Return what the installed Agents SDK lends: one of `LENT`.

    Raises:
        ImportError: It cannot be imported; the text says what to install.
    """
    module, installed = LENT[name]
    try:
        found: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as cause:  # the SDK may be an older one
        msg = (
            f"it is that of the Agents SDK, which cannot be imported ({cause}); run pip install"
            f" {installed}"
        )
        raise ImportError(msg, name=name) from cause
    return found
