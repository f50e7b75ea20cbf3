"""`deploys`: the builds of the code that workers have, and which of them may be stopped.

It asks the server alone, and loads what that needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from temporalio.api.deployment.v1 import RoutingConfig, WorkerDeploymentInfo
from temporalio.api.enums.v1 import WorkerDeploymentVersionStatus
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeWorkerDeploymentRequest,
    ListWorkerDeploymentsRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.cli import output
from holdfast.cli.commands.lists.service import Service, service_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.search_attributes import OPEN_TASKS, PINNED, VERSION, is_
from holdfast.errors import NotFoundError


class _Version(NamedTuple):
    """A build.

    Attributes:
        deployment: Name of its deployment.
        build: Its name.
        state: What the server says of it: current, ramping, draining, drained, inactive.
        tasks: Open tasks that it was the last to decide for.
        pinned: Open workflows, tasks or not, that no other build can go on with.
        takes: Whether it gets new tasks.
    """

    deployment: str
    build: str
    state: str
    tasks: int
    pinned: int
    takes: bool

    @property
    def may_stop(self) -> bool:
        """Whether no task needs its workers any more."""
        return not self.takes and not self.pinned


async def deploys_command(common: Common, deployment: str | None) -> ExitCode:
    """List the versions of one deployment, or of all.

    Raises:
        NotFoundError: There is no such deployment.
    """
    async with service_of(common) as service:
        names = [deployment] if deployment else [name async for name in _names(service)]
        found = [each for name in names for each in await _versions(service, name)]
        without = await _count(service, f"{OPEN_TASKS} AND {VERSION} IS NULL")
    data = [{**each._asdict(), "may_stop": each.may_stop} for each in found]
    rows = [
        (
            *(each.deployment, each.build, each.state, str(each.tasks), str(each.pinned)),
            "yes" if each.may_stop else "no",
        )
        for each in found
    ]
    columns = ("deployment", "build", "state", "open tasks", "pinned", "may be stopped")
    none = "No worker names a deployment."
    output.listed(data, none, columns, rows, as_json=common.json)
    if without and not common.json:
        output.say(f"Open tasks of no build: {without}.")
    return ExitCode.OK


async def _names(service: Service) -> AsyncIterator[str]:
    """List the deployments of the namespace."""
    token = b""
    while True:
        asked = ListWorkerDeploymentsRequest(namespace=service.namespace, next_page_token=token)
        page = await service.calls.list_worker_deployments(asked, retry=True)
        for each in page.worker_deployments:
            yield each.name
        token = page.next_page_token
        if not token:
            return


async def _versions(service: Service, name: str) -> list[_Version]:
    """Describe the versions of a deployment, the newest first.

    Raises:
        NotFoundError: There is no such deployment.
    """
    asked = DescribeWorkerDeploymentRequest(namespace=service.namespace, deployment_name=name)
    try:
        found = await service.calls.describe_worker_deployment(asked, retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        msg = f"There is no deployment {name!r} in namespace {service.namespace!r}."
        remedy = "Workers make it: `holdfast worker --deployment NAME --build ID`."
        raise NotFoundError(msg, remedy=remedy) from error
    info = found.worker_deployment_info
    return [await _version(service, info, each) for each in info.version_summaries]


async def _version(
    service: Service,
    info: WorkerDeploymentInfo,
    found: WorkerDeploymentInfo.WorkerDeploymentVersionSummary,
) -> _Version:
    build = found.deployment_version.build_id
    routing: RoutingConfig = info.routing_config
    state = WorkerDeploymentVersionStatus.Name(found.status).rpartition("_")[2].lower()
    takes = build == routing.current_deployment_version.build_id
    if build == routing.ramping_deployment_version.build_id:
        takes, state = True, f"ramping {routing.ramping_version_percentage:g} %"
    at = is_(VERSION, f"{info.name}:{build}")
    pinned = f"ExecutionStatus = 'Running' AND {PINNED}{at}"
    return _Version(
        deployment=info.name,
        build=build,
        state=state,
        tasks=await _count(service, OPEN_TASKS + at),
        pinned=await _count(service, pinned),
        takes=takes,
    )


async def _count(service: Service, query: str) -> int:
    asked = CountWorkflowExecutionsRequest(namespace=service.namespace, query=query)
    return (await service.calls.count_workflow_executions(asked, retry=True)).count
