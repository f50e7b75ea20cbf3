"""Random schedules of the workflow code: whatever happens to a task, what must hold does."""

import dataclasses
import os
from random import Random

import pytest

from tests.simulation.generate import LENGTH, schedule_of
from tests.simulation.play import Choice, play
from tests.simulation.shrink import first_failure
from tests.support.scale import times

SEEDS = 100
FIRST = int(os.environ.get("SIMULATE_SEED", "0"))
END = FIRST + int(os.environ.get("SIMULATE_SEEDS") or times(1800, 9000))
"""With the 200 in which our code throws, 2,000 schedules; `make simulate` plays others."""


@pytest.mark.parametrize("seed", range(FIRST, END, SEEDS))
def test_what_must_hold_does_whatever_a_schedule_brings(seed: int) -> None:
    length = int(os.environ.get("SIMULATE_LENGTH") or LENGTH)
    failure = first_failure(range(seed, min(seed + SEEDS, END)), length)
    assert not failure, failure


def test_a_seed_repeats_exactly() -> None:
    for seed in range(10):
        first, second = (play(schedule_of(seed)) for _ in range(2))
        assert first.trace == second.trace
        assert first.ledger == second.ledger
        assert first.counts == second.counts


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # of a run that has failed
@pytest.mark.parametrize("part", range(times(2, 40)))
def test_an_error_of_one_process_fails_the_workflow_task_and_decides_nothing(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        schedule, chance = schedule_of(seed), Random(seed)
        choices: list[Choice] = []
        for choice in schedule.choices:
            choices += [("throw", chance.randint(0, 1), int(10 ** chance.uniform(0, 3))), choice]
        played = play(dataclasses.replace(schedule, choices=choices))
        assert not played.violation, "\n".join([*played.trace, f"seed {seed}: {played.violation}"])
