"""ToolContext and Effect: the call, as passed to a tool, its undo and its probe."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, cast

from pydantic import Field
from typing_extensions import TypeVar

from holdfast.agents.items.run_items import RawItem, RunItem
from holdfast.errors import DeclarationError, WrongTypeError
from holdfast.values.base import Json, Value
from holdfast.values.code.context_data import KEY as CONTEXT_KEY
from holdfast.values.code.context_data import dump
from holdfast.values.messages import Artifact, ToolCall, qualified_name
from holdfast.values.messages import Usage as UsageRecord
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.runs.usage import Usage
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.archive.artifacts import Artifacts, Keeper

StateT = TypeVar("StateT", bound=Mapping[str, Any], default=dict[str, Any])

EffectStatus = Literal["proposed", "approved", "started", "done", "failed", "unknown", "undone"]


_MISSING: Any = object()


def _arguments_of(tool_call: Any) -> str | None:
    found = getattr(tool_call, "arguments", None)
    return found if isinstance(found, str) else None


def _as_it_is(data: Json) -> Json:
    return data


def _ignore(*_details: Any) -> None:
    """Ignore a heartbeat; for a call outside of an activity."""


def _usage(given: Usage | UsageRecord | None) -> Usage:
    """Return a run's usage as it is, or that of a record.

    Raises:
        WrongTypeError: It is neither.
    """
    if given is None:
        return Usage()
    if isinstance(given, Usage):
        return given
    if isinstance(cast("object", given), UsageRecord):
        return Usage.of(given)
    raise WrongTypeError(f"usage must be a Usage; it was {shown(given)} ({type(given).__name__}).")


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


class NestedRun(Protocol):
    """The nested run of a call of an agent as a tool."""

    async def __call__(self) -> NestedResult:
        """Return its result; raise the error that ended it."""
        ...

    def events(self) -> AsyncGenerator[Any]:
        """Yield its events."""
        ...

    async def call_hooks(self, hooks: Any, context: Any) -> None:
        """Call hooks with what it did."""
        ...


class ToolContext(RunContextWrapper[ContextT], Generic[ContextT, StateT]):
    """The optional first argument of a tool; its type may also be `RunContextWrapper[...]`.

    Every field has a default, so a unit test sets only the fields that it needs. A tool may declare
    a TypedDict for its state, as in `ToolContext[Any, TripState]`; at run time it is a plain dict.

    Attributes:
        task_id: The task that made the call.
        step_id: The step within the task.
        tool_call_id: The model's id of this call; each attempt has the same.
        tool_name: Name under which the model called the tool, without that of its namespace.
        tool_arguments: The arguments as JSON text, as the model wrote them or a reviewer edited
            them.
        tool_namespace: Namespace of the tool, if the model called it by one.
        attempt: Number of this attempt, from 1.
        idempotency_key: Identifies the action, not the attempt; pass it to services that take one.
        fencing_token: Grows with every start of the action with this key. A service that has seen a
            higher token for a key must refuse a lower one, which comes from a worker process that
            was paused and has been replaced.
        agent: The agent that made the call.
        agent_name: Its name.
        run_config: For contexts made by hand; in a run None, as the task has it.
        usage: Cost of the run so far.
        state: This call's own copy of the task's extra_state. Change it in place or assign it;
            the difference is recorded in the task as a merge patch.
        context: The run's context object, made from `state["context"]`: see `Runner.run`. Change it
            in place or assign it; it is recorded with the state.
        nested: Reads the result of a call of an agent as a tool, once the nested run has finished.
        answers: Key of a question that the call has asked to the answer of a person.
        resume: What an earlier attempt of the call, which asked, wants back with the answers.
        completion_token: Of a tool that completes later: with it, anyone can do that.
        tenant: Of such a tool, whose the task is; empty for no one's.
        kept: What `artifacts` has kept so far.
        keeper: Where that goes to: in a context made by hand nowhere, and None when the call is not
            being run.
    """

    completion_token: str = ""
    tenant: str = ""
    kept: tuple[Artifact, ...] = ()
    keeper: Keeper | Literal["nowhere"] | None = "nowhere"
    _within: ToolContext[Any, Any] | None = None

    def __init__(  # noqa: PLR0917  the Agents SDK's signature
        self,
        context: ContextT = _MISSING,
        usage: UsageRecord | None = None,
        tool_name: str = "",
        tool_call_id: str = "",
        tool_arguments: str = "{}",
        tool_call: Any = None,
        *,
        tool_namespace: str | None = None,
        agent: Any = None,
        run_config: Any = None,
        task_id: str = "",
        step_id: str = "",
        attempt: int = 1,
        idempotency_key: str = "",
        fencing_token: int = 0,
        agent_name: str = "",
        state: StateT | None = None,
        heartbeat: Callable[..., None] = _ignore,
        load_context: Callable[[Json], Any] | None = None,
        nested: NestedRun | None = None,
        **run: Any,
    ) -> None:
        """Make a context.

        Args:
            context: And those after it: see the attributes.
            usage: See above.
            tool_name: See above.
            tool_call_id: See above.
            tool_arguments: See above.
            tool_call: The call as an item of the Responses API; made of the other fields if absent.
            tool_namespace: See above; by default that of the tool_call.
            agent: See above.
            run_config: See above.
            task_id: See above.
            step_id: See above.
            attempt: See above.
            idempotency_key: See above.
            fencing_token: See above.
            agent_name: See above; by default that of the agent.
            state: See above.
            heartbeat: Must be safe to call from any thread.
            load_context: Makes the context object from JSON data.
            nested: See above.
            run: Other fields of RunContextWrapper.
        """
        super().__init__(context, _usage(usage), task_id, **run)
        self._has_context = context is not _MISSING
        self.step_id = step_id
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.tool_arguments = tool_arguments
        named = getattr(tool_call, "namespace", None) if tool_namespace is None else tool_namespace
        self.tool_namespace = named if isinstance(named, str) else None
        self._tool_call = tool_call
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self.fencing_token = fencing_token
        self.agent = agent
        self.agent_name = agent_name or getattr(agent, "name", "")
        self.run_config = run_config
        self.nested = nested
        self.answers: dict[str, Json] = {}
        self.resume = ""
        self.state: StateT = cast("StateT", {}) if state is None else state
        self._heartbeat = heartbeat
        self._load_context = load_context
        self._cancelled = threading.Event()

    @classmethod
    def from_agent_context(
        cls,
        context: RunContextWrapper[ContextT],
        tool_call_id: str,
        tool_call: Any = None,
        agent: Any = None,
        *,
        tool_name: str | None = None,
        tool_arguments: str | None = None,
        tool_namespace: str | None = None,
        run_config: Any = None,
    ) -> ToolContext[ContextT]:
        """Make the context of a call from the context of its run.

        Args:
            context: The run's context, or another call's: its agent and run_config are taken over.
            tool_call_id: The model's id of the call.
            tool_call: The call as an item of the Responses API.
            agent: The agent that made the call.
            tool_name: Name of the tool; by default that in tool_call.
            tool_arguments: The arguments as JSON text; by default those in tool_call.
            tool_namespace: Namespace of the tool; by default that in tool_call.
            run_config: Configuration of the run.

        Raises:
            DeclarationError: There is neither a tool_call nor the name and the arguments.
        """
        name = tool_name if tool_name is not None else getattr(tool_call, "name", None)
        text = tool_arguments if tool_arguments is not None else _arguments_of(tool_call)
        if name is None or text is None:
            missing = "tool_name" if name is None else "tool_arguments"
            msg = f"from_agent_context needs {missing}=, or a tool_call that holds it."
            raise DeclarationError(msg)
        if isinstance(context, ToolContext):
            agent = context.agent if agent is None else agent
            run_config = context.run_config if run_config is None else run_config
        made: ToolContext[ContextT] = ToolContext(
            context.context,
            tool_name=name,
            tool_call_id=tool_call_id,
            tool_arguments=text,
            tool_call=tool_call,
            tool_namespace=tool_namespace,
            agent=agent,
            run_config=run_config,
        )
        for name in (each.name for each in fields(RunContextWrapper)):
            setattr(made, name, getattr(cast("Any", context), name))
        if isinstance(context, ToolContext):
            made._within = context
        return made

    def __repr__(self) -> str:
        """Name the call, without making the context object."""
        return f"<ToolContext of call {self.call_id!r} of tool {self.tool_name!r}>"

    @property
    def call_id(self) -> str:
        """The model's id of this call: `tool_call_id`."""
        return self.tool_call_id

    @property
    def arguments(self) -> str:
        """The arguments as JSON text: `tool_arguments`."""
        return self.tool_arguments

    @property
    def tool_call(self) -> Any:
        """The call as an item of the Responses API."""
        if self._tool_call is not None:
            return self._tool_call
        known = {"call_id": self.call_id, "name": self.tool_name, "arguments": self.arguments}
        inside = {"namespace": self.tool_namespace} if self.tool_namespace else {}
        return RawItem({"type": "function_call", **known, **inside})

    @property
    def qualified_tool_name(self) -> str:
        """The tool's name, after that of its namespace if it has one."""
        return qualified_name(self.tool_name, self.tool_namespace or "")

    @property
    def context(self) -> ContextT:
        """The run's context object."""
        if not self._has_context:
            data = self.state.get(CONTEXT_KEY)
            load: Callable[[Json], Any] = self._load_context or _as_it_is
            self._context, self._has_context = load(data), True
        return cast("ContextT", self._context)

    @context.setter
    def context(self, context: ContextT) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
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

    @property
    def artifacts(self) -> Artifacts:
        """Keeps files with the call, and reads those of the task."""
        from holdfast.archive.artifacts import Artifacts  # few tools make any

        if self._within is not None:  # a tool calls another one: the files are of its own call
            return self._within.artifacts
        made: Artifacts = self.__dict__.setdefault("_artifacts", Artifacts(self))  # in one step
        return made

    def heartbeat(self, *details: Any) -> None:
        """Send a heartbeat to the engine, with details that are shown with the activity."""
        self._heartbeat(*details)


def names_in_context(call: ToolCall, tool: Any) -> tuple[str, str | None]:
    """Return the name and the namespace of a call's tool, as a ToolContext has them.

    A worker that describes tools in a text calls one of a namespace by its whole name.

    Args:
        call: The call.
        tool: Its tool, or what else is called.
    """
    namespace: str = getattr(tool, "namespace", "")
    if namespace:
        return tool.name, namespace
    return call.bare_name, call.namespace or None


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
