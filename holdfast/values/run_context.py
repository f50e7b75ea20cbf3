"""What instructions, guardrails, filters and hooks are told about the run they serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from holdfast.values.usage import Usage

ContextT = TypeVar("ContextT", default=Any)


@dataclass(eq=False)
class RunContextWrapper(Generic[ContextT]):
    """The run's context with what the run has cost.

    Attributes:
        context: The object that was given to `Runner.run(context=...)`, or its copy in a worker
            process. What a tool changes in it is recorded with the tool's result; what
            instructions, guardrails and filters change is not kept.
        usage: Cost of the run so far.
        task_id: The run's task.
    """

    context: ContextT
    usage: Usage = field(default_factory=Usage)
    task_id: str = ""


@dataclass(eq=False)
class AgentHookContext(RunContextWrapper[ContextT]):
    """A run's context, as hooks of agents get it.

    Attributes:
        turn_input: What the agent was given, as items of the Responses API.
    """

    turn_input: list[Any] = field(default_factory=list[Any])
