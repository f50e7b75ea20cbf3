"""PipelineAgentWorker: a graph per step, its model calls and memos made once, its tools at once."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import AgentRunner, Task
from holdfast.errors import StepFailedError
from holdfast.testing import FakeOpenAI
from holdfast.workers import (
    ConstantComponent,
    FunctionComponent,
    ModelComponent,
    PipelineAgentWorker,
    PromptComponent,
    StepContext,
    ToolComponent,
    link,
)
from tests.support.rig import MakeAgent, MakeRunner, Rig
from tests.support.workers import said

State = dict[str, Any]


Body = Callable[[Any], Any] | Callable[[Any, Any], Any]


def calls(name: str, body: Body, **options: Any) -> FunctionComponent:
    """Make a component of a function or lambda of one or two parameters."""
    return FunctionComponent(name, body, **options)


async def outputs(runner: AgentRunner, task: Task, steps: int) -> list[Any]:
    return [(await runner.run_step(task)).output for _ in range(steps)]


# ---- one run


async def test_a_question_goes_through_tool_prompt_and_model(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    def search(query: str, language: str) -> str:
        """Search."""
        return f"{query} in {language}"

    worker = PipelineAgentWorker(
        [
            ConstantComponent("language", "French"),
            calls("shorten", lambda text: text.strip("? ")),
            ToolComponent("search"),
            PromptComponent("ask", "Answer {question} from this: {found}"),
            ModelComponent("answer", instructions="Be brief."),
        ],
        [
            link("input", "shorten"),
            link("shorten", "search", to="query"),
            link("language", "search", to="language"),
            link("input", "ask", to="question"),
            link("search", "ask", to="found"),
            link("ask", "answer"),
        ],
        output="answer",
    )
    runner = await make_runner(search, worker=worker)
    model.reply("the answer")
    response = await runner.chat("Where is {x}?", session="s")
    assert str(response) == "the answer"
    assert [str(source) for source in response.sources] == ["Where is {x} in French"]
    [request] = model.requests
    assert [m.text for m in request.messages] == [
        "Answer Where is {x}? from this: Where is {x} in French"
    ]
    assert request.body.get("instructions") == "Be brief."
    assert not request.body.get("tools")
    assert said(await runner.session("s").chat_history()) == [
        ("user", "Where is {x}?"),
        ("assistant", "the answer"),
    ]


async def test_each_model_call_and_memo_is_made_once_though_the_step_is_run_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    made: list[str] = []

    def costly(x: str, state: State) -> str:
        made.append(x)
        state.setdefault("log", []).append(x)
        return f"made of {x}"

    worker = PipelineAgentWorker(
        [
            ModelComponent("first"),
            FunctionComponent("costly", costly, memo=True),
            ModelComponent("second"),
            calls("end", lambda x, state: [x, state["log"]]),
        ],
        [
            link("input", "first"),
            link("first", "costly"),
            link("costly", "second"),
            link("second", "end"),
        ],
        output="end",
    )
    runner = await make_runner(worker=worker)
    model.reply("one")
    model.reply("two")
    assert (await runner.chat("q")).output == ["two", ["one"]]
    assert made == ["one"]
    assert [r.last_user for r in model.requests] == ["q", "made of one"]


# ---- several steps


async def test_done_decides_and_previous_is_the_output_of_the_step_before(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    worker = PipelineAgentWorker(
        [
            calls("draft", lambda asked, before: [asked, before]),
            ModelComponent("improve"),
        ],
        [
            link("input", "draft", to="asked"),
            link("previous", "draft", to="before"),
            link("draft", "improve"),
        ],
        output="improve",
        done=lambda output, state: output == "good",
    )
    runner = await make_runner(worker=worker)
    for text in ("bad", "better", "good"):
        model.reply(text)
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    second = await runner.run_step(task, input="shorter")
    last = await runner.run_step(task)
    assert [(o.output, o.is_last) for o in (first, second, last)] == [
        ("bad", False),
        ("better", False),
        ("good", True),
    ]
    assert [json.loads(r.last_user or "") for r in model.requests] == [
        ["q", None],
        ["shorter", "bad"],
        ["q", "better"],
    ]


async def test_another_worker_process_goes_on_between_steps_and_within_one(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    reached, ran, looked = asyncio.Event(), itertools.count(1), list[str]()

    async def hold(x: str, state: State, ctx: StepContext) -> tuple[str, bool]:
        if next(ran) == 1:
            reached.set()
            await asyncio.Event().wait()
        state["n"] = state.get("n", 0) + 1
        checked = await ctx.memo("check", lambda: f"{x} checked")
        return f"{checked} {state['n']}", state["n"] == 2

    def look(where: str) -> str:
        """Look."""
        looked.append(where)
        return f"seen {where}"

    def made() -> PipelineAgentWorker:
        return PipelineAgentWorker(
            [
                ModelComponent("ask"),
                ToolComponent("look"),
                FunctionComponent("hold", hold),
            ],
            [link("input", "ask"), link("ask", "look", to="where"), link("look", "hold")],
            output="hold",
        )

    await rig.serve(make_agent(look, worker=made()), graceful_shutdown_timeout=timedelta())
    runner = rig.runner()
    model.reply("here")
    model.reply("there")
    task = await runner.create_task("q")
    stepping = asyncio.create_task(runner.run_step(task))
    await reached.wait()
    await rig.serve(make_agent(look, worker=made()))
    assert (await stepping).output == "seen here checked 1"
    await rig.serve(make_agent(look, worker=made()))
    assert (await runner.run_step(task)).output == "seen there checked 2"
    assert looked == ["here", "there"]
    assert len(model.requests) == 2


# ---- errors


def _refuse(where: str) -> str:
    """Look."""
    raise OSError("the door is shut")


def looking(**options: Any) -> PipelineAgentWorker:
    return PipelineAgentWorker(
        [ToolComponent("eyes", "_refuse", **options), calls("end", lambda x="-": x)],
        [link("input", "eyes", to="where"), link("eyes", "end"), link("input", "end", to=None)],
        output="end",
    )


async def test_a_failed_tool_may_be_skipped(make_runner: MakeRunner) -> None:
    runner = await make_runner(_refuse, worker=looking(on_error="skip"))
    assert str(await runner.chat("q")) == "-"


async def test_a_failed_tool_fails_the_step_and_names_its_component(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(_refuse, worker=looking())
    task = await runner.create_task("q")
    with pytest.raises(
        StepFailedError, match=r"Component 'eyes' called tool '_refuse', which failed: .*shut"
    ) as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "ComponentError"


def _raises(x: str) -> str:
    raise KeyError(x)


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        (
            PipelineAgentWorker([calls("f", _raises)], [link("input", "f")], output="f"),
            "Component 'f' failed: KeyError: 'q'",
        ),
        (
            PipelineAgentWorker([ToolComponent("t")], [link("input", "t", to="x")], output="t"),
            "Component 't' calls tool 't', which agent 'agent' does not have.*'_refuse'",
        ),
        (
            PipelineAgentWorker(
                [PromptComponent("p", "{x}")],
                [link("input", "p", when=lambda text: text != "q")],
                output="p",
            ),
            "Component 'p' is the output of the pipeline and did not run.*were off: input -> p.x",
        ),
    ],
)
async def test_an_error_names_its_component(
    make_runner: MakeRunner, worker: PipelineAgentWorker, text: str
) -> None:
    runner = await make_runner(_refuse, worker=worker)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=text):
        await runner.run_step(task)
