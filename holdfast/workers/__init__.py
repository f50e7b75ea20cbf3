"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.workers.base import AgentWorker, CustomAgentWorker, FunctionAgentWorker
from holdfast.workers.chain import ChainOfAbstractionAgentWorker
from holdfast.workers.compiler.worker import LLMCompilerAgentWorker
from holdfast.workers.context.context import StepContext
from holdfast.workers.context.offer import ToolResult
from holdfast.workers.folding import FoldingAgentWorker
from holdfast.workers.function_calling import FunctionCallingAgentWorker, OpenAIAgentWorker
from holdfast.workers.pipeline.components import (
    ConstantComponent,
    FunctionComponent,
    Link,
    ModelComponent,
    PromptComponent,
    ToolComponent,
    link,
)
from holdfast.workers.pipeline.run import PipelineAgentWorker
from holdfast.workers.plan_and_solve.worker import PlanAndSolveAgentWorker
from holdfast.workers.react.parser import AnswerFilter
from holdfast.workers.react.worker import MultimodalReActAgentWorker, ReActAgentWorker

__all__ = [
    "AgentWorker",
    "AnswerFilter",
    "ChainOfAbstractionAgentWorker",
    "ConstantComponent",
    "CustomAgentWorker",
    "FoldingAgentWorker",
    "FunctionAgentWorker",
    "FunctionCallingAgentWorker",
    "FunctionComponent",
    "LLMCompilerAgentWorker",
    "Link",
    "ModelComponent",
    "MultimodalReActAgentWorker",
    "OpenAIAgentWorker",
    "PipelineAgentWorker",
    "PlanAndSolveAgentWorker",
    "PromptComponent",
    "ReActAgentWorker",
    "StepContext",
    "ToolComponent",
    "ToolResult",
    "link",
]
