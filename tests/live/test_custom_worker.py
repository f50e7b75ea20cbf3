"""CustomAgentWorker: one method from state to state, whatever happens in between."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Message, Task, TaskStep, TaskStepOutput
from holdfast.errors import InvalidArgumentError, StepFailedError, UnfitAnswerError
from holdfast.values.messages import assistant, user
from holdfast.workers import CustomAgentWorker, StepContext
from tests.support.rig import Rig
from tests.support.workers import Doing, said

State = dict[str, Any]
Method = Callable[[State, StepContext], Awaitable[Any]]


class Custom(CustomAgentWorker):
    """Does in each step what a function does."""

    def __init__(self, method: Method, initial_state: Mapping[str, Any] | None = None) -> None:
        super().__init__(initial_state)
        self.method = method

    async def next_state(self, state: State, ctx: StepContext) -> Any:
        return await self.method(state, ctx)


async def anew(state: State, ctx: StepContext) -> tuple[State, bool]:
    """Count to three by new dicts, and leave the old ones alone."""
    count = state.get("count", 0) + 1
    return {"count": count, "output": f"counted {count}"}, count == 3


async def test_a_step_that_is_cut_off_keeps_its_answers_and_changes_its_state_once(
    rig: Rig,
) -> None:
    reached, made = asyncio.Event(), list[str]()

    def find() -> int:
        made.append("x")
        return len(made)

    async def twice(state: State, ctx: StepContext) -> tuple[State, bool]:
        recorded = len(ctx.journal)
        state["log"].append("began")
        state["log"].append((await ctx.call_model()).text)
        state["log"].append(await ctx.memo("found", find))
        if recorded == 3 and not reached.is_set():  # the first state, the answer and the memo
            reached.set()
            await asyncio.Event().wait()
        state["log"].append((await ctx.call_model([user("again")])).text)
        state["output"] = state["log"]
        return state, True

    agent = rig.agent(worker=Custom(twice, {"log": []}))
    await rig.serve(agent, graceful_shutdown_timeout=timedelta())
    runner = rig.runner()
    rig.model.add("first", "second")
    task = await runner.create_task("q")
    stepping = asyncio.create_task(runner.run_step(task))
    await reached.wait()
    await rig.serve(agent)
    assert (await stepping).output == ["began", "first", 1, "second"]
    assert (len(rig.model.requests), made) == (2, ["x"])


async def test_the_first_state_is_made_once_of_the_task(rig: Rig) -> None:
    numbers = itertools.count(1)

    class Made(CustomAgentWorker):
        def initialize_state(self, task: Task) -> State:
            return {"asked": len(task.input), "number": next(numbers)}

        async def next_state(self, state: State, ctx: StepContext) -> tuple[State, bool]:
            answer = await ctx.call_model([user("a")])
            answer = await ctx.call_model([user(answer.text)])
            return {**state, "output": {**state, "input": len(state["input"])}}, True

    runner = await rig.make(worker=Made())
    rig.model.add("b", "c")
    task = await runner.create_task("long " * 20_000)
    expected = {"asked": 100_000, "number": 1, "input": 100_000}
    assert (await runner.run_step(task)).output == expected


async def test_what_the_session_keeps_can_be_chosen(rig: Rig) -> None:
    class Own(Custom):
        def finalize_task(self, task: Task, transcript: Any) -> list[Message]:
            return [assistant(f"{len(transcript)} messages")]

    async def speaks(state: State, ctx: StepContext) -> tuple[State, bool]:
        ctx.add(assistant("done"))  # and is not said a second time
        return {"output": "done"}, True

    runner = await rig.make(worker=Own(speaks))
    await runner.chat("q", session="s")
    assert said(await runner.session("s").chat_history()) == [("assistant", "2 messages")]


Made = Callable[[State], Any]

MISTAKES: list[tuple[Made, str]] = [
    (
        lambda state: (state, True),
        r"Custom\.next_state ended the task without an answer.*state\[.output.\]",
    ),
    (
        lambda state: state,
        r"Custom\.next_state returned \{'input': 'q'\} \(dict\).*\(state, is_last\)",
    ),
    (lambda state: (state, "yes"), r"Custom\.next_state returned .*True or False"),
    (lambda _: ({"deep": [{"at": object()}]}, False), r"state\.deep\[0\]\.at holds .*JSON"),
    (
        lambda _: ({"output": float("nan")}, True),
        r"Custom\.next_state gave as output a float that cannot be stored",
    ),
    (lambda state: (state | {"input": "mine"}, False), r"changed state\[.input.\].*another key"),
]
"""What the method makes of a state, and what is said of it."""


@pytest.mark.parametrize(("make", "text"), MISTAKES)
async def test_a_mistake_parks_the_step_which_can_be_run_again_when_it_is_corrected(
    rig: Rig, make: Made, text: str
) -> None:
    async def mistaken(state: State, ctx: StepContext) -> Any:
        return make(state)

    worker = Custom(mistaken)
    runner = await rig.make(worker=worker)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=text) as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "InvalidArgumentError"
    worker.method = anew
    assert (await runner.run_step(task)).output == "counted 1"


@pytest.mark.parametrize("key", ["input", "output"])
async def test_a_reserved_key_is_refused_when_the_worker_is_made(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the key '{key}', which is reserved"):
        Custom(anew, {key: 1})


async def test_a_reserved_key_in_a_class_or_a_method_is_told_when_the_task_begins(rig: Rig) -> None:
    class Wrong(Custom):
        initial_state = {"output": 1}  # noqa: RUF012  the mistake under test

    runner = await rig.make(worker=Wrong(anew))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="The initial state of Wrong has the key 'output'"):
        await runner.run_step(task)


class Verdict(BaseModel):
    """The model's opinion."""

    good: bool


async def judge_twice(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Ask for two typed answers: the first one comes from the journal in the second activity."""
    one = await ctx.call_model([user("one")], output_type=Verdict)
    two = await ctx.call_model([user("two")], output_type=list[int])
    assert isinstance(one.parsed, Verdict)
    return TaskStepOutput(output=[one.parsed.good, two.parsed], task_step=step, is_last=True)


async def test_a_model_call_with_a_type_gives_a_validated_object_also_when_replayed(
    rig: Rig,
) -> None:
    runner = await rig.make(worker=Doing(judge_twice))
    rig.model.add('{"good": true}', '{"response": [1, 2]}')
    task = await runner.create_task("q")
    assert (await runner.run_step(task)).output == [True, [1, 2]]


async def test_an_answer_that_does_not_fit_the_type_says_why_and_is_asked_for_again(
    rig: Rig,
) -> None:
    runner = await rig.make(worker=Doing(judge_twice))
    rig.model.add('{"good": "maybe"}', '{"good": false}', "none", "", "none")
    task = await runner.create_task("q")
    with pytest.raises(UnfitAnswerError, match=r"(?s)asked 3 times.*Invalid JSON.*list\[int\]"):
        await runner.run_step(task)
    assert "valid boolean" in rig.model.requests[1].text
    assert "neither a text nor a call" in rig.model.requests[4].text
    rig.model.add('{"good": false}', '{"response": []}')
    assert (await runner.run_step(task)).output == [False, []]
