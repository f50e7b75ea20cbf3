"""Holdfast: durable agents on Temporal.

Importing this package loads only the standard library, pydantic and our pure modules; what needs
Temporal or a model client is loaded at its first use.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if not Path(__file__).with_name("workflows").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parent.parent))

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import AgentBase
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailBlockedMessageArgs,
    OutputGuardrailBlockedMessageFormatter,
    OutputGuardrailResult,
    input_guardrail,
    output_guardrail,
)
from holdfast.agents.handoffs import filters as handoff_filters
from holdfast.agents.handoffs.filters import (
    HandoffHistoryMapper,
    HandoffInputData,
    default_handoff_history_mapper,
    get_conversation_history_wrappers,
    nest_handoff_history,
    remove_all_tools,
    reset_conversation_history_wrappers,
    set_conversation_history_wrappers,
)
from holdfast.agents.handoffs.handoff import Handoff, HandoffInputFilter, handoff
from holdfast.agents.hooks import AgentHooks, AgentHooksBase, RunHooks, RunHooksBase
from holdfast.agents.hosted.mcp import (
    HostedMCPTool,
    MCPToolApprovalFunction,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
)
from holdfast.agents.hosted.prompt import (
    DynamicPromptFunction,
    GenerateDynamicPromptData,
    Prompt,
)
from holdfast.agents.hosted.settings import (
    ImageGenerationToolConfig,
    WebSearchToolImageSettings,
)
from holdfast.agents.hosted.tool_search import ToolSearchTool, tool_namespace
from holdfast.agents.hosted.tools import (
    CodeInterpreterTool,
    FileSearchTool,
    ImageGenerationTool,
    WebSearchTool,
)
from holdfast.agents.nesting.nested_run import runner_of_calls as _runner_of_calls
from holdfast.agents.output_type import AgentOutputSchema, AgentOutputSchemaBase
from holdfast.agents.runs.error_handlers import (
    RunErrorData,
    RunErrorHandler,
    RunErrorHandlerInput,
    RunErrorHandlerResult,
    RunErrorHandlers,
)
from holdfast.agents.runs.model_input import CallModelData, CallModelInputFilter, ModelInputData
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.decorator import FunctionTool, Tool, function_tool, tool
from holdfast.agents.tools.error_texts import (
    ToolErrorFormatter,
    ToolErrorFormatterArgs,
    default_tool_error_function,
)
from holdfast.agents.tools.functions.docstrings import (
    FuncDocumentation,
    generate_func_documentation,
)
from holdfast.agents.tools.functions.function_schema import FuncSchema, function_schema
from holdfast.agents.tools.functions.schema import ensure_strict_json_schema
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    ToolOutputGuardrailResult,
    tool_input_guardrail,
    tool_output_guardrail,
)
from holdfast.agents.tools.options import (
    ToolCaller,
)
from holdfast.agents.tools.outputs import (
    ToolOutputFileContent,
    ToolOutputFileContentDict,
    ToolOutputImage,
    ToolOutputImageDict,
    ToolOutputText,
    ToolOutputTextDict,
)
from holdfast.agents.tools.retriever import KeywordToolRetriever, ToolRetriever
from holdfast.errors import (
    AgentsException,
    HoldfastError,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    OutputGuardrailTripwireTriggered,
    StepFailedError,
    TaskAbandonedError,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ToolTimeoutError,
    UserError,
)
from holdfast.reading.step_events import (
    ApprovalDecided,
    Attempt,
    ChatEnd,
    ChatStart,
    CommandGiven,
    HostedToolRan,
    StepEnd,
    StepEvent,
    StepFailed,
    StepStart,
    StepUndone,
    TaskEvent,
    Thought,
    ToolCalled,
    ToolDone,
    Waiting,
    event_text,
    print_event,
)
from holdfast.reading.streams.events import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
)
from holdfast.tracing import (
    gen_trace_id,
    get_current_trace,
    set_tracing_disabled,
    set_tracing_export_api_key,
    trace,
)
from holdfast.values.messages import Message, ToolCall
from holdfast.values.parts.images import Image
from holdfast.values.parts.sources import Retrieved, SourceNode
from holdfast.values.runs.approval_rules import Always, ApprovalRule
from holdfast.values.runs.retries import (
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryBackoffSettings,
    ModelRetryNormalizedError,
    ModelRetrySettings,
    RetryDecision,
    RetryPolicy,
    RetryPolicyContext,
    retry_policies,
)
from holdfast.values.runs.run_context import (
    AgentHookContext,
    RunContextWrapper,
    TContext,
)
from holdfast.values.runs.usage import RequestUsage, Usage
from holdfast.values.settings import Budget, MCPToolChoice, ModelSettings
from holdfast.values.steps import AgentResponse, Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.logs import (
    enable_verbose_stdout_logging,
)
from holdfast.values.version import __version__
from holdfast.workers.tool_use import (
    FunctionToolResult,
    StopAtTools,
    ToolsToFinalOutputFunction,
    ToolsToFinalOutputResult,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI as AsyncOpenAI

    from holdfast.activities.notices.notifiers import (
        Apprise,
        Notice,
        Notifier,
        Webhook,
    )
    from holdfast.agents.handoffs.prompt import (
        RECOMMENDED_PROMPT_PREFIX,
        prompt_with_handoff_instructions,
    )
    from holdfast.agents.items.api_types import (
        TResponseInputItem,
        TResponseOutputItem,
        TResponseStreamEvent,
    )
    from holdfast.agents.items.run_items import (
        CompactionItem,
        HandoffCallItem,
        HandoffOutputItem,
        InputItem,
        MCPApprovalRequestItem,
        MCPApprovalResponseItem,
        MCPListToolsItem,
        MessageOutputItem,
        ReasoningItem,
        RunItem,
        ToolApprovalItem,
        ToolCallItem,
        ToolCallOutputItem,
        ToolSearchCallItem,
        ToolSearchOutputItem,
    )
    from holdfast.agents.items.tool_origin import (
        ToolOrigin,
        ToolOriginType,
    )
    from holdfast.agents.local.custom import (
        CustomTool,
    )
    from holdfast.agents.local.diff import (
        apply_diff,
    )
    from holdfast.agents.local.patch import (
        ApplyPatchEditor,
        ApplyPatchOperation,
        ApplyPatchResult,
        ApplyPatchTool,
    )
    from holdfast.agents.local.shell import (
        LocalShellCommandRequest,
        LocalShellExecutor,
        LocalShellTool,
        ShellActionRequest,
        ShellCallData,
        ShellCommandRequest,
        ShellExecutor,
        ShellTool,
        ShellToolEnvironment,
        ShellToolLocalEnvironment,
        ShellToolLocalSkill,
    )
    from holdfast.agents.local.shell_output import (
        ShellCallOutcome,
        ShellCommandOutput,
        ShellResult,
    )
    from holdfast.agents.nesting.nested_run import (
        AgentToolInvocation,
        AgentToolStreamEvent,
    )
    from holdfast.agents.run_config import (
        ReasoningItemIdPolicy,
        RunConfig,
        SessionInputCallback,
        SessionSettings,
        ToolExecutionConfig,
        ToolNameCollisionPolicy,
        ToolNotFoundBehavior,
    )
    from holdfast.agents.runs.item_helpers import (
        ItemHelpers,
    )
    from holdfast.agents.runs.results import (
        ModelResponse,
        RunData,
        RunErrorDetails,
    )
    from holdfast.agents.runs.state import (
        DEFAULT_MAX_TURNS,
        RunState,
    )
    from holdfast.client.agent_runner.runner import (
        AgentRunner,
    )
    from holdfast.client.agent_runner.sessions import (
        Session,
    )
    from holdfast.client.caller_sessions.compaction import (
        OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession,
        OpenAIResponsesCompactionSession,
        is_openai_responses_compaction_aware_session,
    )
    from holdfast.client.caller_sessions.openai_conversations import (
        OpenAIConversationsSession,
    )
    from holdfast.client.caller_sessions.protocol import (
        SessionABC,
    )
    from holdfast.client.caller_sessions.sqlite import (
        SQLiteSession,
    )
    from holdfast.client.runner.demo_loop import (
        run_demo_loop,
    )
    from holdfast.client.runner.runner import (
        Runner,
        RunResult,
        RunResultStreaming,
        configure,
    )
    from holdfast.models.agents_sdk import (
        Model,
        ModelProvider,
        ModelTracing,
    )
    from holdfast.models.defaults import (
        set_default_openai_api,
        set_default_openai_client,
        set_default_openai_key,
    )
    from holdfast.models.openai.chat import (
        OpenAIChatCompletionsModel,
    )
    from holdfast.models.openai.responses import (
        OpenAIResponsesModel,
    )
    from holdfast.models.openai_providers import (
        MultiProvider,
        OpenAIProvider,
    )
    from holdfast.models.prices import (
        Price,
        Prices,
    )
    from holdfast.models.providers import (
        MultiProviderMap,
        model_providers,
    )
    from holdfast.models.resolve import (
        get_default_model,
        get_default_model_settings,
        is_gpt_5_default,
    )
    from holdfast.serving.plugin import (
        HoldfastPlugin,
    )
    from holdfast.tracing.blocks import (
        Trace,
    )
    from holdfast.tracing.export import (
        flush_traces,
    )
    from holdfast.tracing.provider_spans import (
        MCPListToolsSpanData,
        ResponseSpanData,
        SpanError,
        SpeechGroupSpanData,
        SpeechSpanData,
        TaskSpanData,
        TranscriptionSpanData,
        TurnSpanData,
        mcp_tools_span,
        response_span,
        speech_group_span,
        speech_span,
        task_span,
        transcription_span,
        turn_span,
    )
    from holdfast.tracing.spans import (
        AgentSpanData,
        CustomSpanData,
        FunctionSpanData,
        GenerationSpanData,
        GuardrailSpanData,
        HandoffSpanData,
        Span,
        SpanData,
        agent_span,
        custom_span,
        function_span,
        gen_span_id,
        generation_span,
        get_current_span,
        guardrail_span,
        handoff_span,
    )

_LATE = {
    name: module
    for module, names in {
        "holdfast.activities.notices.notifiers": (
            "Apprise",
            "Notice",
            "Notifier",
            "Webhook",
        ),
        "holdfast.agents.handoffs.prompt": (
            "RECOMMENDED_PROMPT_PREFIX",
            "prompt_with_handoff_instructions",
        ),
        "holdfast.agents.items.api_types": (
            "TResponseInputItem",
            "TResponseOutputItem",
            "TResponseStreamEvent",
        ),
        "holdfast.agents.items.run_items": (
            "CompactionItem",
            "HandoffCallItem",
            "HandoffOutputItem",
            "InputItem",
            "MCPApprovalRequestItem",
            "MCPApprovalResponseItem",
            "MCPListToolsItem",
            "MessageOutputItem",
            "ReasoningItem",
            "RunItem",
            "ToolApprovalItem",
            "ToolCallItem",
            "ToolCallOutputItem",
            "ToolSearchCallItem",
            "ToolSearchOutputItem",
        ),
        "holdfast.agents.items.tool_origin": (
            "ToolOrigin",
            "ToolOriginType",
        ),
        "holdfast.agents.local.custom": ("CustomTool",),
        "holdfast.agents.local.diff": ("apply_diff",),
        "holdfast.agents.local.patch": (
            "ApplyPatchEditor",
            "ApplyPatchOperation",
            "ApplyPatchResult",
            "ApplyPatchTool",
        ),
        "holdfast.agents.local.shell": (
            "LocalShellCommandRequest",
            "LocalShellExecutor",
            "LocalShellTool",
            "ShellActionRequest",
            "ShellCallData",
            "ShellCommandRequest",
            "ShellExecutor",
            "ShellTool",
            "ShellToolEnvironment",
            "ShellToolLocalEnvironment",
            "ShellToolLocalSkill",
        ),
        "holdfast.agents.local.shell_output": (
            "ShellCallOutcome",
            "ShellCommandOutput",
            "ShellResult",
        ),
        "holdfast.agents.nesting.nested_run": (
            "AgentToolInvocation",
            "AgentToolStreamEvent",
        ),
        "holdfast.agents.run_config": (
            "ReasoningItemIdPolicy",
            "RunConfig",
            "SessionInputCallback",
            "SessionSettings",
            "ToolExecutionConfig",
            "ToolNameCollisionPolicy",
            "ToolNotFoundBehavior",
        ),
        "holdfast.agents.runs.item_helpers": ("ItemHelpers",),
        "holdfast.agents.runs.results": (
            "ModelResponse",
            "RunData",
            "RunErrorDetails",
        ),
        "holdfast.agents.runs.state": ("DEFAULT_MAX_TURNS", "RunState"),
        "holdfast.client.agent_runner.runner": ("AgentRunner",),
        "holdfast.client.agent_runner.sessions": ("Session",),
        "holdfast.client.caller_sessions.compaction": (
            "OpenAIResponsesCompactionArgs",
            "OpenAIResponsesCompactionAwareSession",
            "OpenAIResponsesCompactionSession",
            "is_openai_responses_compaction_aware_session",
        ),
        "holdfast.client.caller_sessions.openai_conversations": ("OpenAIConversationsSession",),
        "holdfast.client.caller_sessions.protocol": ("SessionABC",),
        "holdfast.client.caller_sessions.sqlite": ("SQLiteSession",),
        "holdfast.client.runner.demo_loop": ("run_demo_loop",),
        "holdfast.client.runner.runner": (
            "RunResult",
            "RunResultStreaming",
            "Runner",
            "configure",
        ),
        "holdfast.models.agents_sdk": (
            "Model",
            "ModelProvider",
            "ModelTracing",
        ),
        "holdfast.models.defaults": (
            "set_default_openai_api",
            "set_default_openai_client",
            "set_default_openai_key",
        ),
        "holdfast.models.openai.chat": ("OpenAIChatCompletionsModel",),
        "holdfast.models.openai.responses": ("OpenAIResponsesModel",),
        "holdfast.models.openai_providers": (
            "MultiProvider",
            "OpenAIProvider",
        ),
        "holdfast.models.prices": (
            "Price",
            "Prices",
        ),
        "holdfast.models.resolve": (
            "get_default_model",
            "get_default_model_settings",
            "is_gpt_5_default",
        ),
        "holdfast.models.providers": (
            "MultiProviderMap",
            "model_providers",
        ),
        "holdfast.serving.plugin": ("HoldfastPlugin",),
        "openai": ("AsyncOpenAI",),  # the Agents SDK has it by chance, and programs import it there
        "holdfast.tracing.blocks": ("Trace",),
        "holdfast.tracing.export": ("flush_traces",),
        "holdfast.tracing.provider_spans": (
            "MCPListToolsSpanData",
            "ResponseSpanData",
            "SpanError",
            "SpeechGroupSpanData",
            "SpeechSpanData",
            "TaskSpanData",
            "TranscriptionSpanData",
            "TurnSpanData",
            "mcp_tools_span",
            "response_span",
            "speech_group_span",
            "speech_span",
            "task_span",
            "transcription_span",
            "turn_span",
        ),
        "holdfast.tracing.spans": (
            "AgentSpanData",
            "CustomSpanData",
            "FunctionSpanData",
            "GenerationSpanData",
            "GuardrailSpanData",
            "HandoffSpanData",
            "Span",
            "SpanData",
            "agent_span",
            "custom_span",
            "function_span",
            "gen_span_id",
            "generation_span",
            "get_current_span",
            "guardrail_span",
            "handoff_span",
        ),
    }.items()
    for name in names
}

__all__ = [
    "DEFAULT_MAX_TURNS",
    "RECOMMENDED_PROMPT_PREFIX",
    "Agent",
    "AgentBase",
    "AgentHookContext",
    "AgentHooks",
    "AgentHooksBase",
    "AgentOutputSchema",
    "AgentOutputSchemaBase",
    "AgentResponse",
    "AgentRunner",
    "AgentSpanData",
    "AgentToolInvocation",
    "AgentToolStreamEvent",
    "AgentUpdatedStreamEvent",
    "AgentsException",
    "Always",
    "ApplyPatchEditor",
    "ApplyPatchOperation",
    "ApplyPatchResult",
    "ApplyPatchTool",
    "Apprise",
    "ApprovalDecided",
    "ApprovalRule",
    "Attempt",
    "Budget",
    "CallModelData",
    "CallModelInputFilter",
    "ChatEnd",
    "ChatStart",
    "CodeInterpreterTool",
    "CommandGiven",
    "CompactionItem",
    "CustomSpanData",
    "CustomTool",
    "DynamicPromptFunction",
    "Effect",
    "FileSearchTool",
    "FuncDocumentation",
    "FuncSchema",
    "FunctionSpanData",
    "FunctionTool",
    "FunctionToolResult",
    "GenerateDynamicPromptData",
    "GenerationSpanData",
    "GuardrailFunctionOutput",
    "GuardrailSpanData",
    "Handoff",
    "HandoffCallItem",
    "HandoffHistoryMapper",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffOutputItem",
    "HandoffSpanData",
    "HoldfastError",
    "HoldfastPlugin",
    "HostedMCPTool",
    "HostedToolRan",
    "Image",
    "ImageGenerationTool",
    "ImageGenerationToolConfig",
    "InputGuardrail",
    "InputGuardrailResult",
    "InputGuardrailTripwireTriggered",
    "InputItem",
    "ItemHelpers",
    "KeywordToolRetriever",
    "LocalShellCommandRequest",
    "LocalShellExecutor",
    "LocalShellTool",
    "MCPApprovalRequestItem",
    "MCPApprovalResponseItem",
    "MCPListToolsItem",
    "MCPListToolsSpanData",
    "MCPToolApprovalFunction",
    "MCPToolApprovalFunctionResult",
    "MCPToolApprovalRequest",
    "MCPToolChoice",
    "MaxTurnsExceeded",
    "Message",
    "MessageOutputItem",
    "Model",
    "ModelBehaviorError",
    "ModelInputData",
    "ModelProvider",
    "ModelRefusalError",
    "ModelResponse",
    "ModelRetryAdvice",
    "ModelRetryAdviceRequest",
    "ModelRetryBackoffSettings",
    "ModelRetryNormalizedError",
    "ModelRetrySettings",
    "ModelSettings",
    "ModelTracing",
    "MultiProvider",
    "MultiProviderMap",
    "Notice",
    "Notifier",
    "OpenAIChatCompletionsModel",
    "OpenAIConversationsSession",
    "OpenAIProvider",
    "OpenAIResponsesCompactionArgs",
    "OpenAIResponsesCompactionAwareSession",
    "OpenAIResponsesCompactionSession",
    "OpenAIResponsesModel",
    "OutputGuardrail",
    "OutputGuardrailBlockedMessageArgs",
    "OutputGuardrailBlockedMessageFormatter",
    "OutputGuardrailResult",
    "OutputGuardrailTripwireTriggered",
    "Price",
    "Prices",
    "Prompt",
    "RawResponsesStreamEvent",
    "ReasoningItem",
    "ReasoningItemIdPolicy",
    "RequestUsage",
    "ResponseSpanData",
    "Retrieved",
    "RetryDecision",
    "RetryPolicy",
    "RetryPolicyContext",
    "RunConfig",
    "RunContextWrapper",
    "RunData",
    "RunErrorData",
    "RunErrorDetails",
    "RunErrorHandler",
    "RunErrorHandlerInput",
    "RunErrorHandlerResult",
    "RunErrorHandlers",
    "RunHooks",
    "RunHooksBase",
    "RunItem",
    "RunItemStreamEvent",
    "RunResult",
    "RunResultStreaming",
    "RunState",
    "Runner",
    "SQLiteSession",
    "Session",
    "SessionABC",
    "SessionInputCallback",
    "SessionSettings",
    "ShellActionRequest",
    "ShellCallData",
    "ShellCallOutcome",
    "ShellCommandOutput",
    "ShellCommandRequest",
    "ShellExecutor",
    "ShellResult",
    "ShellTool",
    "ShellToolEnvironment",
    "ShellToolLocalEnvironment",
    "ShellToolLocalSkill",
    "SourceNode",
    "Span",
    "SpanData",
    "SpanError",
    "SpeechGroupSpanData",
    "SpeechSpanData",
    "StepEnd",
    "StepEvent",
    "StepFailed",
    "StepFailedError",
    "StepStart",
    "StepUndone",
    "StepUndoneStreamEvent",
    "StopAtTools",
    "StreamEvent",
    "TContext",
    "TResponseInputItem",
    "TResponseOutputItem",
    "TResponseStreamEvent",
    "Task",
    "TaskAbandonedError",
    "TaskEvent",
    "TaskSpanData",
    "TaskStep",
    "TaskStepOutput",
    "Thought",
    "Tool",
    "ToolApprovalItem",
    "ToolCall",
    "ToolCallItem",
    "ToolCallOutputItem",
    "ToolCalled",
    "ToolCaller",
    "ToolContext",
    "ToolDone",
    "ToolErrorFormatter",
    "ToolErrorFormatterArgs",
    "ToolExecutionConfig",
    "ToolGuardrailFunctionOutput",
    "ToolInputGuardrail",
    "ToolInputGuardrailData",
    "ToolInputGuardrailResult",
    "ToolInputGuardrailTripwireTriggered",
    "ToolNameCollisionPolicy",
    "ToolNotFoundBehavior",
    "ToolOrigin",
    "ToolOriginType",
    "ToolOutput",
    "ToolOutputFileContent",
    "ToolOutputFileContentDict",
    "ToolOutputGuardrail",
    "ToolOutputGuardrailData",
    "ToolOutputGuardrailResult",
    "ToolOutputGuardrailTripwireTriggered",
    "ToolOutputImage",
    "ToolOutputImageDict",
    "ToolOutputText",
    "ToolOutputTextDict",
    "ToolRetriever",
    "ToolSearchCallItem",
    "ToolSearchOutputItem",
    "ToolSearchTool",
    "ToolTimeoutError",
    "ToolsToFinalOutputFunction",
    "ToolsToFinalOutputResult",
    "Trace",
    "TranscriptionSpanData",
    "TurnSpanData",
    "Usage",
    "UserError",
    "Waiting",
    "WebSearchTool",
    "WebSearchToolImageSettings",
    "Webhook",
    "__version__",
    "agent_span",
    "apply_diff",
    "configure",
    "custom_span",
    "default_handoff_history_mapper",
    "default_tool_error_function",
    "enable_verbose_stdout_logging",
    "ensure_strict_json_schema",
    "event_text",
    "flush_traces",
    "function_schema",
    "function_span",
    "function_tool",
    "gen_span_id",
    "gen_trace_id",
    "generate_func_documentation",
    "generation_span",
    "get_conversation_history_wrappers",
    "get_current_span",
    "get_current_trace",
    "get_default_model",
    "get_default_model_settings",
    "guardrail_span",
    "handoff",
    "handoff_filters",
    "handoff_span",
    "input_guardrail",
    "is_gpt_5_default",
    "is_openai_responses_compaction_aware_session",
    "mcp_tools_span",
    "model_providers",
    "nest_handoff_history",
    "output_guardrail",
    "print_event",
    "prompt_with_handoff_instructions",
    "remove_all_tools",
    "reset_conversation_history_wrappers",
    "response_span",
    "retry_policies",
    "run_demo_loop",
    "set_conversation_history_wrappers",
    "set_default_openai_api",
    "set_default_openai_client",
    "set_default_openai_key",
    "set_tracing_disabled",
    "set_tracing_export_api_key",
    "speech_group_span",
    "speech_span",
    "task_span",
    "tool",
    "tool_input_guardrail",
    "tool_namespace",
    "tool_output_guardrail",
    "trace",
    "transcription_span",
    "turn_span",
]


def __getattr__(name: str) -> object:
    """Load a name that needs more than the light core, or one of the Agents SDK that serves here.

    Raises:
        ImportError: It is a name of the Agents SDK that is not here, asked for by an import
            statement; the text says what to use. (Of an AttributeError `from holdfast import name`
            would not show the text.)
        AttributeError: There is no such name; of the SDK's names, the text says what to use.
    """
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    from holdfast.values.text.absent_names import instead_of, lent

    cause: ImportError | None = None
    try:
        return lent(name)
    except KeyError:
        instead = instead_of(name)
    except ImportError as error:
        instead, cause = str(error), error
    if instead is None:
        msg = f"module 'holdfast' has no attribute {name!r}"
        raise AttributeError(msg)
    msg = f"holdfast has no {name}: {instead}. See docs/from_agents_sdk.md."
    # Python asks for the names of an import statement in this function of its own.
    if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        raise ImportError(msg, name=name) from cause
    raise AttributeError(msg, name=name) from cause


_runner_of_calls.find = lambda: __getattr__("Runner")
