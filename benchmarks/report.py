"""Write the tables of docs/benchmarks.md that compare Holdfast with its peers.

    python -m benchmarks.report             # from docs/benchmarks.json
    python -m benchmarks.report --collect   # makes that file of the last `make bench` first

A table stands between two comments that name it; what is between them is written anew.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.results import ALONE, Measured, Place, Results, Row, collected

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
KEPT = ROOT / "docs" / "benchmarks.json"
FRESH = ROOT / ".build" / "bench"

_BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NONE = "-"

CHOSEN = {
    ("free", "bytes"),
    ("free", "wall_ms_per_turn"),
    ("http", "cpu_ms_per_turn"),
    ("many", "turns_per_s"),
    ("many", "cpu_ms_per_turn"),
}
"""Of which scenario the page has which figure, next to those of other frameworks."""

Table = list[list[str]]


class Figure(NamedTuple):
    """A line of a table.

    Attributes:
        label: What it says.
        scenario: Where its figures are from.
        turns: Turns of a task.
        key: Name of the figure.
        place: Where the stacks store.
    """

    label: str
    scenario: str
    turns: int
    key: str
    place: Place = "file"


def written(value: float) -> str:
    """Write a figure with about three digits; a large one in full."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(value: float) -> str:
    """Write how many times another figure a figure is."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def cell(stack: Measured, ours: Measured, figure: Figure) -> str:
    """Write a figure of a stack, and how many times ours it is."""
    row = stack.row(figure.scenario, figure.turns, figure.place)
    if row is None:
        return _NONE
    if row.ended:
        return f"ended {row.ended}" + (f" at turn {row.reached:,}" if row.reached else "")
    if figure.key not in row.figures:
        return _NONE
    value, base = row.figures[figure.key][0], _value(ours, figure)
    return f"{written(value)} ({ratio(value / base)})" if base else written(value)


def _value(stack: Measured, figure: Figure) -> float | None:
    row: Row | None = stack.row(figure.scenario, figure.turns, figure.place)
    return row.figures[figure.key][0] if row and figure.key in row.figures else None


def free(found: Results) -> Iterator[Figure]:
    """Return the lines for a model that costs nothing."""
    for turns in found.sizes("free"):
        yield Figure(f"bytes recorded, N = {turns}", "free", turns, "bytes")
        yield Figure(f"events of the history a turn, N = {turns}", "free", turns, "events_per_turn")
        yield Figure(f"time a turn, ms, N = {turns}", "free", turns, "wall_ms_per_turn")
        yield Figure(f"CPU a turn, ms, N = {turns}", "free", turns, "cpu_ms_per_turn")
        yield Figure(f"replay, ms, N = {turns}", "free", turns, "replay_ms")


def http(found: Results) -> Iterator[Figure]:
    """Return the lines for the real client: CPU by the length of a task, the rest at one."""
    label = "real client: {}, N = {:,}"
    for turns in found.sizes("http"):
        yield Figure(label.format("CPU a turn, ms", turns), "http", turns, "cpu_ms_per_turn")
    for turns in found.sizes("free"):
        yield Figure(label.format("time a turn, ms", turns), "http", turns, "wall_ms_per_turn")
        yield Figure(label.format("bytes recorded", turns), "http", turns, "bytes")


def many(found: Results) -> Iterator[Figure]:
    """Return the lines for many tasks at once."""
    for turns in found.sizes("many"):
        work = f"{found.tasks} tasks of {turns} turns"
        yield Figure(f"turns a second, {work}, in a file", "many", turns, "turns_per_s")
        yield Figure(
            f"turns a second, {work}, in memory", "many", turns, "turns_per_s", place="memory"
        )
        yield Figure(f"CPU a turn, ms, {work}, in a file", "many", turns, "cpu_ms_per_turn")


def peers(found: Results) -> Iterator[Figure]:
    """Return the lines that compare the stacks."""
    for part in (free, http, many):
        yield from part(found)


def chosen(found: Results) -> Iterator[Figure]:
    """Return those of the lines that the page has: docs/benchmarks.json has all."""
    for each in peers(found):
        if (each.scenario, each.key) in CHOSEN and each.place == "file" and each.turns != 300:
            yield each


def compared(found: Results, figures: Iterator[Figure], titles: list[str]) -> Table:
    """Make a table with a column for each stack."""
    ours = found.stacks[0]
    lines = [[each.label, *(cell(stack, ours, each) for stack in found.stacks)] for each in figures]
    return [["figure", *titles], *lines]


def loop(found: Results) -> Table:
    """Make the table of the event loop."""
    columns = {
        "in 99 of 100 cases": "lag_p99_ms",
        "during a model call": "call_lag_max_ms",
        "at most": "lag_max_ms",
        "while the result is read": "result_lag_max_ms",
    }
    return own(found, "loop", columns, lambda value: f"{value:.1f} ms")


def long(found: Results) -> Table:
    """Make the table of long tasks."""
    columns = {
        "CPU a turn, ms": "cpu_ms_per_turn",
        "time a turn, ms": "wall_ms_per_turn",
        "bytes recorded": "bytes",
        "events of the history a turn": "events_per_turn",
        "runs of the workflow": "runs_of_the_workflow",
        "replay of the longest run, ms": "replay_ms",
    }
    return own(found, "long", columns, written)


def own(
    found: Results, scenario: str, columns: dict[str, str], write: Callable[[float], str]
) -> Table:
    """Make the table of a scenario that is only ours.

    Args:
        found: The figures.
        scenario: Its name.
        columns: Titles of columns, with the names of their figures.
        write: Writes a figure.
    """
    lines = [["turns", *columns]]
    for row in found.stacks[0].rows:
        if row.scenario == scenario:
            figures = [row.figures.get(key) for key in columns.values()]
            cells = ["-" if each is None else write(each[0]) for each in figures]
            lines.append([f"{row.turns:,}", *cells])
    return lines


PACED = {
    "billable actions a turn": "actions_per_turn",
    "CPU a turn of client and worker, ms": "cpu_ms_per_turn",
    "CPU a turn of the server, ms": "server_ms_per_turn",
    "until the last task has ended, s": "seconds",
}


def paced(found: Results) -> Table:
    """Make the table of a model that takes a second: each round's figures, by stack."""
    known = [(each.name, each.title) for each in found.stacks]
    known.insert(1, (ALONE.name, ALONE.title))
    stacks = [each for each in known if any(row.stack == each[0] for row in found.paced)]
    lines = [["each round", *(title for _, title in stacks)]]
    for label, key in PACED.items():
        lines.append([label, *(_rounds(found, name, key) for name, _ in stacks)])
    return lines


def _rounds(found: Results, stack: str, key: str) -> str:
    return ", ".join(written(getattr(row, key)) for row in found.paced if row.stack == stack)


def markdown(table: Table) -> str:
    """Write a table as Markdown."""
    head, *lines = table
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def padded(table: Table) -> str:
    """Write a table for a terminal."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)


def about(found: Results) -> str:
    """Say when and how the figures were taken."""
    rounds = "one round" if found.rounds == 1 else f"medians of {found.rounds} rounds"
    return (
        f"Taken on {found.date} with Python {found.python} on {found.cpus} processors, {rounds}."
        f" In brackets: how many times the figure of Holdfast.\n"
    )


def titles(found: Results) -> list[str]:
    """Return what the columns of the stacks are called."""
    return [stack.title for stack in found.stacks]


BLOCKS: dict[str, Callable[[Results], str]] = {
    "about": about,
    "paced": lambda found: markdown(paced(found)),
    "compared": lambda found: markdown(compared(found, chosen(found), titles(found))),
}


def filled(page: str, found: Results) -> str:
    """Return the page with its tables written anew.

    Raises:
        ValueError: A table has no place on the page, or a place names no table.
    """
    names = [match[2] for match in _BLOCK.finditer(page)]
    if sorted(names) != sorted(BLOCKS):
        msg = f"the page has places for {names}; the tables are {sorted(BLOCKS)}"
        raise ValueError(msg)
    return _BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]](found)}{match[3]}", page)


def shown(found: Results) -> str:
    """Return everything as one table for a terminal."""
    names = [stack.name for stack in found.stacks]
    tables = compared(found, peers(found), names), loop(found), long(found)
    return "\n\n".join(map(padded, tables))


def kept() -> Results:
    """Read docs/benchmarks.json."""
    return Results.model_validate_json(KEPT.read_text("utf-8"))


def main() -> None:
    """Read the arguments, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="take the last run's figures")
    if parser.parse_args().collect:
        KEPT.write_text(collected(FRESH).model_dump_json(indent=1) + "\n", "utf-8")
    page = PAGE.read_text("utf-8")
    PAGE.write_text(filled(page, kept()), "utf-8")


if __name__ == "__main__":
    main()
