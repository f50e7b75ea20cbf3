"""LLMCompilerAgentWorker on a real server: every call is a step of its own, run when it can be."""

from __future__ import annotations

from holdfast import tool
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant, user
from holdfast.workers import LLMCompilerAgentWorker
from tests.support.rig import MakeRunner

PLAN = """\
Thought: both cities, then the two together
1. look("Rome")
2. look("Oslo")
3. add($1, $2)
4. join()
<END_OF_PLAN>"""
FINISH = "Thought: known\nAction: finish(Rome and Oslo together have 3.5 million (2024) people)\n"
ANSWER = "Rome and Oslo together have 3.5 million (2024) people"


@tool(effect="read")
def look(city: str) -> float:
    """Look up how many million people live in a city."""
    return {"Rome": 2.8, "Oslo": 0.7}[city]


@tool(effect="read")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def test_every_call_of_a_plan_is_a_step_that_can_be_seen(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look, add, worker=LLMCompilerAgentWorker())
    model.add(PLAN, FINISH)
    task = await runner.create_task("How many people live there?", session="s")
    await runner.run_step(task)
    upcoming = await runner.get_upcoming_steps(task)
    assert [step.step_id for step in upcoming] == ["p1.1", "p1.2", "p1.3", "p1.join"]
    assert upcoming[2].prev_steps == ("p1.1", "p1.2")
    assert upcoming[2].step_state["arguments"] == {"a": "$1", "b": "$2"}
    outputs = [await runner.run_step(task) for _ in range(4)]
    assert [str(output) for output in outputs] == ["2.8", "0.7", "3.5", ANSWER]
    assert [output.is_last for output in outputs] == [False, False, False, True]
    state = (await runner.get_task(task)).extra_state
    assert state["plans"][0]["nodes"][2] == '3. add(a="$1", b="$2")'
    assert "result: 3.5" in model.requests[1].last_user
    response = await runner.finalize_response(task)
    assert sorted((s.call_id, s.tool_name, s.content) for s in response.sources) == [
        ("call_p1.1", "look", "2.8"),
        ("call_p1.2", "look", "0.7"),
        ("call_p1.3", "add", "3.5"),
    ]
    kept = await runner.session("s").chat_history()
    assert list(kept) == [user("How many people live there?"), assistant(ANSWER)]
    assert response.usage.requests == 2
