"""Random schedules of the workflow code: whatever happens to a task, what must hold does."""

import dataclasses
from random import Random

import pytest

from tests.simulation.generate import schedule_of
from tests.simulation.play import Choice, play
from tests.simulation.shrink import first_failure
from tests.support.scale import times

TESTS = 18
SEEDS = 100
"""With the 200 in which our code throws, 2,000 schedules."""


@pytest.mark.parametrize("part", range(times(TESTS, 5 * TESTS)))
def test_what_must_hold_does_whatever_a_schedule_brings(part: int) -> None:
    failure = first_failure(range(part * SEEDS, (part + 1) * SEEDS))
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
