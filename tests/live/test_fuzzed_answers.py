"""Mutated answers over the whole path; `make fuzz ANSWERS=20000` gives more of them."""

from tests.fuzz.answers import fuzz
from tests.support.rig import Rig
from tests.support.scale import times


async def test_a_person_can_go_on_with_or_end_every_task_whatever_its_model_answers(
    rig: Rig,
) -> None:
    report = await fuzz(rig, times(20, 150), seed=11)
    assert report.failures == []
    assert sum(report.ends.values()) == report.tasks
