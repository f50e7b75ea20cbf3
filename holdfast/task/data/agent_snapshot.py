"""The agent of a task as data: its definition, the rules of its tools, calls of its handoffs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from holdfast.errors import AgentNotFoundError
from holdfast.models.base import OutputSpec, ToolSpec
from holdfast.task.data.guard_rules import GuardRule
from holdfast.task.data.head import TaskHead
from holdfast.values.base import Json, Value, digest
from holdfast.values.messages import CallKind, Message, ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.settings import ModelSettings

ToolEffect = Literal["read", "reversible", "irreversible"]
"""Side effect of a tool."""

TimeoutBehavior = Literal["error_as_result", "raise_exception"]
"""After a timeout of a call: the model reads an error, or ToolTimeoutError ends the task."""

DEFAULT_MAX_OUTPUT_BYTES = 1_048_576


MAX_DEPTH = 16
"""How many tasks of agents as tools may be inside each other, unless a tool says otherwise."""


class ToolPolicy(Value):
    """The rules for running one tool; those of a plain `@tool` serialise to `{}`.

    Attributes:
        effect: Side effect of a call.
        idempotent: Whether two calls with one idempotency key act once.
        has_undo: Whether a done call can be undone.
        has_probe: Whether the tool has a `probe=`, which finds out if a call happened.
        needs_approval: Whether a person decides first; "ask" asks the tool's predicate.
        timeout_seconds: Longest time of one attempt; 0 for no limit.
        timeout_behavior: What follows a call that ran too long.
        max_attempts: Attempts for the errors that the tool declares worth repeating.
        return_direct: Whether the result is the answer of the task.
        max_output_bytes: Longest result, in UTF-8 bytes.
        approval_seconds: Seconds after which an approval expires to rejected; 0 for never.
        approval: Who decides, when `needs_approval=` of the tool is an ApprovalRule.
        undo_needs_approval: Whether a person decides before a call is undone.
        undo_idempotent: Whether undoing one call twice acts once.
        is_conditional: Whether a predicate decides for each turn if it is offered.
        guarded: Whether guardrails see a call before it is run.
        agent: For an agent as a tool: its name; a call is a task of that agent.
        max_depth: For an agent as a tool: at which depth of nested tasks it is not called.
        handoff: For a handoff: name of the agent that goes on with the task.
        handoff_name: The name that the models know that agent by, if it is another one.
        call_kind: Type that the items of its calls have; empty for function calls.
        defaults: What is filled in for arguments that a call leaves out; see `defaulted`.
    """

    effect: ToolEffect = "irreversible"
    idempotent: bool = False
    has_undo: bool = False
    has_probe: bool = False
    needs_approval: Literal["no", "yes", "ask"] = "no"
    timeout_seconds: float = 0
    timeout_behavior: TimeoutBehavior = "error_as_result"
    max_attempts: int = 1
    return_direct: bool = False
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    approval_seconds: float = 0
    approval: ApprovalRule | None = None
    undo_needs_approval: bool = False
    undo_idempotent: bool = False
    is_conditional: bool = False
    guarded: bool = False
    agent: str = ""
    max_depth: int = MAX_DEPTH
    handoff: str = ""
    handoff_name: str = ""
    call_kind: CallKind = ""
    defaults: dict[str, Json] = Field(default_factory=dict[str, Json])

    @property
    def repeatable(self) -> bool:
        """Whether a call may be run again when it is not known if it ran."""
        return self.effect == "read" or self.idempotent

    @property
    def may_have_happened(self) -> bool:
        """Whether a call whose end is not known is *unknown*.

        A call of an agent as a tool is never unknown: its activity only collects the result of the
        child task, which may be repeated.
        """
        return not (self.repeatable or self.agent)


def server_key(label: str) -> str:
    """Return the name under which policies have the rules of a provider's MCP server."""
    return f"{label}.*"


def policy_of(policies: Mapping[str, ToolPolicy], call: ToolCall) -> ToolPolicy | None:
    """Return the rules of a call: those of its tool, or of the provider's server that runs it.

    A call is of a tool only if its item is of the type that calls of the tool have: a `shell_call`
    never runs a function that is named "shell".
    """
    found = policies.get(server_key(call.server) if call.server else call.name)
    return found if found is not None and found.call_kind == call.kind else None


class ServedTool(Value):
    """A tool of a tool server (MCP), as the server described it when the task began.

    Attributes:
        server: Name of the server in its agent.
        name: Name of the tool at the server; the model may know it by another one.
        definition: The server's description of it.
    """

    server: str
    name: str
    definition: dict[str, Json] = Field(default_factory=dict[str, Json])


class AgentSnapshot(Value):
    """Everything a task depends on that is data: kept in the archive under its digest.

    A running task goes on with the snapshot it began with, whatever is edited meanwhile.

    Attributes:
        name: Agent name.
        instructions: System prompt.
        model: Model name.
        settings: Model settings.
        of_model: Settings that go with the model's name, of an agent that was given none: they hold
            where the dialect of a task says so. None where some were given; nothing is the usual,
            and takes no bytes.
        tools: Tool definitions that the model gets.
        policies: Tool name to the rules by which the task runs the tool.
        served: Those of the tools that a tool server runs, by the name that the model knows.
        worker: Class of the AgentWorker, as `module.QualifiedName`.
        retriever: Class of the tool retriever, likewise; empty when all tools are on offer.
        is_dynamic: Whether a function makes the instructions for each turn.
        prompt: The provider's stored prompt that calls name; None for none.
        makes_prompt: Whether a function makes that for each turn.
        leaves_model: Whether the stored prompt chooses the model, as the agent names none.
        output: Structure of the final output; None for text.
        handoffs: Tool definitions of the handoffs, next to `tools`; `policies` has their rules.
        behavior: What follows tool calls: "" for another model call, "first" for the first result
            as the answer, "ask" for what the agent's function says, else names of tools that each
            end the run, each with a comma after it.
        keeps_tool_choice: Whether a tool choice remains after a tool was used.
        guards: Its guardrails, those of the input first.
        team: The other agents that a task may be handed to, in the order in which they are found.
        shared: The name that its author gave it, if another agent of the run has that as well;
            empty for an agent whose name says all.
    """

    name: str
    instructions: str = ""
    model: str = ""
    settings: ModelSettings = ModelSettings()
    of_model: ModelSettings | None = ModelSettings()
    tools: tuple[ToolSpec, ...] = ()
    policies: dict[str, ToolPolicy] = Field(default_factory=dict)
    served: dict[str, ServedTool] = Field(default_factory=dict[str, ServedTool])
    worker: str = ""
    retriever: str = ""
    is_dynamic: bool = False
    prompt: dict[str, Json] | None = None
    makes_prompt: bool = False
    leaves_model: bool = False
    output: OutputSpec | None = None
    handoffs: tuple[ToolSpec, ...] = ()
    behavior: str = ""
    keeps_tool_choice: bool = False
    guards: tuple[GuardRule, ...] = ()
    team: tuple[AgentSnapshot, ...] = ()
    shared: str = ""

    def has_role_of(self, other: AgentSnapshot) -> bool:
        """Whether two agents are declared as the same one, as far as data can say it.

        Functions and models are not compared, nor are descriptions and parameters of tools.
        """
        return self._role() == other._role()

    def _role(self) -> tuple[object, ...]:
        tools = {spec.name for spec in self.tools} - set(self.served)
        handoffs = {spec.name for spec in self.handoffs}
        said = (self.instructions, self.is_dynamic, self.prompt, self.makes_prompt, self.output)
        return (*said, tools, handoffs, self.leads, self.worker, self.behavior)

    @property
    def leads(self) -> dict[str, str]:
        """The agents that its handoffs and its agents as tools lead to, by the names of these."""
        to = {name: policy.handoff or policy.agent for name, policy in self.policies.items()}
        return {name: agent for name, agent in to.items() if agent}

    def settings_in(self, head: TaskHead) -> ModelSettings:
        """Return the settings of model calls in a task, without limits of its budget."""
        own = self.settings
        if self.of_model is not None and head.dialect.settings_of_model:
            own = (head.run.of_model or self.of_model).resolve(own)
        return own.resolve(head.settings)

    def of(self, name: str) -> AgentSnapshot:
        """Return the snapshot of an agent of the team; without a name, this one.

        Raises:
            AgentNotFoundError: The team has no such agent.
        """
        if name in ("", self.name):
            return self
        for other in self.team:
            if other.name == name:
                return other
        names = ", ".join((self.name, *(other.name for other in self.team)))
        raise AgentNotFoundError(f"The task knows agents {names}; there is no {name!r} among them.")

    @property
    def data(self) -> bytes:
        """This snapshot as the archive keeps it.

        Keys stay in their order, unlike in the canonical form: a schema's order of parameters means
        something to models, and prompts made of it must be the same from a worker to the next.
        """
        text = json.dumps(self.wire(), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")

    @property
    def digest(self) -> str:
        """Digest of this snapshot: equal digests, equal agents."""
        return digest(self.data)


IGNORED = "Multiple handoffs detected, ignoring this one."
"""Result of every handoff of a response but the first, as the Agents SDK words it."""


def transfer_message(agent: str) -> str:
    """Return the result of the call by which the agent of this name gets the task."""
    return json.dumps({"assistant": agent})


def called_handoff(call: ToolCall, policies: Mapping[str, ToolPolicy]) -> str:
    """Return the agent that a call wants to hand the task to; empty for a call of a tool.

    Args:
        call: The call.
        policies: The policies of the agent that made it: those of the snapshot of the step's agent.
    """
    policy = policy_of(policies, call)
    return policy.handoff if policy is not None else ""


def handed_to(call: ToolCall, result: Message, policies: Mapping[str, ToolPolicy]) -> str:
    """Return the agent that a call has handed the task to; empty if it has not.

    Args:
        call: The call.
        result: The message that answers it.
        policies: The policies of the agent that made it.
    """
    # Read from the text, because a transcript has only messages and no field for this.
    given_up = result.is_error or result.text == IGNORED
    return "" if given_up else called_handoff(call, policies)
