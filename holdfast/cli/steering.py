"""`step`, `finalize`, `pause`, `resume` and `abandon`."""

from __future__ import annotations

from typing import Literal, assert_never

from holdfast.cli import output
from holdfast.cli.connection import engine_of, until_stopped
from holdfast.cli.exits import ExitCode
from holdfast.cli.finding import find_task
from holdfast.cli.options import Common

SteeringVerb = Literal["pause", "resume", "abandon"]


async def step_command(common: Common, typed: str, *, input: str | None, restart: bool) -> ExitCode:
    """Run a task's next step."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        running = engine.runner().run_step(
            task_id, input=input, restart="step" if restart else None
        )
        got = await until_stopped(running)
    if common.json:
        output.emit(got.model_dump(mode="json"))
    for source in got.sources:
        shown = output.shortened(source.content)
        output.say(f"{source.tool_name} {source.raw_input} -> {shown}")
    if got.status == "waiting":
        for text in got.waiting_for:
            output.say(f"The task waits for a person: {text}", style="yellow")
        return ExitCode.WAITING
    if not common.json:
        output.answer(str(got) if got.output is not None else "")
    if got.is_last:
        output.say(f"That was the last step. holdfast finalize {task_id}{common.arguments()}")
    return ExitCode.OK


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


async def steer_command(
    common: Common, verb: SteeringVerb, typed: str, *, by: str, reason: str
) -> ExitCode:
    """Send a command to a task; it is durable, also with no worker up."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        runner = engine.runner()
        match verb:
            case "pause":
                receipt = await runner.pause(task_id, reason=reason, by=by)
            case "resume":
                receipt = await runner.resume(task_id, by=by)
            case "abandon":
                receipt = await runner.abandon(task_id, reason=reason, by=by)
            case _:
                assert_never(verb)
    if common.json:
        output.emit({"task_id": task_id, "by": by, **receipt.model_dump(mode="json")})
    if receipt.status == "recorded":
        output.say(f"{verb} is recorded; it takes effect when a worker is up.")
    else:
        output.say(f"{verb} is applied to {task_id}.")
    return ExitCode.OK
