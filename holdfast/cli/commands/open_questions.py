"""Open approvals, read with a worker up or without one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.bytestore import key_in
from holdfast.archive.segments import has_record
from holdfast.archive.session_commits import find_run
from holdfast.cli import output
from holdfast.cli.connection import Engine
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.cluster import has_workers
from holdfast.engine.search_attributes import AGENT_TASK, TASKS, begins
from holdfast.errors import EngineError, InvalidArgumentError, TaskClosedError, TaskNotFoundError
from holdfast.reading import visibility
from holdfast.task.data.calls import Approval
from holdfast.task.people.decisions import is_whole
from holdfast.values.checks.ids import is_nested, task_of
from holdfast.values.steps import TaskStepOutput
from holdfast.values.text.shown import MOST_NAMED, instead, named, shortened

NEWEST = 200
"""Tasks among which the one is looked for that a wrong id may mean."""

TURNLESS = (
    "Name the app of its tasks with --app. A task that has its answer gives it to its session by"
    " `holdfast finalize TASK`."
)
"""What to do about a session without turns."""


async def find_task(engine: Engine, typed: str) -> str:
    """Return the id of the one task that an id or its beginning names, open or closed.

    Raises:
        TaskNotFoundError: No id is or begins like this.
        InvalidArgumentError: Several do; the text lists them.
    """
    if not typed.strip():
        msg = "Name a task by its id or the beginning of it; `holdfast tasks` lists them."
        raise InvalidArgumentError(msg)
    if await _is_task(engine, typed):
        return typed
    found = await _visible(engine, typed) or await _archived(engine, typed)
    if not found:
        raise TaskNotFoundError(typed, instead(typed, await _newest(engine)))
    if len(found) > 1:
        names = named(sorted(found))
        msg = f"{typed!r} is the beginning of more than one task id: {names}. Type more."
        raise InvalidArgumentError(msg)
    return found.pop()


async def _is_task(engine: Engine, task_id: str) -> bool:
    try:
        found = await engine.client.get_workflow_handle(task_id).describe()
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise
        return await has_record(engine.archive, task_id)
    return found.workflow_type == AGENT_TASK


async def _newest(engine: Engine) -> list[str]:
    """Return the ids of the newest tasks, without child tasks, to name one that was meant."""
    query = f"{TASKS} AND ParentWorkflowId IS NULL"
    newest = engine.client.list_workflows(query, page_size=NEWEST, limit=NEWEST)
    return [*dict.fromkeys([each.id async for each in newest])]


async def _visible(engine: Engine, beginning: str) -> set[str]:
    """Ask Temporal for ids; a task that has continued as new is there more than once.

    A child task matches only when no other task does: its id begins with its parent's.
    """
    query = f"{TASKS}{begins('WorkflowId', beginning)}"
    found: set[str] = set()
    for which in (" AND ParentWorkflowId IS NULL", ""):
        async for each in engine.client.list_workflows(query + which):
            found |= {each.id} if each.id.startswith(beginning) else set()
            if len(found) > MOST_NAMED:
                break
        if found:
            break
    return found


async def _archived(engine: Engine, beginning: str) -> set[str]:
    """Look among the closed tasks that Temporal has forgotten."""
    names = await engine.archive.alist_records("tasks")
    found = {each for each in map(key_in, names) if each.startswith(beginning)}
    return {task_id for task_id in found if not is_nested(task_id)} or found


READ_SECONDS = 12.0
"""Time limit of reading: a worker that was just killed still counts as running."""

CARD_SECONDS = 6.0
"""The same for approvals, which lists have as well, cut short."""


@dataclass(frozen=True)
class Waiting:
    """An approval that waits for a person, and its task.

    Attributes:
        approval: The approval.
        agent: Name of the agent.
        input: Input of the task, cut short.
    """

    approval: Approval
    agent: str
    input: str

    @property
    def task_id(self) -> str:
        """The task."""
        return task_of(self.approval.id)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are whole: without a worker, only their beginning is known."""
        return is_whole(self.approval)


async def waiting_in(
    engine: Engine, task_id: str, *, silent: set[str] | None = None
) -> list[Waiting]:
    """List the open approvals of one task, oldest first; none when it is closed.

    Arguments are whole when a worker is up, else cut as in lists.

    Args:
        engine: Where the task is.
        task_id: The task.
        silent: Queues whose workers did not answer; they are not waited for again.
    """
    found = await find_run(engine.client, task_id)
    if found is None or found.status is not WorkflowExecutionStatus.RUNNING:
        return []
    approvals = await visibility.waiting_in(found)
    silent = set() if silent is None else silent
    if found.task_queue not in silent and await has_workers(engine.client, found.task_queue):
        try:
            async with asyncio.timeout(CARD_SECONDS):
                approvals = await engine.runner().pending_approvals(task_id)
        except (TaskClosedError, TaskNotFoundError):
            return []
        except (EngineError, TimeoutError):  # a worker that was just killed still counts
            silent.add(found.task_queue)
    task = await visibility.listed(found)
    return [Waiting(each, agent=each.agent or task.agent, input=task.input) for each in approvals]


async def find_approval(engine: Engine, typed: str) -> tuple[str, Approval | None, str]:
    """Return the id of an approval, the approval if it is open, and the task that lists it.

    That task is a parent of the approval's own task when a child task asks; the approval's step
    number is then that of the parent's step.

    Args:
        engine: Where to look.
        typed: `<task id>:<number>` with the id or its beginning; or a task alone.

    Raises:
        TaskNotFoundError: No task's id is or begins like this.
        InvalidArgumentError: Several do, or not exactly one thing waits in the task.
    """
    task, _, number = typed.rpartition(":")
    if task and number.isdigit():
        task_id = await find_task(engine, task)
        wanted = f"{task_id}:{number}"
        waiting = await waiting_in(engine, task_id)
        found = next((w.approval for w in waiting if w.approval.id == wanted), None)
        return wanted, found, task_id
    task_id = await find_task(engine, typed)
    waiting = await waiting_in(engine, task_id)
    if len(waiting) == 1:
        return waiting[0].approval.id, waiting[0].approval, task_id
    ids = ", ".join(each.approval.id for each in waiting)
    msg = (
        f"{len(waiting)} things wait in task {task_id!r}: {ids}. Name one of them."
        if waiting
        else f"Nothing waits for a person in task {task_id!r}."
    )
    raise InvalidArgumentError(msg)


def print_output(common: Common, got: TaskStepOutput) -> ExitCode:
    """Print the output of a step, or what it waits for."""
    for source in got.sources:
        shown = shortened(source.content)
        output.say(f"{source.tool_name} {source.raw_input} -> {shown}")
    if got.status != "waiting":
        return ExitCode.OK
    print_waiting(common, got)
    return ExitCode.WAITING


def print_waiting(common: Common, got: TaskStepOutput) -> None:
    """Print what a task waits for, and how to decide it."""
    for text in got.waiting_for:
        output.say(f"The task waits for a person: {text}", style="yellow")
    if got.approvals:
        output.say(f"Decide: holdfast inbox{common.arguments()}")
