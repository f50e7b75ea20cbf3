"""Prices: what a model call cost, and the most that one can cost."""

import json
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Price, Prices, Usage
from holdfast.errors import InvalidArgumentError, UserError
from holdfast.models.base import ModelAnswer
from holdfast.models.prices import priced
from holdfast.values.messages import Usage as UsageRecord
from holdfast.values.messages import assistant, dollars
from tests.support.there import there

MINI = Price(input="0.25", cached_input="0.025", output="2")
COUNTS = st.integers(0, 10**7)
RATES = st.decimals(0, 100, places=4)


def paid(usage: Usage, prices: Prices, model: str) -> UsageRecord:
    answer = ModelAnswer(message=assistant("x"), usage=usage)
    return priced(answer, prices, model).usage


def used(read: int, written: int, cached: int = 0) -> Usage:
    return Usage(requests=1, input_tokens=read, output_tokens=written, cached_tokens=cached)


def test_a_call_costs_its_tokens_by_the_million() -> None:
    prices = Prices({"mini": MINI})
    assert prices.cost(used(1000, 100, cached=200), "mini") == Decimal("0.000405")
    assert prices.cost(used(1, 0), "mini") == Decimal("0.00000025")


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, RATES, RATES), max_size=20))
def test_sums_are_exact_in_any_order_and_on_the_wire(
    calls: list[tuple[int, int, int, Decimal, Decimal]],
) -> None:
    usages = [
        paid(used(read, written, cached), Prices({"m": Price(input=i, output=o)}), "m")
        for read, written, cached, i, o in calls
    ]
    total = sum(usages, Usage())
    assert total == sum(reversed(usages), Usage())
    assert total - sum(usages[1:], Usage()) == sum(usages[:1], Usage())
    exact = sum((r * i + w * o for r, w, _, i, o in calls), Decimal(0)) / 10**6
    assert total.cost == exact
    assert Usage.model_validate_json(json.dumps(total.wire())) == total


@given(COUNTS, COUNTS, RATES, RATES, st.decimals(0, 1000, places=6))
def test_the_most_of_a_call_bounds_its_cost_and_buys_what_it_says(
    read: int, written: int, of_input: Decimal, of_output: Decimal, amount: Decimal
) -> None:
    prices = Prices({"m": Price(input=of_input, output=of_output, cached_input=0)})
    most = there(prices.most(read, "m"))
    assert there(prices.cost(used(read // 2, written, cached=read // 4), "m")) <= most.of(written)
    tokens = most.output_tokens(amount)
    if tokens is not None and amount >= most.input:
        assert most.of(tokens) <= amount < most.of(tokens + 1)


def test_published_prices_are_those_of_the_package() -> None:
    prices = Prices({"own": MINI}, published=True)
    known = there(prices.cost(used(1000, 100), "gpt-5-mini"))
    assert known > 0
    assert prices.cost(used(1000, 100), "openai/gpt-5-mini") == known
    assert prices.cost(used(1000, 100), "no such model", "no/such") is None
    assert prices.cost(used(1000, 100, cached=1000), "gpt-5-mini") != known


def test_an_answer_names_the_prices_by_which_its_cost_was_computed() -> None:
    def source(prices: Prices, model: str) -> str:
        return priced(ModelAnswer(message=assistant("x"), usage=used(1, 1)), prices, model).prices

    table = Prices({"own": MINI}, published=True)
    assert source(table, "own") == table.table_name == Prices({"own": MINI}).table_name
    assert table.table_name != Prices({"own": Price(input=1, output=1)}).table_name
    assert source(table, "gpt-5-mini") == f"genai-prices {version('genai-prices')}"
    assert source(table, "no such model") == ""


@pytest.mark.parametrize("wrong", [{"input": -1, "output": 1}, {"input": 1}, 7, {"input": "x"}])
def test_a_price_that_cannot_be_read_is_refused(wrong: object) -> None:
    with pytest.raises(UserError, match="price of model 'm'"):
        Prices({"m": wrong})  # type: ignore[dict-item]


def test_prices_come_from_the_file_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HOLDFAST_PRICES", raising=False)
    assert Prices.from_environment() is None
    file = tmp_path / "prices.json"
    file.write_text('{"m": {"input": 0.1, "output": "0.4"}}')
    monkeypatch.setenv("HOLDFAST_PRICES", f"{file}, published")
    prices = there(Prices.from_environment())
    assert prices.cost(used(10, 10), "m") == Decimal("0.000005")
    assert prices.cost(used(10, 10), "gpt-5-mini")
    file.write_text("[]")
    with pytest.raises(InvalidArgumentError, match="must hold an object"):
        Prices.from_environment()
    monkeypatch.setenv("HOLDFAST_PRICES", "nowhere.json")
    with pytest.raises(InvalidArgumentError, match=r"HOLDFAST_PRICES names 'nowhere.json'"):
        Prices.from_environment()


def test_one_call_of_unknown_cost_makes_the_sum_unknown() -> None:
    known = paid(used(1000, 0), Prices({"mini": MINI}), "mini")
    both = known + used(1, 1)
    assert both.cost is None
    assert both.paid == known.cost == Decimal("0.00025")
    assert both.cost_shown == "at least $0.0003, 1 of unknown cost"


def test_amounts_are_shown_with_cents_and_never_as_nothing() -> None:
    amounts = ["0", "1", "0.5", "12.3456", "0.00001", "1.23001"]
    assert [dollars(Decimal(each)) for each in amounts] == [
        "$0.00",
        "$1.00",
        "$0.50",
        "$12.3456",
        "$0.0001",
        "$1.2301",
    ]
