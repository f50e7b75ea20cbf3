"""The agent API that LlamaIndex had in versions 0.10 to 0.12, over Holdfast.

A program of that API changes its import lines, and then runs durably: each task is a Temporal
workflow, the memory is a session, and a program that was killed goes on where it was when it is
started again. See docs/llama_index.md.
"""

from holdfast.llama_index.agent_runner import (
    AgentRunner,
    BaseAgent,
    CoAAgentPack,
    FunctionCallingAgent,
    OpenAIAgent,
    ParallelAgentRunner,
    ReActAgent,
)
from holdfast.llama_index.llms.messages import (
    ChatMemoryBuffer,
    ChatMessage,
    ChatPromptTemplate,
    MessageRole,
    PromptTemplate,
)
from holdfast.llama_index.llms.openai import (
    ChatResponse,
    CompletionResponse,
    HoldfastLLM,
    OpenAI,
    Settings,
)
from holdfast.llama_index.memory import Memory
from holdfast.llama_index.planner import Plan, StructuredPlannerAgent, SubTask
from holdfast.llama_index.streaming import StreamingAgentChatResponse
from holdfast.llama_index.tasks import UnclearCallError
from holdfast.llama_index.tools import (
    BaseTool,
    FunctionTool,
    QueryEngineTool,
    ToolMetadata,
    ToolOutput,
)
from holdfast.llama_index.values import AgentChatResponse, Task, TaskStep, TaskStepOutput
from holdfast.llama_index.workers.base import (
    BaseAgentWorker,
    CustomSimpleAgentWorker,
    FnAgentWorker,
    QueryPipelineAgentWorker,
)
from holdfast.llama_index.workers.react import (
    MultimodalReActAgentWorker,
    ReActAgentWorker,
    ReActChatFormatter,
    ReActOutputParser,
)
from holdfast.llama_index.workers.tools import (
    CoAAgentWorker,
    FunctionCallingAgentWorker,
    LLMCompilerAgentWorker,
    OpenAIAgentWorker,
)

__all__ = [
    "AgentChatResponse",
    "AgentRunner",
    "BaseAgent",
    "BaseAgentWorker",
    "BaseTool",
    "ChatMemoryBuffer",
    "ChatMessage",
    "ChatPromptTemplate",
    "ChatResponse",
    "CoAAgentPack",
    "CoAAgentWorker",
    "CompletionResponse",
    "CustomSimpleAgentWorker",
    "FnAgentWorker",
    "FunctionCallingAgent",
    "FunctionCallingAgentWorker",
    "FunctionTool",
    "HoldfastLLM",
    "LLMCompilerAgentWorker",
    "Memory",
    "MessageRole",
    "MultimodalReActAgentWorker",
    "OpenAI",
    "OpenAIAgent",
    "OpenAIAgentWorker",
    "ParallelAgentRunner",
    "Plan",
    "PromptTemplate",
    "QueryEngineTool",
    "QueryPipelineAgentWorker",
    "ReActAgent",
    "ReActAgentWorker",
    "ReActChatFormatter",
    "ReActOutputParser",
    "Settings",
    "StreamingAgentChatResponse",
    "StructuredPlannerAgent",
    "SubTask",
    "Task",
    "TaskStep",
    "TaskStepOutput",
    "ToolMetadata",
    "ToolOutput",
    "UnclearCallError",
]
