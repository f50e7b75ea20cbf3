"""`undo`, `rewind` and `fork`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from temporalio.service import RPCError, RPCStatusCode

from holdfast.cli import output
from holdfast.cli.commands.runs import run_to_the_end
from holdfast.cli.commands.task_lookup import find_task
from holdfast.cli.connection import Engine, engine_of, load_agents, served, until_stopped
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.time_travel import Residue
from holdfast.errors import StepNotFoundError
from holdfast.values.checks.ids import DEFAULT_APP, app_of, check_app, is_own
from holdfast.values.steps import Task, TaskStepOutput, UndoReceipt


@dataclass(frozen=True, kw_only=True)
class ForkOptions:
    """The arguments of a fork; AgentRunner.fork says what they mean."""

    at: str
    input: str | None
    agent: str | None
    feedback: str | None
    task_id: str | None
    session: str | None
    by: str
    reason: str
    app: str | None


@dataclass(frozen=True, kw_only=True)
class UndoOptions:
    """The options of an undo.

    Attributes:
        keep: Whether effects that cannot be undone may remain.
        by: Who asks.
        reason: Why.
        agents: Agents to serve meanwhile, as module:attribute.
        app: Name of their app.
    """

    keep: bool
    by: str
    reason: str
    agents: str | None = None
    app: str | None = None

    @property
    def residue(self) -> Residue:
        """The residue option of `AgentRunner.undo_step`."""
        return "keep" if self.keep else "refuse"

    @asynccontextmanager
    async def engine(self, common: Common) -> AsyncGenerator[Engine]:
        """Use the engine, with the agents served here if any were named."""
        here = load_agents(self.agents, self.app) if self.agents else None
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(engine_of(common))
            if here is not None:
                await stack.enter_async_context(served(engine, here))
            yield engine


async def undo_command(common: Common, typed: str, options: UndoOptions) -> ExitCode:
    """Undo the step in progress, else the last completed one."""
    async with options.engine(common) as engine:
        task_id = await find_task(engine, typed)
        runner = engine.runner()
        undoing = runner.undo_step(task_id, options.residue, by=options.by, reason=options.reason)
        return _print_undo(common, task_id, await until_stopped(undoing), options.by)


async def rewind_command(common: Common, typed: str, to: str, options: UndoOptions) -> ExitCode:
    """Undo all steps after one."""
    async with options.engine(common) as engine:
        task_id = await find_task(engine, typed)
        runner = engine.runner()
        step = await find_step(runner, task_id, to)
        undoing = runner.rewind(
            task_id, step, options.residue, by=options.by, reason=options.reason
        )
        return _print_undo(common, task_id, await until_stopped(undoing), options.by)


def _print_undo(common: Common, task_id: str, receipt: UndoReceipt, by: str) -> ExitCode:
    if common.json:
        output.emit({"task_id": task_id, "by": by, **receipt.model_dump(mode="json")})
    if receipt.status == "waiting":
        output.say("The undo waits for a person; it continues once decided.", "yellow")
        output.say(f"Decide: holdfast inbox{common.arguments()}")
        return ExitCode.WAITING
    if not common.json:
        output.answer(f"left steps: {', '.join(receipt.steps)}")
        for text in receipt.undone:
            output.answer(f"undone: {text}")
        for text in receipt.remains:
            output.answer(f"remains in the world: {text}")
        for text in receipt.check:
            output.answer(f"look at it: {text}")
    return ExitCode.OK


async def fork_command(
    common: Common, typed: str, options: ForkOptions, *, agents: str | None, wait: bool
) -> ExitCode:
    """Start a new task from a step of this one."""
    here = load_agents(agents, options.app) if agents else None
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(engine_of(common))
        old = await find_task(engine, typed)
        app, queue = await _queue(engine, old, options)
        runner = engine.runner(app=app, queue=queue)
        step = await find_step(runner, old, options.at, undone=True)
        task = await runner.fork(
            old,
            step,
            options.input,
            agent=options.agent,
            feedback=options.feedback,
            task_id=options.task_id,
            session=options.session,
            by=options.by,
            reason=options.reason,
        )
        if here is not None:
            await stack.enter_async_context(served(engine, here))
        if wait:
            return await run_to_the_end(common, engine, runner, task.task_id, agents)
    _print_fork(common, task, old, step)
    return ExitCode.OK


def _print_fork(common: Common, task: Task, old: str, step: TaskStepOutput) -> None:
    if common.json:
        at = {"task_id": old, "step": step.task_step.step_id, "branch": step.branch}
        output.emit({**task.model_dump(mode="json"), "forked_from": at})
    else:
        output.answer(task.task_id)
    if step.status == "undone":
        text = (
            "That step was undone in the old task: what its tools did may be gone from the world."
        )
        output.say(text, style="yellow")
    output.say(f"Forked from {old} after step {step.task_step.step_id}. Run it:")
    output.say(f"  holdfast attach {task.task_id}{common.arguments()}")


async def find_step(
    runner: AgentRunner, task_id: str, typed: str, *, undone: bool = False
) -> TaskStepOutput:
    """Return a completed step.

    Args:
        runner: Reads the task.
        task_id: The task.
        typed: The step's id or its number, both on the present branch, or `ID@BRANCH`.
        undone: Whether undone steps count.

    Raises:
        StepNotFoundError: The task has no such step.
    """
    known = await runner.get_completed_steps(task_id, undone=undone)
    active = [each for each in known if each.status != "undone"]
    for each in reversed(active):
        if each.task_step.step_id == typed:
            return each
    step_id, _, branch = typed.rpartition("@")
    for each in known:
        if (each.task_step.step_id, str(each.branch)) == (step_id, branch):
            return each
    if typed.isdigit() and 1 <= int(typed) <= len(active):
        return active[int(typed) - 1]
    names = [
        f"{each.task_step.step_id}@{each.branch}"
        if each.status == "undone"
        else each.task_step.step_id
        for each in known
    ]
    msg = f"Task {task_id!r} has no step {typed!r}; it has: {', '.join(names) or 'none'}."
    raise StepNotFoundError(msg)


async def _queue(engine: Engine, old: str, options: ForkOptions) -> tuple[str, str | None]:
    """Return the app of the new task, and its queue if that is not one of Holdfast's own.

    They are the old task's, unless an app is named.
    """
    if options.app is not None:
        return check_app(options.app), None
    try:
        queue = (await engine.client.get_workflow_handle(old).describe()).task_queue
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return DEFAULT_APP, None  # Temporal has forgotten the old task, and its app with it
    return app_of(queue), None if is_own(queue) else queue
