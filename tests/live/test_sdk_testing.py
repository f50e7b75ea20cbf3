"""The scripted model and the trimmer of the Agents SDK, as they are, in runs of ours."""

from typing import Any

import pytest
from agents.extensions import ToolOutputTrimmer
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from holdfast import Agent, RunConfig, Runner, StepFailedError
from tests.support.rig import Rig
from tests.support.runs import look


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_scripted_model_of_the_sdk_answers_a_run(rig: Rig, *, streamed: bool) -> None:
    steps: list[Any] = [
        [function_call("look", {"where": "up"}, call_id="c1")],
        ModelStep(output=[assistant_message("done")]),
    ]
    model = ScriptedModel(steps)
    agent = rig.agent(look, model=model)
    await rig.serve(agent)
    if streamed:
        stream = Runner.run_streamed(agent, "q", runner=rig.runner())
        kinds = [event.type async for event in stream.stream_events()]
        assert "raw_response_event" in kinds
        output = stream.final_output
    else:
        output = (await Runner.run(agent, "q", runner=rig.runner())).final_output
    assert (output, len(model.calls)) == ("done", 2)
    model.assert_complete()
    with pytest.raises(StepFailedError, match="UnexpectedModelCall"):
        await Runner.run(agent, "q", runner=rig.runner())


async def test_the_trimmer_of_the_sdk_shortens_what_tools_gave(rig: Rig) -> None:
    model = ScriptedModel([[assistant_message("done")]])
    agent = Agent(name="trimmed", model=model)
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    given = [
        {"role": "user", "content": "q"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "x" * 900},
        {"role": "user", "content": "more"},
    ]
    trimmer = ToolOutputTrimmer(recent_turns=1, max_output_chars=100, preview_chars=20)
    runner = await rig.serving(agent)
    config = RunConfig(call_model_input_filter=trimmer)
    await Runner.run(agent, given, runner=runner, run_config=config)
    call_made = model.last_call
    assert call_made is not None
    output: Any = call_made.input[2]
    assert "Trimmed" in output["output"]
    assert len(output["output"]) < 120
