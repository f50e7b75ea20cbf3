"""Runs of agents that were assigned to, and of parts of agents that were made by hand."""

import json

from holdfast import RunContextWrapper, RunState
from holdfast.testing import call
from tests.support.runs import Runs, look, outputs


async def test_a_run_uses_what_was_assigned_before_it(run: Runs) -> None:
    agent = await run.serve()
    run.model.reply("one")
    await run("q")
    agent.instructions = "Be brief."
    agent.tools = [look]
    run.model.add(call("look", {"where": "there"}), "two")
    assert outputs(await run("q")) == ["seen there"]
    first, second = (request.body for request in run.model.requests[:2])
    assert "Be brief." not in json.dumps(first)
    assert "Be brief." in json.dumps(second)
    assert [each["name"] for each in second["tools"]] == ["look"]


async def test_a_state_made_by_hand_is_begun_once(run: Runs) -> None:
    agent = await run.serve()
    desk = {"name": "Ann"}
    state = RunState(RunContextWrapper(desk), "q", agent, max_turns=3)
    kept = state.to_string()
    run.model.reply("done")
    result = await run(state)
    assert (result.final_output, result.context_wrapper.context) == ("done", desk)
    again = await run(await RunState.from_string(agent, kept))
    assert (again.final_output, again.task_id) == ("done", result.task_id)
    assert len(run.model.requests) == 1
