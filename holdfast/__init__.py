"""Holdfast: durable agents on Temporal.

Importing this package loads only the standard library, pydantic and our pure modules; what needs
Temporal or a model client is loaded at its first use.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if not Path(__file__).with_name("workflows").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parent.parent))

from holdfast.agent import Agent
from holdfast.errors import (
    AgentsException,
    HoldfastError,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    StepFailedError,
    TaskAbandonedError,
    ToolTimeoutError,
    UserError,
)
from holdfast.images import Image
from holdfast.messages import Message, ToolCall, Usage
from holdfast.settings import Budget, ModelSettings
from holdfast.sources import Retrieved, SourceNode
from holdfast.steps import AgentResponse, Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.tool_context import ToolContext
from holdfast.tool_retriever import KeywordToolRetriever, ToolRetriever
from holdfast.tools import Tool, function_tool, tool

if TYPE_CHECKING:
    from holdfast.client.facade import RunConfig, Runner, RunResult, configure
    from holdfast.client.runner import AgentRunner
    from holdfast.client.sessions import Session
    from holdfast.plugin import HoldfastPlugin

__version__ = "0.1.0"

_LATE = {
    "AgentRunner": "holdfast.client.runner",
    "HoldfastPlugin": "holdfast.plugin",
    "RunConfig": "holdfast.client.facade",
    "RunResult": "holdfast.client.facade",
    "Runner": "holdfast.client.facade",
    "Session": "holdfast.client.sessions",
    "configure": "holdfast.client.facade",
}

__all__ = [
    "Agent",
    "AgentResponse",
    "AgentRunner",
    "AgentsException",
    "Budget",
    "HoldfastError",
    "HoldfastPlugin",
    "Image",
    "KeywordToolRetriever",
    "MaxTurnsExceeded",
    "Message",
    "ModelBehaviorError",
    "ModelRefusalError",
    "ModelSettings",
    "Retrieved",
    "RunConfig",
    "RunResult",
    "Runner",
    "Session",
    "SourceNode",
    "StepFailedError",
    "Task",
    "TaskAbandonedError",
    "TaskStep",
    "TaskStepOutput",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolOutput",
    "ToolRetriever",
    "ToolTimeoutError",
    "Usage",
    "UserError",
    "configure",
    "function_tool",
    "tool",
]


def __getattr__(name: str) -> object:
    """Load a name that needs more than the light core."""
    if name not in _LATE:
        msg = f"module 'holdfast' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_LATE[name]), name)
