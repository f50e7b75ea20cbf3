"""The most that a model call can cost, and the request that keeps to the money reserved for it."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from holdfast import ModelSettings, Price, Prices, Usage
from holdfast.activities.steps.model_call import within
from holdfast.errors import UserError
from holdfast.models.base import ModelRequest
from holdfast.task.data.wire import AdvanceInput
from holdfast.values.messages import user
from holdfast.workers.context.journal import OverBudget

PRICES = Prices({"m": Price(input=10, output=100)})


def request(text: str = "hello", most: int | None = None) -> ModelRequest:
    settings = ModelSettings(max_tokens=most)
    return ModelRequest(model="m", messages=(user(text),), settings=settings)


async def limited(sent: ModelRequest, dollars: Decimal, **more: bool) -> ModelRequest:
    asked = AdvanceInput(n=1, dollars=dollars).model_copy(update=more)
    found, lost = await ActivityEnvironment().run(within, sent, PRICES, asked)
    assert not lost
    return found


@settings(max_examples=40)
@given(
    text=st.text(max_size=300),
    most=st.none() | st.integers(1, 100_000),
    dollars=st.decimals(0, 3, places=6),
    keeps=st.booleans(),
)
async def test_a_call_that_is_let_through_cannot_cost_more_than_its_money(
    text: str, most: int | None, dollars: Decimal, *, keeps: bool
) -> None:
    sent = request(text, most)
    needs = Decimal(0)
    try:
        found = await limited(sent, dollars, keeps=keeps)
    except OverBudget as over:
        found, needs = None, over.needs
    if found is None:
        assert needs > dollars
        return
    tokens = found.settings.max_tokens
    assert tokens is not None
    assert tokens >= (most or 1_000)
    worst = Usage(input_tokens=len(text.encode()), output_tokens=tokens)
    cost = PRICES.cost(worst, "m")
    assert cost is not None
    assert cost <= dollars


async def test_a_model_without_a_price_is_refused() -> None:
    sent = request().model_copy(update={"model": "other"})
    with pytest.raises(UserError, match="price of model 'other' is not known"):
        await limited(sent, Decimal(1))
