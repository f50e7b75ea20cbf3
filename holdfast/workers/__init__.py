"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.workers.base import AgentWorker
from holdfast.workers.context import StepContext, ToolResult
from holdfast.workers.custom import CustomAgentWorker
from holdfast.workers.function import FunctionAgentWorker
from holdfast.workers.function_calling import FunctionCallingAgentWorker, OpenAIAgentWorker
from holdfast.workers.llm_compiler import LLMCompilerAgentWorker
from holdfast.workers.multimodal_react import MultimodalReActAgentWorker
from holdfast.workers.pipeline import PipelineAgentWorker
from holdfast.workers.pipeline_components import (
    ConstantComponent,
    FunctionComponent,
    ModelComponent,
    PromptComponent,
    ToolComponent,
)
from holdfast.workers.pipeline_graph import Link, link
from holdfast.workers.plan_and_solve import PlanAndSolveAgentWorker
from holdfast.workers.react import ReActAgentWorker
from holdfast.workers.react_stream import AnswerFilter

__all__ = [
    "AgentWorker",
    "AnswerFilter",
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
