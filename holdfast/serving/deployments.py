"""Which build of the code a worker process is, and whether it can take over open tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.client import Client, WorkflowExecution, WorkflowHistory
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer, WorkerDeploymentConfig

from holdfast.engine.converter import telling
from holdfast.engine.search_attributes import BEHAVIOUR, SESSIONS, TASKS, VERSION, is_
from holdfast.errors import InvalidArgumentError, OpenTasksError
from holdfast.reading.queries import server_errors
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

DEPLOYMENT, BUILD, PIN, CHECK = (
    f"HOLDFAST_{name}" for name in ("DEPLOYMENT", "BUILD", "PIN", "CHECK")
)
USUAL_SAMPLE = 50
"""Open tasks that a check replays when no number is given."""

MOST_BYTES = 64_000_000
"""Bytes of histories that a check reads of each queue. A task whose history is longer than what is
left is not replayed."""

_DECIDED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,99}")


def _named(variable: str, controllers: str, given: str | None) -> str:
    """Return a name as given, or as the environment says; last, that of Temporal's controller."""
    found = os.environ.get(variable) or os.environ.get(controllers, "")
    return found if given is None else given


def deployment_config(
    deployment: str | None = None, build: str | None = None, *, pin: bool | None = None
) -> WorkerDeploymentConfig | None:
    """Say which build of a deployment a worker is; None where nothing names one.

    Args:
        deployment: Name of the Worker Deployment; `HOLDFAST_DEPLOYMENT` by default.
        build: Name of this build of the code; `HOLDFAST_BUILD` by default.
        pin: Whether tasks end with the build that they began with, `HOLDFAST_PIN=1` by default.
            Otherwise they go on with the current build at their next workflow task.

    Raises:
        InvalidArgumentError: One of the names is missing, or cannot be used.
    """
    names = {
        DEPLOYMENT: _named(DEPLOYMENT, "TEMPORAL_DEPLOYMENT_NAME", deployment),
        BUILD: _named(BUILD, "TEMPORAL_WORKER_BUILD_ID", build),
    }
    pins = os.environ.get(PIN) == "1" if pin is None else pin
    if not any(names.values()) and not pins:
        return None
    for variable, name in names.items():
        if not _NAME.fullmatch(name) or (variable == DEPLOYMENT and "." in name):
            option = variable.removeprefix("HOLDFAST_").lower()
            raise InvalidArgumentError(
                f"--{option} ({variable}) is {name!r}. A worker of a deployment needs both names,"
                " of at most 100 letters, digits, -, _ and /; a build may have dots too. The server"
                " gives no work to a worker with another name."
            )
    behaviour = VersioningBehavior.PINNED if pins else VersioningBehavior.AUTO_UPGRADE
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(names[DEPLOYMENT], names[BUILD]),
        use_worker_versioning=True,
        default_versioning_behavior=behaviour,
    )


async def warn_of_no_current(client: Client, config: WorkerDeploymentConfig) -> None:
    """Log a warning when a deployment has no current version: its workers get no new task."""
    name = config.version.deployment_name
    asked = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=name)
    try:
        found = await client.workflow_service.describe_worker_deployment(asked)
        if found.worker_deployment_info.routing_config.current_deployment_version.build_id:
            return
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            log.info("the current version of deployment %r is not known: %s", name, error.message)
            return
    log.warning(
        "deployment %r has no current version: tasks wait until `temporal worker deployment"
        " set-current-version --deployment-name %s --build-id %s` makes one current",
        *(name, name, config.version.build_id),
    )


def sample_size(*, asked: bool) -> int:
    """Return how many open tasks a worker replays before it polls; 0 for none.

    Args:
        asked: Whether a check is asked for; else `HOLDFAST_CHECK` alone does so, by its number.

    Raises:
        InvalidArgumentError: `HOLDFAST_CHECK` is not a number.
    """
    given = os.environ.get(CHECK, "")
    if given and not re.fullmatch(r"[0-9]{1,6}", given):
        msg = f"{CHECK} is {given!r}. It is the number of open tasks to replay, such as 50."
        raise InvalidArgumentError(msg)
    return int(given or (USUAL_SAMPLE if asked else 0))


async def check_open_tasks(
    client: Client, queues: Collection[str], config: WorkerDeploymentConfig | None, most: int
) -> None:
    """Replay open tasks and sessions that this process would take over.

    It leaves out what is pinned to another build, and so never comes here.

    Args:
        client: Temporal client, with Holdfast's data converter.
        queues: The queues that the process is to serve.
        config: Its deployment.
        most: Most tasks of each queue: half of them the oldest, the others the newest.

    Raises:
        OpenTasksError: One cannot be replayed.
        ConnectError: The server did not answer.
    """
    replayer = Replayer(
        workflows=_workflows(), data_converter=telling(client.data_converter), build_id="check"
    )
    failed: dict[str, str] = {}
    unread: list[str] = []
    done = skipped = 0
    for queue in queues:
        left, before = MOST_BYTES, (done, skipped)
        for task in await _sample(client, _coming(queue, config), most):
            history, size = await _read(client, task, left)
            left -= size
            if history is None:
                skipped += 1
                continue
            done += 1
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            if result.replay_failure is not None:
                failed[task.id] = redact(f"{result.replay_failure}")
        if done == before[0] and skipped > before[1]:
            unread.append(queue)
    if failed:
        raise OpenTasksError(
            f"{len(failed)} of {done} open tasks that were replayed cannot go on with this code:"
            f" {', '.join(failed)}. The first: {next(iter(failed.values()))}",
            [*failed],
        )
    if unread:
        log.warning("no open task of these queues was replayed: %s", ", ".join(unread))
    more = f"; {skipped} just begun or with a long history were left out" if skipped else ""
    log.info("open tasks replayed: %s; all go on with this code%s", done, more)


def _workflows() -> list[type]:
    from holdfast.serving.activities import WORKFLOWS

    return WORKFLOWS


def _coming(queue: str, config: WorkerDeploymentConfig | None) -> str:
    """Return the query for what a worker of a queue may be given."""
    free = f"{BEHAVIOUR} IS NULL OR {BEHAVIOUR} != 'Pinned'"
    if config is not None:
        version = config.version
        free += f" OR {VERSION} = '{version.deployment_name}:{version.build_id}'"
    where = f"ExecutionStatus = 'Running'{is_('TaskQueue', queue)}"
    return f"({TASKS} OR {SESSIONS}) AND ({free}) AND {where}"


async def _sample(client: Client, query: str, most: int) -> list[WorkflowExecution]:
    """List some of the oldest runs and of the newest.

    Stores list the newest first, and not every one sorts. So the age is doubled until no run is
    older. The age before that one finds the oldest.
    """
    oldest, age, now = query, timedelta(hours=1), datetime.now(UTC)
    found: dict[str, WorkflowExecution] = {}
    with server_errors():
        while (await client.count_workflows(older := _before(query, now - age))).count:
            oldest, age = older, 2 * age
        for each, size in ((oldest, most // 2), (query, most)):
            async for run in client.list_workflows(each, limit=size):
                if len(found) < most:
                    found[run.id] = run
    return [*found.values()]


def _before(query: str, at: datetime) -> str:
    return f"{query} AND StartTime < '{at.isoformat(timespec='seconds')}'"


async def _read(
    client: Client, task: WorkflowExecution, most: int
) -> tuple[WorkflowHistory | None, int]:
    """Read the history of a run; None when it is gone, longer than these bytes, or just begun.

    The replayer would wait for ever for the first decision of a run that has none.

    Returns:
        The history, and the bytes that were read.
    """
    if most <= 0:
        return None, 0
    handle = client.get_workflow_handle(task.id, run_id=task.run_id)
    events, size = list[HistoryEvent](), 0
    try:
        with server_errors(RPCStatusCode.NOT_FOUND):
            async for event in handle.fetch_history_events():
                size += event.ByteSize()
                if size > most:
                    return None, size
                events.append(event)
    except RPCError:
        return None, size
    has_decision = any(event.event_type == _DECIDED for event in events)
    return WorkflowHistory(task.id, events) if has_decision else None, size
