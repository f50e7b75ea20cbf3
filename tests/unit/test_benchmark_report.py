"""The figures of docs/benchmarks.md are those of docs/benchmarks.json."""

import json
from pathlib import Path

from benchmarks.report import PAGE, Figure, cell, filled, kept
from benchmarks.results import Measured, Row, collected


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


def test_task_that_was_ended_says_so_for_its_size_and_longer_ones() -> None:
    cut = Row(scenario="http", turns=300, place="file", rounds=1, ended="by the server", reached=83)
    ours, peer = stack("holdfast", row(100, 20)), stack("peer", row(100, 50), cut)
    assert cell(peer, ours, figure(100)) == "50.0 (2.5)"
    assert cell(peer, ours, figure(300)) == "ended by the server at turn 83"
    assert cell(peer, ours, figure(1000)) == "ended by the server at turn 83"


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
