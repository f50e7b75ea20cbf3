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

from holdfast.agent import Agent
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
from holdfast.guardrails import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
    input_guardrail,
    output_guardrail,
)
from holdfast.handoff_filters import (
    HandoffHistoryMapper,
    HandoffInputData,
    nest_handoff_history,
    remove_all_tools,
)
from holdfast.handoffs import Handoff, HandoffInputFilter, handoff
from holdfast.hooks import AgentHooks, RunHooks
from holdfast.images import Image
from holdfast.messages import Message, ToolCall, Usage
from holdfast.model_input import CallModelData, ModelInputData
from holdfast.output_type import AgentOutputSchema
from holdfast.run_context import AgentHookContext, RunContextWrapper
from holdfast.run_error_handlers import RunErrorData, RunErrorHandlerInput, RunErrorHandlerResult
from holdfast.settings import Budget, ModelSettings
from holdfast.sources import Retrieved, SourceNode
from holdfast.steps import AgentResponse, Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.stream_events import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
)
from holdfast.tool_context import ToolContext
from holdfast.tool_errors import ToolErrorFormatterArgs
from holdfast.tool_guardrails import (
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
from holdfast.tool_retriever import KeywordToolRetriever, ToolRetriever
from holdfast.tool_use import StopAtTools, ToolsToFinalOutputResult
from holdfast.tools import Tool, function_tool, tool
from holdfast.tracing import gen_trace_id, get_current_trace, set_tracing_disabled, trace

if TYPE_CHECKING:
    from holdfast.client.facade import Runner, RunResult, RunResultStreaming, configure
    from holdfast.client.items import (
        HandoffCallItem,
        HandoffOutputItem,
        InputItem,
        MessageOutputItem,
        ReasoningItem,
        RunItem,
        ToolApprovalItem,
        ToolCallItem,
        ToolCallOutputItem,
    )
    from holdfast.client.results import ItemHelpers, ModelResponse, RunData
    from holdfast.client.run_config import RunConfig, SessionSettings, ToolExecutionConfig
    from holdfast.client.run_state import RunState
    from holdfast.client.runner import AgentRunner
    from holdfast.client.sessions import Session
    from holdfast.plugin import HoldfastPlugin
    from holdfast.tracing.sending import flush_traces

__version__ = "0.1.0"

_LATE = {
    "AgentRunner": "holdfast.client.runner",
    "HandoffCallItem": "holdfast.client.items",
    "HandoffOutputItem": "holdfast.client.items",
    "HoldfastPlugin": "holdfast.plugin",
    "InputItem": "holdfast.client.items",
    "ItemHelpers": "holdfast.client.results",
    "MessageOutputItem": "holdfast.client.items",
    "ModelResponse": "holdfast.client.results",
    "ReasoningItem": "holdfast.client.items",
    "RunConfig": "holdfast.client.run_config",
    "RunData": "holdfast.client.results",
    "RunItem": "holdfast.client.items",
    "RunResult": "holdfast.client.facade",
    "RunResultStreaming": "holdfast.client.facade",
    "RunState": "holdfast.client.run_state",
    "Runner": "holdfast.client.facade",
    "Session": "holdfast.client.sessions",
    "SessionSettings": "holdfast.client.run_config",
    "ToolApprovalItem": "holdfast.client.items",
    "ToolCallItem": "holdfast.client.items",
    "ToolCallOutputItem": "holdfast.client.items",
    "ToolExecutionConfig": "holdfast.client.run_config",
    "configure": "holdfast.client.facade",
    "flush_traces": "holdfast.tracing.sending",
}

__all__ = [
    "Agent",
    "AgentHookContext",
    "AgentHooks",
    "AgentOutputSchema",
    "AgentResponse",
    "AgentRunner",
    "AgentUpdatedStreamEvent",
    "AgentsException",
    "Budget",
    "CallModelData",
    "GuardrailFunctionOutput",
    "Handoff",
    "HandoffCallItem",
    "HandoffHistoryMapper",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffOutputItem",
    "HoldfastError",
    "HoldfastPlugin",
    "Image",
    "InputGuardrail",
    "InputGuardrailResult",
    "InputGuardrailTripwireTriggered",
    "InputItem",
    "ItemHelpers",
    "KeywordToolRetriever",
    "MaxTurnsExceeded",
    "Message",
    "MessageOutputItem",
    "ModelBehaviorError",
    "ModelInputData",
    "ModelRefusalError",
    "ModelResponse",
    "ModelSettings",
    "OutputGuardrail",
    "OutputGuardrailResult",
    "OutputGuardrailTripwireTriggered",
    "RawResponsesStreamEvent",
    "ReasoningItem",
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
    "Session",
    "SessionSettings",
    "SourceNode",
    "StepFailedError",
    "StepUndoneStreamEvent",
    "StopAtTools",
    "StreamEvent",
    "Task",
    "TaskAbandonedError",
    "TaskStep",
    "TaskStepOutput",
    "Tool",
    "ToolApprovalItem",
    "ToolCall",
    "ToolCallItem",
    "ToolCallOutputItem",
    "ToolContext",
    "ToolErrorFormatterArgs",
    "ToolExecutionConfig",
    "ToolGuardrailFunctionOutput",
    "ToolInputGuardrail",
    "ToolInputGuardrailData",
    "ToolInputGuardrailResult",
    "ToolInputGuardrailTripwireTriggered",
    "ToolOutput",
    "ToolOutputGuardrail",
    "ToolOutputGuardrailData",
    "ToolOutputGuardrailResult",
    "ToolOutputGuardrailTripwireTriggered",
    "ToolRetriever",
    "ToolTimeoutError",
    "ToolsToFinalOutputResult",
    "Usage",
    "UserError",
    "configure",
    "flush_traces",
    "function_tool",
    "gen_trace_id",
    "get_current_trace",
    "handoff",
    "input_guardrail",
    "nest_handoff_history",
    "output_guardrail",
    "remove_all_tools",
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
