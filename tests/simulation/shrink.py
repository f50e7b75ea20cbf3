"""Makes a failing schedule as short as it can be, so that a person can read it."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.generate import LENGTH, schedule_of
from tests.simulation.play import Played, Schedule, play

MOST_TRIES = 600
"""Most schedules that are played for it."""


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return a schedule of which no part can be left out that it fails without.

    Args:
        schedule: One that fails.
        fails: Whether a schedule fails in the same way.
    """
    tries = 0
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for smaller in _smaller(schedule):
            tries += 1
            if tries > MOST_TRIES:
                return schedule
            if fails(smaller):
                schedule, is_shorter = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Give schedules that lack something, those that lack most first."""
    for choices in _without_parts(schedule.choices):
        yield dataclasses.replace(schedule, choices=choices)
    for k in range(len(schedule.choices) - 1):
        (verb, *rest), (following, *more) = schedule.choices[k : k + 2]
        if verb == following == "go":
            merged = ("go", *rest, *more)
            choices = [*schedule.choices[:k], merged, *schedule.choices[k + 2 :]]
            yield dataclasses.replace(schedule, choices=choices)
    if schedule.real:
        yield dataclasses.replace(schedule, real=False)
    for name in schedule.options:
        options = {k: v for k, v in schedule.options.items() if k != name}
        yield dataclasses.replace(schedule, options=options)
    for plan in _without_parts(schedule.plan):
        yield dataclasses.replace(schedule, plan=plan)
    for k, turn in enumerate(schedule.plan):
        for calls in _without_parts(calls_of(turn)):
            plan = [*schedule.plan[:k], calls or "done", *schedule.plan[k + 1 :]]
            yield dataclasses.replace(schedule, plan=plan)
    for k, (verb, *rest) in enumerate(schedule.choices):
        for fewer in _without_parts(rest) if verb == "go" else ():
            choices = [*schedule.choices[:k], (verb, *fewer), *schedule.choices[k + 1 :]]
            yield dataclasses.replace(schedule, choices=choices)


def calls_of(turn: Any) -> list[Any]:
    """Return the calls of a turn; an answer has none."""
    return turn if isinstance(turn, list) else []  # pyright: ignore[reportUnknownVariableType]


def _without_parts(items: list[Any]) -> Iterator[list[Any]]:
    """Give lists that lack one stretch of the items: half of them, a quarter, and so on."""
    size = len(items)
    while size := size // 2 or (1 if size > 1 else 0):
        for at in range(0, len(items), size):
            yield [*items[:at], *items[at + size :]]
    if len(items) == 1:
        yield []


def kind_of(violation: str) -> str:
    """Return what tells violations apart, whatever the ids and numbers in them."""
    return "".join(c for c in violation[:60] if c.isalpha() or c == " ")[:28]


def report(seed: int, played: Played, length: int = LENGTH) -> str:
    """Describe the failure of a seed's schedule: what happened, and the shortest one that fails."""
    kind = kind_of(played.violation)
    short = shrunk(schedule_of(seed, length), lambda each: kind_of(play(each).violation) == kind)
    again = play(short)
    trace = "\n".join(again.trace)
    return (
        f"seed {seed} (length {length}): {played.violation}\n\nShrunk; paste it into"
        f" tests/simulation/test_regressions.py:\n\n{short}\n\n{trace}\n\n{again.violation}"
    )


def first_failure(seeds: range, length: int = LENGTH) -> str:
    """Play the schedules of seeds; describe the first that fails, or return nothing."""
    for seed in seeds:
        played = play(schedule_of(seed, length))
        if played.violation:
            return report(seed, played, length)
    return ""
