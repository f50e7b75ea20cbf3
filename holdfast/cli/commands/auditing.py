"""`audit`: every event of a task as JSON lines, and whether the record is intact."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli import output
from holdfast.cli.commands.task_lookup import find_task
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.values.base import Json


async def audit_command(common: Common, typed: str, secrets: Sequence[str]) -> ExitCode:
    """Print the events of a task, oldest first."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        events = await engine.runner().audit(task_id, secrets=secrets)
    for event in events:
        output.emit(event.model_dump(mode="json"))
    return ExitCode.OK


async def verify_command(common: Common, typed: str) -> ExitCode:
    """Compute the digest chain of a task anew, and say where it breaks."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        findings = await engine.runner().verify(task_id)
    if common.json:
        found = [finding.model_dump(mode="json") for finding in findings]
        proof: Json = {"proved": findings.proved, "unproved": findings.unproved}
        output.emit({"task_id": task_id, "intact": not findings, "findings": found, **proof})
    else:
        if not findings:
            output.answer(f"The record of {task_id} is intact.")
        for each in findings:
            where = f"step {each.step} on branch {each.branch}: " if each.step else ""
            output.answer(f"{where}{each.text}")
        for text in findings.proved:
            output.answer(f"proved: {text}")
        for text in findings.unproved:
            output.answer(f"not proved: {text}")
    if findings:
        places = "one place" if len(findings) == 1 else f"{len(findings)} places"
        text = f"The record of {task_id} is broken at {places}."
        output.say(f"error: {text}", style="red")
    return ExitCode.FAILED if findings else ExitCode.OK
