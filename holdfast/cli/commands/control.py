"""`step` and `finalize`."""

from __future__ import annotations

from holdfast.cli import output
from holdfast.cli.commands.task_lookup import find_task
from holdfast.cli.connection import engine_of, until_stopped
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
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
