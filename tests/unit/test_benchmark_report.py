"""The figures of docs/benchmarks.md are those of docs/benchmarks.json."""

import json
from pathlib import Path

import pytest

from benchmarks.report import BLOCKS, PAGE, Figure, cell, compared, filled, kept, padded
from benchmarks.results import Measured, Results, Row, collected, ranged
from benchmarks.shared import percentile


def stack(name: str, *rows: Row) -> Measured:
    return Measured(name=name, title=name, versions={}, rows=list(rows))


def row(turns: int, cpu: float) -> Row:
    figures = {"cpu_ms_per_turn": (cpu, cpu - 1, cpu + 1)}
    return Row(scenario="http", turns=turns, place="file", rounds=3, figures=figures)


def figure(turns: int) -> Figure:
    return Figure("CPU", "http", turns, "cpu_ms_per_turn")


def test_tables_of_the_page_are_what_the_kept_figures_give() -> None:
    page = PAGE.read_text("utf-8")
    assert page == filled(page, kept()), "run `python -m benchmarks.report`"


def test_tables_follow_the_figures() -> None:
    page, found = PAGE.read_text("utf-8"), kept()
    [changed] = [each for each in found.stacks[0].rows if each.scenario == "many"][:1]
    changed.figures["turns_per_s"] = (987654, 987654, 987654)
    assert "987,654" in filled(page, found)
    assert "987,654" not in page


def test_ratio_is_to_the_figure_of_holdfast() -> None:
    ours, peer = stack("holdfast", row(10, 20)), stack("peer", row(10, 50))
    assert cell(ours, ours, figure(10)) == "20.0 (1.0)"
    assert cell(peer, ours, figure(10)) == "50.0 (2.5)"


def test_task_that_was_ended_says_so_for_its_size_and_longer_ones() -> None:
    cut = Row(scenario="http", turns=300, place="file", rounds=1, ended="by the server", reached=83)
    ours, peer = stack("holdfast", row(100, 20)), stack("peer", row(100, 50), cut)
    assert cell(peer, ours, figure(100)) == "50.0 (2.5)"
    assert cell(peer, ours, figure(300)) == "ended by the server at turn 83"
    assert cell(peer, ours, figure(1000)) == "ended by the server at turn 83"


def test_what_was_not_measured_is_a_dash() -> None:
    ours = stack("holdfast", row(10, 20))
    assert cell(stack("peer"), ours, figure(10)) == "-"


def test_page_without_a_place_for_a_table_is_refused() -> None:
    page = PAGE.read_text("utf-8").replace("<!-- figures: loop -->", "")
    with pytest.raises(ValueError, match="the tables are"):
        filled(page, kept())


def test_median_least_and_greatest_value_of_the_rounds_are_kept(tmp_path: Path) -> None:
    about = {"date": "2026-01-02", "python": "3.11.9", "cpus": 2, "rounds": 3, "tasks": 50}
    (tmp_path / "run.json").write_text(json.dumps(about))
    versions = {"holdfast": "0.1.0"}
    lines: list[dict[str, object]] = [
        {"scenario": "about", "stack": "holdfast", "place": "file", "versions": versions}
    ]
    for number, cpu in enumerate((30, 10, 11)):
        where = {"stack": "holdfast", "round": number, "place": "file"}
        lines.append({**where, "scenario": "http", "turns": 10, "cpu_ms_per_turn": cpu})
    (tmp_path / "holdfast.jsonl").write_text("\n".join(map(json.dumps, lines)))
    [ours] = collected(tmp_path).stacks
    assert ours.versions == versions
    assert ours.rows[0].figures == {"cpu_ms_per_turn": (11, 10, 30)}
    assert ours.rows[0].rounds == 3


def test_terminal_table_has_aligned_columns() -> None:
    found = Results(
        date="2026-01-02",
        python="3.11.9",
        cpus=2,
        rounds=1,
        tasks=50,
        stacks=[stack("holdfast", row(10, 20)), stack("peer", row(10, 5))],
    )
    lines = padded(compared(found, iter([figure(10)]), ["holdfast", "peer"])).splitlines()
    assert lines == ["figure  holdfast    peer", "CPU     20.0 (1.0)  5.00 (0.25)"]


def test_every_table_of_the_page_holds_a_figure() -> None:
    for name, made in BLOCKS.items():
        assert any(letter.isdigit() for letter in made(kept())), name


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([5.0], 0.99, 5.0), ([3.0, 1.0, 2.0], 0.5, 2.0), ([*map(float, range(1, 201))], 0.99, 198.0)],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_range_of_one_round_is_its_value() -> None:
    assert ranged([4.0]) == (4.0, 4.0, 4.0)
