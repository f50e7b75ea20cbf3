# The names that programs of the Agents SDK import: `__init__.py` loads each at its first use.

from openai import AsyncOpenAI as AsyncOpenAI

from holdfast.agents.agent import Agent as Agent
from holdfast.agents.agent_base import AgentBase as AgentBase
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput as GuardrailFunctionOutput,
)
from holdfast.agents.guardrails import (
    InputGuardrail as InputGuardrail,
)
from holdfast.agents.guardrails import (
    InputGuardrailResult as InputGuardrailResult,
)
from holdfast.agents.guardrails import (
    OutputGuardrail as OutputGuardrail,
)
from holdfast.agents.guardrails import (
    OutputGuardrailBlockedMessageArgs as OutputGuardrailBlockedMessageArgs,
)
from holdfast.agents.guardrails import (
    OutputGuardrailBlockedMessageFormatter as OutputGuardrailBlockedMessageFormatter,
)
from holdfast.agents.guardrails import (
    OutputGuardrailResult as OutputGuardrailResult,
)
from holdfast.agents.guardrails import (
    input_guardrail as input_guardrail,
)
from holdfast.agents.guardrails import (
    output_guardrail as output_guardrail,
)
from holdfast.agents.handoffs.filters import (
    HandoffHistoryMapper as HandoffHistoryMapper,
)
from holdfast.agents.handoffs.filters import (
    HandoffInputData as HandoffInputData,
)
from holdfast.agents.handoffs.filters import (
    default_handoff_history_mapper as default_handoff_history_mapper,
)
from holdfast.agents.handoffs.filters import (
    get_conversation_history_wrappers as get_conversation_history_wrappers,
)
from holdfast.agents.handoffs.filters import (
    nest_handoff_history as nest_handoff_history,
)
from holdfast.agents.handoffs.filters import (
    remove_all_tools as remove_all_tools,
)
from holdfast.agents.handoffs.filters import (
    reset_conversation_history_wrappers as reset_conversation_history_wrappers,
)
from holdfast.agents.handoffs.filters import (
    set_conversation_history_wrappers as set_conversation_history_wrappers,
)
from holdfast.agents.handoffs.handoff import (
    Handoff as Handoff,
)
from holdfast.agents.handoffs.handoff import (
    HandoffInputFilter as HandoffInputFilter,
)
from holdfast.agents.handoffs.handoff import (
    handoff as handoff,
)
from holdfast.agents.handoffs.prompt import (
    RECOMMENDED_PROMPT_PREFIX as RECOMMENDED_PROMPT_PREFIX,
)
from holdfast.agents.handoffs.prompt import (
    prompt_with_handoff_instructions as prompt_with_handoff_instructions,
)
from holdfast.agents.hooks import (
    AgentHooks as AgentHooks,
)
from holdfast.agents.hooks import (
    AgentHooksBase as AgentHooksBase,
)
from holdfast.agents.hooks import (
    RunHooks as RunHooks,
)
from holdfast.agents.hooks import (
    RunHooksBase as RunHooksBase,
)
from holdfast.agents.hosted.tools import (
    HostedMCPTool as HostedMCPTool,
)
from holdfast.agents.hosted.tools import (
    MCPToolApprovalFunction as MCPToolApprovalFunction,
)
from holdfast.agents.hosted.tools import (
    MCPToolApprovalFunctionResult as MCPToolApprovalFunctionResult,
)
from holdfast.agents.hosted.tools import (
    MCPToolApprovalRequest as MCPToolApprovalRequest,
)
from holdfast.agents.hosted.prompt import (
    DynamicPromptFunction as DynamicPromptFunction,
)
from holdfast.agents.hosted.prompt import (
    GenerateDynamicPromptData as GenerateDynamicPromptData,
)
from holdfast.agents.hosted.prompt import (
    Prompt as Prompt,
)
from holdfast.agents.hosted.tools import (
    ImageGenerationToolConfig as ImageGenerationToolConfig,
)
from holdfast.agents.hosted.tools import (
    WebSearchToolImageSettings as WebSearchToolImageSettings,
)
from holdfast.agents.hosted.tools import (
    ToolSearchTool as ToolSearchTool,
)
from holdfast.agents.hosted.tools import (
    tool_namespace as tool_namespace,
)
from holdfast.agents.hosted.tools import (
    CodeInterpreterTool as CodeInterpreterTool,
)
from holdfast.agents.hosted.tools import (
    FileSearchTool as FileSearchTool,
)
from holdfast.agents.hosted.tools import (
    ImageGenerationTool as ImageGenerationTool,
)
from holdfast.agents.hosted.tools import (
    WebSearchTool as WebSearchTool,
)
from holdfast.agents.items.api_types import (
    TResponseInputItem as TResponseInputItem,
)
from holdfast.agents.items.api_types import (
    TResponseOutputItem as TResponseOutputItem,
)
from holdfast.agents.items.api_types import (
    TResponseStreamEvent as TResponseStreamEvent,
)
from holdfast.agents.items.run_items import (
    CompactionItem as CompactionItem,
)
from holdfast.agents.items.run_items import (
    HandoffCallItem as HandoffCallItem,
)
from holdfast.agents.items.run_items import (
    HandoffOutputItem as HandoffOutputItem,
)
from holdfast.agents.items.run_items import (
    InputItem as InputItem,
)
from holdfast.agents.items.run_items import (
    MCPApprovalRequestItem as MCPApprovalRequestItem,
)
from holdfast.agents.items.run_items import (
    MCPApprovalResponseItem as MCPApprovalResponseItem,
)
from holdfast.agents.items.run_items import (
    MCPListToolsItem as MCPListToolsItem,
)
from holdfast.agents.items.run_items import (
    MessageOutputItem as MessageOutputItem,
)
from holdfast.agents.items.run_items import (
    ReasoningItem as ReasoningItem,
)
from holdfast.agents.items.run_items import (
    RunItem as RunItem,
)
from holdfast.agents.items.run_items import (
    ToolApprovalItem as ToolApprovalItem,
)
from holdfast.agents.items.run_items import (
    ToolCallItem as ToolCallItem,
)
from holdfast.agents.items.run_items import (
    ToolCallOutputItem as ToolCallOutputItem,
)
from holdfast.agents.items.run_items import (
    ToolSearchCallItem as ToolSearchCallItem,
)
from holdfast.agents.items.run_items import (
    ToolSearchOutputItem as ToolSearchOutputItem,
)
from holdfast.agents.items.run_items import (
    ToolOrigin as ToolOrigin,
)
from holdfast.agents.items.run_items import (
    ToolOriginType as ToolOriginType,
)
from holdfast.agents.local.base import CustomTool as CustomTool
from holdfast.agents.local.diff import apply_diff as apply_diff
from holdfast.agents.local.base import (
    ApplyPatchEditor as ApplyPatchEditor,
)
from holdfast.agents.local.base import (
    ApplyPatchOperation as ApplyPatchOperation,
)
from holdfast.agents.local.base import (
    ApplyPatchResult as ApplyPatchResult,
)
from holdfast.agents.local.base import (
    ApplyPatchTool as ApplyPatchTool,
)
from holdfast.agents.local.shell import (
    LocalShellCommandRequest as LocalShellCommandRequest,
)
from holdfast.agents.local.shell import (
    LocalShellExecutor as LocalShellExecutor,
)
from holdfast.agents.local.shell import (
    LocalShellTool as LocalShellTool,
)
from holdfast.agents.local.shell import (
    ShellActionRequest as ShellActionRequest,
)
from holdfast.agents.local.shell import (
    ShellCallData as ShellCallData,
)
from holdfast.agents.local.shell import (
    ShellCommandRequest as ShellCommandRequest,
)
from holdfast.agents.local.shell import (
    ShellExecutor as ShellExecutor,
)
from holdfast.agents.local.shell import (
    ShellTool as ShellTool,
)
from holdfast.agents.local.shell import (
    ShellToolEnvironment as ShellToolEnvironment,
)
from holdfast.agents.local.shell import (
    ShellToolLocalEnvironment as ShellToolLocalEnvironment,
)
from holdfast.agents.local.shell import (
    ShellToolLocalSkill as ShellToolLocalSkill,
)
from holdfast.agents.local.shell import (
    ShellCallOutcome as ShellCallOutcome,
)
from holdfast.agents.local.shell import (
    ShellCommandOutput as ShellCommandOutput,
)
from holdfast.agents.local.shell import (
    ShellResult as ShellResult,
)
from holdfast.agents.nesting.agent_tool import (
    AgentToolInvocation as AgentToolInvocation,
)
from holdfast.agents.nesting.agent_tool import (
    AgentToolStreamEvent as AgentToolStreamEvent,
)
from holdfast.agents.output_type import (
    AgentOutputSchema as AgentOutputSchema,
)
from holdfast.agents.output_type import (
    AgentOutputSchemaBase as AgentOutputSchemaBase,
)
from holdfast.agents.run_config import (
    ReasoningItemIdPolicy as ReasoningItemIdPolicy,
)
from holdfast.agents.run_config import (
    RunConfig as RunConfig,
)
from holdfast.agents.run_config import (
    SessionInputCallback as SessionInputCallback,
)
from holdfast.agents.run_config import (
    SessionSettings as SessionSettings,
)
from holdfast.agents.run_config import (
    ToolExecutionConfig as ToolExecutionConfig,
)
from holdfast.agents.run_config import (
    ToolNameCollisionPolicy as ToolNameCollisionPolicy,
)
from holdfast.agents.run_config import (
    ToolNotFoundBehavior as ToolNotFoundBehavior,
)
from holdfast.agents.runs.teams import (
    RunErrorData as RunErrorData,
)
from holdfast.agents.runs.teams import (
    RunErrorHandler as RunErrorHandler,
)
from holdfast.agents.runs.teams import (
    RunErrorHandlerInput as RunErrorHandlerInput,
)
from holdfast.agents.runs.teams import (
    RunErrorHandlerResult as RunErrorHandlerResult,
)
from holdfast.agents.runs.teams import (
    RunErrorHandlers as RunErrorHandlers,
)
from holdfast.agents.runs.item_helpers import ItemHelpers as ItemHelpers
from holdfast.agents.runs.model_input import (
    CallModelData as CallModelData,
)
from holdfast.agents.runs.model_input import (
    CallModelInputFilter as CallModelInputFilter,
)
from holdfast.agents.runs.model_input import (
    ModelInputData as ModelInputData,
)
from holdfast.agents.runs.results import (
    ModelResponse as ModelResponse,
)
from holdfast.agents.runs.results import (
    RunData as RunData,
)
from holdfast.agents.runs.results import (
    RunErrorDetails as RunErrorDetails,
)
from holdfast.agents.runs.state import (
    DEFAULT_MAX_TURNS as DEFAULT_MAX_TURNS,
)
from holdfast.agents.runs.state import (
    RunState as RunState,
)
from holdfast.agents.tools.context import ToolContext as ToolContext
from holdfast.agents.tools.decorator import (
    FunctionTool as FunctionTool,
)
from holdfast.agents.tools.decorator import (
    Tool as Tool,
)
from holdfast.agents.tools.decorator import (
    function_tool as function_tool,
)
from holdfast.agents.tools.decorator import (
    tool as tool,
)
from holdfast.agents.tools.arguments import (
    ToolErrorFormatter as ToolErrorFormatter,
)
from holdfast.agents.tools.arguments import (
    ToolErrorFormatterArgs as ToolErrorFormatterArgs,
)
from holdfast.agents.tools.arguments import (
    default_tool_error_function as default_tool_error_function,
)
from holdfast.agents.tools.functions.function_schema import (
    FuncDocumentation as FuncDocumentation,
)
from holdfast.agents.tools.functions.function_schema import (
    generate_func_documentation as generate_func_documentation,
)
from holdfast.agents.tools.functions.function_schema import (
    FuncSchema as FuncSchema,
)
from holdfast.agents.tools.functions.function_schema import (
    function_schema as function_schema,
)
from holdfast.agents.tools.functions.schema import (
    ensure_strict_json_schema as ensure_strict_json_schema,
)
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput as ToolGuardrailFunctionOutput,
)
from holdfast.agents.tools.guardrails import (
    ToolInputGuardrail as ToolInputGuardrail,
)
from holdfast.agents.tools.guardrails import (
    ToolInputGuardrailData as ToolInputGuardrailData,
)
from holdfast.agents.tools.guardrails import (
    ToolInputGuardrailResult as ToolInputGuardrailResult,
)
from holdfast.agents.tools.guardrails import (
    ToolOutputGuardrail as ToolOutputGuardrail,
)
from holdfast.agents.tools.guardrails import (
    ToolOutputGuardrailData as ToolOutputGuardrailData,
)
from holdfast.agents.tools.guardrails import (
    ToolOutputGuardrailResult as ToolOutputGuardrailResult,
)
from holdfast.agents.tools.guardrails import (
    tool_input_guardrail as tool_input_guardrail,
)
from holdfast.agents.tools.guardrails import (
    tool_output_guardrail as tool_output_guardrail,
)
from holdfast.agents.tools.options import ToolCaller as ToolCaller
from holdfast.agents.tools.outputs import (
    ToolOutputFileContent as ToolOutputFileContent,
)
from holdfast.agents.tools.outputs import (
    ToolOutputFileContentDict as ToolOutputFileContentDict,
)
from holdfast.agents.tools.outputs import (
    ToolOutputImage as ToolOutputImage,
)
from holdfast.agents.tools.outputs import (
    ToolOutputImageDict as ToolOutputImageDict,
)
from holdfast.agents.tools.outputs import (
    ToolOutputText as ToolOutputText,
)
from holdfast.agents.tools.outputs import (
    ToolOutputTextDict as ToolOutputTextDict,
)
from holdfast.client.agent_runner.sessions import Session as Session
from holdfast.client.caller_sessions.compaction import (
    OpenAIResponsesCompactionArgs as OpenAIResponsesCompactionArgs,
)
from holdfast.client.caller_sessions.compaction import (
    OpenAIResponsesCompactionAwareSession as OpenAIResponsesCompactionAwareSession,
)
from holdfast.client.caller_sessions.compaction import (
    OpenAIResponsesCompactionSession as OpenAIResponsesCompactionSession,
)
from holdfast.client.caller_sessions.compaction import (
    is_openai_responses_compaction_aware_session as is_openai_responses_compaction_aware_session,
)
from holdfast.client.caller_sessions.compaction import (
    OpenAIConversationsSession as OpenAIConversationsSession,
)
from holdfast.client.caller_sessions.protocol import SessionABC as SessionABC
from holdfast.client.caller_sessions.sqlite import SQLiteSession as SQLiteSession
from holdfast.client.runner.demo_loop import run_demo_loop as run_demo_loop
from holdfast.client.runner.runner import (
    Runner as Runner,
)
from holdfast.client.runner.runner import (
    RunResult as RunResult,
)
from holdfast.client.runner.runner import (
    RunResultStreaming as RunResultStreaming,
)
from holdfast.errors import (
    AgentsException as AgentsException,
)
from holdfast.errors import (
    InputGuardrailTripwireTriggered as InputGuardrailTripwireTriggered,
)
from holdfast.errors import (
    MaxTurnsExceeded as MaxTurnsExceeded,
)
from holdfast.errors import (
    ModelBehaviorError as ModelBehaviorError,
)
from holdfast.errors import (
    ModelRefusalError as ModelRefusalError,
)
from holdfast.errors import (
    OutputGuardrailTripwireTriggered as OutputGuardrailTripwireTriggered,
)
from holdfast.errors import (
    ToolInputGuardrailTripwireTriggered as ToolInputGuardrailTripwireTriggered,
)
from holdfast.errors import (
    ToolOutputGuardrailTripwireTriggered as ToolOutputGuardrailTripwireTriggered,
)
from holdfast.errors import (
    ToolTimeoutError as ToolTimeoutError,
)
from holdfast.errors import (
    UserError as UserError,
)
from holdfast.models.agents_sdk import (
    Model as Model,
)
from holdfast.models.agents_sdk import (
    ModelProvider as ModelProvider,
)
from holdfast.models.agents_sdk import (
    ModelTracing as ModelTracing,
)
from holdfast.models.defaults import (
    set_default_openai_api as set_default_openai_api,
)
from holdfast.models.defaults import (
    set_default_openai_client as set_default_openai_client,
)
from holdfast.models.defaults import (
    set_default_openai_key as set_default_openai_key,
)
from holdfast.models.openai.chat import OpenAIChatCompletionsModel as OpenAIChatCompletionsModel
from holdfast.models.openai.responses import OpenAIResponsesModel as OpenAIResponsesModel
from holdfast.models.resolve import (
    MultiProvider as MultiProvider,
)
from holdfast.models.resolve import (
    OpenAIProvider as OpenAIProvider,
)
from holdfast.models.providers import MultiProviderMap as MultiProviderMap
from holdfast.models.resolve import (
    get_default_model as get_default_model,
)
from holdfast.models.resolve import (
    get_default_model_settings as get_default_model_settings,
)
from holdfast.models.resolve import (
    is_gpt_5_default as is_gpt_5_default,
)
from holdfast.reading.streams.reader import (
    AgentUpdatedStreamEvent as AgentUpdatedStreamEvent,
)
from holdfast.reading.streams.reader import (
    RawResponsesStreamEvent as RawResponsesStreamEvent,
)
from holdfast.reading.streams.reader import (
    RunItemStreamEvent as RunItemStreamEvent,
)
from holdfast.reading.streams.reader import (
    StreamEvent as StreamEvent,
)
from holdfast.tracing import (
    gen_trace_id as gen_trace_id,
)
from holdfast.tracing import (
    get_current_trace as get_current_trace,
)
from holdfast.tracing import (
    set_tracing_disabled as set_tracing_disabled,
)
from holdfast.tracing import (
    set_tracing_export_api_key as set_tracing_export_api_key,
)
from holdfast.tracing import (
    trace as trace,
)
from holdfast.tracing.spans import Trace as Trace
from holdfast.tracing.export import flush_traces as flush_traces
from holdfast.tracing.provider_spans import (
    MCPListToolsSpanData as MCPListToolsSpanData,
)
from holdfast.tracing.provider_spans import (
    ResponseSpanData as ResponseSpanData,
)
from holdfast.tracing.provider_spans import (
    SpanError as SpanError,
)
from holdfast.tracing.provider_spans import (
    TaskSpanData as TaskSpanData,
)
from holdfast.tracing.provider_spans import (
    TurnSpanData as TurnSpanData,
)
from holdfast.tracing.provider_spans import (
    mcp_tools_span as mcp_tools_span,
)
from holdfast.tracing.provider_spans import (
    response_span as response_span,
)
from holdfast.tracing.provider_spans import (
    task_span as task_span,
)
from holdfast.tracing.provider_spans import (
    turn_span as turn_span,
)
from holdfast.tracing.spans import (
    AgentSpanData as AgentSpanData,
)
from holdfast.tracing.spans import (
    CustomSpanData as CustomSpanData,
)
from holdfast.tracing.spans import (
    FunctionSpanData as FunctionSpanData,
)
from holdfast.tracing.spans import (
    GenerationSpanData as GenerationSpanData,
)
from holdfast.tracing.spans import (
    GuardrailSpanData as GuardrailSpanData,
)
from holdfast.tracing.spans import (
    HandoffSpanData as HandoffSpanData,
)
from holdfast.tracing.spans import (
    Span as Span,
)
from holdfast.tracing.spans import (
    SpanData as SpanData,
)
from holdfast.tracing.spans import (
    agent_span as agent_span,
)
from holdfast.tracing.spans import (
    custom_span as custom_span,
)
from holdfast.tracing.spans import (
    function_span as function_span,
)
from holdfast.tracing.spans import (
    gen_span_id as gen_span_id,
)
from holdfast.tracing.spans import (
    generation_span as generation_span,
)
from holdfast.tracing.spans import (
    get_current_span as get_current_span,
)
from holdfast.tracing.spans import (
    guardrail_span as guardrail_span,
)
from holdfast.tracing.spans import (
    handoff_span as handoff_span,
)
from holdfast.values.runs.retries import (
    ModelRetryAdvice as ModelRetryAdvice,
)
from holdfast.values.runs.retries import (
    ModelRetryAdviceRequest as ModelRetryAdviceRequest,
)
from holdfast.values.runs.retries import (
    ModelRetryBackoffSettings as ModelRetryBackoffSettings,
)
from holdfast.values.runs.retries import (
    ModelRetryNormalizedError as ModelRetryNormalizedError,
)
from holdfast.values.runs.retries import (
    ModelRetrySettings as ModelRetrySettings,
)
from holdfast.values.runs.retries import (
    RetryDecision as RetryDecision,
)
from holdfast.values.runs.retries import (
    RetryPolicy as RetryPolicy,
)
from holdfast.values.runs.retries import (
    RetryPolicyContext as RetryPolicyContext,
)
from holdfast.values.runs.retries import (
    retry_policies as retry_policies,
)
from holdfast.values.runs.run_context import (
    AgentHookContext as AgentHookContext,
)
from holdfast.values.runs.run_context import (
    RunContextWrapper as RunContextWrapper,
)
from holdfast.values.runs.run_context import (
    TContext as TContext,
)
from holdfast.values.runs.usage import (
    RequestUsage as RequestUsage,
)
from holdfast.values.runs.usage import (
    Usage as Usage,
)
from holdfast.values.settings import (
    MCPToolChoice as MCPToolChoice,
)
from holdfast.values.settings import (
    ModelSettings as ModelSettings,
)
from holdfast.values.text.logs import enable_verbose_stdout_logging as enable_verbose_stdout_logging
from holdfast.values.version import __version__ as __version__
from holdfast.workers.tool_use import FunctionToolResult as FunctionToolResult
from holdfast.workers.tool_use import StopAtTools as StopAtTools
from holdfast.workers.tool_use import ToolsToFinalOutputFunction as ToolsToFinalOutputFunction
from holdfast.workers.tool_use import ToolsToFinalOutputResult as ToolsToFinalOutputResult

__all__: list[str]

def __getattr__(name: str) -> object: ...  # pyright: ignore[reportIncompleteStub]  names that are lent
