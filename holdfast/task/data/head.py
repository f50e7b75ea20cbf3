"""The fixed part of a task's input: its agent, its session, and the rules of its run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal, Self

from pydantic import Field

from holdfast.errors import AgentNotFoundError
from holdfast.models.base import OutputSpec, ToolSpec
from holdfast.task.data.guard_rules import GuardRule
from holdfast.values.base import Json, Value, digest
from holdfast.values.checks.gate import as_object
from holdfast.values.messages import CallKind, Message, ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.settings import ModelSettings


class Dialect(Value):
    """Where the step API and the OpenAI Agents SDK differ; a task carries one of them.

    Attributes:
        unknown_tool: "tell" returns an error to the model, "raise" ends the task with
            ModelBehaviorError.
        tool_error: Whether the model gets the exception's text, or a fixed text without detail;
            a rejection without a reason has a fixed text then as well.
        keeps_failed: Whether the session gets the finished turns of a task that a verdict ended.
        settings_of_model: Whether an agent that was given no settings has those of its model's
            name.
    """

    unknown_tool: Literal["tell", "raise"] = "tell"
    tool_error: Literal["text", "fixed"] = "text"
    keeps_failed: bool = False
    settings_of_model: bool = False


STEPS = Dialect()


AGENTS_SDK = Dialect(
    unknown_tool="raise", tool_error="fixed", keeps_failed=True, settings_of_model=True
)


class SessionRef(Value):
    """A session, as it was when the task began.

    Attributes:
        id: Workflow id of the session.
        name: The name that people use.
        commits: Number of commits that the task sees; `describe` finds it out.
        digest: Digest of the chain of these.
        unread: Whether the task sees none: the run has chosen what of it the model is to see.
        adds: Digest in the archive of messages that the session gets before the task's own: those
            of a run that was given a list.
        queue: Task queue of the session, for the one whose commit begins it.
        queues: Whether the task waits for its turn: until the tasks that came before it have ended.
    """

    id: str
    name: str
    commits: int = 0
    digest: str = ""
    unread: bool = False
    adds: str = ""
    queue: str = ""
    queues: bool = False


class KeptConversation(Value):
    """Where the provider keeps the conversation of a run, next to the record, which has it in full.

    Attributes:
        conversation_id: The provider's conversation that each model call adds to; if empty, each
            call goes on from the response before it.
        previous_response_id: Response that the first call goes on from; empty for none.
    """

    conversation_id: str = ""
    previous_response_id: str = ""


class CallerSession(Value):
    """A session that the caller of a run keeps, and writes when the run has ended.

    Attributes:
        id: Its session_id.
        adds: Digest in the archive of the items that it gets before the task's own; empty for none.
    """

    id: str
    adds: str = ""


class FollowedRun(Value):
    """The run with its answer that a run was begun from, by its state.

    Attributes:
        task_id: Its task.
        agent: Name in that task of the agent that has answered, and goes on.
        added: Number of texts that were added to the state; they end the input of the run.
    """

    task_id: str
    agent: str = ""
    added: int = 0


class RunRules(Value):
    """How one run differs from its agents: `RunConfig` and the arguments of `Runner.run`, as data.

    Code that was given with the run is named by a reference, see `holdfast.values.code.code_refs`.

    Attributes:
        agent: Reference to the Agent object that the run was started with, where the process that
            started it serves it too; empty elsewhere.
        context: Reference to the class of the context object; empty for plain JSON data.
        model: Reference to a Model object that answers for every agent.
        of_model: Settings that go with the run's model, of agents that were given none; None when
            the run names no model.
        model_provider: Reference to what makes models of names.
        retry_policy: Reference to what decides whether a failed model call is made again.
        model_input_filter: Reference to the filter of the input of each model call.
        tool_error_formatter: Reference to the formatter of the tool errors that models read.
        tool_not_found: Whether a call of an unknown tool ends the run, or returns an error to the
            model; "tell" does so as well, but does not give up an approved call whose tool was
            lost.
        output_attempts: How often a turn asks for a final output that fits its type before it waits
            for a person; 0 ends the run at the first that does not.
        tool_concurrency: Most tool calls that run at once; 0 for all.
        handoff_filter: Reference to the input filter of handoffs without one of their own.
        nests_history: Whether handoffs fold the earlier conversation into one message.
        history_mapper: Reference to what does so in its own way.
        input_guardrails: References to guardrails added to the first agent's.
        output_guardrails: References to guardrails added to the last agent's.
        guards_before_approval: Whether guardrails of tools see a call before a person is asked.
        error_handlers: Kind of error ("max_turns", "model_refusal", "invalid_final_output") to the
            reference of what answers in its place.
        reasoning_ids: Whether ids of reasoning items are sent back.
        blocked_message: Text that a session keeps instead of each tool result of a turn whose
            final output a guardrail has blocked; empty for the usual text.
        blocked_formatter: Reference to what writes that text, or empty.
        workflow_name: Name of the trace.
        trace_id: Its id; empty for one of the task's own.
        trace_parent: Id of the span that the task's span is a child of, or empty.
        trace_open: Whether that is a span of a task whose trace no one else has begun, so that the
            sampler decides by the trace's id.
        group_id: Groups traces, as of one conversation.
        trace_metadata: Facts for the trace.
        traced: Whether spans are made.
        sensitive: Whether spans carry inputs and outputs; None for the environment's choice.
        streams: Whether the answers of models are streamed to clients that follow the task.
        kept: Where the provider keeps the conversation; None when each call sends it whole.
        inherits: Whether a nested run has the rules of the run that calls it, and takes their
            changes; not where that one has a `run_config` of its tool, and takes none.
    """

    agent: str = ""
    context: str = ""
    model: str = ""
    of_model: ModelSettings | None = None
    model_provider: str = ""
    retry_policy: str = ""
    model_input_filter: str = ""
    tool_error_formatter: str = ""
    tool_not_found: Literal["raise_error", "return_error_to_model", "tell"] = "tell"
    output_attempts: int = Field(default=3, ge=0)
    tool_concurrency: int = Field(default=0, ge=0)
    handoff_filter: str = ""
    nests_history: bool = False
    history_mapper: str = ""
    input_guardrails: tuple[str, ...] = ()
    output_guardrails: tuple[str, ...] = ()
    guards_before_approval: bool = False
    error_handlers: dict[str, str] = Field(default_factory=dict[str, str])
    reasoning_ids: Literal["preserve", "omit"] = "preserve"
    blocked_message: str = ""
    blocked_formatter: str = ""
    workflow_name: str = ""
    trace_id: str = ""
    trace_parent: str = ""
    trace_open: bool = False
    group_id: str = ""
    trace_metadata: dict[str, Json] = Field(default_factory=dict[str, Json])
    traced: bool = True
    sensitive: bool | None = None
    streams: bool = False
    kept: KeptConversation | None = None
    inherits: bool = False

    def forked(self) -> RunRules:
        """Return the rules of a fork: the same, in a trace of its own, and not streamed."""
        own = {"trace_id": "", "trace_parent": "", "trace_open": False, "streams": False}
        return self.model_copy(update=own)

    @property
    def code(self) -> tuple[str, ...]:
        """All references to code."""
        single = (
            self.agent,
            self.context,
            self.model,
            self.model_provider,
            self.retry_policy,
            self.model_input_filter,
            self.tool_error_formatter,
            self.blocked_formatter,
            self.handoff_filter,
            self.history_mapper,
        )
        several = (*self.input_guardrails, *self.output_guardrails, *self.error_handlers.values())
        return tuple(ref for ref in (*single, *several) if ref)


class TaskHead(Value):
    """The part of a task that stays the same for its whole life, and that every activity needs.

    Attributes:
        agent: Name of the agent.
        snapshot: Digest of the agent's snapshot; empty until `describe` has run.
        session: The session, if any.
        caller_session: The session that the caller keeps, if any; then there is no other.
        reads: A session whose history precedes the task, but that it does not commit to.
        history: Digest in the archive of a conversation that precedes the task, or empty.
        tool_choice: Tool choice of the first step, or empty.
        dialect: Which API's rules apply.
        model: Model name that replaces the agent's, or empty.
        settings: Model settings laid over the agent's, or None.
        run: What the run brought along.
        asker: The person who created the task; empty when the client did not name one.
        follows: The run that it goes on from, if it was begun by the state of one.
        tenant: Whose it is; empty for no one's.
        callers: The turns in sessions that end only after it: those of the tasks whose tools run
            it, outermost first. Each is the session's id and the task's.
    """

    agent: str
    snapshot: str = ""
    session: SessionRef | None = None
    caller_session: CallerSession | None = None
    reads: SessionRef | None = None
    history: str = ""
    tool_choice: str = ""
    dialect: Dialect = STEPS
    model: str = ""
    settings: ModelSettings | None = None
    run: RunRules = RunRules()
    asker: str = ""
    follows: FollowedRun | None = None
    tenant: str = ""
    callers: tuple[tuple[str, str], ...] = ()

    def turns(self, task: str) -> tuple[tuple[str, str], ...]:
        """Return the `callers` of what a tool of this task runs.

        Args:
            task: Id of this task.
        """
        session = self.session
        own = () if session is None or not session.queues else ((session.id, task),)
        return (*self.callers, *own)

    @property
    def answers_lost_calls(self) -> bool:
        """Whether the run tells the model of a tool that is not there."""
        is_told = self.run.tool_not_found == "return_error_to_model"
        return is_told and self.dialect.unknown_tool == "raise"

    @property
    def ends_by_answers(self) -> bool:
        """Whether an answer that cannot be used ends the run, as in the Agents SDK."""
        return self.dialect.unknown_tool == "raise" and not self.run.output_attempts

    @property
    def has_session(self) -> bool:
        """Whether a session gets the task's turn."""
        return self.session is not None or self.caller_session is not None


RunSetting = Literal[
    "model",
    "model_provider",
    "model_settings",
    "call_model_input_filter",
    "tool_error_formatter",
    "tool_not_found_behavior",
    "max_output_attempts",
    "tool_execution",
    "handoff_input_filter",
    "nest_handoff_history",
    "handoff_history_mapper",
    "reasoning_item_id_policy",
    "output_guardrail_blocked_message",
    "error_handlers",
]
"""Settings that a resumed run may be given, by their names for users."""

_IN_HEAD: Mapping[RunSetting, tuple[str, ...]] = {
    "model": ("model",),
    "model_settings": ("settings",),
}
_IN_RULES: Mapping[RunSetting, tuple[str, ...]] = {
    "model": ("model", "of_model"),
    "model_provider": ("model_provider",),
    "model_settings": ("retry_policy",),
    "call_model_input_filter": ("model_input_filter",),
    "tool_error_formatter": ("tool_error_formatter",),
    "tool_not_found_behavior": ("tool_not_found",),
    "max_output_attempts": ("output_attempts",),
    "tool_execution": ("tool_concurrency", "guards_before_approval"),
    "handoff_input_filter": ("handoff_filter",),
    "nest_handoff_history": ("nests_history",),
    "handoff_history_mapper": ("history_mapper",),
    "reasoning_item_id_policy": ("reasoning_ids",),
    "output_guardrail_blocked_message": ("blocked_message", "blocked_formatter"),
    "error_handlers": ("error_handlers",),
}


def _fields(names: Iterable[RunSetting]) -> tuple[list[str], list[str]]:
    """Return the fields that settings are: of the head, and of its rules."""
    chosen = tuple(names)
    own = [each for name in chosen for each in _IN_HEAD.get(name, ())]
    return own, [each for name in chosen for each in _IN_RULES[name]]


class RunChange(Value):
    """Settings that a run was given after it had begun; they hold for all that follows.

    Attributes:
        names: Which settings; the others stay as they are.
        model: The head's `model`, where that is one of them.
        settings: The head's `settings`, likewise.
        run: The rules that these settings are; the others have their defaults.
    """

    names: tuple[RunSetting, ...] = ()
    model: str = ""
    settings: ModelSettings | None = None
    run: RunRules = RunRules()

    @classmethod
    def of(cls, head: TaskHead, names: Iterable[RunSetting]) -> Self:
        """Return some settings as a head has them."""
        chosen = tuple(names)
        own, rules = _fields(chosen)
        run = RunRules(**{each: getattr(head.run, each) for each in rules})
        return cls(names=chosen, run=run, **{each: getattr(head, each) for each in own})

    @classmethod
    def between(cls, head: TaskHead, given: TaskHead, names: Iterable[RunSetting]) -> Self:
        """Return those of the settings in which another head differs, as that one has them."""

        def differs(name: RunSetting) -> bool:
            return cls.of(head, [name]).wire() != cls.of(given, [name]).wire()

        return cls.of(given, filter(differs, names))

    def applied(self, head: TaskHead) -> TaskHead:
        """Return a head with these settings."""
        own, rules = _fields(self.names)
        run = head.run.model_copy(update={each: getattr(self.run, each) for each in rules})
        return head.model_copy(update={**{each: getattr(self, each) for each in own}, "run": run})

    def after(self, earlier: RunChange | None) -> RunChange:
        """Return an earlier change and this one as one."""
        if earlier is None:
            return self
        both = self.applied(earlier.applied(TaskHead(agent="")))
        return RunChange.of(both, dict.fromkeys((*earlier.names, *self.names)))

    def unread(self, body: Mapping[str, Json]) -> str:
        """Return why the body of this change is refused: it has fields that no name asks for."""
        own, rules = map(set, _fields(self.names))
        given = [each for each in ("model", "settings") if each in body and each not in own]
        known = {"run": rules, "settings": {*ModelSettings.model_fields}}
        for part, fields in known.items():
            inner = as_object(body.get(part))
            given += [f"{part}.{name}" for name in inner if name not in fields]
        if not given:
            return ""
        fits = ", ".join([*sorted(own), *(f"run.{each}" for each in sorted(rules))])
        return f"{', '.join(given)}: of the settings in names, none has that. They have {fits}."

    @property
    def inherited(self) -> RunChange:
        """The part that holds for nested runs as well: these have no error handlers of the run."""
        return self.without("error_handlers")

    def without(self, *names: RunSetting) -> RunChange:
        """Return the change without some settings."""
        others: list[RunSetting] = [name for name in self.names if name not in names]
        return RunChange.of(self.applied(TaskHead(agent="")), others)


# The agent of a task as data: its definition, the rules of its tools, calls of its handoffs.

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
