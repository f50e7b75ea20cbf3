"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.workers.base import AgentWorker
from holdfast.workers.context import StepContext, ToolResult
from holdfast.workers.function_calling import FunctionCallingAgentWorker, OpenAIAgentWorker
from holdfast.workers.plan_and_solve import PlanAndSolveAgentWorker

__all__ = [
    "AgentWorker",
    "FunctionCallingAgentWorker",
    "OpenAIAgentWorker",
    "PlanAndSolveAgentWorker",
    "StepContext",
    "ToolResult",
]
