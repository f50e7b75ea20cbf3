"""A runner that sees one tenant's tasks: what is another's is not there for it.

The desk filters nothing itself. It gives each visitor a runner whose every request to the server is
looked at, and whose records are: a new page or route cannot forget to.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.api.common.v1 import SearchAttributes, WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleRequest,
    DescribeWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode, ServiceClient

from holdfast.archive.archive import Archive
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.tokens import NotAllowedError
from holdfast.engine.search_attributes import HF_TENANT
from holdfast.errors import InvalidArgumentError, TaskNotFoundError
from holdfast.reading.reader import Reader
from holdfast.reading.records import Records
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import Receipt
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import (
    MADE,
    approval_parts,
    is_session,
    owned,
    session_id,
    session_name,
    task_of,
)

_OF_ALL = frozenset(
    {
        "describe_namespace",
        "describe_task_queue",
        "get_cluster_info",
        "get_system_info",
        "list_workers",
    }
)
"""Requests that are about no task: their answers name queues and worker processes."""

_NEW = frozenset({"create_schedule", "start_workflow_execution"})


_QUOTES = frozenset("\"'`\\")


class _Service(ServiceClient):
    """Sends a tenant's requests, and answers those about others' as if these were not there."""

    def __init__(self, inner: ServiceClient, app: str, tenant: str) -> None:
        super().__init__(inner.config)
        self._inner, self._tenant = inner, tenant
        sessions = session_id(app, owned(tenant, "-"))[:-1]
        mine = f"{HF_TENANT.name} = '{tenant}'"
        named = f"{mine} OR WorkflowId STARTS_WITH '{sessions}'"
        # Sessions of an app whose name has a quote cannot be asked for so, and are not listed.
        self._runs = mine if _QUOTES & {*app} else f"({named})"
        self._schedules = mine

    @property
    def worker_service_client(self) -> Any:
        return self._inner.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        self._inner.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._inner.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: type[Any],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,  # noqa: ASYNC109  the base class's
    ) -> Any:
        if rpc not in _OF_ALL:
            req = await self._own(rpc, req)
        answer = await self._inner._rpc_call(  # noqa: SLF001  what the class is a way to
            rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
        )
        # A store may compare without regard to case: what is listed is looked at again.
        if rpc == "list_workflow_executions":
            _keep(answer.executions, lambda run: self._lists(run.execution.workflow_id, run))
        elif rpc == "list_schedules":
            _keep(answer.schedules, lambda schedule: self._lists("", schedule))
        return answer

    def _lists(self, id: str, listed: Any) -> bool:
        if is_session(id):
            return self._names(id)
        return _tenant_in(listed.search_attributes) == self._tenant

    async def _own(self, rpc: str, req: Any) -> Any:
        """Return a request as the tenant may send it.

        Raises:
            RPCError: It is about what is not the tenant's.
        """
        fields = req.DESCRIPTOR.fields_by_name
        if "query" in fields and isinstance(req.query, str):
            mine = self._schedules if rpc == "list_schedules" else self._runs
            made = type(req)()
            made.CopyFrom(req)
            made.query = f"({req.query}) AND {mine}" if req.query else mine
            return made
        id, is_schedule = _about(req, fields), "schedule_id" in fields
        is_own = bool(id) and (
            self._names(id)
            if is_session(id) and not is_schedule
            else _tenant_in(req.search_attributes) == self._tenant
            if rpc in _NEW
            else await self._has(req.namespace, id, is_schedule=is_schedule)
        )
        if not is_own:
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
        return req

    def _names(self, id: str) -> bool:
        return session_name(id).startswith(owned(self._tenant, ""))

    async def _has(self, namespace: str, id: str, *, is_schedule: bool) -> bool:
        service = self._inner.workflow_service
        if is_schedule:
            asked = DescribeScheduleRequest(namespace=namespace, schedule_id=id)
            described = await service.describe_schedule(asked, retry=True)
            return _tenant_in(described.search_attributes) == self._tenant
        execution = WorkflowExecution(workflow_id=id)
        wanted = DescribeWorkflowExecutionRequest(namespace=namespace, execution=execution)
        found = await service.describe_workflow_execution(wanted, retry=True)
        return _tenant_in(found.workflow_execution_info.search_attributes) == self._tenant


class _Records(Records):
    """The records of a tenant's closed tasks."""

    def __init__(self, tasks: Reader, archive: Archive, tenant: str) -> None:
        super().__init__(tasks, archive)
        self._tenant = tenant

    async def has(self, task_id: str) -> bool:
        return await self.found(task_id) is not None

    async def found(self, task_id: str) -> Json | None:
        data = await super().found(task_id)
        return data if _recorded(data) == self._tenant else None


def runner_of(runner: AgentRunner, tenant: str) -> AgentRunner:
    """Return a runner that sees a tenant's tasks, sessions and schedules alone, and creates such.

    Args:
        runner: A runner that is started and sees all.
        tenant: The tenant; for an empty one, the runner itself is returned.
    """
    if not tenant:
        return runner
    settings = runner.client.config(active_config=True)
    settings["plugins"] = []  # they have made these settings
    settings["service_client"] = _Service(runner.client.service_client, runner.app, tenant)
    reader = Reader(Client(**settings), runner.archive)
    reader.records = _Records(reader, runner.archive, tenant)
    made = copy.copy(runner)
    vars(made).update(_reader=reader, _tenant=tenant, approve=partial(_approve, made))
    return made


async def _approve(
    runner: AgentRunner, approval: Approval | str, *given: Any, **options: Any
) -> Receipt:
    """Approve what a tenant may decide: not that it goes past its own day.

    Raises:
        NotAllowedError: The approval is about that.
    """
    id = approval if isinstance(approval, str) else approval.id
    waits = await runner.pending_approvals(task_of(id))
    if any(each.id == id and each.is_of_day for each in waits):
        raise NotAllowedError("Only who sees all tenants may let one go past its day.")
    return await AgentRunner.approve(runner, approval, *given, **options)


async def tenant_of(runner: AgentRunner, subject: str) -> str:
    """Return the tenant of a task, an approval or a session; empty for none.

    Args:
        runner: A runner that sees all.
        subject: Its id, or the name of a session that a tenant has.

    Raises:
        ConnectError: The server could not be reached.
    """
    if not runner.is_started:  # nothing can be read or done either
        return ""
    ids = [subject]
    with suppress(InvalidArgumentError):
        ids.append(approval_parts(subject)[0])
    for id in ids:
        try:
            found = await runner.reader.describe(id)
        except TaskNotFoundError:
            if known := _recorded(await runner.reader.records.found(id)):
                return known
        else:
            return found.typed_search_attributes.get(HF_TENANT) or ""
    return subject.partition(MADE)[0] if MADE in subject else ""


def _keep(listed: Any, wanted: Callable[[Any], bool]) -> None:
    kept = [each for each in listed if wanted(each)]
    del listed[:]
    listed.extend(kept)


def _about(req: Any, fields: Mapping[str, object]) -> str:
    """Return the id of the workflow or the schedule that a request is about; empty for none."""
    for name in ("schedule_id", "workflow_id"):
        if name in fields:
            return str(getattr(req, name))
    for name in ("workflow_execution", "execution"):
        if name in fields:
            return str(getattr(req, name).workflow_id)
    return str(req.update_ref.workflow_execution.workflow_id) if "update_ref" in fields else ""


def _tenant_in(given: SearchAttributes) -> str:
    named = given.indexed_fields.get(HF_TENANT.name)
    return "" if named is None else str(json.loads(named.data))


def _recorded(data: Json | None) -> str:
    return str(as_object(as_object(data).get("head")).get("tenant", ""))
