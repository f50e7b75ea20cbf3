"""Workers are killed after a tool has kept a file, and before the task knows its outcome."""

import pytest

from holdfast import Agent, ToolContext, tool
from holdfast.agents.tools.artifacts import read_artifact
from holdfast.values.base import digest
from holdfast.values.settings import ModelSettings
from tests.crash.lab import Lab
from tests.crash.programs import AGENT, Job, held, note
from tests.support.scale import all_of


def make(job: Job) -> Agent:
    """Make an agent whose tool keeps a file, and stops at a hold afterwards."""

    async def write(ctx: ToolContext, thing: str) -> str:
        note(job.home, "start", tool=ctx.tool_name, thing=thing)
        reference = await ctx.artifacts.aput("a.txt", f"{thing} of attempt")
        note(job.home, "kept", reference=reference)
        await held(job.home, "write")
        return reference

    tools = [
        tool(write, effect="read", inline=False, name_override="write"),
        tool(write, effect="read", inline_seconds=30.0, name_override="jot"),
    ]
    settings = ModelSettings(max_attempts=5)
    return Agent(
        name=AGENT, model="fake-model", tools=[*tools, read_artifact], model_settings=settings
    )


@pytest.mark.parametrize("name", ["write", all_of("jot")], ids=["own activity", "inline"])
async def test_a_file_of_a_killed_tool_is_kept_once_by_the_next_attempt(
    lab: Lab, name: str
) -> None:
    lab.hold("write")
    worker = await lab.serve(make=make)
    task = await lab.create(f"{name}:one", step_mode="automatic")
    await lab.until_event("kept")
    await lab.kill(worker)
    assert await lab.runner.archive.aget(digest(b"one of attempt"))
    lab.let_go("write")
    await lab.serve(make=make)
    await lab.until_event("kept", 2)

    await lab.until_status(task, "answered")
    found = await lab.runner.artifacts(task, versions=True)
    assert [(each.name, each.version) for each in found] == [("a.txt", 1)]
    assert await lab.runner.read_artifact(task, "a.txt") == b"one of attempt"
