"""The worker process: it answers activities by Holdfast's own functions, or by a table.

Holdfast's functions run as they are, with a scripted model in the same process, so digests,
cursors, leases and archived records are checked by the code that checks them in production. They
take 2 to 4 ms, twice as long as a workflow task. So in most schedules a table answers the plain
cases of `step`, `tool` and `describe`, and leaves all else to the functions; in the others (`real`)
the functions answer everything.

An attempt runs from its begin to its end while nothing else happens. What happens meanwhile, and
whether its end ever arrives, is decided before and after it.
"""

import asyncio
import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable
from inspect import unwrap
from typing import Any

from temporalio.activity import _Definition as Definition  # pyright: ignore[reportPrivateUsage]
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_commands import ScheduleActivity, ScheduleLocalActivity
from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment

from holdfast import Agent
from holdfast.archive.archive import Archive
from holdfast.serving.activities import Activities
from holdfast.task.data.calls import LONG_CALL, LongCall
from holdfast.task.data.children import secret_of_child
from tests.simulation.activity import Activity
from tests.simulation.clock import VirtualLoop
from tests.simulation.run import CONVERTER
from tests.simulation.server import Server
from tests.simulation.service import client_of
from tests.simulation.table import Table


class MemoryStore:
    """Bytes under paths, in memory."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def where(self, path: str) -> str:
        return path

    def read(self, path: str) -> bytes:
        try:
            return self._data[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def size(self, path: str) -> int | None:
        return len(self._data[path]) if path in self._data else None

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        del forced
        self._data[path] = data

    def add(self, path: str, data: bytes) -> None:
        if self.size(path) != len(data):
            self.write(path, data)

    def create(self, path: str, data: bytes, *, exclusively: bool = False) -> bool:
        del exclusively
        return self._data.setdefault(path, data) is data

    def delete(self, path: str) -> None:
        if self._data.pop(path, None) is None:
            raise FileNotFoundError(path)

    def find(self, folder: str) -> list[str]:
        return [path for path in self._data if path.startswith(f"{folder}/")]


def memory_archive() -> Archive:
    """Make an archive in memory."""
    archive = Archive("simulated")
    vars(archive)["_store"] = MemoryStore()
    return archive


class SimWorker:
    """One worker process; a second one begins with empty caches.

    Attributes:
        archive: The archive of the namespace.
    """

    def __init__(self, server: Server, archive: Archive, table: Table | None = None) -> None:
        self.archive = archive
        self._table = table
        self._server = server
        self._client = client_of(server)
        self._loops: list[VirtualLoop] = []
        self._functions: dict[str, tuple[Callable[..., Any], list[Any]]] = {}

    def serve(self, agents: Iterable[Agent]) -> None:
        """Serve these agents, in place of those before, as a process that was just started."""
        activities = Activities(agents, self.archive)
        for function in activities.all:
            known = _definition(function)
            # Without what keeps a call alive over a rollover: that needs a second process.
            self._functions[str(known.name)] = (unwrap(function), list(known.arg_types or []))

    def perform(self, activity: Activity) -> Payload | Failure:
        """Run an attempt; return its result or its failure."""
        function, given = self._functions[activity.kind][0], self._given(activity)
        try:
            found = self._answer(activity, function, given)
        except Exception as error:  # noqa: BLE001  whatever it raises, its workflow learns of it
            failure = Failure()
            CONVERTER.failure_converter.to_failure(error, CONVERTER.payload_converter, failure)
            return failure
        [payload] = CONVERTER.payload_converter.to_payloads([found])
        return payload

    def announcement(self, activity: Activity, id: str) -> Payload:
        """Say to the task that a call runs for long, and by which id it goes on."""
        [given] = self._given(activity)
        secret = secret_of_child(activity.run.code.core.given.secret, LONG_CALL)
        began = round(activity.since, 3)
        call = LongCall(id=id, branch=given.branch, n=given.n, i=given.i, secret=secret)
        call = call.model_copy(update={"started": began, "tried": given.tried})
        return CONVERTER.payload_converter.to_payloads([call])[0]

    def _given(self, activity: Activity) -> list[Any]:
        hints = self._functions[activity.kind][1] or None
        return CONVERTER.payload_converter.from_payloads(list(activity.command.arguments), hints)

    def _answer(self, activity: Activity, function: Callable[..., Any], given: list[Any]) -> Any:
        table, now = self._table, self._server.clock.now
        known = None if table is None else table.answer(activity, given, now)
        if known is not None:
            return known
        environment = ActivityEnvironment(self._client)
        environment.payload_converter = CONVERTER.payload_converter
        environment.info = _info_of(activity)
        environment.on_heartbeat = lambda *details: _keep(activity, details)
        found = self._in_a_loop(environment.run(function, *given))
        if table is not None:
            table.learn(activity, given, found)
        return found

    def _in_a_loop(self, work: Any) -> Any:
        """Run to the end, on a loop of its own: a query may have a local activity run inside."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        loop = self._loops.pop() if self._loops else VirtualLoop(self._server.clock)
        try:
            return loop.run(work)
        finally:
            self._loops.append(loop)
            asyncio._set_running_loop(before)

    def close(self) -> None:
        """Close the loops."""
        for loop in self._loops:
            loop.close()


def _definition(function: Callable[..., Any]) -> Definition:
    return Definition.must_from_callable(function)  # pyright: ignore[reportUnknownMemberType]  temporalio's types


def _keep(activity: Activity, details: tuple[Any, ...]) -> None:
    activity.beat = CONVERTER.payload_converter.to_payloads(details)


def _info_of(activity: Activity) -> Any:
    run, command = activity.run, activity.command
    beat = None
    if isinstance(command, ScheduleActivity) and command.HasField("heartbeat_timeout"):
        beat = command.heartbeat_timeout.ToTimedelta()
    at = dt.datetime.fromtimestamp(activity.since, dt.UTC)
    return dataclasses.replace(
        ActivityEnvironment.default_info(),
        activity_id=command.activity_id,
        activity_type=command.activity_type,
        attempt=activity.attempt,
        heartbeat_details=CONVERTER.payload_converter.from_payloads(list(activity.beat))
        if activity.beat
        else [],
        heartbeat_timeout=beat,
        is_local=isinstance(command, ScheduleLocalActivity),
        current_attempt_scheduled_time=at,
        scheduled_time=dt.datetime.fromtimestamp(activity.at, dt.UTC),
        started_time=at,
        task_queue="hf-sim",
        task_token=activity.token,
        workflow_id=run.id,
        workflow_run_id=run.begin.run_id,
        workflow_type=run.begin.kind,
        retry_policy=RetryPolicy.from_proto(command.retry_policy),
    )
