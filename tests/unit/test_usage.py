"""Usage as code of the user's has it: summed in place, with the cost of each call."""

import json
from decimal import Decimal
from types import SimpleNamespace

import pytest

from holdfast import Usage
from holdfast.models.base import ModelAnswer
from holdfast.values.messages import Message
from holdfast.values.messages import Usage as UsageRecord


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
