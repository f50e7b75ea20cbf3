"""One activity as a server has it: its attempts, and how they end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_commands import ScheduleActivity, ScheduleLocalActivity

from tests.simulation.run import Job, Run


@dataclass(eq=False)
class Activity:
    """An activity that has not ended.

    Attributes:
        run: The run of the workflow that has scheduled it.
        command: The command that has.
        at: When it was scheduled.
        attempt: Number of the present attempt.
        since: When that was started.
        beat: Details of the newest heartbeat.
        is_cancelled: Whether the workflow wants it to be cancelled.
        is_open: Whether the server waits for its end.
        is_heard: Whether the workflow waits for its end.
        failure: How the attempt before has failed.
    """

    run: Run
    command: ScheduleActivity | ScheduleLocalActivity
    at: float
    attempt: int = 1
    since: float = 0.0
    beat: Sequence[Payload] = ()
    is_cancelled: bool = False
    is_open: bool = True
    is_heard: bool = True
    failure: Failure | None = None

    @property
    def kind(self) -> str:
        """Type of the activity."""
        return self.command.activity_type

    @property
    def token(self) -> bytes:
        """Names the present attempt."""
        id = self.command.activity_id
        return f"{self.run.begin.id}|{self.run.begin.run_id}|{id}|{self.attempt}".encode()

    def __str__(self) -> str:
        times = f" (attempt {self.attempt})" if self.attempt > 1 else ""
        return f"{self.kind} of {self.run.id}{times}"


def pause_of(activity: Activity, failure: Failure, now: float) -> float | None:
    """Return how long the server waits before the next attempt; None for no further attempt."""
    policy = activity.command.retry_policy
    known = failure.application_failure_info
    kinds = (
        {known.type}
        if failure.HasField("application_failure_info")
        else {"TemporalTimeout:Heartbeat"}
    )
    most = policy.maximum_attempts
    if known.non_retryable or kinds & {*policy.non_retryable_error_types}:
        return None
    if most and activity.attempt >= most:
        return None
    wait = 2.0 ** (activity.attempt - 1)  # no policy of ours has another begin or factor
    if policy.HasField("maximum_interval"):
        wait = min(wait, policy.maximum_interval.ToTimedelta().total_seconds())
    if known.HasField("next_retry_delay"):
        wait = known.next_retry_delay.ToTimedelta().total_seconds()
    command = activity.command
    if command.HasField("schedule_to_close_timeout"):
        longest: timedelta = command.schedule_to_close_timeout.ToTimedelta()
        if now + wait > activity.at + longest.total_seconds():
            return None
    return wait


def application_failure(kind: str, text: str, *, lasts: bool = False) -> Failure:
    """Make a failure that an activity raises."""
    failure = Failure(message=text)
    failure.application_failure_info.type = kind
    failure.application_failure_info.non_retryable = lasts
    return failure


def resolution_of(
    command: ScheduleActivity | ScheduleLocalActivity,
    found: Payload | Failure | None,
    *,
    is_local: bool = False,
) -> Job:
    """Make the job by which a workflow learns of the end of an activity; None is a cancellation."""
    job = Job()
    job.resolve_activity.seq, job.resolve_activity.is_local = command.seq, is_local
    result = job.resolve_activity.result
    if isinstance(found, Payload):
        result.completed.result.CopyFrom(found)
    elif isinstance(found, Failure):
        result.failed.failure.CopyFrom(found)
    else:
        failure = result.cancelled.failure
        failure.message = "Activity cancelled"
        failure.activity_failure_info.activity_type.name = command.activity_type
        failure.activity_failure_info.activity_id = command.activity_id
        failure.cause.message = "Activity cancelled"
        failure.cause.canceled_failure_info.SetInParent()
    return job
