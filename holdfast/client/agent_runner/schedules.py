"""Schedules: tasks that Temporal begins at set times, whether or not a worker process is up."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field
from temporalio import client as temporal
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.agent_runner.base import Images
from holdfast.client.agent_runner.creation import TaskCreation, check_request
from holdfast.client.agent_runner.sessions import Session
from holdfast.engine.search_attributes import AGENT_TASK, HF_AGENT, HF_TENANT, INPUT_MEMO
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.reading.queries import server_errors
from holdfast.reading.visibility import attributes, memo, read_memo
from holdfast.task.data.head import RunRules
from holdfast.task.data.wire import Retention
from holdfast.task.queries.pages import details_of, title_of
from holdfast.values.base import Json, Value
from holdfast.values.checks import gate
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import app_of, check_by, check_name, check_new_id
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.runs.approval_rules import Until, seconds_of
from holdfast.values.runs.times import SPAN, Overlap, span_in
from holdfast.values.settings import Budget
from holdfast.values.text.shown import instead, shown

Every = str | timedelta | Sequence[str | timedelta]
Positive = Annotated[timedelta, Field(gt=timedelta())]

_CLOCK = re.compile(r"(\S+) (\d\d?):(\d\d)")
_CRON_FIELDS = 5
_DAYS: dict[str, int] = {"2": 29, "feb": 29} | dict.fromkeys(
    ["4", "6", "9", "11", "apr", "jun", "sep", "nov"], 30
)
"""Month to the last day that it may have, but for those of 31 days."""


class Schedule(Value):
    """A schedule, and how it goes.

    Attributes:
        name: Its name; the id of each of its tasks is this and the time, as
            "report-2027-01-04T08:00:00Z".
        app: App of its tasks.
        agent: Their agent.
        input: Their request, cut short.
        every: When they begin.
        time_zone: Time zone of these times.
        overlap: What happens to a task whose time comes while the one before is open.
        catch_up: Seconds by which a task may begin late, as after the server was down.
        paused: Who has paused it and why; else empty.
        next: Its next times, seconds since the epoch.
        tasks: Ids of its newest tasks, newest first.
        begun: How many tasks it has begun.
        missed: How many it has not begun because that would have been too late.
        skipped: How many it has not begun because the one before was open.
    """

    name: str
    app: str
    agent: str
    input: str
    every: tuple[str, ...]
    time_zone: str
    overlap: Overlap
    catch_up: float
    paused: str = ""
    next: tuple[float, ...] = ()
    tasks: tuple[str, ...] = ()
    begun: int = 0
    missed: int = 0
    skipped: int = 0

    @property
    def trouble(self) -> str:
        """What did not begin, in words; empty for nothing."""
        late = f"{self.missed} missed: too late by more than {timedelta(seconds=self.catch_up)}"
        over = f"{self.skipped} skipped: the task before was open"
        return "; ".join(text for text, n in ((late, self.missed), (over, self.skipped)) if n)


class TaskScheduling(TaskCreation):
    """The part of AgentRunner that lets tasks begin at set times."""

    async def add_schedule(
        self,
        name: str,
        input: str,
        *,
        every: Every,
        time_zone: str = "UTC",
        agent: str | None = None,
        session: str | Session | None = None,
        extra_state: Mapping[str, Json] | None = None,
        budget: Budget | None = None,
        images: Images = (),
        overlap: Overlap = "skip",
        on_busy: Literal["queue"] | None = "queue",
        catch_up: Positive = timedelta(days=1),
        exist_ok: bool = False,
        by: str = "",
        tenant: str = "",
    ) -> Schedule:
        """Begin a task at each of some times; each runs to its end.

        Args:
            name: Name of the schedule.
            input: The request of each task.
            every: "Mon 09:00", "Mon-Fri 09:00", "Mon,Thu 09:00", "day 09:00"; "30 min", "2 h" or a
                timedelta; five fields of cron; or several of these.
            time_zone: Time zone of clock times, as "Europe/Berlin".
            agent: Name of the agent, when it is not the runner's.
            session: As for `create_task`, like the next.
            extra_state: Shared state of each task.
            budget: Limits of each task.
            images: Images of the request.
            overlap: What happens to a task whose time comes while the one before is open. "skip":
                it is not begun. "buffer_one" and "buffer_all": it begins later, one or each.
                "cancel_other": the open one is abandoned. "allow_all": both run.
            on_busy: "queue": each task waits for its turn in the session. None: it takes no turn,
                and sees what the session has when it begins.
            catch_up: How late a task may begin, as after the server was down; what is later is
                counted as missed.
            exist_ok: Whether a schedule of this name gets these settings; its pause stays.
            by: Who adds it; each task is created by them.
            tenant: Whose each task is, and the schedule, as for `create_task`.

        Raises:
            InvalidArgumentError: There is a schedule of this name, `every` names no time, or as for
                `create_task`.
            NotFoundError: With exist_ok, the schedule of this name begins other workflows.
        """
        wanted = check_new_id(name)
        given: dict[str, object] = {"every": every, "time_zone": time_zone, "overlap": overlap}
        given |= {"budget": budget, "exist_ok": exist_ok, "by": by}
        given |= {"catch_up": catch_up, "on_busy": on_busy}
        check_arguments(TaskScheduling.add_schedule, **given)
        check_request(input)
        spec = spec_of(every, time_zone)
        tenant = tenant or self._tenant
        of_engine, session = self._of_tenant(tenant, session)
        head = self._head(agent, session, None, RunRules())
        head = head.model_copy(update={"asker": check_by(by), "tenant": tenant})
        task = await self._task_input(
            head, input, images, task="", budget=budget, state=extra_state
        )
        update = {"automatic": True, "finalize": True, "described": None}
        task = task.model_copy(update={**update, "secret": secrets.token_hex(16)})
        if on_busy and session is not None:
            task, _ = self._in_line(task, wanted, session, on_busy)
        gate.check_value(task, "The task")
        preview = {INPUT_MEMO: memo(input, now=0.0).get(INPUT_MEMO, "")}
        made = temporal.Schedule(
            action=temporal.ScheduleActionStartWorkflow(
                AGENT_TASK,
                task,
                id=wanted,
                task_queue=self._queue_for(head.agent),
                memo=preview,
                typed_search_attributes=attributes(task),
                static_summary=title_of(head.agent, input),
                static_details=details_of(head.agent, input),
                priority=of_engine,
            ),
            spec=spec,
            policy=temporal.SchedulePolicy(
                overlap=temporal.ScheduleOverlapPolicy[overlap.upper()], catchup_window=catch_up
            ),
        )
        own = TypedSearchAttributes([SearchAttributePair(HF_TENANT, tenant)] if tenant else [])
        try:
            with server_errors():
                await self.client.create_schedule(wanted, made, search_attributes=own)
        except temporal.ScheduleAlreadyRunningError:
            if not exist_ok:
                raise InvalidArgumentError(
                    f"There is a schedule {shown(name)} already. Delete it, choose another name, or"
                    " give it these settings with exist_ok=True."
                ) from None
            await self._replace(wanted, made, own)
        return await self._schedule(wanted)

    async def _replace(
        self, wanted: str, made: temporal.Schedule, own: TypedSearchAttributes
    ) -> None:
        """Give a schedule these settings; its pause stays.

        Raises:
            NotFoundError: The schedule of this id begins other workflows.
            InvalidArgumentError: It is another tenant's.
        """
        await self._schedule(wanted)

        def replaced(found: temporal.ScheduleUpdateInput) -> temporal.ScheduleUpdate:
            if found.description.typed_search_attributes.get(HF_TENANT) != own.get(HF_TENANT):
                msg = f"The name {shown(wanted)} is taken by another tenant's. Choose another one."
                raise InvalidArgumentError(msg)
            made.state = found.description.schedule.state
            return temporal.ScheduleUpdate(made, search_attributes=own)

        with server_errors():
            await self.client.get_schedule_handle(wanted).update(replaced)

    async def list_schedules(self) -> list[Schedule]:
        """List the schedules of this app by name, each with its next times.

        Raises:
            ConnectError: The server could not be reached.
        """
        with server_errors():
            every = [each async for each in await self.client.list_schedules()]
        read: list[Schedule] = []

        async def look(each: temporal.ScheduleListDescription) -> None:
            action = each.schedule and each.schedule.action
            if getattr(action, "workflow", "") == AGENT_TASK:
                found = await self._found(each.id)
                read.extend([] if found is None else [found])  # deleted meanwhile

        await some_at_once(look, every)
        return sorted((each for each in read if each.app == self.app), key=lambda each: each.name)

    async def pause_schedule(self, name: str, reason: str = "", by: str = "") -> None:
        """Begin no further task of a schedule; what is missed meanwhile is not begun later.

        Args:
            name: Name of the schedule.
            reason: Why.
            by: Who pauses it.

        Raises:
            NotFoundError: There is no such schedule.
        """
        check_arguments(TaskScheduling.pause_schedule, reason=reason)
        who = check_by(by) or "somebody"
        with server_errors():
            handle = await self._handle(name)
            await handle.pause(note=f"{who}: {reason}" if reason else who)

    async def resume_schedule(self, name: str, by: str = "") -> None:
        """End the pause of a schedule.

        Args:
            name: Name of the schedule.
            by: Who resumes it.

        Raises:
            NotFoundError: There is no such schedule.
        """
        note = f"resumed by {check_by(by) or 'somebody'}"
        with server_errors():
            await (await self._handle(name)).unpause(note=note)

    async def backfill_schedule(self, name: str, since: Until, until: Until) -> None:
        """Begin, one after the other, the tasks of times that are over, as after a pause.

        A task that was begun for one of these times stays: an id is used once.

        Args:
            name: Name of the schedule.
            since: First time; a datetime with a time zone, or seconds since the epoch.
            until: Last time.

        Raises:
            NotFoundError: There is no such schedule.
            InvalidArgumentError: The last time is not after the first, or is to come.
        """
        check_arguments(TaskScheduling.backfill_schedule, since=since, until=until)
        first, last = (datetime.fromtimestamp(seconds_of(at), UTC) for at in (since, until))
        if not first < last <= datetime.now(UTC):
            raise InvalidArgumentError(f"A backfill is of past times: not of {first} to {last}.")
        policy = temporal.ScheduleOverlapPolicy.BUFFER_ALL
        with server_errors():
            handle = await self._handle(name)
            await handle.backfill(temporal.ScheduleBackfill(first, last, overlap=policy))

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule; its tasks stay, and those in progress go on.

        Args:
            name: Name of the schedule.

        Raises:
            NotFoundError: There is no such schedule.
        """
        with server_errors():
            await (await self._handle(name)).delete()

    async def set_retention(
        self,
        agent: str,
        days: Annotated[float, Field(gt=0)],
        *,
        by: str,
        rate: Annotated[float, Field(gt=0)] = 60.0,
        every: Every = "day 03:00",
    ) -> Retention:
        """Erase the closed tasks of an agent of this app after some days, with certificates.

        A schedule of Temporal's begins a workflow that looks at the archive. What is held stays
        until the hold ends; so does a task that has forks, until these have gone.

        Args:
            agent: The agent that the tasks began with.
            days: Days since a task was closed.
            by: Who sets it.
            rate: Most tasks that are erased in a minute.
            every: When, in UTC, as for `add_schedule`.

        Raises:
            InvalidArgumentError: `every` names no time, or `by` no person.
            ConnectError: The server could not be reached.
        """
        check_arguments(TaskScheduling.set_retention, days=days, rate=rate)
        if not check_by(by):
            raise InvalidArgumentError("A retention has a person who sets it: by=...")
        name = _retention(self.app, check_name("agent", agent))
        rule = Retention(app=self.app, agent=agent, days=days, rate=rate, by=by)
        made = temporal.Schedule(
            action=temporal.ScheduleActionStartWorkflow(
                "Retention", rule, id=name, task_queue=self._queue_for(agent)
            ),
            spec=spec_of(every, "UTC"),
            policy=temporal.SchedulePolicy(overlap=temporal.ScheduleOverlapPolicy.SKIP),
        )
        with server_errors():
            try:
                await self.client.create_schedule(name, made)
            except temporal.ScheduleAlreadyRunningError:
                there = self.client.get_schedule_handle(name)
                await there.update(lambda _: temporal.ScheduleUpdate(made))
                await self._end_runs((await there.describe()).info.running_actions)
        return rule

    async def _end_runs(self, begun: Sequence[temporal.ScheduleActionExecution]) -> None:
        """End the runs of a rule that does not hold any more; a begun erasure goes on."""
        for each in begun:
            if isinstance(each, temporal.ScheduleActionExecutionStartWorkflow):
                run = self.client.get_workflow_handle(each.workflow_id)
                with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):  # it has ended
                    await run.terminate("The retention was changed or ended.")

    async def list_retentions(self) -> list[Retention]:
        """List the retentions of this app by the name of their agent.

        Raises:
            ConnectError: The server could not be reached.
        """
        found: list[Retention] = []
        with server_errors():
            async for each in await self.client.list_schedules():
                if not each.id.startswith(_retention(self.app, "")):
                    continue
                there = await self.client.get_schedule_handle(each.id).describe()
                action = there.schedule.action
                if isinstance(action, temporal.ScheduleActionStartWorkflow):
                    given: Any = action.args
                    found += await self.client.data_converter.decode(given, [Retention])
        return sorted(found, key=lambda each: each.agent)

    async def end_retention(self, agent: str) -> None:
        """Keep the tasks of an agent again, without an end.

        Raises:
            NotFoundError: There is no retention for it.
            ConnectError: The server could not be reached.
        """
        name = _retention(self.app, check_name("agent", agent))
        try:
            with server_errors(RPCStatusCode.NOT_FOUND):
                there = self.client.get_schedule_handle(name)
                await there.pause()  # so that no run begins once these are known
                begun = (await there.describe()).info.running_actions
                await there.delete()
            await self._end_runs(begun)
        except RPCError as error:
            msg = f"There is no retention for the agent {agent!r} of app {self.app!r}."
            raise NotFoundError(msg) from error

    async def _handle(self, name: str) -> temporal.ScheduleHandle:
        """Return the handle of a schedule that exists.

        Raises:
            NotFoundError: There is no such schedule.
        """
        await self._schedule(name)
        return self.client.get_schedule_handle(name)

    async def _schedule(self, name: str) -> Schedule:
        """Read a schedule.

        Raises:
            NotFoundError: There is no such schedule, or it begins other workflows than tasks.
        """
        if (found := await self._found(check_new_id(name))) is not None:
            return found
        known = [each.name for each in await self.list_schedules()]
        raise NotFoundError(f"There is no schedule {shown(name)} of tasks.{instead(name, known)}")

    async def _found(self, name: str) -> Schedule | None:
        """Read a schedule of tasks; return None for any other name."""
        try:
            with server_errors(RPCStatusCode.NOT_FOUND):
                found = await self.client.get_schedule_handle(name).describe()
        except RPCError:
            return None
        action = found.raw_description.schedule.action.start_workflow
        if action.workflow_type.name != AGENT_TASK:
            return None
        read = await read_memo(found.data_converter, cast("Any", action))
        return _read(found, action, str(read.get(INPUT_MEMO, "")))


def _retention(app: str, agent: str) -> str:
    """Return the name of the schedule of a retention; no schedule of tasks can have it."""
    return f"{app}~retention~{agent}"


def _read(
    found: temporal.ScheduleDescription, action: NewWorkflowExecutionInfo, asked: str
) -> Schedule:
    """Return a schedule as the server describes it."""
    plan, info = found.schedule, found.info
    named = action.search_attributes.indexed_fields.get(HF_AGENT.name)
    clock = [each.comment or "" for each in plan.spec.calendars]
    started = (each.action for each in reversed(info.recent_actions))
    newest = [getattr(each, "workflow_id", "") for each in started]
    return Schedule(
        name=found.id,
        app=app_of(action.task_queue.name),
        agent="" if named is None else str(json.loads(named.data)),
        input=asked,
        every=(*clock, *(str(each.every) for each in plan.spec.intervals)),
        time_zone=plan.spec.time_zone_name or "UTC",
        overlap=cast("Overlap", plan.policy.overlap.name.lower()),
        catch_up=(plan.policy.catchup_window or timedelta()).total_seconds(),
        paused=(plan.state.note or "somebody") if plan.state.paused else "",
        next=() if plan.state.paused else tuple(at.timestamp() for at in info.next_action_times),
        tasks=tuple(newest),
        begun=info.num_actions,
        missed=info.num_actions_missed_catchup_window,
        skipped=info.num_actions_skipped_overlap,
    )


def spec_of(every: Every, time_zone: str) -> temporal.ScheduleSpec:
    """Return times as the server takes them.

    Args:
        every: As for `add_schedule`.
        time_zone: Time zone of clock times.

    Raises:
        InvalidArgumentError: One of them names no time, or there is no such time zone.
    """
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"There is no time zone {shown(time_zone)}: name it as in Europe/Berlin, or UTC."
        raise InvalidArgumentError(msg) from None
    several = [every] if isinstance(every, str | timedelta) else every
    spans = [each for each in several if isinstance(each, timedelta) or SPAN.fullmatch(each)]
    crons = [_cron(each) for each in several if isinstance(each, str) and each not in spans]
    if not (spans or crons):
        raise _no_time("")
    intervals = [temporal.ScheduleIntervalSpec(every=span_of(each)) for each in spans]
    return temporal.ScheduleSpec(
        intervals=intervals, cron_expressions=crons, time_zone_name=time_zone
    )


def _cron(given: str) -> str:
    """Return a time as cron has it, with the time as it was given: the server keeps a comment.

    Raises:
        InvalidArgumentError: It names no time.
    """
    if clock := _CLOCK.fullmatch(given):
        days = "*" if clock[1] == "day" else re.sub("(?i)(?<!sun)-sun", "-Sat,Sun", clock[1])
        return f"{int(clock[3])} {int(clock[2])} * * {days} #{given}"
    if len(fields := given.split()) != _CRON_FIELDS:
        raise _no_time(given)
    first = min(int(re.split(r"\D", day)[0] or 1) for day in fields[2].split(","))
    if first > max(_DAYS.get(re.sub("^0+", "", m).lower(), 31) for m in fields[3].split(",")):
        raise InvalidArgumentError(f"every={shown(given)} never comes: no such month has that day.")
    return f"{given} #{given}"


def span_of(given: str | timedelta) -> timedelta:
    """Return how long it is from one time to the next.

    Raises:
        InvalidArgumentError: It is less than a second.
    """
    found = given if isinstance(given, timedelta) else span_in(given)
    if found is None or found < timedelta(seconds=1):
        raise _no_time(str(given))
    return found


def _no_time(given: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"every={shown(given)} names no time. Say 'Mon 09:00', 'Mon-Fri 09:00', 'day 09:00',"
        " '30 min', '2 h', a timedelta of at least a second, or five fields of cron."
    )
