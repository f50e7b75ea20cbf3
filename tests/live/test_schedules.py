"""Tasks that begin at set times: schedules, and tasks that start later."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Schedule as TemporalSchedule
from temporalio.client import ScheduleActionStartWorkflow, ScheduleSpec

from holdfast import AgentRunner
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.errors import CommandRefusedError, InvalidArgumentError, NotFoundError
from tests.support.rig import Rig, step_a_task, until, until_status
from tests.support.workers import Counting

LATER = datetime(2990, 1, 1, tzinfo=UTC)


async def finished(runner: AgentRunner, name: str, count: int) -> list[str]:
    """Wait until so many tasks of a schedule have ended; return their ids, oldest first."""

    async def ended() -> list[str]:
        found = await runner.list_tasks("finished")
        ids = sorted(each.task_id for each in found if each.task_id.startswith(f"{name}-"))
        return ids if len(ids) >= count else []

    return await until(ended)


async def test_a_schedule_begins_a_task_at_each_time_and_its_id_says_when(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    name = f"{runner.app}-tick"
    given: Any = {"every": "1 s", "session": "s", "extra_state": {"k": 1}, "by": "anna"}
    made = await runner.add_schedule(name, "count", **given)
    assert (made.every, made.agent, made.input) == (("0:00:01",), runner.agent, "count")
    assert len(made.next) > 1
    first, second = (await finished(runner, name, 2))[-2:]

    async def known() -> list[str]:
        return [
            id for each in await runner.list_schedules() if each.name == name for id in each.tasks
        ]

    await until(known, lambda found: {first, second} <= {*found})
    await runner.delete_schedule(name)
    times = [datetime.fromisoformat(each.removeprefix(f"{name}-")) for each in (first, second)]
    assert times[0] < times[1]
    task = await runner.get_task(first)
    assert (task.input, task.extra_state["k"], task.created > 0) == ("count", 1, True)
    ref = (await runner.reader.head(first)).session
    assert ref is not None
    assert ref.queues
    refuses: Any = "refuse"
    with pytest.raises(InvalidArgumentError, match="on_busy"):
        await runner.add_schedule(name, "count", every="1 s", on_busy=refuses)

    await until(known, lambda found: not found)
    with pytest.raises(NotFoundError, match="There is no schedule"):
        await runner.pause_schedule(name)


async def test_a_task_whose_time_comes_while_the_one_before_is_open_is_skipped_and_counted(
    rig: Rig,
) -> None:
    runner = await rig.make(worker=Counting(1))
    name = f"{runner.app}-slow"
    await runner.add_schedule(name, "count", every="1 s", extra_state={})
    await finished(runner, name, 1)
    await runner.pause_schedule(name, "holiday", "anna")
    [paused] = await runner.list_schedules()
    assert (paused.paused, paused.next) == ("anna: holiday", ())
    changed = await runner.add_schedule(name, "wait", every="day 09:00", exist_ok=True)
    assert (changed.paused, changed.every, changed.begun > 0) == (
        "anna: holiday",
        ("day 09:00",),
        True,
    )
    await runner.resume_schedule(name, "anna")
    [resumed] = await runner.list_schedules()
    assert (resumed.paused, bool(resumed.next)) == ("", True)
    with pytest.raises(InvalidArgumentError, match="exist_ok=True"):
        await runner.add_schedule(name, "count", every="1 h")
    with pytest.raises(InvalidArgumentError, match="taken by another tenant's"):
        await runner.add_schedule(name, "count", every="1 h", exist_ok=True, tenant="other")
    day = timedelta(days=1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    await runner.backfill_schedule(name, start, start + 2 * day)
    days = [f"{name}-2026-01-0{n}T09:00:00Z" for n in (1, 2)]

    await until(
        lambda: runner.list_tasks("finished"),
        lambda found: {*days} <= {each.task_id for each in found},
    )
    assert (await runner.get_task(days[0])).input == "wait"
    await runner.delete_schedule(name)


async def test_a_schedule_of_other_workflows_is_left_alone(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    name = f"{runner.app}-report"
    action = ScheduleActionStartWorkflow("Report", id=name, task_queue="reports")
    other = TemporalSchedule(action=action, spec=ScheduleSpec())
    handle = await runner.client.create_schedule(name, other)
    for change in (runner.pause_schedule, runner.resume_schedule, runner.delete_schedule):
        with pytest.raises(NotFoundError, match="There is no schedule"):
            await change(name)
    with pytest.raises(NotFoundError, match="There is no schedule"):
        await runner.add_schedule(name, "count", every="1 h", exist_ok=True)
    kept = (await handle.describe()).schedule.action
    assert isinstance(kept, ScheduleActionStartWorkflow)
    assert kept.workflow == "Report"
    await handle.delete()


@pytest.mark.parametrize(
    ("every", "zone", "said"),
    [
        ("Mon 25:00", "UTC", "refused"),
        ("Moon 09:00", "UTC", "refused"),
        ("0 s", "UTC", "names no time"),
        ("", "UTC", "names no time"),
        ([], "UTC", "names no time"),
        ("Mon 09:00", "Mars/Olympus", "no time zone"),
        ("99 9 * * *", "UTC", "refused"),
        ("0 0 31 2 *", "UTC", "never comes"),
        (["day 09:00", "0 0 31,30-31 02,Feb *"], "UTC", "never comes"),
        ("0 0 31 4,6,sep,11 mon", "UTC", "never comes"),
    ],
)
async def test_what_is_no_time_is_refused_in_words(
    rig: Rig, every: Any, zone: str, said: str
) -> None:
    runner = await rig.make(worker=Counting(1))
    with pytest.raises(InvalidArgumentError, match=said):
        await runner.add_schedule(f"{runner.app}-odd", "q", every=every, time_zone=zone)


async def test_times_of_a_week_follow_the_clocks_of_their_time_zone(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    name = f"{runner.app}-week"
    made = await runner.add_schedule(
        name, "q", every=["Sat,Sun,Mon 09:00", "0 7 1 * *"], time_zone="Europe/Berlin"
    )
    days: dict[str, set[int]] = {}
    for every in ("Sat-Sun 09:00", "Mon-Sun 09:00", "Sun-Sun 09:00"):
        over = await runner.add_schedule(name, "q", every=every, exist_ok=True)
        days[every] = {datetime.fromtimestamp(at, UTC).weekday() for at in over.next}
    assert [*days.values()] == [{5, 6}, set(range(7)), {6}]
    with pytest.raises(InvalidArgumentError, match="may not mix alphabets"):
        await runner.add_schedule(name, "q", every="1 h", by="k\u0456m", exist_ok=True)
    with pytest.raises(InvalidArgumentError, match="past times"):  # begun now, it is lost then
        await runner.backfill_schedule(name, time.time() - 9, time.time() + 86_400)
    await runner.delete_schedule(name)
    assert made.every == ("Sat,Sun,Mon 09:00", "0 7 1 * *")
    read = [datetime.fromtimestamp(at, UTC) for at in made.next]
    assert {each.minute for each in read} == {0}
    from zoneinfo import ZoneInfo

    there = [each.astimezone(ZoneInfo("Europe/Berlin")) for each in read]
    assert {
        (each.weekday() in (5, 6, 0) and each.hour == 9) or each.day == 1 for each in there
    } == {True}


async def test_a_task_that_starts_later_can_be_steered_started_and_ended_before(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    first = await runner.create_task("q", start_at=LATER, step_mode="automatic", by="anna")
    assert first.paused.startswith("anna, starts at ")
    second = await runner.create_task("q", start_at=LATER.timestamp(), step_mode="automatic")
    found = await runner.client.get_workflow_handle(second.task_id).describe()
    assert found.typed_search_attributes.get(HF_STATUS) == "paused"  # also before a worker is up
    await until_status(runner, first, "paused")
    await runner.resume(first, by="anna")
    await until_status(runner, first, "answered")
    await runner.abandon(second, "not needed", by="anna")
    await until_status(runner, second, "abandoned")
    with pytest.raises(InvalidArgumentError, match="start_at is over"):
        await runner.create_task("q", start_at=1.0)
    again = await runner.create_task("q", start_at=1.0, task_id=first.task_id, exist_ok=True)
    assert again.status == "answered"


async def test_a_pause_ends_at_its_time_and_a_new_pause_replaces_it(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(3))
    task = await step_a_task(runner)
    await runner.pause(task, "lunch", by="anna", until=LATER)
    said = (await until_status(runner, task, "paused")).paused
    assert said == "anna: lunch, until 2990-01-01 00:00:00 UTC"
    await runner.pause(task, by="anna", until=time.time() + 3)
    await until_status(runner, task, "running")
    await runner.run_step(task)
    with pytest.raises(CommandRefusedError, match="over already"):
        await runner.pause(task, until=1.0)


async def test_a_pause_that_has_ended_without_a_worker_holds_no_caller(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    task = await runner.create_task("q")
    await runner.pause(task, until=time.time() + 1)
    await rig.stop()
    workflow = runner.client.get_workflow_handle(task.task_id)

    async def is_over() -> bool:
        events = (await workflow.fetch_history()).events
        return any(each.HasField("timer_fired_event_attributes") for each in events)

    await until(is_over)
    asked = asyncio.create_task(runner.run_task(task))
    await rig.make(worker=Counting(1))
    assert (await asked).status == "done"
