"""The agent loop: instructions, tools on offer, what follows calls, and what a run brings to it."""

from typing import Any

import pytest

from holdfast import Agent, RunConfig, Runner, StepFailedError
from holdfast.testing import ScriptedModel
from tests.support.runs import Runs, look


async def test_a_step_keeps_the_instructions_that_it_began_with(run: Runs) -> None:
    """A step is run twice here: its tool's result is its end."""
    made: list[str] = []

    def changing(_ctx: object, _agent: object) -> str:
        made.append(f"{len(made)}".rjust(3000, "."))
        return made[-1]

    run.model.call("look")
    result = await run(
        "q", look, of={"instructions": changing, "tool_use_behavior": "stop_on_first_tool"}
    )
    assert result.final_output == "seen here"
    assert len(made) == 1
    assert run.model.requests[0].instructions == made[0]


@pytest.mark.parametrize("place", ["instructions", "handler"])
async def test_code_that_raises_leaves_the_step_to_be_run_again(run: Runs, place: str) -> None:
    broken = [True]

    def fragile(*_given: object) -> str:
        if broken:
            raise ZeroDivisionError("mend me")
        return "mended"

    options: dict[str, Any] = {"of": {"instructions": fragile}}
    if place == "handler":
        options = {"error_handlers": {"model_refusal": fragile}}
        run.model.refuse("I will not")
    with pytest.raises(StepFailedError, match="mend me"):
        await run("q", task_id=f"loop-{place}", **options)
    broken.clear()
    if place == "instructions":
        run.model.reply("mended")
    assert str(await run.runner.run_task(f"loop-{place}")) == "mended"
    [asked] = run.model.requests
    assert asked.instructions == ("mended" if place == "instructions" else "")


class Provider:
    """Gives one model, whatever the name."""

    def __init__(self) -> None:
        self.model = ScriptedModel(["provided"])
        self.names: list[str | None] = []

    def get_model(self, name: str | None) -> ScriptedModel:
        self.names.append(name)
        return self.model


async def test_a_provider_makes_models_of_names_only(run: Runs) -> None:
    provider = Provider()
    named = Agent(name="agent", model="some-name")
    await run.rig.serve(named)
    config = RunConfig(model_provider=provider)
    result = await Runner.run(named, "q", runner=run.runner, run_config=config)
    assert (result.final_output, provider.names) == ("provided", ["some-name"])
    run.model.reply("own model")
    assert (await run("q", run_config=config)).final_output == "own model"
