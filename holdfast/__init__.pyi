# What type checkers and editors see of `__init__.py`, which loads these names at their first use.

from openai import AsyncOpenAI as AsyncOpenAI

from holdfast.activities.notices.notifiers import (
    Apprise as Apprise,
    Notice as Notice,
    Notifier as Notifier,
    Webhook as Webhook,
)
from holdfast.agents.agent import Agent as Agent
from holdfast.agents.agent_base import AgentBase as AgentBase
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput as GuardrailFunctionOutput,
    InputGuardrail as InputGuardrail,
    InputGuardrailResult as InputGuardrailResult,
    OutputGuardrail as OutputGuardrail,
    OutputGuardrailBlockedMessageArgs as OutputGuardrailBlockedMessageArgs,
    OutputGuardrailBlockedMessageFormatter as OutputGuardrailBlockedMessageFormatter,
    OutputGuardrailResult as OutputGuardrailResult,
    input_guardrail as input_guardrail,
    output_guardrail as output_guardrail,
)
from holdfast.agents.handoffs import filters as _filters
from holdfast.agents.handoffs.filters import (
    HandoffHistoryMapper as HandoffHistoryMapper,
    HandoffInputData as HandoffInputData,
    default_handoff_history_mapper as default_handoff_history_mapper,
    get_conversation_history_wrappers as get_conversation_history_wrappers,
    nest_handoff_history as nest_handoff_history,
    remove_all_tools as remove_all_tools,
    reset_conversation_history_wrappers as reset_conversation_history_wrappers,
    set_conversation_history_wrappers as set_conversation_history_wrappers,
)
from holdfast.agents.handoffs.handoff import (
    Handoff as Handoff,
    HandoffInputFilter as HandoffInputFilter,
    handoff as handoff,
)
from holdfast.agents.handoffs.prompt import (
    RECOMMENDED_PROMPT_PREFIX as RECOMMENDED_PROMPT_PREFIX,
    prompt_with_handoff_instructions as prompt_with_handoff_instructions,
)
from holdfast.agents.hooks import (
    AgentHooks as AgentHooks,
    AgentHooksBase as AgentHooksBase,
    RunHooks as RunHooks,
    RunHooksBase as RunHooksBase,
)
from holdfast.agents.hosted.mcp import (
    HostedMCPTool as HostedMCPTool,
    MCPToolApprovalFunction as MCPToolApprovalFunction,
    MCPToolApprovalFunctionResult as MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest as MCPToolApprovalRequest,
)
from holdfast.agents.hosted.prompt import (
    DynamicPromptFunction as DynamicPromptFunction,
    GenerateDynamicPromptData as GenerateDynamicPromptData,
    Prompt as Prompt,
)
from holdfast.agents.hosted.settings import (
    ImageGenerationToolConfig as ImageGenerationToolConfig,
    WebSearchToolImageSettings as WebSearchToolImageSettings,
)
from holdfast.agents.hosted.tool_search import (
    ToolSearchTool as ToolSearchTool,
    tool_namespace as tool_namespace,
)
from holdfast.agents.hosted.tools import (
    CodeInterpreterTool as CodeInterpreterTool,
    FileSearchTool as FileSearchTool,
    ImageGenerationTool as ImageGenerationTool,
    WebSearchTool as WebSearchTool,
)
from holdfast.agents.items.api_types import (
    TResponseInputItem as TResponseInputItem,
    TResponseOutputItem as TResponseOutputItem,
    TResponseStreamEvent as TResponseStreamEvent,
)
from holdfast.agents.items.run_items import (
    CompactionItem as CompactionItem,
    HandoffCallItem as HandoffCallItem,
    HandoffOutputItem as HandoffOutputItem,
    InputItem as InputItem,
    MCPApprovalRequestItem as MCPApprovalRequestItem,
    MCPApprovalResponseItem as MCPApprovalResponseItem,
    MCPListToolsItem as MCPListToolsItem,
    MessageOutputItem as MessageOutputItem,
    ReasoningItem as ReasoningItem,
    RunItem as RunItem,
    ToolApprovalItem as ToolApprovalItem,
    ToolCallItem as ToolCallItem,
    ToolCallOutputItem as ToolCallOutputItem,
    ToolSearchCallItem as ToolSearchCallItem,
    ToolSearchOutputItem as ToolSearchOutputItem,
)
from holdfast.agents.items.tool_origin import (
    ToolOrigin as ToolOrigin,
    ToolOriginType as ToolOriginType,
)
from holdfast.agents.local.custom import CustomTool as CustomTool
from holdfast.agents.local.diff import apply_diff as apply_diff
from holdfast.agents.local.patch import (
    ApplyPatchEditor as ApplyPatchEditor,
    ApplyPatchOperation as ApplyPatchOperation,
    ApplyPatchResult as ApplyPatchResult,
    ApplyPatchTool as ApplyPatchTool,
)
from holdfast.agents.local.shell import (
    LocalShellCommandRequest as LocalShellCommandRequest,
    LocalShellExecutor as LocalShellExecutor,
    LocalShellTool as LocalShellTool,
    ShellActionRequest as ShellActionRequest,
    ShellCallData as ShellCallData,
    ShellCommandRequest as ShellCommandRequest,
    ShellExecutor as ShellExecutor,
    ShellTool as ShellTool,
    ShellToolEnvironment as ShellToolEnvironment,
    ShellToolLocalEnvironment as ShellToolLocalEnvironment,
    ShellToolLocalSkill as ShellToolLocalSkill,
)
from holdfast.agents.local.shell_output import (
    ShellCallOutcome as ShellCallOutcome,
    ShellCommandOutput as ShellCommandOutput,
    ShellResult as ShellResult,
)
from holdfast.agents.nesting.nested_run import (
    AgentToolInvocation as AgentToolInvocation,
    AgentToolStreamEvent as AgentToolStreamEvent,
)
from holdfast.agents.output_type import (
    AgentOutputSchema as AgentOutputSchema,
    AgentOutputSchemaBase as AgentOutputSchemaBase,
)
from holdfast.agents.run_config import (
    ReasoningItemIdPolicy as ReasoningItemIdPolicy,
    RunConfig as RunConfig,
    SessionInputCallback as SessionInputCallback,
    SessionSettings as SessionSettings,
    ToolExecutionConfig as ToolExecutionConfig,
    ToolNameCollisionPolicy as ToolNameCollisionPolicy,
    ToolNotFoundBehavior as ToolNotFoundBehavior,
)
from holdfast.agents.runs.error_handlers import (
    RunErrorData as RunErrorData,
    RunErrorHandler as RunErrorHandler,
    RunErrorHandlerInput as RunErrorHandlerInput,
    RunErrorHandlerResult as RunErrorHandlerResult,
    RunErrorHandlers as RunErrorHandlers,
)
from holdfast.agents.runs.item_helpers import ItemHelpers as ItemHelpers
from holdfast.agents.runs.model_input import (
    CallModelData as CallModelData,
    CallModelInputFilter as CallModelInputFilter,
    ModelInputData as ModelInputData,
)
from holdfast.agents.runs.results import (
    ModelResponse as ModelResponse,
    RunData as RunData,
    RunErrorDetails as RunErrorDetails,
)
from holdfast.agents.runs.state import (
    DEFAULT_MAX_TURNS as DEFAULT_MAX_TURNS,
    RunState as RunState,
)
from holdfast.agents.tools.context import (
    Effect as Effect,
    ToolContext as ToolContext,
)
from holdfast.agents.tools.decorator import (
    FunctionTool as FunctionTool,
    Tool as Tool,
    function_tool as function_tool,
    tool as tool,
)
from holdfast.agents.tools.error_texts import (
    ToolErrorFormatter as ToolErrorFormatter,
    ToolErrorFormatterArgs as ToolErrorFormatterArgs,
    default_tool_error_function as default_tool_error_function,
)
from holdfast.agents.tools.functions.docstrings import (
    FuncDocumentation as FuncDocumentation,
    generate_func_documentation as generate_func_documentation,
)
from holdfast.agents.tools.functions.function_schema import (
    FuncSchema as FuncSchema,
    function_schema as function_schema,
)
from holdfast.agents.tools.functions.schema import (
    ensure_strict_json_schema as ensure_strict_json_schema,
)
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput as ToolGuardrailFunctionOutput,
    ToolInputGuardrail as ToolInputGuardrail,
    ToolInputGuardrailData as ToolInputGuardrailData,
    ToolInputGuardrailResult as ToolInputGuardrailResult,
    ToolOutputGuardrail as ToolOutputGuardrail,
    ToolOutputGuardrailData as ToolOutputGuardrailData,
    ToolOutputGuardrailResult as ToolOutputGuardrailResult,
    tool_input_guardrail as tool_input_guardrail,
    tool_output_guardrail as tool_output_guardrail,
)
from holdfast.agents.tools.options import ToolCaller as ToolCaller
from holdfast.agents.tools.outputs import (
    ToolOutputFileContent as ToolOutputFileContent,
    ToolOutputFileContentDict as ToolOutputFileContentDict,
    ToolOutputImage as ToolOutputImage,
    ToolOutputImageDict as ToolOutputImageDict,
    ToolOutputText as ToolOutputText,
    ToolOutputTextDict as ToolOutputTextDict,
)
from holdfast.agents.tools.retriever import (
    KeywordToolRetriever as KeywordToolRetriever,
    ToolRetriever as ToolRetriever,
)
from holdfast.client.agent_runner.runner import AgentRunner as AgentRunner
from holdfast.client.agent_runner.sessions import Session as Session
from holdfast.client.caller_sessions.compaction import (
    OpenAIResponsesCompactionArgs as OpenAIResponsesCompactionArgs,
    OpenAIResponsesCompactionAwareSession as OpenAIResponsesCompactionAwareSession,
    OpenAIResponsesCompactionSession as OpenAIResponsesCompactionSession,
    is_openai_responses_compaction_aware_session as is_openai_responses_compaction_aware_session,
)
from holdfast.client.caller_sessions.openai_conversations import (
    OpenAIConversationsSession as OpenAIConversationsSession,
)
from holdfast.client.caller_sessions.protocol import SessionABC as SessionABC
from holdfast.client.caller_sessions.sqlite import SQLiteSession as SQLiteSession
from holdfast.client.runner.demo_loop import run_demo_loop as run_demo_loop
from holdfast.client.runner.runner import (
    Runner as Runner,
    RunResult as RunResult,
    RunResultStreaming as RunResultStreaming,
    configure as configure,
)
from holdfast.errors import (
    AgentsException as AgentsException,
    HoldfastError as HoldfastError,
    InputGuardrailTripwireTriggered as InputGuardrailTripwireTriggered,
    MaxTurnsExceeded as MaxTurnsExceeded,
    ModelBehaviorError as ModelBehaviorError,
    ModelRefusalError as ModelRefusalError,
    OutputGuardrailTripwireTriggered as OutputGuardrailTripwireTriggered,
    StepFailedError as StepFailedError,
    TaskAbandonedError as TaskAbandonedError,
    ToolInputGuardrailTripwireTriggered as ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered as ToolOutputGuardrailTripwireTriggered,
    ToolTimeoutError as ToolTimeoutError,
    UserError as UserError,
)
from holdfast.models.agents_sdk import (
    Model as Model,
    ModelProvider as ModelProvider,
    ModelTracing as ModelTracing,
)
from holdfast.models.defaults import (
    set_default_openai_api as set_default_openai_api,
    set_default_openai_client as set_default_openai_client,
    set_default_openai_key as set_default_openai_key,
)
from holdfast.models.openai.chat import OpenAIChatCompletionsModel as OpenAIChatCompletionsModel
from holdfast.models.openai.responses import OpenAIResponsesModel as OpenAIResponsesModel
from holdfast.models.openai_providers import (
    MultiProvider as MultiProvider,
    OpenAIProvider as OpenAIProvider,
)
from holdfast.models.prices import (
    Price as Price,
    Prices as Prices,
)
from holdfast.models.providers import (
    MultiProviderMap as MultiProviderMap,
    model_providers as model_providers,
)
from holdfast.models.resolve import (
    get_default_model as get_default_model,
    get_default_model_settings as get_default_model_settings,
    is_gpt_5_default as is_gpt_5_default,
)
from holdfast.reading.step_events import (
    ApprovalDecided as ApprovalDecided,
    Attempt as Attempt,
    ChatEnd as ChatEnd,
    ChatStart as ChatStart,
    CommandGiven as CommandGiven,
    HostedToolRan as HostedToolRan,
    StepEnd as StepEnd,
    StepEvent as StepEvent,
    StepFailed as StepFailed,
    StepStart as StepStart,
    StepUndone as StepUndone,
    TaskEvent as TaskEvent,
    Thought as Thought,
    ToolCalled as ToolCalled,
    ToolDone as ToolDone,
    Waiting as Waiting,
    event_text as event_text,
    print_event as print_event,
)
from holdfast.reading.streams.events import (
    AgentUpdatedStreamEvent as AgentUpdatedStreamEvent,
    RawResponsesStreamEvent as RawResponsesStreamEvent,
    RunItemStreamEvent as RunItemStreamEvent,
    StepUndoneStreamEvent as StepUndoneStreamEvent,
    StreamEvent as StreamEvent,
)
from holdfast.serving.plugin import HoldfastPlugin as HoldfastPlugin
from holdfast.tracing import (
    gen_trace_id as gen_trace_id,
    get_current_trace as get_current_trace,
    set_tracing_disabled as set_tracing_disabled,
    set_tracing_export_api_key as set_tracing_export_api_key,
    trace as trace,
)
from holdfast.tracing.blocks import Trace as Trace
from holdfast.tracing.export import flush_traces as flush_traces
from holdfast.tracing.provider_spans import (
    MCPListToolsSpanData as MCPListToolsSpanData,
    ResponseSpanData as ResponseSpanData,
    SpanError as SpanError,
    SpeechGroupSpanData as SpeechGroupSpanData,
    SpeechSpanData as SpeechSpanData,
    TaskSpanData as TaskSpanData,
    TranscriptionSpanData as TranscriptionSpanData,
    TurnSpanData as TurnSpanData,
    mcp_tools_span as mcp_tools_span,
    response_span as response_span,
    speech_group_span as speech_group_span,
    speech_span as speech_span,
    task_span as task_span,
    transcription_span as transcription_span,
    turn_span as turn_span,
)
from holdfast.tracing.spans import (
    AgentSpanData as AgentSpanData,
    CustomSpanData as CustomSpanData,
    FunctionSpanData as FunctionSpanData,
    GenerationSpanData as GenerationSpanData,
    GuardrailSpanData as GuardrailSpanData,
    HandoffSpanData as HandoffSpanData,
    Span as Span,
    SpanData as SpanData,
    agent_span as agent_span,
    custom_span as custom_span,
    function_span as function_span,
    gen_span_id as gen_span_id,
    generation_span as generation_span,
    get_current_span as get_current_span,
    guardrail_span as guardrail_span,
    handoff_span as handoff_span,
)
from holdfast.values.messages import (
    Message as Message,
    ToolCall as ToolCall,
)
from holdfast.values.parts.images import Image as Image
from holdfast.values.parts.sources import (
    Retrieved as Retrieved,
    SourceNode as SourceNode,
)
from holdfast.values.runs.approval_rules import (
    Always as Always,
    ApprovalRule as ApprovalRule,
)
from holdfast.values.runs.retries import (
    ModelRetryAdvice as ModelRetryAdvice,
    ModelRetryAdviceRequest as ModelRetryAdviceRequest,
    ModelRetryBackoffSettings as ModelRetryBackoffSettings,
    ModelRetryNormalizedError as ModelRetryNormalizedError,
    ModelRetrySettings as ModelRetrySettings,
    RetryDecision as RetryDecision,
    RetryPolicy as RetryPolicy,
    RetryPolicyContext as RetryPolicyContext,
    retry_policies as retry_policies,
)
from holdfast.values.runs.run_context import (
    AgentHookContext as AgentHookContext,
    RunContextWrapper as RunContextWrapper,
    TContext as TContext,
)
from holdfast.values.runs.usage import (
    RequestUsage as RequestUsage,
    Usage as Usage,
)
from holdfast.values.settings import (
    Budget as Budget,
    MCPToolChoice as MCPToolChoice,
    ModelSettings as ModelSettings,
)
from holdfast.values.steps import (
    AgentResponse as AgentResponse,
    Task as Task,
    TaskStep as TaskStep,
    TaskStepOutput as TaskStepOutput,
    ToolOutput as ToolOutput,
)
from holdfast.values.text.logs import enable_verbose_stdout_logging as enable_verbose_stdout_logging
from holdfast.values.version import __version__ as __version__
from holdfast.workers.tool_use import (
    FunctionToolResult as FunctionToolResult,
    StopAtTools as StopAtTools,
    ToolsToFinalOutputFunction as ToolsToFinalOutputFunction,
    ToolsToFinalOutputResult as ToolsToFinalOutputResult,
)

handoff_filters = _filters
__all__: list[str]

def __getattr__(name: str) -> object: ...  # pyright: ignore[reportIncompleteStub]  names that are lent
