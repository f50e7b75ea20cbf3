"""The same schedules on a real server: where the two differ, the server is right."""

import difflib

from tests.simulation.generate import calm_schedule_of
from tests.simulation.live import Live, served
from tests.simulation.play import play
from tests.support.rig import Rig
from tests.support.scale import times


async def test_a_real_server_gives_the_same_ledgers(rig: Rig) -> None:
    await served(rig)
    for seed in range(times(8, 300)):
        schedule = calm_schedule_of(seed)
        there = await Live(rig, schedule, f"{rig.app}-{seed}").play()
        here = play(schedule)
        differ = difflib.unified_diff(sorted(there), sorted(here.ledger), "server", "here", n=0)
        told = "\n".join([f"seed {seed}: {schedule}", here.violation, *differ])
        assert sorted(here.ledger) == sorted(there), told
