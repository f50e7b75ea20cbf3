"""One run of a workflow: Temporal's own workflow instance, fed with activations, and its history.

What Temporal's core does between server and instance is done here: jobs in their order, the
activations of one workflow task, and the replay of a history by a fresh instance, whose commands
must be those of the history, byte for byte.
"""

import asyncio
import datetime as dt
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar, NamedTuple, TypeVar

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.common.v1 import SearchAttributes as Attributes
from temporalio.bridge.proto import workflow_activation as wa
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.common import Priority
from temporalio.converter import (
    DataConverter,
    decode_search_attributes,
    decode_typed_search_attributes,
)
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance
from temporalio.worker._workflow_instance import WorkflowInstanceDetails  # pyright: ignore[reportPrivateUsage]
from temporalio.workflow import Info, ParentInfo
from temporalio.workflow import _Definition as Definition  # pyright: ignore[reportPrivateUsage]

import holdfast
from holdfast.engine.converter import holdfast_converter
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.requests.events import EventMailbox
from holdfast.workflows.session import Session

T = TypeVar("T")

CONVERTER: DataConverter = holdfast_converter(None)
SERVED = (AgentTask, Session, EventMailbox)
DEFINITIONS = {d.name: d for d in map(Definition.must_from_class, SERVED)}
RUNNER = UnsandboxedWorkflowRunner()

Job = wa.WorkflowActivationJob
NO_JOBS: Sequence[Job] = ()
ORDER = {"initialize_workflow": 0, "signal_workflow": 3, "do_update": 3}
"""The order of jobs in an activation; all others come after these, local activities last."""

TASK_EVENTS = 3
"""Events of a workflow task: it is scheduled, started and completed."""


OURS = str(Path(holdfast.__file__).parent)
"""The directory of all code of ours that a workflow may run."""

TAKES_ERRORS = "engine/converter.py", "Background."
"""A file and a class where errors are taken; Temporal itself drops a signal that the converter
cannot read."""


class ViolationError(AssertionError):
    """What may never happen has happened."""


class ForeignError(Exception):
    """Something is wrong with this process: another one, and so a replay, would not raise it."""


class Thrower:
    """Raises a ForeignError when the workflow's code makes its k-th call from here."""

    _known: ClassVar[dict[CodeType, bool]] = {}

    def __init__(self, k: int) -> None:
        self.left = k
        self.thrown = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        may = self._known.get(code)
        if may is None:
            may = self._known[code] = self._may_throw(code)
        if not may:
            return
        self.left -= 1
        if self.left < 0:
            sys.setprofile(None)
            self.thrown = code.co_qualname
            raise ForeignError(self.thrown)

    @staticmethod
    def _may_throw(code: CodeType) -> bool:
        is_own = code.co_filename.startswith(OURS) and not code.co_flags & CO_GENERATOR
        is_own = is_own and code.co_name != "__eq__"  # pydantic asks it, and takes an error for no
        file, name = TAKES_ERRORS
        return is_own and not (code.co_filename.endswith(file) or code.co_qualname.startswith(name))


class Begin(NamedTuple):
    """How a run begins."""

    id: str
    run_id: str
    kind: str
    input: tuple[Payload, ...]
    memo: Mapping[str, Payload]
    attributes: Attributes
    parent: tuple[str, str] | None
    at: float


@dataclass
class Part:
    """One activation of a workflow task, with the commands that followed."""

    jobs: list[Job]
    commands: list[WorkflowCommand]


@dataclass
class Task:
    """A workflow task as the history has it."""

    at: float
    length: int
    parts: list[Part] = field(default_factory=list[Part])


@dataclass
class Counts:
    """Activations of workflow instances: those of workflow tasks and queries, and of replays."""

    live: int = 0
    replayed: int = 0


def order_of(job: Job) -> int:
    """Sort a job as Temporal's core does."""
    if job.HasField("resolve_activity") and job.resolve_activity.is_local:
        return 5
    return ORDER.get(str(job.WhichOneof("variant")), 4)


class Run:
    """One run of a workflow.

    Attributes:
        begin: How it began.
        status: "running", or how it ended.
        events: Length of its history.
        news: Jobs of events that no workflow task has brought yet.
        history: Its workflow tasks.
        memo: Its memo.
        attributes: Its search attributes.
        result: What it returned, or its failure.
        timers: Numbers of its timers that have not fired.
        scheduled: Ids of its activities, and when they were scheduled.
        child_of: The run that has begun it as a child, and the number of its command.
    """

    def __init__(self, begin: Begin, counts: Counts) -> None:
        self.begin = begin
        self.counts = counts
        self.status = "running"
        self.events = 1
        self.news: list[Job] = []
        self.history: list[Task] = []
        self.memo = dict(begin.memo)
        self.attributes = Attributes()
        self.attributes.CopyFrom(begin.attributes)
        self.result: Any = None
        self.timers: dict[int, object] = {}
        self.scheduled: list[tuple[str, float]] = []
        self.child_of: tuple[Run, int] | None = None
        self._instance = self._make()
        job = Job()
        job.initialize_workflow.workflow_type = begin.kind
        job.initialize_workflow.workflow_id = begin.id
        job.initialize_workflow.arguments.extend(begin.input)
        job.initialize_workflow.start_time.FromNanoseconds(round(begin.at * 1e9))
        self.news.append(job)

    @property
    def id(self) -> str:
        """The workflow's id."""
        return self.begin.id

    @property
    def key(self) -> tuple[str, str]:
        """The workflow's id and the run's."""
        return self.begin.id, self.begin.run_id

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"

    @property
    def code(self) -> Any:
        """The workflow object, for checks of its state; None before its first workflow task."""
        return vars(self._instance)["_object"]

    # ---- activations

    def _make(self) -> WorkflowInstance:
        begin, began = self.begin, dt.datetime.fromtimestamp(self.begin.at, dt.UTC)
        parent = begin.parent and ParentInfo(
            namespace="default", workflow_id=begin.parent[0], run_id=begin.parent[1]
        )
        info = Info(
            attempt=1,
            continued_run_id=None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id=begin.run_id,
            headers={},
            namespace="default",
            original_execution_run_id=begin.run_id,
            parent=parent or None,
            root=None,
            priority=Priority.default,
            raw_memo=dict(begin.memo),
            retry_policy=None,
            run_id=begin.run_id,
            run_timeout=None,
            search_attributes=decode_search_attributes(begin.attributes),
            start_time=began,
            task_queue="hf-sim",
            task_timeout=dt.timedelta(seconds=10),
            typed_search_attributes=decode_typed_search_attributes(begin.attributes),
            workflow_id=begin.id,
            workflow_start_time=began,
            workflow_type=begin.kind,
        )
        details = WorkflowInstanceDetails(
            payload_converter_factory=lambda: CONVERTER.payload_converter,
            failure_converter_class=CONVERTER.failure_converter_class,
            interceptor_classes=[],
            defn=DEFINITIONS[begin.kind],
            info=info,
            randomness_seed=1,
            extern_functions={"__temporal_assert_local_activity_valid": _take_any},
            disable_eager_activity_execution=True,
            worker_level_failure_exception_types=[],
            patch_activation_callback=None,
            last_completion_result=Payloads(),
            last_failure=None,
        )
        return _apart(RUNNER.create_instance, details)

    def activate(self, jobs: Sequence[Job], at: float, length: int) -> list[WorkflowCommand]:
        """Handle jobs of the workflow task that goes on; return the commands."""
        self.counts.live += 1
        return _activate(self._instance, jobs, at, length)

    def throw(self, k: int, jobs: Sequence[Job], at: float, length: int) -> None:
        """Handle jobs, and raise an error of this process at the k-th call, if there are as many.

        Raises:
            ViolationError: The workflow has gone on in spite of it.
        """
        thrower = Thrower(k)
        sys.setprofile(thrower)
        try:
            commands = self.activate(jobs, at, length)
        except ViolationError:
            return  # the workflow task has failed, as it must
        finally:
            sys.setprofile(None)
        is_refused = any(each.update_response.HasField("rejected") for each in commands)
        if thrower.thrown and not is_refused:  # a validator's error only refuses
            msg = f"{self.id} goes on although {thrower.thrown} raised an error of the process"
            raise ViolationError(msg)

    def query(self, name: str, *args: Any) -> Payload:
        """Ask the workflow.

        Raises:
            ViolationError: It has no answer.
        """
        self.counts.live += 1
        return self._ask(self._instance, name, args)

    def _ask(self, instance: WorkflowInstance, name: str, args: Sequence[Any]) -> Payload:
        job = Job()
        job.query_workflow.query_id, job.query_workflow.query_type = "q", name
        job.query_workflow.arguments.extend(CONVERTER.payload_converter.to_payloads(args))
        last = self.history[-1]
        [command] = _activate(instance, [job], last.at, last.length)
        if not command.respond_to_query.HasField("succeeded"):
            msg = f"query {name!r} of {self.id}: {command.respond_to_query.failed.message}"
            raise ViolationError(msg)
        return command.respond_to_query.succeeded.response

    def evict(self, queries: Sequence[tuple[Any, ...]] = ()) -> None:
        """Have a fresh instance replay the history and go on in place of the present one.

        Raises:
            ViolationError: It gives other commands, or answers one of the queries differently.
        """
        fresh = self.replayed()
        for name, *args in queries:
            was, now = self._ask(self._instance, name, args), self._ask(fresh, name, args)
            if was != now:
                msg = f"query {name!r} of {self.id}\n  before: {was.data!r}\n  after:  {now.data!r}"
                raise ViolationError(msg)
        self.go_on_with(fresh)

    def replayed(self) -> WorkflowInstance:
        """Return a fresh instance that has replayed the history."""
        fresh = self._make()
        for task in self.history:
            self._replay(fresh, task)
        return fresh

    def go_on_with(self, fresh: WorkflowInstance) -> None:
        """Take the present instance out of the worker's cache, and put another in."""
        with suppress(ViolationError):  # of one that has failed, tasks are left
            leave(self._instance)
        self._instance = fresh

    def _replay(self, fresh: WorkflowInstance, task: Task) -> None:
        for part in task.parts:
            self.counts.replayed += 1
            jobs = [*_patches(part.commands), *(_again(job) for job in part.jobs)]
            found = _activate(fresh, jobs, task.at, task.length, is_replaying=True)
            if found != part.commands:
                pairs = itertools.zip_longest(part.commands, found)
                was, now = next(pair for pair in pairs if pair[0] != pair[1])
                msg = f"a replay of {self.id} gives other commands\nbefore: {was}\nnow: {now}"
                raise ViolationError(msg)

    def close(self) -> None:
        """Take it out of the worker's cache."""
        leave(self._instance)


def leave(instance: WorkflowInstance) -> None:
    """Take an instance out of the worker's cache; Temporal checks that no task of it is left."""
    job = Job()
    job.remove_from_cache.SetInParent()
    _activate(instance, [job], 0.0, 0)


def _take_any(name: str) -> None:
    """Take a local activity of any name."""


def _patches(commands: Sequence[WorkflowCommand]) -> list[Job]:
    """Return the jobs with which a replay says what patches it has."""
    ids = [c.set_patch_marker.patch_id for c in commands if c.HasField("set_patch_marker")]
    return [Job(notify_has_patch=wa.NotifyHasPatch(patch_id=id)) for id in ids]


def _again(job: Job) -> Job:
    """Return a job as a replay brings it."""
    if not job.HasField("do_update"):
        return job
    again = Job()
    again.CopyFrom(job)
    again.do_update.run_validator = False
    return again


def _activate(
    instance: WorkflowInstance,
    jobs: Sequence[Job],
    at: float,
    length: int,
    *,
    is_replaying: bool = False,
) -> list[WorkflowCommand]:
    act = wa.WorkflowActivation(
        run_id="r", jobs=jobs, history_length=length, is_replaying=is_replaying
    )
    act.timestamp.FromNanoseconds(round(at * 1e9))
    found = _apart(instance.activate, act)
    if found.HasField("failed"):
        msg = f"the workflow task has failed: {found.failed.failure}"
        raise ViolationError(msg)
    return list(found.successful.commands)


def _apart(call: Callable[..., T], *args: Any) -> T:
    """Call an instance, which is a loop of its own; afterwards the loop before is current again."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(before or _ANY)
    try:
        return call(*args)
    finally:
        asyncio._set_running_loop(before)


class _NoLoop:
    """Stands for the loop in which a worker process makes an instance."""


_ANY: Any = _NoLoop()
