"""PipelineAgentWorker: a graph per step, its model calls and memos made once, its tools at once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import StepFailedError
from holdfast.workers import (
    ConstantComponent,
    FunctionComponent,
    ModelComponent,
    PipelineAgentWorker,
    PromptComponent,
    ToolComponent,
    link,
)
from tests.support.rig import Rig
from tests.support.workers import said

Body = Callable[[Any], Any] | Callable[[Any, Any], Any]


def calls(name: str, body: Body, **options: Any) -> FunctionComponent:
    """Make a component of a function or lambda of one or two parameters."""
    return FunctionComponent(name, body, **options)


# ---- one run


async def test_a_question_goes_through_tool_prompt_and_model(rig: Rig) -> None:
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
    runner = await rig.make(search, worker=worker)
    rig.model.reply("the answer")
    response = await runner.chat("Where is {x}?", session="s")
    assert str(response) == "the answer"
    assert [str(source) for source in response.sources] == ["Where is {x} in French"]
    [request] = rig.model.requests
    assert [m.text for m in request.messages] == [
        "Answer Where is {x}? from this: Where is {x} in French"
    ]
    assert request.body.get("instructions") == "Be brief."
    assert not request.body.get("tools")
    assert said(await runner.session("s").chat_history()) == [
        ("user", "Where is {x}?"),
        ("assistant", "the answer"),
    ]


# ---- several steps


async def test_done_decides_and_previous_is_the_output_of_the_step_before(rig: Rig) -> None:
    worker = PipelineAgentWorker(
        [calls("draft", lambda asked, before: [asked, before]), ModelComponent("improve")],
        [
            link("input", "draft", to="asked"),
            link("previous", "draft", to="before"),
            link("draft", "improve"),
        ],
        output="improve",
        done=lambda output, state: output == "good",
    )
    runner = await rig.make(worker=worker)
    rig.model.add("bad", "better", "good")
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    second = await runner.run_step(task, input="shorter")
    last = await runner.run_step(task)
    assert [(o.output, o.is_last) for o in (first, second, last)] == [
        ("bad", False),
        ("better", False),
        ("good", True),
    ]
    assert [json.loads(r.last_user or "") for r in rig.model.requests] == [
        ["q", None],
        ["shorter", "bad"],
        ["q", "better"],
    ]


# ---- errors


def _refuse(where: str) -> str:
    """Look."""
    raise OSError("the door is shut")


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
    rig: Rig, worker: PipelineAgentWorker, text: str
) -> None:
    runner = await rig.make(_refuse, worker=worker)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=text):
        await runner.run_step(task)
