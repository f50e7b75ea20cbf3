"""Settings that people write: for models and for budgets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import (
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from holdfast.errors import UserError, WrongTypeError
from holdfast.values.base import Json, Written
from holdfast.values.checks.gate import check_data, check_known
from holdfast.values.messages import MOST_DOLLARS, Amount, Dollars
from holdfast.values.runs.retries import ModelRetryBackoffSettings, ModelRetrySettings
from holdfast.values.text.shown import misfit, shown

if TYPE_CHECKING:
    from openai.types.shared import Reasoning

    Data = dict[str, Json]
    ReasoningOptions = Data | Reasoning
else:  # the provider's package takes most of a second to load
    Data = ReasoningOptions = dict[str, Json]

SECONDS_PER_ATTEMPT = 600.0
ATTEMPTS = 10
RATE_LIMIT_SECONDS = 3600.0


class Settings(Written):
    """Settings whose errors say which field is wrong and what would fit.

    Attributes:
        not_here: Fields that the Agents SDK has, to what serves in their place.
    """

    not_here: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # as for Written

        def __new__(cls, *given: Any, **fields: Any) -> Any:
            """Refuse fields that are not served; ones that ask for nothing do no harm.

            Raises:
                UserError: There is such a field.
            """
            for name, instead in cls.not_here.items():
                if fields.pop(name, None):
                    raise UserError(f"{cls.__name__} does not serve {name}: {instead}")
            return super().__new__(cls, *given, **fields)

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, given: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        try:
            return handler(given)
        except ValidationError as error:
            raise UserError(misfit(cls.__name__, error)) from None


MCP_CHOICE = "mcp:"
"""What the word begins with by which a tool choice names a tool of an MCP server."""


@dataclass(frozen=True)
class MCPToolChoice:
    """A tool choice that names a tool of an MCP server of the provider, a HostedMCPTool.

    Attributes:
        server_label: Label of the server.
        name: Name of its tool.
    """

    server_label: str
    name: str

    @property
    def word(self) -> str:
        """The choice as one word; no tool of an agent can have such a name."""
        return f"{MCP_CHOICE}{self.server_label}:{self.name}"

    @classmethod
    def of(cls, word: str) -> MCPToolChoice | None:
        """Return the choice that a word stands for; None when it is another word."""
        if not word.startswith(MCP_CHOICE):
            return None
        label, _, name = word.removeprefix(MCP_CHOICE).partition(":")
        return cls(label, name)


class ModelSettings(Settings):
    """How a model is called. None leaves the choice to the provider.

    What has to do with one of the two APIs only is not sent to the other one. All of it is stored
    with the task: no secrets here.

    Attributes:
        temperature: Sampling temperature.
        top_p: Nucleus sampling mass.
        frequency_penalty: Penalty on repeated tokens (Chat Completions only).
        presence_penalty: Penalty on tokens already present (Chat Completions only).
        max_tokens: Most output tokens of one call.
        tool_choice: "auto", "none", "required", a tool's name, the type of a tool of the provider,
            as "file_search", or an MCPToolChoice.
        parallel_tool_calls: Whether one answer may hold several tool calls.
        truncation: What happens to an input that is too long (Responses only).
        reasoning: How the model reasons: {"effort": ..., "summary": ...}, or the `Reasoning` of the
            openai package. Of it Chat Completions knows the effort.
        reasoning_effort: Short for `reasoning={"effort": ...}`.
        verbosity: How much the model says.
        metadata: Metadata stored by the provider.
        store: Whether the provider may store the answer.
        prompt_cache_retention: How long the provider caches what a prompt begins with.
        prompt_cache_options: More about that cache.
        include_usage: Whether a stream tells its usage, which budgets count; None is yes (Chat
            Completions only).
        response_include: More to be told in answers, as "reasoning.encrypted_content" (Responses
            only). It becomes part of the record.
        top_logprobs: How many likely tokens to return for each one. They become part of the record.
        context_management: What the provider does to a long conversation (Responses only).
        extra_query: More of the address's query.
        extra_body: More fields of the request body. An object joins the one in its place.
        extra_headers: More request headers.
        extra_args: More fields of the request body; other settings must not set them. Those of a
            run are added to the agent's.
        timeout_seconds: Longest time of one attempt; None is 600.
        timeout: The same, by its name in the Agents SDK.
        max_attempts: Attempts before the task asks a person; None is 10. The waits between them
            double from 1 s to at most 60 s; a Retry-After of the provider is obeyed instead. A
            call whose worker process was lost is made again in any case, up to four times.
        rate_limit_seconds: How long a rate limit or an overload of the provider (429, 529, or 503
            with a Retry-After) is waited out before the task asks a person, in seconds; None is
            3600. The calls that it refuses do not count for `max_attempts`.
        retry: When a failed call is made again, in place of all that: a ModelRetrySettings, or a
            dict of its fields. Without a policy it is not, as in the Agents SDK.

    Raises:
        UserError: A field is given what it cannot hold, or is not served.
        InvalidArgumentError: There is no such field.
    """

    not_here: ClassVar[Mapping[str, str]] = {
        "preserve_raw_usage": "a record keeps what counts, as result.usage. Read the provider's own"
        " numbers in a Model of yours.",
    }

    if not TYPE_CHECKING:  # as for Written

        def __init__(self, /, *given: Any, **fields: Any) -> None:
            """Take fields also in the order in which the Agents SDK has them.

            Raises:
                UserError: There are more than that, or one is given twice.
            """
            named = dict(zip(_IN_ORDER, given, strict=False))
            twice = [name for name in named if name in fields]
            if len(given) > len(_IN_ORDER) or twice:
                msg = (
                    f"ModelSettings was given {twice[0]} twice."
                    if twice
                    else f"ModelSettings takes at most {len(_IN_ORDER)} fields without their names;"
                    f" it was given {len(given)}."
                )
                raise UserError(msg)
            super().__init__(**named, **fields)

        __init__.__signature__ = signature(BaseModel.__init__)
        __init__.__pydantic_base_init__ = True  # as for Worded

    # The Agents SDK's, in its order; then our own.
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    tool_choice: str | MCPToolChoice | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_tokens: int | None = None
    reasoning: ReasoningOptions | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    include_usage: bool | None = None
    response_include: tuple[str, ...] | None = None
    top_logprobs: int | None = Field(default=None, ge=0)
    extra_query: Data | None = None
    extra_body: Data | None = None
    extra_headers: dict[str, str] | None = None
    extra_args: Data | None = None
    retry: ModelRetrySettings | None = None
    context_management: tuple[Data, ...] | None = None
    prompt_cache_options: Data | None = None

    reasoning_effort: str | None = None
    timeout_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_attempts: int | None = Field(default=None, ge=1)
    rate_limit_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    preserve_raw_usage: ClassVar[None] = None  # models of the Agents SDK ask for it

    @field_validator(
        "reasoning",
        "prompt_cache_options",
        "context_management",
        "extra_query",
        "extra_body",
        "extra_args",
        mode="before",
    )
    @classmethod
    def _as_data(cls, given: Any, info: ValidationInfo) -> Json:
        if isinstance(given, BaseModel):
            given = given.model_dump(mode="json", exclude_unset=True)
        check_data("ModelSettings", str(info.field_name), given)
        return given

    @field_validator("extra_args")
    @classmethod
    def _only_of_the_body(cls, given: Data | None) -> Data | None:
        for name in given or {}:
            if name in _OF_THE_CLIENT:
                raise ValueError(f"{name!r} is not a field of the body; {_OF_THE_CLIENT[name]}")
        return given

    @model_validator(mode="after")
    def _say_it_once(self) -> ModelSettings:
        for one, other in _SAME:
            if getattr(self, one) is not None and getattr(self, other) is not None:
                msg = f"ModelSettings was given {one} and {other}, which mean the same: give one."
                raise UserError(msg)
        return self

    @property
    def reasoning_options(self) -> Data | None:
        """How the model reasons, from either of the two fields."""
        if self.reasoning_effort is not None:
            return {"effort": self.reasoning_effort}
        return None if self.reasoning is None else dict(self.reasoning)

    @property
    def choice(self) -> str | None:
        """The tool choice as a word."""
        given = self.tool_choice
        return given.word if isinstance(given, MCPToolChoice) else given

    @property
    def seconds_per_attempt(self) -> float:
        """Longest time of one attempt."""
        return self.timeout_seconds or self.timeout or SECONDS_PER_ATTEMPT

    @property
    def seconds_of_limits(self) -> float:
        """How long a rate limit is waited out."""
        return self.rate_limit_seconds or RATE_LIMIT_SECONDS

    @property
    def attempts(self) -> int:
        """Attempts before the task asks a person."""
        if self.retry is not None and self.retry.max_retries is not None:
            return self.retry.max_retries + 1
        return self.max_attempts or ATTEMPTS

    def to_json_dict(self) -> dict[str, Any]:
        """Return the settings as JSON data, without a retry policy, which is code."""
        return self._without_policy(self.model_dump(mode="json"))

    def to_traceable_dict(self) -> dict[str, Any]:
        """Return, as JSON data, the settings without what is added to requests, for a trace."""
        return self._without_policy(self.model_dump(mode="json", exclude=NOT_TRACED))

    def _without_policy(self, dumped: dict[str, Any]) -> dict[str, Any]:
        return dumped if self.retry is None else {**dumped, "retry": self.retry.to_json_dict()}

    def resolve(self, override: ModelSettings | Mapping[str, Any] | None) -> ModelSettings:
        """Return these settings with the fields that `override` sets put over them."""
        if override is None:
            return self
        over = as_model_settings(override, "The override of settings")
        changes = {name: value for name, value in vars(over).items() if value is not None}
        for pair in _SAME:
            if not changes.keys().isdisjoint(pair):
                changes = {**dict.fromkeys(pair), **changes}
        if over.retry is not None:
            changes["retry"] = over.retry.over(self.retry)
        if over.extra_args is not None:
            changes["extra_args"] = {**(self.extra_args or {}), **over.extra_args}
        return self.model_copy(update=changes)


_OWN = {"reasoning_effort", "timeout_seconds", "timeout", "max_attempts", "rate_limit_seconds"}
"""Fields that the Agents SDK does not have."""

_IN_ORDER = tuple(name for name in ModelSettings.model_fields if name not in _OWN)
"""Its fields, for settings that are given without names."""

NOT_TRACED = {"extra_query", "extra_body", "extra_headers", "extra_args"}
"""What is added to requests, which may hold keys: neither traces nor audits show it."""

_SAME = (("reasoning", "reasoning_effort"), ("timeout", "timeout_seconds"))
"""Two names of one thing: to set one is to unset the other."""

_OF_THE_CLIENT = {
    "extra_body": "set the field extra_body",
    "extra_headers": "set the field extra_headers",
    "extra_query": "set the field extra_query",
    "stream": "use run_streamed",
    "timeout": "set the field timeout_seconds",
}


def as_model_settings(given: object, where: str) -> ModelSettings:
    """Return settings as they are, and a mapping of their fields as settings.

    Raises:
        WrongTypeError: It is neither, there is no such field, or a field cannot hold what it is
            given.
    """
    if isinstance(given, ModelSettings):
        return given
    if isinstance(given, Mapping):
        fields = cast("Mapping[str, Any]", given)
        known = (*ModelSettings.model_fields, *ModelSettings.not_here)
        check_known("model settings", fields, known)
        _check_retry(fields.get("retry"))
        return ModelSettings(**fields)
    kind = type(given)
    raise WrongTypeError(
        f"{where} must be a ModelSettings instance or a dict of its fields; it was {shown(given)}"
        f" ({kind.__module__}.{kind.__qualname__})."
    )


def _check_retry(given: object) -> None:
    """Refuse a dict of retry settings with fields that do not exist."""
    if isinstance(given, Mapping):
        retry = cast("Mapping[str, object]", given)
        check_known("model settings in retry", retry, _names(ModelRetrySettings))
        backoff = retry.get("backoff")
        if isinstance(backoff, Mapping):
            inner, known = cast("Collection[object]", backoff), _names(ModelRetryBackoffSettings)
            check_known("model settings in retry.backoff", inner, known)


def _names(kind: Any) -> list[str]:
    return [each.name for each in fields_of(kind)]


class Budget(Settings):
    """Limits of one task. None means no limit.

    Attributes:
        max_turns: Model calls, over the whole task.
        max_tokens: Input and output tokens, over the whole task.
        max_seconds: Wall time since the task was created.
        max_dollars: US dollars of model calls, over the whole task, undone ones and child tasks
            included. What a call can cost at most is reserved before it is made.
        on_exceeded: "ask" parks the task for a person, "finish" ends it with a tool-free answer,
            "fail" ends it with MaxTurnsExceeded.
    """

    max_turns: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_dollars: Dollars | None = Field(default=None, ge=0, le=MOST_DOLLARS)
    on_exceeded: Literal["ask", "finish", "fail"] = "ask"

    if TYPE_CHECKING:  # what the fields are made of

        def __init__(
            self,
            *,
            max_turns: int | None = None,
            max_tokens: int | None = None,
            max_seconds: float | None = None,
            max_dollars: Amount | None = None,
            on_exceeded: Literal["ask", "finish", "fail"] = "ask",
        ) -> None: ...
