"""What follows a failed model call, as `ModelSettings(retry=...)` says: the wait, and the cause."""

from typing import Any

import httpx
import pytest
from openai import RateLimitError

from holdfast import ModelSettings
from holdfast.agents_sdk import (
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    RetryDecision,
    RetryPolicy,
    RetryPolicyContext,
)
from holdfast.errors import ModelUnavailableError
from holdfast.values.runs.retries import next_failure

BACKOFF = ModelRetryBackoffSettings(initial_delay=0.5, jitter=False)


def limited(**headers: str) -> RateLimitError:
    request: Any = httpx.Request("POST", "https://example.com")
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    response: Any = httpx.Response(429, headers=names, request=request)
    return RateLimitError("slow down", response=response, body=None)


async def after(error: Exception, policy: RetryPolicy | None, **more: Any) -> Exception:
    settings = ModelRetrySettings(backoff=BACKOFF, policy=policy)
    given: dict[str, Any] = {"model": None, "attempt": 1, "most": 2, "streams": False, **more}
    return await next_failure(error, settings, **given)


@pytest.mark.parametrize(
    ("error", "delay", "wait"),
    [
        (ModelUnavailableError("busy", retry_after=7), None, 7),
        (limited(retry_after="8"), None, 8),
        (limited(retry_after_ms="250"), None, 0.25),
        (limited(retry_after="8"), 0, 0),
        (ModelUnavailableError("busy", retry_after=0), None, 0),
        (ModelUnavailableError("busy"), None, 0.5),
        (limited(), None, 0.5),
    ],
)
async def test_wait_is_that_of_the_policy_then_of_the_provider_then_of_the_backoff(
    error: Exception, delay: float | None, wait: float
) -> None:
    failure = await after(error, lambda _: RetryDecision(retry=True, delay=delay))
    assert isinstance(failure, ModelUnavailableError)
    assert failure.retry_after == wait


async def test_policy_and_model_are_told_of_the_call() -> None:
    asked: list[ModelRetryAdviceRequest] = []
    told: list[RetryPolicyContext] = []

    class Advising:
        def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice:
            asked.append(request)
            return ModelRetryAdvice(retry_after=3)

    def again(context: RetryPolicyContext) -> bool:
        told.append(context)
        return True

    failure = await after(
        ValueError("mine"),
        again,
        model=Advising(),
        most=9,
        previous_response_id="resp_1",
        conversation_id="conv_1",
    )
    assert isinstance(failure, ModelUnavailableError)
    assert (failure.retry_after, [each.max_retries for each in told]) == (3, [9])
    [about] = told
    assert (about.previous_response_id, about.conversation_id) == ("resp_1", "conv_1")
    assert (about.stateful_request, about.response_started) == (True, False)
    assert about.replay_safety == "unknown"
    [request] = asked
    assert (request.previous_response_id, request.conversation_id) == ("resp_1", "conv_1")


@pytest.mark.parametrize("attempt", [1, 3])
async def test_a_locked_conversation_waits_longer_each_time_and_no_policy_is_asked(
    attempt: int,
) -> None:
    error = ModelUnavailableError("locked", code="conversation_locked")
    failure = await after(error, lambda _: pytest.fail("asked"), attempt=attempt)
    assert isinstance(failure, ModelUnavailableError)
    assert failure.retry_after == 2 ** (attempt - 1)


async def test_no_policy_is_asked_after_the_last_attempt_and_none_repeats_nothing() -> None:
    error, policies = ValueError("mine"), list[RetryPolicy | None]([None, lambda _: False])
    for policy in policies:
        assert not isinstance(await after(error, policy), ModelUnavailableError)
    assert await after(error, lambda _: pytest.fail("asked"), attempt=3) is error


def test_waits_of_a_run_are_put_over_those_of_its_agent_field_by_field() -> None:
    agents = ModelRetrySettings(max_retries=3, backoff=BACKOFF)
    runs = ModelRetrySettings(backoff=ModelRetryBackoffSettings(max_delay=9))
    merged = ModelSettings(retry=agents).resolve(ModelSettings(retry=runs)).retry
    waits = ModelRetryBackoffSettings(initial_delay=0.5, max_delay=9, jitter=False)
    assert merged == ModelRetrySettings(max_retries=3, backoff=waits)
