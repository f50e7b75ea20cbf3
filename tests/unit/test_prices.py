"""Prices: what a model call cost, and the most that one can cost."""

import json
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from holdfast import ModelSettings, Price, Prices, Usage
from holdfast.activities.steps.model_call import within
from holdfast.errors import InvalidArgumentError, UserError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.prices import priced
from holdfast.task.data.wire import AdvanceInput
from holdfast.values.messages import Message, assistant, dollars, user
from holdfast.values.messages import Usage as UsageRecord
from holdfast.workers.context.journal import OverBudget
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


# ---- usage as code of the user's has it: summed in place, with the cost of each call


def one(read: int, written: int, cached: int = 0) -> Usage:
    details = SimpleNamespace(cached_tokens=cached, cache_write_tokens=2)
    reasoned = SimpleNamespace(reasoning_tokens=None)
    return Usage(
        requests=1,
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
        input_tokens_details=details,
        output_tokens_details=reasoned,
    )


def test_costs_are_added_in_place_with_their_calls() -> None:
    total = Usage()
    total.add(one(10, 2, cached=5))
    total.add(UsageRecord(requests=1, input_tokens=3, output_tokens=1, cached_tokens=1))
    assert (total.requests, total.input_tokens, total.total_tokens) == (2, 13, 16)
    assert total.input_tokens_details.cached_tokens == 6
    assert total.input_tokens_details.cache_write_tokens == 2
    entries = [
        (each.total_tokens, each.input_tokens_details) for each in total.request_usage_entries
    ]
    assert [(n, each.cached_tokens) for n, each in entries] == [(12, 5), (4, 1)]


def test_an_answer_records_the_counts_alone() -> None:
    usage = one(10, 2)
    usage.add(one(1, 1))
    answer = ModelAnswer(message=Message(role="assistant"), usage=usage)
    read = ModelAnswer.model_validate_json(json.dumps(answer.wire()))
    assert type(read.usage) is UsageRecord
    assert read.usage == usage
    assert set(answer.wire()["usage"]) == {
        "requests",
        "input_tokens",
        "output_tokens",
        "cache_write_tokens",
    }
    assert "usage" not in ModelAnswer(message=Message(role="assistant"), usage=Usage()).wire()


@pytest.mark.parametrize("kind", [Usage, UsageRecord])
def test_a_sum_is_written_as_the_one_that_is_read_back(kind: type[UsageRecord]) -> None:
    cost = kind(requests=1, paid=Decimal("0.15"), priced=1)
    written = (cost + cost).wire()
    assert written == {"requests": 2, "paid": "0.3", "priced": 2}
    assert UsageRecord.model_validate(written).wire() == written


# ---- the most that a model call can cost, and the request that keeps to the money reserved for it

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
    tokens = there(found.settings.max_tokens)
    assert tokens >= (most or 1_000)
    worst = Usage(input_tokens=len(text.encode()), output_tokens=tokens)
    assert there(PRICES.cost(worst, "m")) <= dollars


async def test_a_model_without_a_price_is_refused() -> None:
    sent = request().model_copy(update={"model": "other"})
    with pytest.raises(UserError, match="price of model 'other' is not known"):
        await limited(sent, Decimal(1))
