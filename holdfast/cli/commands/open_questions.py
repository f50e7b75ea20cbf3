"""Open approvals, read with a worker up or without one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast.cli import output
from holdfast.cli.commands.task_lookup import find_task
from holdfast.cli.connection import Engine
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.cluster import has_workers
from holdfast.engine.search_attributes import APPROVALS_MEMO
from holdfast.errors import EngineError, InvalidArgumentError, TaskClosedError, TaskNotFoundError
from holdfast.reading.visibility import listed, memo_of
from holdfast.task.data.calls import Approval
from holdfast.task.people.decisions import is_whole
from holdfast.values.checks.ids import task_of
from holdfast.values.steps import TaskStepOutput

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
    try:
        found = await engine.client.get_workflow_handle(task_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # closed, and forgotten by Temporal
            return []
        raise
    if found.status is not WorkflowExecutionStatus.RUNNING:
        return []
    cards = (await memo_of(found)).get(APPROVALS_MEMO, [])
    approvals = [Approval.model_validate(card) for card in cards]
    silent = set() if silent is None else silent
    if found.task_queue not in silent and await has_workers(engine.client, found.task_queue):
        try:
            async with asyncio.timeout(CARD_SECONDS):
                approvals = await engine.runner().pending_approvals(task_id)
        except (TaskClosedError, TaskNotFoundError):
            return []
        except (EngineError, TimeoutError):  # a worker that was just killed still counts
            silent.add(found.task_queue)
    task = await listed(found)
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
        shown = output.shortened(source.content)
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
