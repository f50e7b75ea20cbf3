"""What follows a failed attempt at a model call: another one, or none.

A provider may say by its `Retry-After` header how long to wait before the next call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, cast

from holdfast.errors import ModelError, ModelRequestError, ModelUnavailableError
from holdfast.values.runs.retries import (
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryBackoffSettings,
    ModelRetryNormalizedError,
    ModelRetrySettings,
    RetryPolicy,
    RetryPolicyContext,
    decided,
)


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
