"""`run` and `attach`: a task to its end, with a live view; Ctrl-C leaves it running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal

from holdfast.archive.session_commits import find_run
from holdfast.cli import output
from holdfast.cli.commands.open_questions import find_task, print_output, print_waiting
from holdfast.cli.connection import Engine, engine_of, load_agents, served, until_stopped
from holdfast.cli.exits import ExitCode, InterruptedByUserError
from holdfast.cli.following.live import LiveView
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.time_travel import Residue
from holdfast.engine.cluster import has_workers, known_workers
from holdfast.engine.search_attributes import TASKS
from holdfast.errors import (
    AgentNotFoundError,
    HoldfastError,
    InvalidArgumentError,
    NoWorkerError,
    StepNotFoundError,
)
from holdfast.serving.worker_process import App
from holdfast.values.checks.ids import (
    DEFAULT_APP,
    app_of,
    check_app,
    check_name,
    is_own,
    no_worker,
    queue_of,
    serves,
)
from holdfast.values.runs.status import OnBusy
from holdfast.values.settings import Budget
from holdfast.values.steps import AgentResponse, Task, TaskStepOutput, UndoReceipt
from holdfast.values.text.shown import did_you_mean

Mode = Literal["watched", "detached", "manual"]
"""How a new task runs: to its end while this waits, left to the workers, or step by step."""

NEWEST = 100
"""How many tasks an error looks at for queues."""

MOST_NAMED = 20
"""Most queues that an error looks at, to name what is served."""

LOOKS = (0.2, 0.5, 1.0, 0.0)
"""Waits after each look for workers: one that has just started is known once its poll arrives."""


async def run_command(
    common: Common,
    agent: str,
    question: str,
    *,
    agents: str | None,
    app: str | None,
    queue: str | None,
    session: str | None,
    on_busy: OnBusy | None,
    task_id: str | None,
    exist_ok: bool,
    max_turns: int | None,
    max_dollars: str | None,
    detach: bool,
    manual: bool,
    start_at: datetime | None,
    by: str,
) -> ExitCode:
    """Create a task and run it to its end."""
    mode: Mode = "manual" if manual else "detached" if detach or start_at else "watched"
    if queue is not None and agents:
        raise InvalidArgumentError(
            "--queue names workers that run elsewhere, --agents serves them here: give one of them."
        )
    here = load_agents(agents, app) if agents else None
    if here is not None and agent not in {each.name for each in here.served}:
        names = [each.name for each in here.served]
        hint = did_you_mean(agent, names)
        msg = f"{agents!r} has no agent {agent!r}.{hint} It has: {', '.join(names)}."
        raise AgentNotFoundError(msg)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(engine_of(common, new=True))
        name = here.name if here else (DEFAULT_APP if app is None else check_app(app))
        if here is None and mode == "watched":
            await require_worker(engine, name, agent, queue)
        runner = engine.runner(agent, app=name, queue=queue)
        budget = Budget(max_turns=max_turns, max_dollars=max_dollars)
        # A watched task runs on request: one that runs by itself may have failed by the time of
        # the request, which would then run the failed step again.
        task = await runner.create_task(
            question,
            task_id=task_id,
            exist_ok=exist_ok,
            session=session,
            on_busy=on_busy or ("queue" if session and mode == "watched" else None),
            budget=None if budget == Budget() else budget,
            step_mode="automatic" if mode == "detached" else "manual",
            start_at=start_at,
            by=by,
        )
        if mode != "watched":
            return _created(common, task, mode)
        if here is not None:
            await stack.enter_async_context(served(engine, here))
        return await run_to_the_end(common, runner, task.task_id, agents)


async def attach_command(
    common: Common, typed: str, *, agents: str | None, app: str | None
) -> ExitCode:
    """Go on with a task that exists."""
    here: App | None = load_agents(agents, app) if agents else None
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(engine_of(common))
        task_id = await find_task(engine, typed)
        if here is not None:
            await stack.enter_async_context(served(engine, here))
        return await run_to_the_end(common, engine.runner(), task_id, agents)


async def require_worker(engine: Engine, app: str, agent: str, own: str | None = None) -> None:
    """Check that an agent is served, before creating a task that would only wait.

    Args:
        engine: The engine.
        app: Name of the app.
        agent: Name of the agent.
        own: Task queue of the user's own workers, if that is where the task goes.

    Raises:
        NoWorkerError: It is not.
    """
    queue = own or queue_of(app, check_name("The name of an agent", agent))
    for seconds in LOOKS:
        if await has_workers(engine.client, queue):
            return
        await asyncio.sleep(seconds)
    error = no_worker(queue)
    others = await _served(engine, queue)
    error.args = (f"No worker process serves {serves(queue)}, so no task was created.{others}",)
    error.remedy = (
        "Start yours, or leave the task to a later one with --detach."
        if own
        else f"Start one with `{error.command}`, serve the agents here with --agents"
        " my_module:agents, name the app of its workers with --app, or leave the task to a later"
        " worker with --detach."
    )
    raise error


async def _served(engine: Engine, wanted: str) -> str:
    """Say what is served in place of a queue, the nearest name first; empty for nothing."""
    reported = await known_workers(engine.client)
    known = {each.task_queue for each in reported.workers}  # after a minute
    newest = engine.client.list_workflows(TASKS, page_size=NEWEST, limit=NEWEST)
    known |= {task.task_queue async for task in newest}
    own = sorted(each for each in known - {queue_of(DEFAULT_APP)} if is_own(each))
    polled = [each for each in own[:MOST_NAMED] if await has_workers(engine.client, each)]
    near = get_close_matches(wanted, polled, n=1)
    meant = f" Did you mean {serves(near[0])}?" if near else ""
    return f"{meant} Served are: {', '.join(map(serves, polled))}." if polled else ""


def _created(common: Common, task: Task, mode: Mode) -> ExitCode:
    output.told(task.model_dump(mode="json"), task.task_id, as_json=common.json)
    if mode == "manual":
        output.say(f"Run its first step: holdfast step {task.task_id}{common.arguments()}")
    else:
        output.say(
            f"It runs on its own. See it: holdfast attach {task.task_id}{common.arguments()}"
        )
    return ExitCode.OK


async def run_to_the_end(
    common: Common, runner: AgentRunner, task_id: str, agents: str | None
) -> ExitCode:
    """Run a task to its end and finalize it, with a live view; Ctrl-C leaves it running."""
    output.say(f"task {task_id}", style="bold")
    try:
        last = await until_stopped(_watched(runner, task_id))
        if last.status == "waiting":
            return _waiting(common, task_id, last)
        response = await runner.finalize_response(task_id)
    except InterruptedByUserError:
        _left(common, task_id, agents)
        raise
    except HoldfastError:
        output.say(f"See it: holdfast show {task_id}{common.arguments()}")
        raise
    code = _answered(common, response)
    output.say(response.usage.in_words, style="dim")
    return code


async def _watched(runner: AgentRunner, task_id: str) -> TaskStepOutput:
    """Run a task to its end next to the live view."""
    view = LiveView(runner, task_id, output.err())
    watching = asyncio.create_task(view.follow())
    try:
        return await runner.run_task(task_id)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await view.catch_up()


def _answered(common: Common, response: AgentResponse) -> ExitCode:
    data = {**response.model_dump(mode="json"), "status": "finished"}
    return output.told(data, response.response, as_json=common.json)


def _waiting(common: Common, task_id: str, last: TaskStepOutput) -> ExitCode:
    if common.json:
        data = {"task_id": task_id, "status": "waiting", "waiting_for": last.waiting_for}
        output.emit(data)
    print_waiting(common, last)
    return ExitCode.WAITING


def _left(common: Common, task_id: str, agents: str | None) -> None:
    """Print how to go on with a task that this command no longer watches."""
    if agents:
        output.say(f"Stopped. This command was the worker of task {task_id}: the task waits for")
        output.say("one, and nothing is lost. Running calls get 10 seconds to end. Go on with it:")
        more = f" --agents {agents}"
    else:
        output.say(f"Left. Task {task_id} goes on without this command. See how it goes:")
        more = ""
    output.say(f"  holdfast attach {task_id}{more}{common.arguments()}")
    if common.json:
        output.emit({"task_id": task_id, "status": "running", "interrupted": True})


async def step_command(common: Common, typed: str, *, input: str | None, restart: bool) -> ExitCode:
    """Run a task's next step."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        async with engine.runner() as runner:
            running = runner.run_step(task_id, input=input, restart="step" if restart else None)
            got = await until_stopped(running)
    if common.json:
        output.emit(got.model_dump(mode="json"))
    code = print_output(common, got)
    if code is ExitCode.OK and not common.json:
        output.say(f"Step {got.task_step.step_id}:")  # one that was done before is told once more
        output.answer(str(got) if got.output is not None else "")
    if got.is_last:
        output.say(f"That was the last step. holdfast finalize {task_id}{common.arguments()}")
    return code


async def finalize_command(common: Common, typed: str) -> ExitCode:
    """Close a task that has its answer."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        response = await engine.runner().finalize_response(task_id)
    return _answered(common, response)


@asynccontextmanager
async def _undoing(common: Common, agents: str | None, app: str | None) -> AsyncGenerator[Engine]:
    """Use the engine, with the agents served here if any were named."""
    here = load_agents(agents, app) if agents else None
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(engine_of(common))
        if here is not None:
            await stack.enter_async_context(served(engine, here))
        try:
            yield engine
        except NoWorkerError as error:
            error.remedy += " Or serve the agents here, with --agents my_module:agents."
            raise


async def undo_command(
    common: Common,
    typed: str,
    *,
    keep_residue: bool,
    by: str,
    reason: str,
    agents: str | None,
    app: str | None,
    to: str | None = None,
) -> ExitCode:
    """Undo the step in progress, else the last completed one; or all steps after one."""
    residue: Residue = "keep" if keep_residue else "refuse"
    async with _undoing(common, agents, app) as engine:
        task_id = await find_task(engine, typed)
        runner = engine.runner()
        if to is None:
            undoing = runner.undo_step(task_id, residue, by=by, reason=reason)
        else:
            step = await find_step(runner, task_id, to)
            undoing = runner.rewind(task_id, step, residue, by=by, reason=reason)
        return _print_undo(common, task_id, await until_stopped(undoing), by)


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
    common: Common,
    typed: str,
    *,
    at: str,
    input: str | None,
    agents: str | None,
    app: str | None,
    wait: bool,
    **options: Any,
) -> ExitCode:
    """Start a new task from a step of this one; the options are those of AgentRunner.fork."""
    here = load_agents(agents, app) if agents else None
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(engine_of(common))
        old = await find_task(engine, typed)
        app, queue = await _queue(engine, old, app)
        runner = engine.runner(app=app, queue=queue)
        step = await find_step(runner, old, at, undone=True)
        task = await runner.fork(old, step, input, **options)
        if here is not None:
            await stack.enter_async_context(served(engine, here))
        if wait:
            return await run_to_the_end(common, runner, task.task_id, agents)
    _print_fork(common, task, old, step)
    return ExitCode.OK


def _print_fork(common: Common, task: Task, old: str, step: TaskStepOutput) -> None:
    at = {"task_id": old, "step": step.task_step.step_id, "branch": step.branch}
    data = {**task.model_dump(mode="json"), "forked_from": at}
    output.told(data, task.task_id, as_json=common.json)
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


async def _queue(engine: Engine, old: str, app: str | None) -> tuple[str, str | None]:
    """Return the app of the new task, and its queue if that is not one of Holdfast's own.

    They are the old task's, unless an app is named.
    """
    if app is not None:
        return check_app(app), None
    if (found := await find_run(engine.client, old)) is None:
        return DEFAULT_APP, None  # Temporal has forgotten the old task, and its app with it
    queue = found.task_queue
    return app_of(queue), None if is_own(queue) else queue
