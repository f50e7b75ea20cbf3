"""What the ready-made retry policies decide, alone and together."""

from typing import Any

import agents
import pytest

from holdfast import agents_sdk
from holdfast.agents_sdk import (
    ModelRetryAdvice,
    ModelRetryNormalizedError,
    RetryDecision,
    RetryPolicy,
    RetryPolicyContext,
    retry_policies,
)
from holdfast.values.runs.retries import decided

YES = RetryDecision(retry=True)
NO = RetryDecision(retry=False)


def says(decision: RetryDecision | bool) -> RetryPolicy:
    return lambda _: decision


def context(advice: ModelRetryAdvice | None = None, **known: Any) -> RetryPolicyContext:
    return RetryPolicyContext(
        error=ValueError("busy"),
        attempt=1,
        max_retries=2,
        stream=False,
        normalized=ModelRetryNormalizedError(**known),
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
        asked = sdk.RetryPolicyContext(
            error=ValueError("busy"),
            attempt=1,
            max_retries=2,
            stream=False,
            normalized=sdk.ModelRetryNormalizedError(),
            provider_advice=advised,
        )
        got = await nested(asked)
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
