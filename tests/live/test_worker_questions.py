"""What workers of a user's own code are asked, and which questions and answers a session keeps."""

from typing import Any

import pytest

from holdfast import TaskStep
from holdfast.values.messages import assistant, user
from holdfast.workers import (
    CustomAgentWorker,
    FunctionAgentWorker,
    FunctionComponent,
    PipelineAgentWorker,
    StepContext,
    link,
)
from tests.support.rig import Rig
from tests.support.workers import said


class Echo(CustomAgentWorker):
    def next_state(self, state: dict[str, Any], ctx: StepContext) -> tuple[dict[str, Any], bool]:
        return {"output": f"re {state['input']}"}, True


async def echo_step(step: TaskStep, ctx: StepContext) -> str:
    ctx.add(assistant("thinking"))
    ctx.add(user("to myself"))
    return f"re {step.input}"


def twice(x: str, state: dict[str, Any]) -> tuple[str, bool]:
    state["runs"] = state.get("runs", 0) + 1
    return f"re {x}", state["runs"] > 1


def once(x: str) -> str:
    return f"re {x}"


def pipeline(function: Any = once) -> PipelineAgentWorker:
    return PipelineAgentWorker(
        [FunctionComponent("f", function)], [link("input", "f", to="x")], output="f"
    )


WORKERS = [FunctionAgentWorker(echo_step), Echo(), pipeline(twice)]


@pytest.mark.parametrize("worker", WORKERS)
async def test_each_question_stays_with_its_answer(rig: Rig, worker: Any) -> None:
    runner = await rig.make(worker=worker)
    task = await runner.create_task("one", session="s")
    await runner.give_feedback(task, "be kind", by="ann")
    await runner.give_feedback(task, "two", when="queued", by="ann")
    await runner.run_step(task, input="first")
    await runner.run_task(task)
    await runner.finalize_response(task)
    kept = said(await runner.session("s").chat_history())
    assert kept == [
        ("user", "first"),
        ("assistant", "re first"),
        ("user", "two"),
        ("assistant", "re two"),
    ]


# ---- workers that are no AgentWorker
