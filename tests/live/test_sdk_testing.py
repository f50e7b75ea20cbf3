"""The scripted model of the Agents SDK, as it is, in runs of ours."""

from __future__ import annotations

from typing import Any

import pytest
from agents.testing import (
    ModelStep,
    ScriptedModel,
    assistant_message,
    function_call,
)

from holdfast import Runner, StepFailedError
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import look


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_scripted_model_of_the_sdk_answers_a_run(
    rig: Rig, make_agent: MakeAgent, *, streamed: bool
) -> None:
    steps: list[Any] = [
        [function_call("look", {"where": "up"}, call_id="c1")],
        ModelStep(output=[assistant_message("done")]),
    ]
    model = ScriptedModel(steps)
    agent = make_agent(look, model=model)
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
