"""What one run of benchmarks/compare.py has found: medians and ranges of each stack's figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

Place = Literal["file", "memory"]
Range = tuple[float, float, float]
"""Median, least and greatest value of the rounds."""

_ABOUT = {"scenario", "turns", "tasks", "stack", "round", "place"}
"""What says which figures a row holds; the rest of it are figures."""


class Peer(NamedTuple):
    """A stack that is measured.

    Attributes:
        name: Its script in benchmarks/peers, its environment and its file of rows.
        title: How tables call it; versions of its packages are filled in.
        is_on_temporal: Whether it needs a Temporal server.
        has_memory: Whether it can keep everything in memory.
    """

    name: str
    title: str
    is_on_temporal: bool = False
    has_memory: bool = True


OURS = Peer("holdfast", "Holdfast")
ALONE = Peer("temporal_alone", "Temporal alone, an activity a turn", is_on_temporal=True)
"""What any stack on Temporal takes at least. It is not compared, and is installed with Holdfast."""

PEERS = (
    Peer("openai_agents", "OpenAI Agents SDK {openai-agents}, nothing stored"),
    Peer(
        "openai_agents_temporal",
        "OpenAI Agents SDK {openai-agents} on Temporal",
        is_on_temporal=True,
    ),
    Peer("pydantic_ai_temporal", "Pydantic AI {pydantic-ai-slim} on Temporal", is_on_temporal=True),
    Peer("langgraph_sqlite", "LangGraph {langgraph} with SQLite"),
    Peer("dbos_sqlite", "DBOS {dbos} with SQLite, loop by hand", has_memory=False),
)


class Row(BaseModel):
    """The figures of one scenario and size.

    Attributes:
        scenario: Its name in benchmarks/shared.py.
        turns: Turns of a task.
        place: Where the stack stores what it records.
        rounds: How often it was measured.
        figures: The figures by name; empty when the task was ended.
        ended: What ended the task before its last turn, and how; empty when it came to its end.
        reached: Turns that were recorded then.
    """

    model_config = ConfigDict(extra="forbid")

    scenario: str
    turns: int
    place: Place
    rounds: int
    figures: dict[str, Range] = {}
    ended: str = ""
    reached: int = 0


class Measured(BaseModel):
    """The figures of a stack."""

    model_config = ConfigDict(extra="forbid")

    name: str
    title: str
    versions: dict[str, str]
    rows: list[Row]

    def row(self, scenario: str, turns: int, place: Place) -> Row | None:
        """Return a row; for a task that is longer than one that was ended, that one's row."""
        rows = [each for each in self.rows if (each.scenario, each.place) == (scenario, place)]
        ended = [each for each in rows if each.ended and each.turns < turns]
        return next((each for each in rows if each.turns == turns), ended[0] if ended else None)


class Paced(BaseModel):
    """The figures of a stack in one round of benchmarks/paced.py, which says what they are.

    Attributes:
        load: Mean number of processes that ran or waited for a processor in the minute before.
    """

    stack: str
    load: float
    tasks: int
    turns: int
    seconds: float
    least: float
    cpu_ms_per_turn: float
    server_ms_per_turn: float
    actions_per_turn: float
    actions: dict[str, float]


class Results(BaseModel):
    """What docs/benchmarks.json holds.

    Attributes:
        date: Day of the run.
        python: Version of Python.
        cpus: Number of processors.
        rounds: Rounds of the run; a row of few rounds took too long to be repeated.
        tasks: Tasks of the scenario many.
        stacks: The stacks, Holdfast first.
        paced: Rows of benchmarks/paced.py, in the order of the run.
    """

    model_config = ConfigDict(extra="forbid")

    date: str
    python: str
    cpus: int
    rounds: int
    tasks: int
    stacks: list[Measured]
    paced: list[Paced] = []

    def sizes(self, scenario: str) -> list[int]:
        """Return the turns that were measured of a scenario, fewest first."""
        rows = (row for stack in self.stacks for row in stack.rows)
        return sorted({row.turns for row in rows if row.scenario == scenario})


def collected(directory: Path) -> Results:
    """Read the rows that benchmarks/compare.py has written, and those of benchmarks/paced.py.

    Raises:
        FileNotFoundError: The first has not run here.
    """
    stacks: list[Measured] = []
    about = json.loads((directory / "run.json").read_text("utf-8"))
    for peer in (OURS, *PEERS):
        file = directory / f"{peer.name}.jsonl"
        if file.exists():
            lines = file.read_text("utf-8").splitlines()
            stacks.append(_measured(peer, [json.loads(line) for line in lines]))
    paced = directory / "paced.jsonl"
    lines = paced.read_text("utf-8").splitlines() if paced.exists() else []
    rows = [Paced.model_validate_json(line) for line in lines]
    return Results(**about, stacks=stacks, paced=rows)


def _measured(peer: Peer, lines: list[dict[str, Any]]) -> Measured:
    versions = next(line["versions"] for line in lines if line["scenario"] == "about")
    rows = list(_rows(line for line in lines if line["scenario"] != "about"))
    title = peer.title.format_map(versions)
    return Measured(name=peer.name, title=title, versions=versions, rows=rows)


def _rows(lines: Iterable[dict[str, Any]]) -> Iterator[Row]:
    groups: dict[tuple[str, int, Place], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["scenario"], line["turns"], line["place"]), []).append(line)
    for (scenario, turns, place), group in groups.items():
        row = Row(scenario=scenario, turns=turns, place=place, rounds=len(group))
        cut = next((line for line in group if "ended" in line), None)
        if cut is None:
            row.figures = {
                name: ranged([line[name] for line in group]) for name in group[0].keys() - _ABOUT
            }
        else:
            row.ended, row.reached = cut["ended"], cut["reached"]
        yield row


def ranged(values: list[float]) -> Range:
    """Return the median of some values, and the least and the greatest of them."""
    return statistics.median(values), min(values), max(values)
