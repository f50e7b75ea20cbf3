"""The numbers that hold the house: see `benchmarks/house.py`, which measures them."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import house

TOO_BIG = """
{name} is {figure:g}; its limit in benchmarks/house.toml is {limit:g}.
Make it better. Or, if it must be so, run `python -m benchmarks.house --write` and say why in the
commit's message."""

TOO_LOOSE = """
{name} is {figure:g}, and better than its limit in benchmarks/house.toml, {limit:g}.
Run `python -m benchmarks.house --write` in the same commit, so that it stays."""


@pytest.mark.parametrize("measure", [house.code_figures, house.import_figures, house.entered_apart])
def test_figures_are_within_their_limits(measure: Callable[[], house.Figures]) -> None:
    held, found, wrong = house.limits(), measure(), list[str]()
    for name, figure in found.items():
        facts: dict[str, Any] = {"name": name, "figure": figure, "limit": held.get(name, 0)}
        match house.kind_of(name).verdict(figure, facts["limit"]):
            case "worse":
                wrong.append(TOO_BIG.format(**facts))
            case "better":
                wrong.append(TOO_LOOSE.format(**facts))
            case _:
                continue
    assert not wrong, "\n".join(wrong)
    kinds = {name.partition(":")[0] for name in found}
    gone = {name for name in held if name.partition(":")[0] in kinds} - set(found)
    assert not gone, f"Of no figure; run `python -m benchmarks.house --write`: {gone}"


def test_a_figure_may_be_a_little_better_than_its_limit_and_no_worse() -> None:
    most, least = house.KINDS["code lines"], house.KINDS["comments"]
    assert most.limit(1234) == 1250
    assert [most.verdict(each, 1250) for each in (1251, 1250, 1150, 1149)] == [
        *("worse", "", "", "better")
    ]
    assert least.limit(0.0123) == 0.012
    assert [least.verdict(each, 0.012) for each in (0.0119, 0.012, 0.0131, 0.014)] == [
        *("worse", "", "", "better")
    ]
