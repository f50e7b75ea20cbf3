"""`ModelSettings(retry=...)`: whether and when a model call that has failed is made again.

Temporal makes the attempts, so that waiting for the next one survives a crash. The policy is a
function: the process that runs the model asks it after each attempt that has failed.
"""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, PlainSerializer, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from holdfast.errors import (
    InvalidArgumentError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
)
from holdfast.values.text.shown import misfit

INITIAL_SECONDS = 0.25
LONGEST_SECONDS = 2.0
MULTIPLIER = 2.0
JITTER = 0.25
"""Largest part of a wait by which it is changed at random."""


T = TypeVar("T")


def _worded(kind: type[T]) -> type[T]:
    """Have a checked dataclass raise InvalidArgumentError, with words for what does not fit."""
    checked = kind.__init__

    @functools.wraps(checked)
    def init(self: T, /, *args: Any, **fields: Any) -> None:
        try:
            checked(self, *args, **fields)
        except ValidationError as error:
            raise InvalidArgumentError(misfit(kind.__name__, error)) from None

    kind.__init__ = init  # type: ignore[assignment, method-assign]
    return kind


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@_worded
@checked_dataclass
class ModelRetryBackoffSettings:
    """The waits between attempts; what is not set is as the Agents SDK has it.

    Attributes:
        initial_delay: Seconds before the first repetition.
        max_delay: Longest wait, in seconds.
        multiplier: By which each wait is longer than the one before.
        jitter: Whether waits are changed at random.
    """

    initial_delay: Seconds | None = None
    max_delay: Seconds | None = None
    multiplier: Annotated[float, Field(ge=0)] | None = None
    jitter: bool | None = None

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as data."""
        return asdict(self)

    def over(self, other: ModelRetryBackoffSettings | None) -> ModelRetryBackoffSettings:
        """Return these waits with those of another where they are not set."""
        if other is None:
            return self
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(other, **own)

    def seconds(self, attempt: int) -> float:
        """Return the wait after an attempt, counted from 1."""
        first = INITIAL_SECONDS if self.initial_delay is None else self.initial_delay
        growth = MULTIPLIER if self.multiplier is None else self.multiplier
        longest = LONGEST_SECONDS if self.max_delay is None else self.max_delay
        wait: float = min(first * growth ** (attempt - 1), longest)
        if self.jitter is False:
            return wait
        return wait * (1 + random.uniform(-JITTER, JITTER))  # noqa: S311  not a secret


@dataclass
class ModelRetryNormalizedError:
    """What is known of a failed model call, whatever the provider.

    Attributes:
        status_code: HTTP status, or None.
        error_code: The provider's code, or None.
        message: What happened.
        request_id: The provider's id of the request, or None.
        retry_after: Seconds that the provider asked to wait, or None.
        is_abort: Whether the caller has broken the call off.
        is_network_error: Whether the connection failed.
        is_timeout: Whether it took too long.
    """

    status_code: int | None = None
    error_code: str | None = None
    message: str | None = None
    request_id: str | None = None
    retry_after: float | None = None
    is_abort: bool = False
    is_network_error: bool = False
    is_timeout: bool = False


@dataclass
class ModelRetryAdvice:
    """What a model says about repeating its call: its method `get_retry_advice` returns it.

    Attributes:
        suggested: Whether to repeat it; None when it does not know.
        retry_after: Seconds to wait, or None.
        replay_safety: "safe" or "unsafe", if known.
        reason: Why, for the log.
        normalized: What it knows of the failure.
        response_started: Whether a part of the answer had come.
    """

    suggested: bool | None = None
    retry_after: float | None = None
    replay_safety: str | None = None
    reason: str | None = None
    normalized: ModelRetryNormalizedError | None = None
    response_started: bool = False


@dataclass
class ModelRetryAdviceRequest:
    """Argument of a model's `get_retry_advice`.

    Attributes:
        error: What the call raised.
        attempt: Number of the attempt, from 1.
        stream: Whether the answer was streamed.
        previous_response_id: As for the call.
        conversation_id: As for the call.
    """

    error: Exception
    attempt: int
    stream: bool
    previous_response_id: str | None = None
    conversation_id: str | None = None


@dataclass
class RetryDecision:
    """What a policy decides.

    Attributes:
        retry: Whether the call is made again.
        delay: Seconds before that; None for what the backoff says.
        reason: Why, for the log.
        approve_unsafe_replay: Whether to repeat it though the model says that this is unsafe.
        veto: Set where the model says not to repeat it: "final" if no other policy overrules that,
            "unsafe" if one does that approves an unsafe replay.
    """

    retry: bool
    delay: float | None = None
    reason: str | None = None
    approve_unsafe_replay: bool = False
    veto: Literal["", "final", "unsafe"] = field(default="", init=False, repr=False, compare=False)


@dataclass
class RetryPolicyContext:
    """Argument of a policy.

    Attributes:
        error: What the model call raised.
        attempt: Number of the attempt, from 1.
        max_retries: Most repetitions.
        stream: Whether the answer was streamed.
        normalized: What is known of the failure.
        provider_advice: What the model says about repeating it, or None.
        previous_response_id: The answer that the call goes on from, or None.
        conversation_id: The provider's conversation that it is added to, or None.
    """

    error: Exception
    attempt: int
    max_retries: int
    stream: bool
    normalized: ModelRetryNormalizedError = field(default_factory=ModelRetryNormalizedError)
    provider_advice: ModelRetryAdvice | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None

    @property
    def response_started(self) -> bool:
        """Whether the model says that a part of the answer had come."""
        return self.provider_advice is not None and self.provider_advice.response_started

    @property
    def replay_safety(self) -> str:
        """Whether the model says that repeating it is "safe" or "unsafe", else "unknown"."""
        said = None if self.provider_advice is None else self.provider_advice.replay_safety
        return said if said in ("safe", "unsafe") else "unknown"

    @property
    def stateful_request(self) -> bool:
        """Whether the provider keeps the conversation."""
        return bool(self.previous_response_id or self.conversation_id)


RetryPolicy = Callable[[RetryPolicyContext], bool | RetryDecision | Awaitable[bool | RetryDecision]]
"""Decides whether a failed model call is made again."""


@_worded
@checked_dataclass
class ModelRetrySettings:
    """When a model call that has failed is made again.

    Attributes:
        max_retries: Most repetitions; None for what `max_attempts` says.
        backoff: The waits between attempts, or a dict of their fields.
        policy: Decides after each failed attempt, in the process that runs the model. Without one,
            no failed call is made again. It is not part of the record.
    """

    max_retries: Annotated[int, Field(ge=0)] | None = None
    backoff: ModelRetryBackoffSettings | None = None
    policy: Annotated[Any, PlainSerializer(lambda _: None)] = field(default=None, repr=False)

    def over(self, other: ModelRetrySettings | None) -> ModelRetrySettings:
        """Return these settings with those of another where they are not set."""
        if other is None:
            return self
        return ModelRetrySettings(
            max_retries=other.max_retries if self.max_retries is None else self.max_retries,
            backoff=other.backoff if self.backoff is None else self.backoff.over(other.backoff),
            policy=other.policy if self.policy is None else self.policy,
        )

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as data, without the policy."""
        backoff = None if self.backoff is None else self.backoff.to_json_dict()
        return {"max_retries": self.max_retries, "backoff": backoff}


def _over(veto: RetryDecision | None, decision: RetryDecision) -> RetryDecision:
    """Return what a veto, if there is one, leaves of the decision of the other policies."""
    if veto is None:
        return decision
    if not (decision.retry and decision.approve_unsafe_replay):
        return veto
    return replace(decision, reason=decision.reason or veto.reason)


def _both(one: RetryDecision, other: RetryDecision) -> RetryDecision:
    """Join two decisions to repeat: what the other one says of the wait and the reason holds."""
    return RetryDecision(
        retry=True,
        delay=one.delay if other.delay is None else other.delay,
        reason=one.reason if other.reason is None else other.reason,
        approve_unsafe_replay=one.approve_unsafe_replay or other.approve_unsafe_replay,
    )


class RetryPolicies:
    """Ready-made policies."""

    def never(self) -> RetryPolicy:
        """Repeat nothing."""
        return lambda _: False

    def provider_suggested(self) -> RetryPolicy:
        """Repeat what the model suggests to repeat.

        In `any` and `all`, no other policy repeats what it says not to repeat, unless that is
        because it is unsafe and the other policy approves this.
        """

        def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            advice = context.provider_advice
            if advice is None or advice.suggested is None:
                return False
            if not advice.suggested:
                said = RetryDecision(retry=False, reason=advice.reason)
                said.veto = "unsafe" if context.replay_safety == "unsafe" else "final"
                return said
            return RetryDecision(retry=True, delay=advice.retry_after, reason=advice.reason)

        return policy

    def network_error(self) -> RetryPolicy:
        """Repeat after lost connections and timeouts."""
        return lambda context: context.normalized.is_network_error or context.normalized.is_timeout

    def retry_after(self) -> RetryPolicy:
        """Repeat where the provider says when, and then."""

        def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            wait = context.normalized.retry_after
            if wait is None and context.provider_advice is not None:
                wait = context.provider_advice.retry_after
            return False if wait is None else RetryDecision(retry=True, delay=wait)

        return policy

    def http_status(self, statuses: Iterable[int]) -> RetryPolicy:
        """Repeat after these HTTP statuses."""
        among = frozenset(statuses)
        return lambda context: context.normalized.status_code in among

    def all(self, *policies: RetryPolicy) -> RetryPolicy:
        """Repeat if each of the policies says so; the last wait and reason given hold."""

        async def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            merged = RetryDecision(retry=bool(policies))
            veto: RetryDecision | None = None
            for each in policies:
                said = await decided(each, context)
                if said.veto == "unsafe":
                    veto = veto or said
                elif not said.retry:
                    return said
                else:
                    merged = _both(merged, said)
            return _over(veto, merged)

        return policy

    def any(self, *policies: RetryPolicy) -> RetryPolicy:
        """Repeat if one of the policies says so; the last such policy gives wait and reason."""

        async def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            merged = RetryDecision(retry=False)
            veto: RetryDecision | None = None
            for each in policies:
                said = await decided(each, context)
                if said.veto == "final":
                    return said
                if said.veto == "unsafe":
                    veto = veto or said
                elif said.retry:
                    merged = _both(merged, said) if merged.retry else said
                elif not merged.retry:
                    merged = said
            return _over(veto, merged)

        return policy


retry_policies = RetryPolicies()
"""Ready-made policies: `retry_policies.any(retry_policies.network_error(), ...)`."""


async def decided(policy: RetryPolicy, context: RetryPolicyContext) -> RetryDecision:
    """Ask a policy.

    Raises:
        Exception: Whatever it raises.
    """
    said: Any = policy(context)
    if inspect.isawaitable(said):
        said = await said
    return said if isinstance(said, RetryDecision) else RetryDecision(retry=bool(said))


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds that the provider asks to wait, or None.

    Args:
        headers: Response headers; `retry-after-ms`, or `retry-after` in seconds or as HTTP date.
        now: Present time in seconds since 1970; None reads the clock.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, seconds) if isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - (time.time() if now is None else now))
    except (ValueError, OverflowError, TypeError, IndexError):  # whatever stands there
        return None


NO_POLICY = (
    "because ModelSettings.retry has no policy: give it one, such as"
    " retry_policies.network_error(), or use max_attempts in place of retry"
)


LOCKED = "conversation_locked"
"""Error code of a conversation kept by the provider that another request is using just now."""

FREED_SECONDS = 1.0
"""First wait for a conversation of the provider's that another request is using; it doubles."""


async def next_failure(
    error: Exception,
    settings: ModelRetrySettings,
    *,
    model: Any,
    attempt: int,
    most: int,
    streams: bool,
    previous_response_id: str | None = None,
    conversation_id: str | None = None,
) -> Exception:
    """Return the failure of an attempt as Temporal takes it: one to repeat, or one not to.

    A call of a conversation that another request is using is repeated without asking the policy.

    Args:
        error: What the model call raised.
        settings: Whether it is repeated.
        model: The model.
        attempt: Number of the attempt, from 1.
        most: Most repetitions; `max_attempts` decides where no `max_retries` is set.
        streams: Whether the answer was streamed.
        previous_response_id: The answer that the call goes on from, or None.
        conversation_id: The provider's conversation that it is added to, or None.
    """
    if is_locked(error) and settings.max_retries != 0:
        return _again(error, FREED_SECONDS * 2 ** (attempt - 1))
    policy: RetryPolicy | None = settings.policy
    backoff = settings.backoff or ModelRetryBackoffSettings()
    if policy is None:
        return _no_more(error, NO_POLICY)
    if attempt > most:
        return error if settings.max_retries is None else _no_more(error)
    cause = error.__cause__
    origin = cause if isinstance(cause, Exception) else error
    asked = ModelRetryAdviceRequest(origin, attempt, streams, previous_response_id, conversation_id)
    advice = _advice(model, asked)
    known = normalized(error)
    if advice is not None and advice.normalized is not None:
        known = advice.normalized
    kept = (previous_response_id, conversation_id)
    context = RetryPolicyContext(origin, attempt, most, streams, known, advice, *kept)
    said = await decided(policy, context)
    unsafe = advice is not None and advice.replay_safety == "unsafe"
    if not said.retry or (unsafe and not said.approve_unsafe_replay):
        return _no_more(error)
    waits = (said.delay, known.retry_after, advice.retry_after if advice is not None else None)
    wait = next((each for each in waits if each is not None), backoff.seconds(attempt))
    return _again(error, wait)


def is_locked(error: Exception) -> bool:
    """Whether another request is using the conversation, which the provider keeps."""
    return normalized(error).error_code == LOCKED


def normalized(error: Exception) -> ModelRetryNormalizedError:
    """Return what is known of a failed model call."""
    cause = error.__cause__
    known = [each for each in (error, cause) if each is not None]

    def found(*names: str) -> Any:
        values = (getattr(each, name, None) for each in known for name in names)
        return next((value for value in values if value not in (None, "")), None)

    names = {base.__name__ for each in known for base in type(each).__mro__}
    status = found("status", "status_code")
    is_timeout = bool(names & {"APITimeoutError", "TimeoutError", "TimeoutException"})
    lost = bool(names & {"APIConnectionError", "ConnectionError", "TransportError"})
    return ModelRetryNormalizedError(
        status_code=status,
        error_code=found("code"),
        message=str(error),
        request_id=found("request_id"),
        retry_after=wait_in(*known),
        is_network_error=lost or (isinstance(error, ModelUnavailableError) and status is None),
        is_timeout=is_timeout,
    )


def wait_in(*errors: BaseException) -> float | None:
    """Return the seconds that the provider asked to wait: as our error has it, or the response."""
    for each in errors:
        wait: Any = getattr(each, "retry_after", None)
        headers: Any = getattr(getattr(each, "response", None), "headers", None)
        if wait is None and isinstance(headers, Mapping):
            wait = retry_after(cast("Mapping[str, str]", headers))
        if isinstance(wait, int | float) and wait >= 0:
            return float(wait)
    return None


def _advice(model: Any, asked: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
    ask = getattr(getattr(model, "model", model), "get_retry_advice", None)
    if not callable(ask):
        return None
    advice: Any = ask(asked)
    return cast("ModelRetryAdvice | None", advice)


def _again(error: Exception, seconds: float) -> Exception:
    made = ModelUnavailableError(str(error), retry_after=seconds)
    # What the model itself raised reaches the caller of the run once there are no more attempts.
    made.__cause__ = error.__cause__ if isinstance(error, ModelError) else error
    return made


def _no_more(error: Exception, why: str = "as ModelSettings.retry says") -> Exception:
    if not isinstance(error, ModelUnavailableError):
        return error
    made = ModelRequestError(f"{error} It is not repeated, {why}.")
    made.__cause__ = error.__cause__
    return made
