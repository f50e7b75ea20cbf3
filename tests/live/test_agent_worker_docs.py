"""What mistakes of step logic say, and the suite of docs/agent_workers.md."""

import asyncio
import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import TaskStep, TaskStepOutput
from holdfast.errors import HoldfastError, InvalidArgumentError, StepCodeChangedError
from holdfast.testing import fail
from holdfast.testing.conformance.suite import checks
from holdfast.values.messages import user
from holdfast.workers import StepContext
from tests.support import forked
from tests.support.programs import printed_by
from tests.support.rig import Rig, step_a_task
from tests.support.workers import Doing, ends

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "agent_workers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)

FORKED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""What the process that is forked has imported already is no warning of the suite."""

numbers = itertools.count(1)


async def returns_text(step: TaskStep, ctx: StepContext) -> Any:
    return "done"


async def hands_on_an_object(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    following = step.get_next_step(step_state={"thing": object()})
    return TaskStepOutput(output="", task_step=step, next_steps=(following,))


async def remembers_an_object(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    await ctx.memo("thing", object)
    return ends(step)


async def asks_anew(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    await ctx.call_model([user(f"request {next(numbers)}")])
    await ctx.call_model([user("second")])
    return ends(step)


async def leads_nowhere(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    return TaskStepOutput(output="", task_step=step)


async def cancels_itself(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (returns_text, "run_step returned str; it must return a TaskStepOutput"),
        (hands_on_an_object, "cannot be stored as JSON"),
        (remembers_an_object, "Memo 'thing' cannot be stored as JSON"),
        (asks_anew, "where its journal holds the answer to another request"),
        (leads_nowhere, "was not the last one and queued no next step"),
        (cancels_itself, "was cancelled by its own code"),
    ],
)
async def test_a_mistake_says_what_it_is_and_can_be_mended(rig: Rig, body: Any, text: str) -> None:
    if body is asks_anew:
        rig.model.reply("first")
    worker = Doing(body)
    runner = await rig.make(worker=worker)
    task = await runner.create_task("q")
    kind = StepCodeChangedError if body is asks_anew else HoldfastError
    with pytest.raises(kind, match=re.escape(text)):
        await runner.run_task(task)
    assert (await runner.get_task(task)).status == "needs_attention"


def test_linked_steps_without_ids_are_refused() -> None:
    text = "Linked steps need ids of their own"
    with pytest.raises(InvalidArgumentError, match=text):
        TaskStep().link_step(TaskStep())


async def test_two_last_steps_side_by_side_are_refused(rig: Rig) -> None:
    text = "More than one step output returned in final step"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_id in ("a", "b"):
            return ends(step)
        following = tuple(step.get_next_step(step_id=each) for each in ("a", "b"))
        return TaskStepOutput(output="", task_step=step, next_steps=following)

    runner = await rig.make(worker=Doing(body))
    task = await step_a_task(runner)

    async def go_on() -> None:
        await runner.run_steps_in_queue(task)
        await runner.run_task(task)

    with pytest.raises(HoldfastError, match=text):
        await go_on()
    assert (await runner.get_task(task)).status == "needs_attention"


async def test_a_failed_model_call_never_returns_to_the_worker(rig: Rig) -> None:
    seen: list[str] = []

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        try:
            answer = await ctx.call_model([user("question")])
        except Exception as error:
            seen.append(f"caught {error}")
            raise
        finally:
            seen.append("finally")
        return ends(step, answer.text)

    rig.model.add(fail(500, retry_after=0.01), "answer")
    runner = await rig.make(worker=Doing(body))
    assert str(await runner.chat("q")) == "answer"
    assert seen == ["finally", "finally"]


def test_the_suite_of_the_page_passes_outside_this_repository(tmp_path: Path) -> None:
    [block] = [block for block in BLOCKS if "AgentWorkerConformance" in block]
    (tmp_path / "test_careful.py").write_text(block, encoding="utf-8")
    command = forked.command("-m", "pytest", "-q", "-p", "no:asyncio", "-k", "chat", *FORKED)
    said = printed_by(command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    assert f"1 passed, {len(checks()) - 1} deselected in" in said
