"""Holdfast: durable agents on Temporal.

Importing this package runs no other module of it: each name is loaded at its first use, so that a
program, a command and a worker process pay for what they use. `__init__.pyi` has the same names for
type checkers and editors.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if not Path(__file__).with_name("workflows").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parent.parent))

_NAMES = {
    "activities.notices.notifiers": "Apprise Notice Notifier Webhook",
    "agents.agent": "Agent",
    "agents.agent_base": "AgentBase",
    "agents.guardrails": (
        "GuardrailFunctionOutput InputGuardrail InputGuardrailResult OutputGuardrail "
        "OutputGuardrailBlockedMessageArgs OutputGuardrailBlockedMessageFormatter "
        "OutputGuardrailResult input_guardrail output_guardrail"
    ),
    "agents.handoffs.filters": (
        "HandoffHistoryMapper HandoffInputData default_handoff_history_mapper "
        "get_conversation_history_wrappers nest_handoff_history remove_all_tools "
        "reset_conversation_history_wrappers set_conversation_history_wrappers"
    ),
    "agents.handoffs.handoff": "Handoff HandoffInputFilter handoff",
    "agents.handoffs.prompt": "RECOMMENDED_PROMPT_PREFIX prompt_with_handoff_instructions",
    "agents.hooks": "AgentHooks AgentHooksBase RunHooks RunHooksBase",
    "agents.hosted.mcp": (
        "HostedMCPTool MCPToolApprovalFunction MCPToolApprovalFunctionResult MCPToolApprovalRequest"
    ),
    "agents.hosted.prompt": "DynamicPromptFunction GenerateDynamicPromptData Prompt",
    "agents.hosted.settings": "ImageGenerationToolConfig WebSearchToolImageSettings",
    "agents.hosted.tool_search": "ToolSearchTool tool_namespace",
    "agents.hosted.tools": "CodeInterpreterTool FileSearchTool ImageGenerationTool WebSearchTool",
    "agents.items.api_types": "TResponseInputItem TResponseOutputItem TResponseStreamEvent",
    "agents.items.run_items": (
        "CompactionItem HandoffCallItem HandoffOutputItem InputItem MCPApprovalRequestItem "
        "MCPApprovalResponseItem MCPListToolsItem MessageOutputItem ReasoningItem RunItem "
        "ToolApprovalItem ToolCallItem ToolCallOutputItem ToolSearchCallItem ToolSearchOutputItem"
    ),
    "agents.items.tool_origin": "ToolOrigin ToolOriginType",
    "agents.local.custom": "CustomTool",
    "agents.local.diff": "apply_diff",
    "agents.local.patch": "ApplyPatchEditor ApplyPatchOperation ApplyPatchResult ApplyPatchTool",
    "agents.local.shell": (
        "LocalShellCommandRequest LocalShellExecutor LocalShellTool ShellActionRequest "
        "ShellCallData ShellCommandRequest ShellExecutor ShellTool ShellToolEnvironment "
        "ShellToolLocalEnvironment ShellToolLocalSkill"
    ),
    "agents.local.shell_output": "ShellCallOutcome ShellCommandOutput ShellResult",
    "agents.nesting.nested_run": "AgentToolInvocation AgentToolStreamEvent",
    "agents.output_type": "AgentOutputSchema AgentOutputSchemaBase",
    "agents.run_config": (
        "ReasoningItemIdPolicy RunConfig SessionInputCallback SessionSettings ToolExecutionConfig "
        "ToolNameCollisionPolicy ToolNotFoundBehavior"
    ),
    "agents.runs.error_handlers": (
        "RunErrorData RunErrorHandler RunErrorHandlerInput RunErrorHandlerResult RunErrorHandlers"
    ),
    "agents.runs.item_helpers": "ItemHelpers",
    "agents.runs.model_input": "CallModelData CallModelInputFilter ModelInputData",
    "agents.runs.results": "ModelResponse RunData RunErrorDetails",
    "agents.runs.state": "DEFAULT_MAX_TURNS RunState",
    "agents.tools.context": "Effect ToolContext",
    "agents.tools.decorator": "FunctionTool Tool function_tool tool",
    "agents.tools.error_texts": (
        "ToolErrorFormatter ToolErrorFormatterArgs default_tool_error_function"
    ),
    "agents.tools.functions.docstrings": "FuncDocumentation generate_func_documentation",
    "agents.tools.functions.function_schema": "FuncSchema function_schema",
    "agents.tools.functions.schema": "ensure_strict_json_schema",
    "agents.tools.guardrails": (
        "ToolGuardrailFunctionOutput ToolInputGuardrail ToolInputGuardrailData "
        "ToolInputGuardrailResult ToolOutputGuardrail ToolOutputGuardrailData "
        "ToolOutputGuardrailResult tool_input_guardrail tool_output_guardrail"
    ),
    "agents.tools.options": "ToolCaller",
    "agents.tools.outputs": (
        "ToolOutputFileContent ToolOutputFileContentDict ToolOutputImage ToolOutputImageDict "
        "ToolOutputText ToolOutputTextDict"
    ),
    "agents.tools.retriever": "KeywordToolRetriever ToolRetriever",
    "client.agent_runner.runner": "AgentRunner",
    "client.agent_runner.sessions": "Session",
    "client.caller_sessions.compaction": (
        "OpenAIResponsesCompactionArgs OpenAIResponsesCompactionAwareSession "
        "OpenAIResponsesCompactionSession is_openai_responses_compaction_aware_session"
    ),
    "client.caller_sessions.openai_conversations": "OpenAIConversationsSession",
    "client.caller_sessions.protocol": "SessionABC",
    "client.caller_sessions.sqlite": "SQLiteSession",
    "client.runner.demo_loop": "run_demo_loop",
    "client.runner.runner": "RunResult RunResultStreaming Runner configure",
    "errors": (
        "AgentsException HoldfastError InputGuardrailTripwireTriggered MaxTurnsExceeded "
        "ModelBehaviorError ModelRefusalError OutputGuardrailTripwireTriggered StepFailedError "
        "TaskAbandonedError ToolInputGuardrailTripwireTriggered "
        "ToolOutputGuardrailTripwireTriggered ToolTimeoutError UserError"
    ),
    "models.agents_sdk": "Model ModelProvider ModelTracing",
    "models.defaults": "set_default_openai_api set_default_openai_client set_default_openai_key",
    "models.openai.chat": "OpenAIChatCompletionsModel",
    "models.openai.responses": "OpenAIResponsesModel",
    "models.openai_providers": "MultiProvider OpenAIProvider",
    "models.prices": "Price Prices",
    "models.providers": "MultiProviderMap model_providers",
    "models.resolve": "get_default_model get_default_model_settings is_gpt_5_default",
    "reading.step_events": (
        "ApprovalDecided Attempt ChatEnd ChatStart CommandGiven HostedToolRan StepEnd StepEvent "
        "StepFailed StepStart StepUndone TaskEvent Thought ToolCalled ToolDone Waiting event_text "
        "print_event"
    ),
    "reading.streams.events": (
        "AgentUpdatedStreamEvent RawResponsesStreamEvent RunItemStreamEvent StepUndoneStreamEvent "
        "StreamEvent"
    ),
    "serving.plugin": "HoldfastPlugin",
    "tracing": (
        "gen_trace_id get_current_trace set_tracing_disabled set_tracing_export_api_key trace"
    ),
    "tracing.blocks": "Trace",
    "tracing.export": "flush_traces",
    "tracing.provider_spans": (
        "MCPListToolsSpanData ResponseSpanData SpanError SpeechGroupSpanData SpeechSpanData "
        "TaskSpanData TranscriptionSpanData TurnSpanData mcp_tools_span response_span "
        "speech_group_span speech_span task_span transcription_span turn_span"
    ),
    "tracing.spans": (
        "AgentSpanData CustomSpanData FunctionSpanData GenerationSpanData GuardrailSpanData "
        "HandoffSpanData Span SpanData agent_span custom_span function_span gen_span_id "
        "generation_span get_current_span guardrail_span handoff_span"
    ),
    "values.messages": "Message ToolCall",
    "values.parts.images": "Image",
    "values.parts.sources": "Retrieved SourceNode",
    "values.runs.approval_rules": "Always ApprovalRule",
    "values.runs.retries": (
        "ModelRetryAdvice ModelRetryAdviceRequest ModelRetryBackoffSettings "
        "ModelRetryNormalizedError ModelRetrySettings RetryDecision RetryPolicy "
        "RetryPolicyContext retry_policies"
    ),
    "values.runs.run_context": "AgentHookContext RunContextWrapper TContext",
    "values.runs.usage": "RequestUsage Usage",
    "values.settings": "Budget MCPToolChoice ModelSettings",
    "values.steps": "AgentResponse Task TaskStep TaskStepOutput ToolOutput",
    "values.text.logs": "enable_verbose_stdout_logging",
    "values.version": "__version__",
    "workers.tool_use": (
        "FunctionToolResult StopAtTools ToolsToFinalOutputFunction ToolsToFinalOutputResult"
    ),
}
"""The public names, by the module of this package that has them."""

_PLACES = {
    name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()
} | {"handoff_filters": f"{__name__}.agents.handoffs.filters"}

__all__ = list(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]  the stub names them

_PLACES["AsyncOpenAI"] = "openai"  # the Agents SDK has it by chance, and programs import it there


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Load a name of the package, or one of the Agents SDK that serves here, at its first use.

    Raises:
        ImportError: It is a name of the Agents SDK that is not here, asked for by an import
            statement; the text says what to use. (Of an AttributeError `from holdfast import name`
            would not show the text.)
        AttributeError: There is no such name; of the SDK's names, the text says what to use.
    """
    if name in _PLACES:
        found = importlib.import_module(_PLACES[name])
        globals()[name] = made = found if name == "handoff_filters" else getattr(found, name)
        return made
    from holdfast.values.text.absent_names import instead_of, lent

    cause: ImportError | None = None
    try:
        return lent(name)
    except KeyError:
        instead = instead_of(name)
    except ImportError as error:
        instead, cause = str(error), error
    if instead is None:
        from difflib import get_close_matches

        near = [] if name.startswith("_") else get_close_matches(name, _PLACES, n=1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        msg = f"module 'holdfast' has no attribute {name!r}{hint}"
        raise AttributeError(msg)
    msg = f"holdfast has no {name}: {instead}. See docs/from_agents_sdk.md."
    # Python asks for the names of an import statement in this function of its own.
    if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        raise ImportError(msg, name=name) from cause
    raise AttributeError(msg, name=name) from cause
