"""Plays many random schedules on all cores: `make simulate SEEDS=1000000`.

Prints a line of progress, and the first failure, shrunk; ends with exit code 1 then.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from tests.simulation.generate import LENGTH, schedule_of
from tests.simulation.play import play
from tests.simulation.shrink import report

BATCH = 100


class Result(NamedTuple):
    """What a batch of seeds came to.

    Attributes:
        live: Activations of workflow tasks and queries.
        replayed: Activations of replays.
        failed: The first seed that failed, or -1.
    """

    live: int
    replayed: int
    failed: int


def play_batch(seeds: range, length: int) -> Result:
    """Play the schedules of some seeds, up to the first that fails."""
    live = replayed = 0
    for seed in seeds:
        played = play(schedule_of(seed, length))
        live += played.counts.live
        replayed += played.counts.replayed
        if played.violation:
            return Result(live, replayed, seed)
    return Result(live, replayed, -1)


def batches(first: int, count: int) -> Iterator[range]:
    """Cut seeds into batches."""
    for start in range(first, first + count, BATCH):
        yield range(start, min(start + BATCH, first + count))


def main() -> int:
    """Play, and say how it goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--length", type=int, default=LENGTH, help="choices of a schedule, about")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    began, done, live, replayed = time.monotonic(), 0, 0, 0
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = [
            pool.submit(play_batch, each, given.length) for each in batches(given.seed, given.seeds)
        ]
        for each in as_completed(waiting):
            result = each.result()
            done, live, replayed = done + BATCH, live + result.live, replayed + result.replayed
            if result.failed >= 0:
                pool.shutdown(wait=False, cancel_futures=True)
                seed = result.failed
                played = play(schedule_of(seed, given.length))
                sys.stdout.write(f"\n{report(seed, played, given.length)}\n")
                return 1
            seconds = time.monotonic() - began
            rate = f"{live / seconds:,.0f} activations a second, and {replayed:,} replayed"
            done = min(done, given.seeds)
            sys.stdout.write(f"\r{done:,} of {given.seeds:,} schedules; {live:,}, {rate} ")
            sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
