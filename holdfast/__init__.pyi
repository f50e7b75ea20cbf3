# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.activities.notices import (
    Apprise as Apprise,
)
from holdfast.activities.notices import (
    Notice as Notice,
)
from holdfast.activities.notices import (
    Notifier as Notifier,
)
from holdfast.activities.notices import (
    Webhook as Webhook,
)
from holdfast.agents.agent import Agent as Agent
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput as GuardrailFunctionOutput,
)
from holdfast.agents.guardrails import (
    InputGuardrail as InputGuardrail,
)
from holdfast.agents.guardrails import (
    OutputGuardrail as OutputGuardrail,
)
from holdfast.agents.guardrails import (
    input_guardrail as input_guardrail,
)
from holdfast.agents.guardrails import (
    output_guardrail as output_guardrail,
)
from holdfast.agents.handoffs.filters import HandoffInputData as HandoffInputData
from holdfast.agents.handoffs.handoff import (
    Handoff as Handoff,
)
from holdfast.agents.handoffs.handoff import (
    handoff as handoff,
)
from holdfast.agents.hooks import (
    AgentHooks as AgentHooks,
)
from holdfast.agents.hooks import (
    RunHooks as RunHooks,
)
from holdfast.agents.output_type import AgentOutputSchema as AgentOutputSchema
from holdfast.agents.run_config import RunConfig as RunConfig
from holdfast.agents.runs.state import RunState as RunState
from holdfast.agents.tools.context import (
    Effect as Effect,
)
from holdfast.agents.tools.context import (
    ToolContext as ToolContext,
)
from holdfast.agents.tools.decorator import (
    FunctionTool as FunctionTool,
)
from holdfast.agents.tools.decorator import (
    tool as tool,
)
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput as ToolGuardrailFunctionOutput,
)
from holdfast.agents.tools.guardrails import (
    ToolInputGuardrailData as ToolInputGuardrailData,
)
from holdfast.agents.tools.guardrails import (
    ToolOutputGuardrailData as ToolOutputGuardrailData,
)
from holdfast.agents.tools.guardrails import (
    tool_input_guardrail as tool_input_guardrail,
)
from holdfast.agents.tools.guardrails import (
    tool_output_guardrail as tool_output_guardrail,
)
from holdfast.agents.tools.events import wait_for_event as wait_for_event
from holdfast.agents.tools.waiting import sleep_until as sleep_until
from holdfast.agents.tools.retriever import (
    KeywordToolRetriever as KeywordToolRetriever,
)
from holdfast.agents.tools.foreign.frameworks import (
    agents_sdk_tool as agents_sdk_tool,
    langchain_tool as langchain_tool,
    pydantic_ai_tool as pydantic_ai_tool,
)
from holdfast.client.agent_runner.runner import AgentRunner as AgentRunner
from holdfast.client.agent_runner.sessions import Session as Session
from holdfast.client.caller_sessions.sqlite import SQLiteSession as SQLiteSession
from holdfast.client.runner.runner import (
    Runner as Runner,
)
from holdfast.client.runner.runner import (
    RunResult as RunResult,
)
from holdfast.client.runner.runner import (
    RunResultStreaming as RunResultStreaming,
)
from holdfast.client.runner.runner import (
    configure as configure,
)
from holdfast.errors import (
    HoldfastError as HoldfastError,
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
    OutputGuardrailTripwireTriggered as OutputGuardrailTripwireTriggered,
)
from holdfast.errors import (
    StepFailedError as StepFailedError,
)
from holdfast.errors import (
    TaskAbandonedError as TaskAbandonedError,
)
from holdfast.errors import (
    UserError as UserError,
)
from holdfast.models.prices import (
    Price as Price,
)
from holdfast.models.prices import (
    Prices as Prices,
)
from holdfast.models.providers import model_providers as model_providers
from holdfast.reading.step_events import (
    ApprovalDecided as ApprovalDecided,
)
from holdfast.reading.step_events import (
    Attempt as Attempt,
)
from holdfast.reading.step_events import (
    ChatEnd as ChatEnd,
)
from holdfast.reading.step_events import (
    ChatStart as ChatStart,
)
from holdfast.reading.step_events import (
    CommandGiven as CommandGiven,
)
from holdfast.reading.step_events import (
    HostedToolRan as HostedToolRan,
)
from holdfast.reading.step_events import (
    StepEnd as StepEnd,
)
from holdfast.reading.step_events import (
    StepEvent as StepEvent,
)
from holdfast.reading.step_events import (
    StepFailed as StepFailed,
)
from holdfast.reading.step_events import (
    StepStart as StepStart,
)
from holdfast.reading.step_events import (
    StepUndone as StepUndone,
)
from holdfast.reading.step_events import (
    TaskEvent as TaskEvent,
)
from holdfast.reading.step_events import (
    Thought as Thought,
)
from holdfast.reading.step_events import (
    ToolCalled as ToolCalled,
)
from holdfast.reading.step_events import (
    ToolDone as ToolDone,
)
from holdfast.reading.step_events import (
    Waiting as Waiting,
)
from holdfast.reading.step_events import (
    event_text as event_text,
)
from holdfast.reading.step_events import (
    print_event as print_event,
)
from holdfast.reading.streams.reader import (
    StepUndoneStreamEvent as StepUndoneStreamEvent,
)
from holdfast.reading.streams.reader import (
    StreamEvent as StreamEvent,
)
from holdfast.serving.plugin import HoldfastPlugin as HoldfastPlugin
from holdfast.tracing import trace as trace
from holdfast.tracing.export import flush_traces as flush_traces
from holdfast.values.messages import (
    Message as Message,
)
from holdfast.values.messages import (
    ToolCall as ToolCall,
)
from holdfast.values.parts.images import Image as Image
from holdfast.values.parts.sources import (
    Retrieved as Retrieved,
)
from holdfast.values.parts.sources import (
    SourceNode as SourceNode,
)
from holdfast.values.runs.approval_rules import (
    Always as Always,
)
from holdfast.values.runs.approval_rules import (
    ApprovalRule as ApprovalRule,
)
from holdfast.values.runs.run_context import RunContextWrapper as RunContextWrapper
from holdfast.values.runs.usage import Usage as Usage
from holdfast.values.settings import (
    Budget as Budget,
)
from holdfast.values.settings import (
    ModelSettings as ModelSettings,
)
from holdfast.values.steps import (
    AgentResponse as AgentResponse,
)
from holdfast.values.steps import (
    Task as Task,
)
from holdfast.values.steps import (
    TaskStep as TaskStep,
)
from holdfast.values.steps import (
    TaskStepOutput as TaskStepOutput,
)
from holdfast.values.steps import (
    ToolOutput as ToolOutput,
)
from holdfast.values.version import __version__ as __version__

__all__: list[str]

def __getattr__(name: str) -> object: ...  # pyright: ignore[reportIncompleteStub]  its errors say what to import
