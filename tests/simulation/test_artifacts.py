"""Files that tools keep, when workers are lost, steps are undone, and tasks continue as new."""

import json
from typing import Any

import pytest

from holdfast.reading.artifacts import artifacts_in
from holdfast.task.data.records import Entry
from tests.simulation.play import RUN, SETTLE, Choice, Played, held, undo

FIRST = ["write", {"name": "a", "text": "1"}]
SECOND = ["write", {"name": "a", "text": "2"}]
OTHER = ["write", {"name": "b", "text": "1"}]


def kept(played: Played) -> list[str]:
    """List the artifacts that a task has."""
    entries = [Entry.model_validate(_timed(json.loads(each))) for each in played.ledger]
    return [f"{each.step_id} {each.name} v{each.version}" for each in artifacts_in(entries)]


def _timed(entry: dict[str, Any]) -> dict[str, Any]:
    """Put times back, which the ledger of a simulation leaves out."""
    return {kind: {"at": 0.0, "started": 0.0, **of} for kind, of in entry.items()}


@pytest.mark.parametrize("fate", ["late", "held", "lost", "dead", "twice", "stalled"])
def test_a_call_whose_worker_is_lost_after_it_has_kept_a_file_keeps_it_once(fate: str) -> None:
    ends = [SETTLE, ("release",), ("wait", 100), SETTLE]
    played = held([[FIRST], [SECOND, OTHER], "done"], ("fate", "tool", fate), RUN, *ends)
    assert kept(played) == ["s1 a v1", "s2 a v2", "s2 b v1"]


def test_a_file_stays_with_a_call_that_fails_afterwards() -> None:
    played = held([[FIRST], "done"], ("trouble", "write", "raises"), RUN, SETTLE)
    assert any("write is out of order" in each for each in played.ledger)
    assert kept(played) == ["s1 a v1"]


@pytest.mark.parametrize("between", [[], [("evict", 0)], [("lose", 0)]], ids=str)
def test_an_undo_takes_files_off_the_list_and_a_later_one_is_a_new_version(
    between: list[Choice],
) -> None:
    ended = [RUN, SETTLE, *between]
    undone = [*ended, undo(to=1), SETTLE]
    plan = [[FIRST], [SECOND, OTHER], [OTHER], "done"]
    assert kept(held(plan, *ended))[-1] == "s3 b v2"
    back = held(plan, *undone)
    assert kept(back) == ["s1 a v1"]
    assert sum('"artifacts"' in each for each in back.ledger) == 3  # the record still says it
    again = held(plan, *undone, *between, ("run", 0, "r2", {"all": True}), SETTLE)
    assert kept(again)[:2] == ["s1 a v1", "s2 a v2"]


def test_they_are_there_over_many_runs_of_their_task() -> None:
    turns = [[FIRST, ["mark", {"text": str(k)}]] for k in range(8)]
    played = held([*turns, "done"], RUN, SETTLE, roll_events=50)
    assert kept(played) == [f"s{k} a v{k}" for k in range(1, 9)]
    assert sum("archive of t" in line for line in played.trace) > 1, played.trace
