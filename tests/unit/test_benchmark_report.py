"""The figures of docs/benchmarks.md are those of docs/benchmarks.json."""

from benchmarks.report import PAGE, Figure, cell, filled, kept
from benchmarks.results import Measured, Row


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
