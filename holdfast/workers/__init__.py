"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.workers.base import AgentWorker
from holdfast.workers.chain import ChainOfAbstractionAgentWorker
from holdfast.workers.compiler.worker import LLMCompilerAgentWorker
from holdfast.workers.context.context import StepContext
from holdfast.workers.context.offer import ToolResult
from holdfast.workers.custom import CustomAgentWorker
from holdfast.workers.function import FunctionAgentWorker
from holdfast.workers.function_calling import FunctionCallingAgentWorker, OpenAIAgentWorker
from holdfast.workers.pipeline.components import (
    ConstantComponent,
    FunctionComponent,
    ModelComponent,
    PromptComponent,
    ToolComponent,
)
from holdfast.workers.pipeline.graph import Link, link
from holdfast.workers.pipeline.worker import PipelineAgentWorker
from holdfast.workers.plan_and_solve.worker import PlanAndSolveAgentWorker
from holdfast.workers.react.parser import AnswerFilter
from holdfast.workers.react.worker import MultimodalReActAgentWorker, ReActAgentWorker

__all__ = [
    "AgentWorker",
    "AnswerFilter",
    "ChainOfAbstractionAgentWorker",
    "ConstantComponent",
    "CustomAgentWorker",
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
