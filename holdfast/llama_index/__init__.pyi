# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.llama_index.agent_runner import (
    AgentRunner as AgentRunner,
    BaseAgent as BaseAgent,
    CoAAgentPack as CoAAgentPack,
    FunctionCallingAgent as FunctionCallingAgent,
    OpenAIAgent as OpenAIAgent,
    ParallelAgentRunner as ParallelAgentRunner,
    ReActAgent as ReActAgent,
)
from holdfast.llama_index.llms.messages import (
    ChatMemoryBuffer as ChatMemoryBuffer,
    ChatMessage as ChatMessage,
    ChatPromptTemplate as ChatPromptTemplate,
    MessageRole as MessageRole,
    PromptTemplate as PromptTemplate,
)
from holdfast.llama_index.llms.openai import (
    ChatResponse as ChatResponse,
    CompletionResponse as CompletionResponse,
    HoldfastLLM as HoldfastLLM,
    OpenAI as OpenAI,
    Settings as Settings,
)
from holdfast.llama_index.memory import Memory as Memory
from holdfast.llama_index.planner import (
    Plan as Plan,
    StructuredPlannerAgent as StructuredPlannerAgent,
    SubTask as SubTask,
)
from holdfast.llama_index.streaming import StreamingAgentChatResponse as StreamingAgentChatResponse
from holdfast.llama_index.tasks import UnclearCallError as UnclearCallError
from holdfast.llama_index.tools import (
    BaseTool as BaseTool,
    FunctionTool as FunctionTool,
    QueryEngineTool as QueryEngineTool,
    ToolMetadata as ToolMetadata,
    ToolOutput as ToolOutput,
)
from holdfast.llama_index.values import (
    AgentChatResponse as AgentChatResponse,
    Task as Task,
    TaskStep as TaskStep,
    TaskStepOutput as TaskStepOutput,
)
from holdfast.llama_index.workers.base import (
    BaseAgentWorker as BaseAgentWorker,
    CustomSimpleAgentWorker as CustomSimpleAgentWorker,
    FnAgentWorker as FnAgentWorker,
    QueryPipelineAgentWorker as QueryPipelineAgentWorker,
)
from holdfast.llama_index.workers.react import (
    MultimodalReActAgentWorker as MultimodalReActAgentWorker,
    ReActAgentWorker as ReActAgentWorker,
    ReActChatFormatter as ReActChatFormatter,
    ReActOutputParser as ReActOutputParser,
)
from holdfast.llama_index.workers.tools import (
    CoAAgentWorker as CoAAgentWorker,
    FunctionCallingAgentWorker as FunctionCallingAgentWorker,
    LLMCompilerAgentWorker as LLMCompilerAgentWorker,
    OpenAIAgentWorker as OpenAIAgentWorker,
)
