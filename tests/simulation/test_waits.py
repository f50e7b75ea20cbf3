"""What waits for a time, or for something outside, over rollovers, evictions, undos and ends."""

from __future__ import annotations

import pytest

from tests.simulation.clock import EPOCH
from tests.simulation.play import Choice, Played, Schedule, play

LOOK = ["look", {"what": "1"}]


def held(schedule: Schedule) -> Played:
    """Play a schedule; what must hold does."""
    played = play(schedule)
    assert not played.violation, "\n".join([*played.trace, played.violation])
    return played


def steps(played: Played) -> int:
    """Count the completed steps."""
    return sum(entry.startswith('{"step"') for entry in played.ledger)


@pytest.mark.parametrize(
    "between",
    [
        [],
        [("evict", 0)],
        [("lose", 0)],
        [("say", 0, "feedback", {"text": "sooner", "by": "ann"})],
        [("say", 0, "pause", {"by": "ann", "until": EPOCH + 500})],
        [("say", 0, "resume", {"by": "ann"})],
    ],
    ids=["nothing", "eviction", "lost task", "feedback", "a pause of its own", "resume"],
)
def test_a_task_that_starts_later_begins_at_its_time(between: list[Choice]) -> None:
    before = Schedule(
        plan=[[LOOK], "done"],
        choices=[("settle",), ("wait", 100), *between, ("settle",)],
        options={"automatic": True, "start_at": EPOCH + 1000, "paused": "starts later"},
    )
    is_sooner = ("say", 0, "resume", {"by": "ann"}) in between
    assert steps(held(before)) == (2 if is_sooner else 0)
    before.choices += [("wait", 1000), ("settle",)]
    assert steps(held(before)) == 2


@pytest.mark.parametrize(
    "end",
    [
        [("say", 0, "abandon", {"by": "ann"})],
        [("cancel", 0)],
        [("undo", 0, "u1", {"by": "bob", "to": 0}), ("settle",)],
    ],
    ids=["abandon", "cancel", "undo"],
)
def test_what_ends_a_task_ends_one_that_is_paused_until_a_time(end: list[Choice]) -> None:
    until = {"by": "ann", "until": EPOCH + 1000}
    held(
        Schedule(
            plan=[[LOOK], [LOOK], "done"],
            choices=[
                ("run", 0, "r1", {}),
                ("settle",),
                ("say", 0, "pause", until),
                ("settle",),
                *end,
                ("wait", 2000),
                ("settle",),
                ("home",),
            ],
        )
    )


def test_a_pause_ends_at_its_time_in_a_later_run_of_the_task_and_in_nested_tasks() -> None:
    looks = [[LOOK, ["mark", {"text": str(k)}]] for k in range(4)]
    helper = ["helper", {"input": '[[["pay", {"amount": 2}]], "done"]'}]
    until = {"by": "ann", "until": EPOCH + 1000}
    played = held(
        Schedule(
            plan=[*looks, [helper], "done"],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("say", 0, "pause", until),
                ("settle",),
                ("wait", 2000),
                ("settle",),
                ("home",),
            ],
            options={"roll_events": 50},
        )
    )
    assert any("Its time has come" in entry for entry in played.ledger)
