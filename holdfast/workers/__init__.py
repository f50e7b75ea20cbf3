"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.workers.base import AgentWorker
from holdfast.workers.context import StepContext, ToolResult
from holdfast.workers.custom import CustomAgentWorker
from holdfast.workers.function import FunctionAgentWorker
from holdfast.workers.function_calling import FunctionCallingAgentWorker, OpenAIAgentWorker
from holdfast.workers.plan_and_solve import PlanAndSolveAgentWorker
from holdfast.workers.react import ReActAgentWorker
from holdfast.workers.react_stream import AnswerFilter

__all__ = [
    "AgentWorker",
    "AnswerFilter",
from holdfast.workers.pipeline import PipelineAgentWorker
from holdfast.workers.pipeline_components import (
    ConstantComponent,
    FunctionComponent,
    ModelComponent,
    PromptComponent,
    ToolComponent,
)
from holdfast.workers.pipeline_graph import Link, link

__all__ = [
    "AgentWorker",
    "ConstantComponent",
    "CustomAgentWorker",
    "FunctionAgentWorker",
    "FunctionCallingAgentWorker",
    "FunctionComponent",
    "Link",
    "ModelComponent",
    "OpenAIAgentWorker",
    "PlanAndSolveAgentWorker",
    "ReActAgentWorker",
    "PipelineAgentWorker",
    "PromptComponent",
    "StepContext",
    "ToolComponent",
    "ToolResult",
    "link",
]
