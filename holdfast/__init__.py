"""Holdfast: durable agents on Temporal.

Importing this package loads only the standard library, pydantic and our pure modules; what needs
Temporal or a model client is loaded at its first use.
"""

from __future__ import annotations

import importlib
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
    OutputGuardrailResult,
    input_guardrail,
    output_guardrail,
)
from holdfast.agents.handoffs.filters import (
    HandoffHistoryMapper,
    HandoffInputData,
    nest_handoff_history,
    remove_all_tools,
)
from holdfast.agents.handoffs.handoff import Handoff, HandoffInputFilter, handoff
from holdfast.agents.hooks import AgentHooks, RunHooks
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
from holdfast.agents.hosted.tools import (
    CodeInterpreterTool,
    FileSearchTool,
    ImageGenerationTool,
    WebSearchTool,
)
from holdfast.agents.output_type import AgentOutputSchema, AgentOutputSchemaBase
from holdfast.agents.runs.error_handlers import (
    RunErrorData,
    RunErrorHandlerInput,
    RunErrorHandlerResult,
)
from holdfast.agents.runs.model_input import CallModelData, ModelInputData
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.decorator import FunctionTool, Tool, function_tool, tool
from holdfast.agents.tools.error_texts import ToolErrorFormatterArgs, default_tool_error_function
from holdfast.agents.tools.functions.docstrings import (
    FuncDocumentation,
    generate_func_documentation,
)
from holdfast.agents.tools.functions.function_schema import FuncSchema, function_schema
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
from holdfast.tracing import gen_trace_id, get_current_trace, set_tracing_disabled, trace
from holdfast.values.messages import Message, ToolCall
from holdfast.values.parts.images import Image
from holdfast.values.parts.sources import Retrieved, SourceNode
from holdfast.values.runs.run_context import AgentHookContext, RunContextWrapper
from holdfast.values.runs.usage import RequestUsage, Usage
from holdfast.values.settings import Always, ApprovalRule, Budget, MCPToolChoice, ModelSettings
from holdfast.values.steps import AgentResponse, Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.version import __version__
from holdfast.workers.tool_use import (
    FunctionToolResult,
    StopAtTools,
    ToolsToFinalOutputFunction,
    ToolsToFinalOutputResult,
)

if TYPE_CHECKING:
    from holdfast.activities.notices.notifiers import Apprise, Notice, Notifier, Webhook
    from holdfast.agents.items.run_items import (
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
    )
    from holdfast.agents.run_config import RunConfig, SessionSettings, ToolExecutionConfig
    from holdfast.agents.runs.item_helpers import ItemHelpers
    from holdfast.agents.runs.results import ModelResponse, RunData
    from holdfast.agents.runs.state import RunState
    from holdfast.client.agent_runner.runner import AgentRunner
    from holdfast.client.agent_runner.sessions import Session
    from holdfast.client.caller_sessions.protocol import SessionABC
    from holdfast.client.caller_sessions.sqlite import SQLiteSession
    from holdfast.client.runner.runner import Runner, RunResult, RunResultStreaming, configure
    from holdfast.models.agents_sdk import Model, ModelProvider, ModelTracing
    from holdfast.models.defaults import (
        set_default_openai_api,
        set_default_openai_client,
        set_default_openai_key,
    )
    from holdfast.models.openai.chat import OpenAIChatCompletionsModel
    from holdfast.models.openai.responses import OpenAIResponsesModel
    from holdfast.models.openai_providers import MultiProvider, OpenAIProvider
    from holdfast.models.prices import Price, Prices
    from holdfast.models.providers import MultiProviderMap, model_providers
    from holdfast.serving.plugin import HoldfastPlugin
    from holdfast.tracing.blocks import Trace
    from holdfast.tracing.export import flush_traces
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
    "Apprise": "holdfast.activities.notices.notifiers",
    "Model": "holdfast.models.agents_sdk",
    "ModelProvider": "holdfast.models.agents_sdk",
    "ModelTracing": "holdfast.models.agents_sdk",
    "MultiProvider": "holdfast.models.openai_providers",
    "MultiProviderMap": "holdfast.models.providers",
    "Notice": "holdfast.activities.notices.notifiers",
    "Notifier": "holdfast.activities.notices.notifiers",
    "OpenAIProvider": "holdfast.models.openai_providers",
    "model_providers": "holdfast.models.providers",
    "OpenAIChatCompletionsModel": "holdfast.models.openai.chat",
    "OpenAIResponsesModel": "holdfast.models.openai.responses",
    "Webhook": "holdfast.activities.notices.notifiers",
    "set_default_openai_api": "holdfast.models.defaults",
    "set_default_openai_client": "holdfast.models.defaults",
    "set_default_openai_key": "holdfast.models.defaults",
    "AgentSpanData": "holdfast.tracing.spans",
    "CustomSpanData": "holdfast.tracing.spans",
    "FunctionSpanData": "holdfast.tracing.spans",
    "GenerationSpanData": "holdfast.tracing.spans",
    "GuardrailSpanData": "holdfast.tracing.spans",
    "HandoffSpanData": "holdfast.tracing.spans",
    "Span": "holdfast.tracing.spans",
    "SpanData": "holdfast.tracing.spans",
    "agent_span": "holdfast.tracing.spans",
    "custom_span": "holdfast.tracing.spans",
    "function_span": "holdfast.tracing.spans",
    "gen_span_id": "holdfast.tracing.spans",
    "generation_span": "holdfast.tracing.spans",
    "get_current_span": "holdfast.tracing.spans",
    "guardrail_span": "holdfast.tracing.spans",
    "handoff_span": "holdfast.tracing.spans",
    "Trace": "holdfast.tracing.blocks",
    "AgentRunner": "holdfast.client.agent_runner.runner",
    "HandoffCallItem": "holdfast.agents.items.run_items",
    "HandoffOutputItem": "holdfast.agents.items.run_items",
    "HoldfastPlugin": "holdfast.serving.plugin",
    "InputItem": "holdfast.agents.items.run_items",
    "ItemHelpers": "holdfast.agents.runs.item_helpers",
    "MCPApprovalRequestItem": "holdfast.agents.items.run_items",
    "MCPApprovalResponseItem": "holdfast.agents.items.run_items",
    "MCPListToolsItem": "holdfast.agents.items.run_items",
    "MessageOutputItem": "holdfast.agents.items.run_items",
    "ModelResponse": "holdfast.agents.runs.results",
    "ReasoningItem": "holdfast.agents.items.run_items",
    "Price": "holdfast.models.prices",
    "Prices": "holdfast.models.prices",
    "RunConfig": "holdfast.agents.run_config",
    "RunData": "holdfast.agents.runs.results",
    "RunItem": "holdfast.agents.items.run_items",
    "RunResult": "holdfast.client.runner.runner",
    "RunResultStreaming": "holdfast.client.runner.runner",
    "RunState": "holdfast.agents.runs.state",
    "Runner": "holdfast.client.runner.runner",
    "SQLiteSession": "holdfast.client.caller_sessions.sqlite",
    "Session": "holdfast.client.agent_runner.sessions",
    "SessionABC": "holdfast.client.caller_sessions.protocol",
    "SessionSettings": "holdfast.agents.run_config",
    "ToolApprovalItem": "holdfast.agents.items.run_items",
    "ToolCallItem": "holdfast.agents.items.run_items",
    "ToolCallOutputItem": "holdfast.agents.items.run_items",
    "ToolExecutionConfig": "holdfast.agents.run_config",
    "configure": "holdfast.client.runner.runner",
    "flush_traces": "holdfast.tracing.export",
}

__all__ = [
    "Agent",
    "AgentBase",
    "AgentHookContext",
    "AgentHooks",
    "AgentOutputSchema",
    "AgentOutputSchemaBase",
    "AgentResponse",
    "AgentRunner",
    "AgentSpanData",
    "AgentUpdatedStreamEvent",
    "AgentsException",
    "Always",
    "Apprise",
    "ApprovalDecided",
    "ApprovalRule",
    "Attempt",
    "Budget",
    "CallModelData",
    "ChatEnd",
    "ChatStart",
    "CodeInterpreterTool",
    "CommandGiven",
    "CustomSpanData",
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
    "InputGuardrail",
    "InputGuardrailResult",
    "InputGuardrailTripwireTriggered",
    "InputItem",
    "ItemHelpers",
    "KeywordToolRetriever",
    "MCPApprovalRequestItem",
    "MCPApprovalResponseItem",
    "MCPListToolsItem",
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
    "ModelSettings",
    "ModelTracing",
    "MultiProvider",
    "MultiProviderMap",
    "Notice",
    "Notifier",
    "OpenAIChatCompletionsModel",
    "OpenAIProvider",
    "OpenAIResponsesModel",
    "OutputGuardrail",
    "OutputGuardrailResult",
    "OutputGuardrailTripwireTriggered",
    "Price",
    "Prices",
    "Prompt",
    "RawResponsesStreamEvent",
    "ReasoningItem",
    "RequestUsage",
    "Retrieved",
    "RunConfig",
    "RunContextWrapper",
    "RunData",
    "RunErrorData",
    "RunErrorHandlerInput",
    "RunErrorHandlerResult",
    "RunHooks",
    "RunItem",
    "RunItemStreamEvent",
    "RunResult",
    "RunResultStreaming",
    "RunState",
    "Runner",
    "SQLiteSession",
    "Session",
    "SessionABC",
    "SessionSettings",
    "SourceNode",
    "Span",
    "SpanData",
    "StepEnd",
    "StepEvent",
    "StepFailed",
    "StepFailedError",
    "StepStart",
    "StepUndone",
    "StepUndoneStreamEvent",
    "StopAtTools",
    "StreamEvent",
    "Task",
    "TaskAbandonedError",
    "TaskEvent",
    "TaskStep",
    "TaskStepOutput",
    "Thought",
    "Tool",
    "ToolApprovalItem",
    "ToolCall",
    "ToolCallItem",
    "ToolCallOutputItem",
    "ToolCalled",
    "ToolContext",
    "ToolDone",
    "ToolErrorFormatterArgs",
    "ToolExecutionConfig",
    "ToolGuardrailFunctionOutput",
    "ToolInputGuardrail",
    "ToolInputGuardrailData",
    "ToolInputGuardrailResult",
    "ToolInputGuardrailTripwireTriggered",
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
    "ToolTimeoutError",
    "ToolsToFinalOutputFunction",
    "ToolsToFinalOutputResult",
    "Trace",
    "Usage",
    "UserError",
    "Waiting",
    "WebSearchTool",
    "Webhook",
    "__version__",
    "agent_span",
    "configure",
    "custom_span",
    "default_tool_error_function",
    "event_text",
    "flush_traces",
    "function_schema",
    "function_span",
    "function_tool",
    "gen_span_id",
    "gen_trace_id",
    "generate_func_documentation",
    "generation_span",
    "get_current_span",
    "get_current_trace",
    "guardrail_span",
    "handoff",
    "handoff_span",
    "input_guardrail",
    "model_providers",
    "nest_handoff_history",
    "output_guardrail",
    "print_event",
    "remove_all_tools",
    "set_default_openai_api",
    "set_default_openai_client",
    "set_default_openai_key",
    "set_tracing_disabled",
    "tool",
    "tool_input_guardrail",
    "tool_output_guardrail",
    "trace",
]


def __getattr__(name: str) -> object:
    """Load a name that needs more than the light core."""
    if name not in _LATE:
        msg = f"module 'holdfast' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_LATE[name]), name)
