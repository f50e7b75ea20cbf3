"""`step`, `finalize`, and the commands that change what a task does next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Literal

from holdfast.cli import output
from holdfast.cli.commands.task_lookup import find_task
from holdfast.cli.connection import engine_of, until_stopped
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import CommandRefusedError, StepNotFoundError
from holdfast.task.data.commands import Receipt
from holdfast.task.refusals import NOT_UPCOMING
from holdfast.values.steps import TaskStepOutput


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
        output.answer(str(got) if got.output is not None else "")
    if got.is_last:
        output.say(f"That was the last step. holdfast finalize {task_id}{common.arguments()}")
    return code


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


async def finalize_command(common: Common, typed: str) -> ExitCode:
    """Close a task that has its answer."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        response = await engine.runner().finalize_response(task_id)
    if common.json:
        output.emit({**response.model_dump(mode="json"), "status": "finished"})
    else:
        output.answer(response.response)
    return ExitCode.OK


async def pause_command(common: Common, typed: str, *, by: str, reason: str) -> ExitCode:
    """Let no further step begin."""
    return await _command(common, typed, by, lambda r, task: r.pause(task, reason=reason, by=by))


async def resume_command(common: Common, typed: str, *, by: str, reason: str) -> ExitCode:
    """Let steps begin again."""
    return await _command(common, typed, by, lambda r, task: r.resume(task, by=by, reason=reason))


async def abandon_command(
    common: Common, typed: str, *, by: str, reason: str, force: bool
) -> ExitCode:
    """End a task without an answer."""
    return await _command(
        common, typed, by, lambda r, task: r.abandon(task, reason=reason, by=by, force=force)
    )


async def feedback_command(
    common: Common, typed: str, text: str, *, queued: bool, by: str
) -> ExitCode:
    """Send a message to the model: before its next call, or as the next input."""
    when: Literal["next_model_call", "queued"] = "queued" if queued else "next_model_call"
    return await _command(
        common, typed, by, lambda r, task: r.give_feedback(task, text, when=when, by=by)
    )


async def edit_step_command(
    common: Common, typed: str, step: str, input: str, *, by: str, reason: str
) -> ExitCode:
    """Change the input of an upcoming step."""
    with _finding(step):
        return await _command(
            common,
            typed,
            by,
            lambda r, task: r.edit_step(task, step, input=input, by=by, reason=reason),
        )


async def drop_step_command(
    common: Common, typed: str, step: str, *, by: str, reason: str
) -> ExitCode:
    """Take an upcoming step out of the queue."""
    with _finding(step):
        return await _command(
            common, typed, by, lambda r, task: r.drop_step(task, step, by=by, reason=reason)
        )


@contextmanager
def _finding(step: str) -> Generator[None]:
    """Tell a step that is not there from other reasons for which a task refuses a command.

    Raises:
        StepNotFoundError: The task has no such step to come.
    """
    try:
        yield
    except CommandRefusedError as error:
        if NOT_UPCOMING.format(step) not in str(error):
            raise
        raise StepNotFoundError(*error.args) from error


async def _command(
    common: Common,
    typed: str,
    by: str,
    send: Callable[[AgentRunner, str], Awaitable[Receipt]],
) -> ExitCode:
    """Send a command to a task; it is recorded even when no worker is up."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        receipt = await send(engine.runner(), task_id)
    if common.json:
        output.emit({"task_id": task_id, "by": by, **receipt.model_dump(mode="json")})
    verb = receipt.verb.replace("_", "-")
    if receipt.status == "recorded":
        output.say(f"{verb} is recorded; it takes effect when a worker is up.")
    else:
        output.say(f"{verb} is applied to {task_id}.")
    return ExitCode.OK
