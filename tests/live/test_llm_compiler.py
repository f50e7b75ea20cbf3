"""LLMCompilerAgentWorker on a real server: every call is a step of its own, run when it can be."""

from __future__ import annotations

import asyncio

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


async def test_a_call_starts_when_its_inputs_are_done_whatever_else_still_runs(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    released = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait for the release."""
        async with asyncio.timeout(100):
            await released.wait()
        return "waited"

    @tool(effect="read")
    async def release(after: str) -> str:
        """Release who waits."""
        released.set()
        return f"released after {after}"

    runner = await make_runner(look, wait, release, worker=LLMCompilerAgentWorker())
    model.add("1. wait()\n2. look('Rome')\n3. release($2)\n4. join()", "Action: finish(done)")
    response = await runner.chat("q")
    found = {source.tool_name: source.content for source in response.sources}
    assert found == {"wait": "waited", "look": "2.8", "release": "released after 2.8"}


async def test_failures_are_observations_and_another_plan_heals_them(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look, add, worker=LLMCompilerAgentWorker())
    model.reply("1. look('Roma')\n2. fly('Oslo')\n3. add($1, 1)\n4. look('Oslo')\n5. join()")
    model.reply("Thought: wrong name\nAction: Replan(look up Rome instead)")
    model.add("1. look('Rome')\n2. join()", FINISH)
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert str(await runner.finalize_response(task)) == ANSWER
    steps = {output.task_step.step_id for output in await runner.get_completed_steps(task)}
    assert steps == {"s1", "p1.1", "p1.2", "p1.3", "p1.4", "p1.join", "p2", "p2.1", "p2.join"}
    observed = model.requests[1].last_user
    assert "error: Encountered error" in observed
    assert "error: Tool with name fly not found" in observed
    assert "error: Not run: it needs the result of $1" in observed
    assert "result: 0.7" in observed
    assert "look up Rome instead" in model.requests[2].last_user
    assert "result: 2.8" in model.requests[3].last_user
