"""FunctionAgentWorker: any function is a step; what it has made is not made again."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import TaskStep, TaskStepOutput
from holdfast.errors import InvalidArgumentError, StepFailedError
from holdfast.workers import FunctionAgentWorker, StepContext
from tests.support.rig import Rig


class Foreign:
    """Stands for the agent of another framework."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, question: str) -> str:
        self.asked.append(question)
        return f"re {question}"

    async def run(self, question: str, depth: int = 1) -> dict[str, Any]:
        return {"answer": await self(question), "depth": depth}


class Rating(BaseModel):
    value: int


def plain(text: str) -> str:
    return f"{text} by {threading.current_thread().name.partition('_')[0]}"


async def with_ctx(text: str, ctx: StepContext) -> list[Any]:
    return [text, ctx.n]


async def of_step_and_ctx(step: TaskStep, *, ctx: StepContext, times: int = 2) -> str:
    return f"{step.input} {ctx.n}" * times


async def model(text: str) -> Rating:
    return Rating(value=len(text))


@pytest.mark.parametrize(
    ("function", "output"),
    [
        (plain, "q by holdfast-tool"),
        (with_ctx, ["q", 1]),
        (of_step_and_ctx, "q 1q 1"),
        (model, {"value": 1}),
        (Foreign().run, {"answer": "re q", "depth": 1}),
    ],
)
async def test_what_a_function_returns_is_the_answer(
    rig: Rig, function: Callable[..., Any], output: Any
) -> None:
    runner = await rig.make(worker=FunctionAgentWorker(function))
    response = await runner.chat("q")
    assert response.output == output


async def test_a_function_can_hand_out_further_steps(rig: Rig) -> None:
    async def counts(step: TaskStep) -> Any:
        count = step.step_state.get("count", 0) + 1
        if count == 3:
            return f"counted, {step.input}"
        following = step.get_next_step(step_state={"count": count})
        return TaskStepOutput(output=count, next_steps=(following,))

    runner = await rig.make(worker=FunctionAgentWorker(counts))
    task = await runner.create_task("q")
    assert [(await runner.run_step(task)).output for _ in range(2)] == [1, 2]
    await runner.undo_step(task)
    last = [await runner.run_step(task) for _ in range(2)]
    assert [(o.output, o.is_last) for o in last] == [(2, False), ("counted, None", True)]


# ---- mistakes


def _two(text: str, more: str) -> str:
    return text


def _sync_ctx(text: str, ctx: StepContext) -> str:
    return text


def _by_name(*, text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_two, r"Function _two\(text: .*more.*\) cannot be a step\. It must take one parameter"),
        (_by_name, "_by_name.* cannot be a step"),
        (Foreign.run, "run.self, question.* cannot be a step"),
        (_sync_ctx, "'_sync_ctx' takes `ctx` but is not an async function"),
        (7, "7 cannot be called"),
        (type, "The signature of 'type' cannot be read|type.* cannot be a step"),
    ],
)
def test_a_function_that_is_no_step_is_refused(function: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        FunctionAgentWorker(function)


async def test_no_answer_and_no_data_are_refused(rig: Rig) -> None:
    returned: list[Any] = ["healed", object(), None]

    async def gives(text: str) -> Any:
        return returned.pop()

    runner = await rig.make(worker=FunctionAgentWorker(gives))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="Function 'gives' returned None, not an answer"):
        await runner.run_step(task)
    with pytest.raises(StepFailedError, match="Function 'gives' returned a object that cannot be"):
        await runner.run_step(task)
    assert str(await runner.run_step(task)) == "healed"
