"""What instructions, guardrails, filters and hooks learn about the run they serve.

That includes the decisions on its tool calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol

from typing_extensions import TypeVar

from holdfast.errors import ModelBehaviorError, UserError
from holdfast.values.base import Json, sense
from holdfast.values.runs.usage import Usage

ToolKey = str | tuple[str, str]
"""Identity of a tool: its name with its namespace, or the label of a server and a name on it."""


class AskedCall(Protocol):
    """A call that waits for a decision: a ToolApprovalItem."""

    @property
    def tool_key(self) -> ToolKey:
        """Identity of the tool."""
        ...

    @property
    def tool_name(self) -> str | None:
        """Name of the tool."""
        ...

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        ...


class Verdict(NamedTuple):
    """A decision.

    Attributes:
        approved: Whether the call may be run.
        always: Whether it holds for all calls of the tool.
        message: The model's text for a rejection; None for the default text.
    """

    approved: bool
    always: bool = False
    message: str | None = None


@dataclass(eq=False)
class CallDecisions:
    """Decisions; one on a call takes precedence over one on all calls of its tool.

    Attributes:
        taken: The decisions with their calls, oldest first.
    """

    taken: list[tuple[Any, Verdict]] = field(default_factory=list[tuple[Any, Verdict]])
    _calls: dict[tuple[ToolKey, str], Verdict] = field(
        default_factory=dict[tuple[ToolKey, str], Verdict]
    )
    _tools: dict[ToolKey, Verdict] = field(default_factory=dict[ToolKey, Verdict])

    def take(self, call: AskedCall, verdict: Verdict) -> None:
        """Take a decision on a call."""
        self.taken.append((call, verdict))
        known = call.call_id or ""
        if verdict.always:
            self._tools[call.tool_key] = verdict
        # Calls on servers are found by their plain name as well, but only these very calls.
        for key in {call.tool_key, call.tool_name or ""}:
            self._calls.pop((key, known), None)
            if not verdict.always or key != call.tool_key:
                self._calls[key, known] = verdict

    def check_same(self, call: AskedCall) -> None:
        """Refuse a call whose id is that of another call that was decided on.

        Raises:
            ModelBehaviorError: The tool or the arguments differ.
        """
        for known, _ in self.taken:
            is_same_id = known.call_id and known.call_id == call.call_id
            if is_same_id and _content(known) != _content(call):
                raise ModelBehaviorError(
                    f"The model has called tool {call.tool_name!r} with id {call.call_id!r}, which"
                    f" another call of {known.tool_name!r} has. Each call must have a unique call"
                    " ID: a decision on one of them must not count for the other."
                )

    def find(self, key: ToolKey, call_id: str) -> Verdict | None:
        """Return the decision on a call, or None."""
        return self._calls.get((key, call_id)) or self._tools.get(key)


def _content(call: AskedCall) -> tuple[ToolKey, Any]:
    arguments: Any = getattr(call, "arguments", None)
    return call.tool_key, sense(arguments) if isinstance(arguments, str) else arguments


ContextT = TypeVar("ContextT", default=Any)

TContext = TypeVar("TContext", default=Any)
"""The type of a run's context, for generic classes and functions of one's own."""


class Origin(NamedTuple):
    """Where the context object of a result comes from, for a run that goes on with it.

    Attributes:
        data: The recorded data that it was last brought up to.
        deserializer: What has made it of these data; None where it is the caller's own.
    """

    data: Json
    deserializer: Callable[[Any], Any] | None = None


@dataclass(eq=False)
class RunContextWrapper(Generic[ContextT]):
    """The run's context with what the run has cost.

    Attributes:
        context: The object that was given to `Runner.run(context=...)`, or its copy in a worker
            process. What a tool changes in it is recorded with the tool's result; what
            instructions, guardrails and filters change is not kept.
        usage: Cost of the run so far.
        task_id: The run's task.
        decisions: Decisions on tool calls that were taken here; `RunResult.to_state()` takes them
            over. In a worker process, a context knows none.
        origin: Of a result: where its context comes from.
        tool_input: None, unless you set it: a name of the Agents SDK's that no run fills in. The
            arguments of a call of an agent as a tool are in the input of the run that it makes.
    """

    context: ContextT
    usage: Usage = field(default_factory=Usage)
    task_id: str = ""
    decisions: CallDecisions = field(default_factory=CallDecisions, repr=False, kw_only=True)
    tool_input: Any = field(default=None, repr=False, kw_only=True)
    origin: Origin | None = field(default=None, repr=False, kw_only=True)

    def approve_tool(self, approval_item: AskedCall, always_approve: bool = False) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Approve a call. It takes effect in the state that is made of the run's result.

        Args:
            approval_item: The ToolApprovalItem.
            always_approve: Whether all calls of the tool are approved.

        Raises:
            UserError: All calls are approved of a tool on a server, and one of their names is not
                known.
        """
        self._take(approval_item, Verdict(approved=True, always=always_approve))

    def reject_tool(
        self,
        approval_item: AskedCall,
        always_reject: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
        rejection_message: str | None = None,
    ) -> None:
        """Reject a call. It takes effect in the state that is made of the run's result.

        Args:
            approval_item: The ToolApprovalItem.
            always_reject: Whether all calls of the tool are rejected.
            rejection_message: The model's text for the rejection.

        Raises:
            UserError: As for `approve_tool`.
        """
        self._take(
            approval_item, Verdict(approved=False, always=always_reject, message=rejection_message)
        )

    def is_tool_approved(self, tool_name: str, call_id: str) -> bool | None:
        """Return whether a call was approved here; None when nothing was decided on it."""
        return self.get_approval_status(tool_name, call_id)

    def get_approval_status(
        self,
        tool_name: str,
        call_id: str,
        *,
        tool_namespace: str | None = None,
        existing_pending: AskedCall | None = None,
        current_invocation: AskedCall | None = None,
    ) -> bool | None:
        """Return whether a call was approved here; None when nothing was decided on it.

        Args:
            tool_name: Name of the tool.
            call_id: The model's id of the call.
            tool_namespace: Namespace of the tool.
            existing_pending: The call's ToolApprovalItem: the decisions are those on its tool.
            current_invocation: The call's ToolApprovalItem as it is now: it must be the call that
                was decided on.

        Raises:
            ModelBehaviorError: Another call of this id was decided on.
        """
        if current_invocation is not None:
            self.decisions.check_same(current_invocation)
            existing_pending = existing_pending or current_invocation
        found = self._verdict(tool_name, call_id, tool_namespace, existing_pending)
        return None if found is None else found.approved

    def get_rejection_message(
        self,
        tool_name: str,
        call_id: str,
        *,
        tool_namespace: str | None = None,
        existing_pending: AskedCall | None = None,
    ) -> str | None:
        """Return the model's text for a call that was rejected here with one.

        Args:
            tool_name: As for get_approval_status.
            call_id: As for get_approval_status.
            tool_namespace: As for get_approval_status.
            existing_pending: As for get_approval_status.
        """
        found = self._verdict(tool_name, call_id, tool_namespace, existing_pending)
        return None if found is None else found.message

    def _verdict(
        self, name: str, call_id: str, namespace: str | None, asked: AskedCall | None
    ) -> Verdict | None:
        inside = namespace not in (None, "", name)
        key = asked.tool_key if asked is not None else f"{namespace}.{name}" if inside else name
        return self.decisions.find(key, call_id)

    def _take(self, call: AskedCall, verdict: Verdict) -> None:
        if verdict.always and isinstance(call.tool_key, tuple) and not all(call.tool_key):
            raise UserError(
                "A decision on all calls of a tool on a server needs a non-empty server_label and"
                " tool name; the call lacks one. Decide on this call alone."
            )
        self.decisions.take(call, verdict)


@dataclass(eq=False)
class AgentHookContext(RunContextWrapper[ContextT]):
    """A run's context, as hooks of agents get it.

    Attributes:
        turn_input: What the run was given, as items of the Responses API. For hooks of an agent
            that was handed the task by a handoff with a filter, what the filter made.
    """

    turn_input: list[Any] = field(default_factory=list[Any])
