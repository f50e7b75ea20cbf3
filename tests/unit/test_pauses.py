"""The pauses between attempts: how they grow, where they stop, and what is refused."""

from itertools import islice
from typing import Any

import pytest

from holdfast.values.base import pause_of, pauses


def test_pauses_double_up_to_the_longest_and_stay_there() -> None:
    assert list(islice(pauses(0.5, 3.0), 6)) == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_pauses_end_with_the_one_whose_sum_reaches_the_total() -> None:
    assert list(pauses(1.0, 60.0, total=7.0)) == [1.0, 2.0, 4.0]
    assert list(pauses(1.0, 60.0, total=7.5)) == [1.0, 2.0, 4.0, 8.0]
    assert list(pauses(1.0, 60.0, total=0)) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"first": 0}, "first=0 and longest=60"),
        ({"first": -1.0}, "first=-1.0 and longest=60"),
        ({"first": float("nan")}, "first=nan and longest=60"),
        ({"longest": 0.0}, "longest=0.0 must be above 0"),
        ({"factor": 0.5}, "factor=0.5 is below 1"),
        ({"factor": float("nan")}, "factor=nan is below 1"),
    ],
)
def test_arguments_that_make_no_growing_pauses_are_refused_at_once(
    given: dict[str, Any], why: str
) -> None:
    fit = {"first": 1, "longest": 60}
    with pytest.raises(ValueError, match=why):
        pauses(**{**fit, **given})
    with pytest.raises(ValueError, match=why):
        pause_of(0, **{**fit, **given})
