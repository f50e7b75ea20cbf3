"""RunConfig: the settings of one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import Field

from holdfast.agents.guardrails import (
    InputGuardrail,
    OutputGuardrail,
    OutputGuardrailBlockedMessageFormatter,
    check_blocked_message,
    check_guardrails,
)
from holdfast.agents.handoffs.handoff import HandoffInputFilter
from holdfast.errors import DeclarationError, InvalidArgumentError, UserError, WrongTypeError
from holdfast.models.base import check_model
from holdfast.models.resolve import AnyModel, check_prefix, taken
from holdfast.tracing.spans import DEFAULT_WORKFLOW_NAME, includes_sensitive_data
from holdfast.tracing.switch import set_tracing_export_api_key
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_data, check_fields, check_known, known_as
from holdfast.values.messages import Amount
from holdfast.values.runs.retries import ModelRetryBackoffSettings, ModelRetrySettings
from holdfast.values.settings import ModelSettings, as_model_settings
from holdfast.values.text.shown import shown

ToolNameCollisionPolicy = Literal["warn", "error"]
"""What happens to two tools of one name: see `RunConfig.tool_name_collision_policy`."""

ReasoningItemIdPolicy = Literal["preserve", "omit"]
"""Whether ids of reasoning items are sent back."""

ToolNotFoundBehavior = Literal["raise_error", "return_error_to_model"]
"""What happens to a call of an unknown tool."""

SessionInputCallback = Callable[[list[Any], list[Any]], list[Any] | Awaitable[list[Any]]]
"""Chooses what the model sees of a session's items and the new ones, see `RunConfig`."""


@dataclass
class ToolExecutionConfig:
    """How the tool calls of one model response are run.

    Attributes:
        max_function_tool_concurrency: Most calls that run at the same time; None for no limit.
        pre_approval_tool_input_guardrails: Whether tool input guardrails run before the approval is
            requested, so that a call that they reject needs none.
    """

    max_function_tool_concurrency: Annotated[int, Field(ge=1)] | None = None
    pre_approval_tool_input_guardrails: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        most: object = self.max_function_tool_concurrency
        if isinstance(most, int) and most < 1:
            raise DeclarationError(
                "tool_execution.max_function_tool_concurrency must be at least 1, or None for no"
                f" limit; it was {most}."
            )
        early = self.pre_approval_tool_input_guardrails
        if not isinstance(cast("object", early), bool):
            raise DeclarationError(
                "tool_execution.pre_approval_tool_input_guardrails must be a bool; it was"
                f" {shown(early)}."
            )
        check_fields(ToolExecutionConfig, self, vars(self))


@dataclass
class SessionSettings(dict[str, Any]):
    """How a session is read.

    It is a dict of its fields as well: sessions of the Agents SDK that wrap another one, as its
    EncryptedSession, take that of settings that are not of the SDK's own class.

    Attributes:
        limit: Most items of its history that the model sees, the newest ones; None for all. A
            tool's output whose call is not among them is left out as well.
    """

    limit: Annotated[int, Field(ge=0)] | None = None

    def __new__(cls, *_given: Any, **_named: Any) -> Self:
        """Make the attributes and the items the same things, whichever of them is changed."""
        made = super().__new__(cls)
        made.__dict__ = made
        return made

    def __post_init__(self) -> None:
        """Check the field."""
        check_fields(SessionSettings, self, vars(self))

    def resolve(self, override: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
        """Return these settings with those of another that are set.

        Args:
            override: SessionSettings, a dict of their fields, or None.

        Raises:
            UserError: A field does not exist or has a wrong value.
        """
        given = as_session_settings(override)
        changes = {} if given is None else {k: v for k, v in vars(given).items() if v is not None}
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dict of their fields."""
        return asdict(self)


def as_session_settings(given: object) -> SessionSettings | None:
    """Return SessionSettings unchanged, and make them from a dict of their fields.

    Raises:
        WrongTypeError: It is neither nor None, or a field does not exist.
        UserError: A field has a wrong value.
    """
    if given is None or isinstance(given, SessionSettings):
        return given
    if isinstance(given, Mapping):
        settings = cast("Mapping[str, Any]", given)
        check_known("session settings", settings, _names(SessionSettings))
        return SessionSettings(**settings)
    msg = f"session_settings must be SessionSettings or a dict of their fields; got {shown(given)}."
    raise WrongTypeError(msg)


def _check_collision_policy(given: object) -> None:
    if given not in get_args(ToolNameCollisionPolicy):
        msg = f"tool_name_collision_policy must be either 'warn' or 'error'; it was {shown(given)}."
        raise InvalidArgumentError(msg)


@known_as("RunConfig")
@dataclass
class RunConfig:
    """Settings of one run. Functions are run by the worker process, see `docs/runner_reference.md`.

    Attributes:
        model: A model's name, a Model, or a list of these, for all agents of the run.
        model_provider: An object with `get_model(name)`, which makes a Model from a name.
        model_settings: Settings that override the agents', field by field.
        handoff_input_filter: Filter for handoffs without a filter of their own.
        nest_handoff_history: Whether a handoff folds the earlier conversation into one message.
        handoff_history_mapper: Makes the items in place of that message.
        input_guardrails: Added to the first agent's.
        output_guardrails: Added to the last agent's.
        tracing_disabled: Whether no spans are made.
        trace_include_sensitive_data: Whether spans carry inputs and outputs: by default what
            HOLDFAST_TRACE_INCLUDE_SENSITIVE_DATA says, else
            OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA, else yes. A worker process whose environment
            says no leaves them out, unless the process that calls the run says no and the run yes.
        workflow_name: Name of the trace.
        trace_id: Id of the trace.
        group_id: Id that groups traces, such as those of one conversation.
        trace_metadata: Metadata of the trace.
        session_input_callback: Called with the session's items and the new ones; returns the items
            that the model sees. Runs in the calling process.
        session_settings: How the session is read.
        call_model_input_filter: Edits instructions and items of each model call right before it;
            the record does not change.
        tool_error_formatter: Makes the model's text for a failed tool call.
        tool_execution: Limits on running tools.
        tool_not_found_behavior: "raise_error", as the Agents SDK does by default: a call of an
            unknown tool ends the run. With None the model reads which tools there are, and an
            approved call whose tool was lost waits for it; "return_error_to_model" gives such a
            call up as well.
        reasoning_item_id_policy: Whether ids of reasoning items are sent back: "preserve", which is
            the default, or "omit".
        tracing: A dict with "api_key", for programs of the Agents SDK: as
            `set_tracing_export_api_key`, and not kept.
        sandbox: Not served; None.
        tool_name_collision_policy: Whether an agent that has several tools or handoffs of one name
            is refused when the run begins ("error"), or the last of them is offered alone, with a
            warning in the log ("warn"): a handoff takes precedence over a tool.
        output_guardrail_blocked_message: Text that a session keeps instead of each tool result
            of a turn whose final output a guardrail has blocked; or a function, not async, that
            returns it for an OutputGuardrailBlockedMessageArgs, or None for the usual text.
        max_dollars: US dollars that the model calls of the run may cost, agents as tools included;
            a call that may cost more ends it with MaxTurnsExceeded.
        max_output_attempts: How often a turn asks the model for a final output that fits the
            agent's type, each time with what was wrong, before the run waits for a person. With
            None the first that does not fit ends the run with ModelBehaviorError, and equal calls
            with equal results have no limit, as in the Agents SDK. An error handler for
            "invalid_final_output" answers at the first.

    `model_settings`, `tool_execution` and `session_settings` may be dicts of their fields.

    Raises:
        UserError: A field has a value of a wrong type or out of range.
    """

    model: AnyModel | Sequence[AnyModel] | None = None
    model_provider: Any = None
    model_settings: ModelSettings | None = None
    handoff_input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool = False
    handoff_history_mapper: Callable[..., Any] | None = None
    input_guardrails: Sequence[InputGuardrail] = ()
    output_guardrails: Sequence[OutputGuardrail] = ()
    tracing_disabled: bool = False
    tracing: Mapping[str, Any] | None = None
    trace_include_sensitive_data: bool | None = None
    workflow_name: str = DEFAULT_WORKFLOW_NAME
    trace_id: str | None = None
    group_id: str | None = None
    trace_metadata: Mapping[str, Json] | None = None
    session_input_callback: Callable[..., Any] | None = None
    call_model_input_filter: Callable[..., Any] | None = None
    tool_error_formatter: Callable[..., Any] | None = None
    session_settings: SessionSettings | None = None
    reasoning_item_id_policy: ReasoningItemIdPolicy | None = None
    sandbox: None = None
    tool_execution: ToolExecutionConfig = field(default_factory=ToolExecutionConfig)
    tool_not_found_behavior: ToolNotFoundBehavior | None = None
    tool_name_collision_policy: ToolNameCollisionPolicy = "warn"
    output_guardrail_blocked_message: str | OutputGuardrailBlockedMessageFormatter | None = None
    max_dollars: Amount | None = field(default=None, kw_only=True)
    max_output_attempts: Annotated[int, Field(ge=1)] | None = field(default=3, kw_only=True)

    def __post_init__(self) -> None:
        """Make objects of dicts and check the fields."""
        for name, kind in _MADE_OF_DICTS:
            given: object = getattr(self, name)
            if isinstance(given, Mapping):
                object.__setattr__(self, name, kind(cast("Mapping[str, Any]", given)))
        if isinstance(self.tracing, Mapping) and set(self.tracing) <= {"api_key"}:
            set_tracing_export_api_key(str(self.tracing.get("api_key")))
            object.__setattr__(self, "tracing", None)
        for name, instead in _NOT_HERE.items():
            if getattr(self, name) is not None:
                raise UserError(f"RunConfig cannot have {name}=: {instead}.")
        _check_collision_policy(self.tool_name_collision_policy)
        check_blocked_message(self.output_guardrail_blocked_message)
        if self.trace_include_sensitive_data is None:
            object.__setattr__(self, "trace_include_sensitive_data", includes_sensitive_data())
        for name, default in _MAY_BE_NONE:
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        settings: object = self.model_settings
        if settings is not None:
            as_model_settings(settings, "model_settings of a RunConfig")
        check_fields(RunConfig, self, [name for name in vars(self) if name not in _CHECKED_APART])
        check_data("RunConfig", "trace_metadata", dict(self.trace_metadata or {}))
        if self.model is not None:
            self._take_model()
        check_guardrails("a RunConfig", "input_guardrails", self.input_guardrails, InputGuardrail)
        check_guardrails(
            "a RunConfig", "output_guardrails", self.output_guardrails, OutputGuardrail
        )
        provider: object = self.model_provider
        if provider is not None and not callable(getattr(provider, "get_model", None)):
            raise UserError(
                f"RunConfig cannot use model_provider={shown(provider)}: it has no method"
                " get_model, which makes a Model of a name."
            )

    def _take_model(self) -> None:
        object.__setattr__(self, "model", taken(self.model))
        check_model(self.model)
        if self.model_provider is None:
            check_prefix(self.model)


def _tool_execution(given: Mapping[str, Any]) -> ToolExecutionConfig:
    check_known("run_config.tool_execution settings", given, _names(ToolExecutionConfig))
    return ToolExecutionConfig(**given)


def _names(kind: Any) -> list[str]:
    return [each.name for each in fields(kind)]


_MADE_OF_DICTS: tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...] = (
    ("model_settings", lambda given: as_model_settings(given, "model_settings of a RunConfig")),
    ("tool_execution", _tool_execution),
    ("session_settings", as_session_settings),
)
_MAY_BE_NONE: tuple[tuple[str, Any], ...] = (
    ("input_guardrails", ()),
    ("output_guardrails", ()),
    ("tool_execution", ToolExecutionConfig()),
)
"""Fields that accept None for their default, as in the Agents SDK."""

_NOT_HERE = {
    "tracing": "traces go to the OpenTelemetry provider of each process; see docs/tracing.md",
    "sandbox": "there are no sandboxes; give the agent tools that work in one",
}
"""Fields of the Agents SDK that a run cannot have, and what serves instead."""

_CHECKED_APART = frozenset({"model", "model_provider", "input_guardrails", "output_guardrails"})


def _fields_of(settings: Any) -> Any:
    """Return settings as a dict of their fields, which are checked when it is read again."""
    match settings:
        case ModelSettings():
            fields_set = {name: getattr(settings, name) for name in settings.model_fields_set}
            retry = {} if settings.retry is None else {"retry": _fields_of(settings.retry)}
            return {**fields_set, **retry}
        case ModelRetrySettings():
            return {**vars(settings), "backoff": _fields_of(settings.backoff)}
        case ToolExecutionConfig() | SessionSettings() | ModelRetryBackoffSettings():
            return dict(vars(settings))
        case _:
            return settings


def as_run_config(given: object) -> RunConfig:
    """Return a RunConfig unchanged, and make one from a mapping of its fields, or None.

    Raises:
        TypeError: RunConfig does not have a field of that name.
        UserError: It is another object, or a field has a wrong value.
    """
    if given is None:
        return RunConfig()
    if isinstance(given, RunConfig):  # its fields may have been assigned to, and theirs
        nested = {name: _fields_of(getattr(given, name)) for name, _ in _MADE_OF_DICTS}
        return replace(given, **nested)
    if isinstance(given, Mapping):
        settings = cast("Mapping[str, Any]", given)
        if not all(isinstance(name, str) for name in cast("Iterable[object]", settings)):
            msg = f"The fields of a run_config have names; it was given {shown(settings)}."
            raise UserError(msg)
        return RunConfig(**settings)
    msg = f"run_config must be a RunConfig or a dict of its fields; it was {shown(given)}."
    raise UserError(msg)
