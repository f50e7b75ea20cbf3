"""The simulated server as activities see it: Temporal's own client on a service of our own."""

import datetime as dt
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NoReturn

from google.protobuf.message import Message
from temporalio.api.enums.v1 import (
    HistoryEventFilterType,
    PendingActivityState,
    QueryRejectCondition,
    WorkflowExecutionStatus,
)
from temporalio.api.workflowservice import v1 as api
from temporalio.client import Client
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from tests.simulation.activity import Activity
from tests.simulation.run import CONVERTER, Run
from tests.simulation.server import Server

STATUS = {
    "running": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
    "completed": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED,
    "failed": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED,
    "cancelled": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED,
    "terminated": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED,
    "continued": WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
}


def _not_found(what: str) -> NoReturn:
    raise RPCError(f"{what} not found", RPCStatusCode.NOT_FOUND, b"")


CLOSE_EVENT = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT


class Service(ServiceClient):
    """Answers the requests of a client out of a simulated server."""

    def __init__(self, server: Server) -> None:
        super().__init__(ConnectConfig(target_host="simulated", identity="sim"))
        self._server = server

    @property
    def worker_service_client(self) -> NoReturn:
        raise NotImplementedError

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Keep none."""

    def update_api_key(self, api_key: str | None) -> None:
        """Keep none."""

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: type[Message],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        answer: Callable[[Any], Message] = getattr(self, f"_{rpc}")
        return answer(req)

    def _run(self, execution: Any) -> Run:
        found = self._server.find(execution.workflow_id, execution.run_id)
        return found or _not_found(f"workflow {execution.workflow_id!r}")

    def _describe_workflow_execution(
        self, req: api.DescribeWorkflowExecutionRequest
    ) -> api.DescribeWorkflowExecutionResponse:
        run, found = self._run(req.execution), api.DescribeWorkflowExecutionResponse()
        info = found.workflow_execution_info
        info.execution.workflow_id, info.execution.run_id = run.key
        info.type.name, info.status, info.history_length = (
            run.begin.kind,
            STATUS[run.status],
            run.events,
        )
        info.start_time.FromDatetime(dt.datetime.fromtimestamp(run.begin.at, dt.UTC))
        if not run.is_open:
            info.close_time.CopyFrom(info.start_time)
        for name, value in run.memo.items():
            info.memo.fields[name].CopyFrom(value)
        info.search_attributes.CopyFrom(run.attributes)
        if run.begin.parent:
            info.parent_execution.workflow_id, info.parent_execution.run_id = run.begin.parent
        if self._server.has_news(run):
            found.pending_workflow_task.SetInParent()
        for each in self._server.activities:
            if each.run is run:
                self._pend(found, each)
        return found

    def _pend(self, found: api.DescribeWorkflowExecutionResponse, activity: Activity) -> None:
        pending = found.pending_activities.add()
        pending.activity_id, pending.attempt = activity.command.activity_id, activity.attempt
        pending.activity_type.name = activity.kind
        pending.state = (
            PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            if activity.since
            else PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        )
        if activity.failure is not None:
            pending.last_failure.CopyFrom(activity.failure)

    def _get_workflow_execution_history(
        self, req: api.GetWorkflowExecutionHistoryRequest
    ) -> api.GetWorkflowExecutionHistoryResponse:
        """Tell how a run ended; or the run before it and its activities, as marks of calls ask."""
        run, found = self._run(req.execution), api.GetWorkflowExecutionHistoryResponse()
        if req.history_event_filter_type == CLOSE_EVENT:
            event = found.history.events.add()
            match run.status:
                case "completed":
                    completed = event.workflow_execution_completed_event_attributes
                    completed.result.payloads.append(run.result)
                case "failed":
                    event.workflow_execution_failed_event_attributes.failure.CopyFrom(run.result)
                case "cancelled":
                    event.workflow_execution_canceled_event_attributes.SetInParent()
                case "terminated":
                    event.workflow_execution_terminated_event_attributes.SetInParent()
                case _:
                    raise RPCError("waiting is not simulated", RPCStatusCode.UNIMPLEMENTED, b"")
            return found
        chain = self._server.chains[run.id]
        began = found.history.events.add().workflow_execution_started_event_attributes
        before = chain[: chain.index(run)][-1:]
        if before and before[0].status == "continued":
            began.continued_execution_run_id = before[0].begin.run_id
        began.input.payloads.extend(run.begin.input)
        began.SetInParent()
        for id, at in run.scheduled:
            event = found.history.events.add()
            event.event_time.FromDatetime(dt.datetime.fromtimestamp(at, dt.UTC))
            event.activity_task_scheduled_event_attributes.activity_id = id
        return found

    def _query_workflow(self, req: api.QueryWorkflowRequest) -> api.QueryWorkflowResponse:
        run, found = self._run(req.execution), api.QueryWorkflowResponse()
        wants_open = QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_OPEN
        if req.query_reject_condition == wants_open and not run.is_open:
            found.query_rejected.status = STATUS[run.status]
            return found
        self._server.drain(run)
        args = CONVERTER.payload_converter.from_payloads(list(req.query.query_args.payloads))
        found.query_result.payloads.append(run.query(req.query.query_type, *args))
        return found

    def _signal_workflow_execution(
        self, req: api.SignalWorkflowExecutionRequest
    ) -> api.SignalWorkflowExecutionResponse:
        run = self._run(req.workflow_execution)
        if not self._server.signal(run.id, req.signal_name, req.input.payloads, run.begin.run_id):
            _not_found(f"open workflow {run.id!r}")
        return api.SignalWorkflowExecutionResponse()

    def _start_workflow_execution(
        self, req: api.StartWorkflowExecutionRequest
    ) -> api.StartWorkflowExecutionResponse:
        return api.StartWorkflowExecutionResponse(run_id=self._started(req).begin.run_id)

    def _signal_with_start_workflow_execution(
        self, req: api.SignalWithStartWorkflowExecutionRequest
    ) -> api.SignalWithStartWorkflowExecutionResponse:
        run = self._started(req)
        self._server.signal(run.id, req.signal_name, req.signal_input.payloads)
        return api.SignalWithStartWorkflowExecutionResponse(run_id=run.begin.run_id)

    def _started(
        self, req: api.StartWorkflowExecutionRequest | api.SignalWithStartWorkflowExecutionRequest
    ) -> Run:
        known = self._server.newest(req.workflow_id)
        if known is not None and known.is_open:
            return known
        return self._server.start(req.workflow_type.name, req.workflow_id, req.input.payloads)

    def _reset_sticky_task_queue(
        self, req: api.ResetStickyTaskQueueRequest
    ) -> api.ResetStickyTaskQueueResponse:
        return api.ResetStickyTaskQueueResponse()

    def _record_activity_task_heartbeat(
        self, req: api.RecordActivityTaskHeartbeatRequest
    ) -> api.RecordActivityTaskHeartbeatResponse:
        known = (each for each in self._server.activities if each.token == req.task_token)
        activity = next(known, None) or _not_found("activity")
        activity.beat = list(req.details.payloads)
        return api.RecordActivityTaskHeartbeatResponse(cancel_requested=activity.is_cancelled)


def client_of(server: Server) -> Client:
    """Make a client of a simulated server."""
    return Client(Service(server), data_converter=CONVERTER)
