"""What follows a failed model call, as `ModelSettings(retry=...)` says: the wait, and the cause."""

from typing import Any

import agents
import httpx
import pytest
from openai import RateLimitError

from holdfast import ModelSettings, agents_sdk
from holdfast.agents_sdk import (
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    RetryDecision,
    RetryPolicy,
    RetryPolicyContext,
    retry_policies,
)
from holdfast.errors import ModelUnavailableError
from holdfast.values.runs.retries import decided, next_failure

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


# ---- what the ready-made retry policies decide, alone and together

YES = RetryDecision(retry=True)
NO = RetryDecision(retry=False)


def says(decision: RetryDecision | bool) -> RetryPolicy:
    return lambda _: decision


def context(advice: ModelRetryAdvice | None = None, sdk: Any = agents_sdk, **known: Any) -> Any:
    return sdk.RetryPolicyContext(
        error=ValueError("busy"),
        attempt=1,
        max_retries=2,
        stream=False,
        normalized=sdk.ModelRetryNormalizedError(**known),
        provider_advice=advice,
    )


async def never_asked(_: RetryPolicyContext) -> bool:
    raise AssertionError


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ((), NO),
        ((says(decision=True), says(decision=True)), YES),
        ((says(decision=True), says(decision=False), never_asked), NO),
        (
            (
                says(RetryDecision(retry=True, delay=1, reason="first")),
                says(RetryDecision(retry=True, reason="second")),
                says(RetryDecision(retry=True, delay=3, approve_unsafe_replay=True)),
                says(decision=True),
            ),
            RetryDecision(retry=True, delay=3, reason="second", approve_unsafe_replay=True),
        ),
        (
            (says(decision=True), says(RetryDecision(retry=False, reason="paid for"))),
            RetryDecision(retry=False, reason="paid for"),
        ),
    ],
)
async def test_all_repeats_when_each_says_so(
    policies: tuple[RetryPolicy, ...], expected: RetryDecision
) -> None:
    assert await decided(retry_policies.all(*policies), context()) == expected


def no(reason: str, safety: str | None = None) -> ModelRetryAdvice:
    return ModelRetryAdvice(suggested=False, replay_safety=safety, reason=reason)


APPROVES = RetryDecision(retry=True, delay=2, approve_unsafe_replay=True)


@pytest.mark.parametrize("joins", ["any", "all"])
@pytest.mark.parametrize("provider_first", [True, False])
@pytest.mark.parametrize("other", [YES, NO, APPROVES], ids=["yes", "no", "approves"])
@pytest.mark.parametrize(
    "advice",
    [
        no("paid for"),
        no("paid for", "unsafe"),
        no("paid for", "safe"),
        ModelRetryAdvice(suggested=None, reason="unknown"),
        ModelRetryAdvice(suggested=True, retry_after=6),
        None,
    ],
    ids=["final", "unsafe", "safe", "unknown", "suggested", "none"],
)
async def test_what_the_provider_says_not_to_repeat_is_repeated_as_in_the_agents_sdk(
    advice: ModelRetryAdvice | None, other: RetryDecision, joins: str, *, provider_first: bool
) -> None:
    outcomes: list[tuple[bool, float | None, str | None, bool]] = []
    for lib in (agents, agents_sdk):
        sdk: Any = lib
        given = {key: each for key, each in vars(other).items() if key != "veto"}
        policies: list[Any] = [
            sdk.retry_policies.provider_suggested(),
            says(sdk.RetryDecision(**given)),
        ]
        joined = getattr(sdk.retry_policies, joins)(
            *(policies if provider_first else policies[::-1])
        )
        nested = sdk.retry_policies.any(joined, sdk.retry_policies.never())
        advised = None if advice is None else sdk.ModelRetryAdvice(**vars(advice))
        got = await nested(context(advised, sdk))
        outcomes.append((got.retry, got.delay, got.reason, got.approve_unsafe_replay))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("policy", "given", "expected"),
    [
        (retry_policies.never(), context(is_timeout=True), NO),
        (retry_policies.network_error(), context(is_timeout=True), YES),
        (retry_policies.network_error(), context(status_code=500), NO),
        (retry_policies.http_status([429, 500]), context(status_code=429), YES),
        (retry_policies.http_status([429, 500]), context(), NO),
        (retry_policies.retry_after(), context(), NO),
        (
            retry_policies.retry_after(),
            context(ModelRetryAdvice(retry_after=5)),
            RetryDecision(retry=True, delay=5),
        ),
        (retry_policies.provider_suggested(), context(), NO),
        (
            retry_policies.provider_suggested(),
            context(ModelRetryAdvice(suggested=False, reason="paid for")),
            RetryDecision(retry=False, reason="paid for"),
        ),
        (
            retry_policies.provider_suggested(),
            context(ModelRetryAdvice(suggested=True, retry_after=6, reason="overloaded")),
            RetryDecision(retry=True, delay=6, reason="overloaded"),
        ),
    ],
)
async def test_ready_made_policies(
    policy: RetryPolicy, given: RetryPolicyContext, expected: RetryDecision
) -> None:
    assert await decided(policy, given) == expected
