"""ToolContext and Effect: the call, as passed to a tool, its undo and its probe."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, cast

from pydantic import Field
from typing_extensions import TypeVar

from holdfast.agents.items import RunItem
from holdfast.values.base import Json, Value
from holdfast.values.code.context_data import KEY as CONTEXT_KEY
from holdfast.values.code.context_data import dump
from holdfast.values.messages import Usage as UsageRecord
from holdfast.values.run_context import RunContextWrapper
from holdfast.values.usage import Usage

StateT = TypeVar("StateT", bound=Mapping[str, Any], default=dict[str, Any])

EffectStatus = Literal["proposed", "approved", "started", "done", "failed", "unknown", "undone"]


def _ignore(*_details: Any) -> None:
    """Ignore a heartbeat; for a call outside of an activity."""


class NestedResult(Protocol):
    """The result of a call of an agent as a tool; it is a RunResult."""

    @property
    def final_output(self) -> Any:
        """The final output of the nested run."""
        ...

    @property
    def new_items(self) -> Sequence[RunItem]:
        """The items that the nested run made, oldest first."""
        ...


class ToolContext(RunContextWrapper[Any], Generic[StateT]):
    """The optional first argument of a tool; its type may also be `RunContextWrapper[...]`.

    Every field has a default, so a unit test sets only the fields that it needs. A tool may declare
    a TypedDict for its state, as in `ToolContext[TripState]`; at run time it is a plain dict.

    Attributes:
        task_id: The task that made the call.
        step_id: The step within the task.
        call_id: The model's id of this call; each attempt has the same.
        tool_name: Name under which the model called the tool.
        arguments: The arguments as JSON text, as the model wrote them or a reviewer edited them.
        attempt: Number of this attempt, from 1.
        idempotency_key: Identifies the action, not the attempt; pass it to services that take one.
        fencing_token: Grows with every start of the action with this key. A service that has seen a
            higher token for a key must refuse a lower one, which comes from a worker process that
            was paused and has been replaced.
        agent_name: The agent that made the call.
        usage: Cost of the run so far.
        state: This call's own copy of the task's extra_state. Change it in place or assign it;
            the difference is recorded in the task as a merge patch.
        context: The run's context object, made from `state["context"]`: see `Runner.run`. Change it
            in place or assign it; it is recorded with the state.
        nested: Reads the result of a call of an agent as a tool, once the nested run has finished.
    """

    def __init__(
        self,
        *,
        task_id: str = "",
        step_id: str = "",
        call_id: str = "",
        tool_name: str = "",
        arguments: str = "{}",
        attempt: int = 1,
        idempotency_key: str = "",
        fencing_token: int = 0,
        agent_name: str = "",
        usage: UsageRecord | None = None,
        state: StateT | None = None,
        heartbeat: Callable[..., None] = _ignore,
        load_context: Callable[[Json], Any] | None = None,
        nested: Callable[[], Awaitable[NestedResult]] | None = None,
    ) -> None:
        """Make a context.

        Args:
            task_id: And those after it: see the attributes.
            step_id: See above.
            call_id: See above.
            tool_name: See above.
            arguments: See above.
            attempt: See above.
            idempotency_key: See above.
            fencing_token: See above.
            agent_name: See above.
            usage: See above.
            state: See above.
            heartbeat: Must be safe to call from any thread.
            load_context: Makes the context object from JSON data.
            nested: See above.
        """
        self.task_id = task_id
        self.step_id = step_id
        self.call_id = call_id
        self.tool_name = tool_name
        self.arguments = arguments
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self.fencing_token = fencing_token
        self.agent_name = agent_name
        self.usage = Usage() if usage is None else Usage.of(usage)
        self.nested = nested
        self.state: StateT = cast("StateT", {}) if state is None else state
        self._heartbeat = heartbeat
        self._load_context = load_context
        self._context: Any = None
        self._has_context = False
        self._cancelled = threading.Event()

    def __repr__(self) -> str:
        """Name the call, without making the context object."""
        return f"<ToolContext of call {self.call_id!r} of tool {self.tool_name!r}>"

    @property
    def tool_call_id(self) -> str:
        """The model's id of this call, as the Agents SDK names it."""
        return self.call_id

    @property
    def tool_arguments(self) -> str:
        """The arguments as JSON text, as the Agents SDK names them."""
        return self.arguments

    @property
    def context(self) -> Any:
        """The run's context object."""
        if not self._has_context:
            data = self.state.get(CONTEXT_KEY)
            self.context = data if self._load_context is None else self._load_context(data)
        return self._context

    @context.setter
    def context(self, context: Any) -> None:
        self._context, self._has_context = context, True

    def final_state(self) -> dict[str, Json]:
        """Return the state with the tool's changes, those of the context object included.

        Raises:
            UserError: The context cannot be stored as JSON.
        """
        state = cast("dict[str, Json]", self.state)
        return {**state, CONTEXT_KEY: dump(self._context)} if self._has_context else state

    @property
    def is_cancelled(self) -> bool:
        """Whether the call should stop. A long-running tool in a thread must check it regularly."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Request that the call stops. Safe from any thread."""
        self._cancelled.set()

    def heartbeat(self, *details: Any) -> None:
        """Send a heartbeat to the engine, with details that are shown beside the activity."""
        self._heartbeat(*details)


class Effect(Value):
    """A tool call and its outcome, as passed to `undo=` and `probe=`.

    Attributes:
        tool: Tool name.
        call_id: The model's id of the call.
        key: The call's idempotency key.
        arguments: The arguments with which it ran.
        result: Its return value, as JSON data or text; None when it is unknown.
        status: State of the call.
    """

    tool: str
    call_id: str = ""
    key: str = ""
    arguments: dict[str, Json] = Field(default_factory=dict)
    result: Json = None
    status: EffectStatus = "proposed"
