"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.workers.base import AgentWorker
from holdfast.workers.context import StepContext, ToolResult
from holdfast.workers.function_calling import FunctionCallingAgentWorker, OpenAIAgentWorker
from holdfast.workers.plan_and_solve import PlanAndSolveAgentWorker
from holdfast.workers.react import ReActAgentWorker
from holdfast.workers.react_stream import AnswerFilter

__all__ = [
    "AgentWorker",
    "AnswerFilter",
    "FunctionCallingAgentWorker",
    "OpenAIAgentWorker",
    "PlanAndSolveAgentWorker",
    "ReActAgentWorker",
    "StepContext",
    "ToolResult",
]
