"""Workers at work on a real server: plan and solve, pipelines, functions, custom workers."""

import asyncio
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import AgentRunner, Message, Task, TaskStep, TaskStepOutput, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import InvalidArgumentError, StepFailedError, UnfitAnswerError
from holdfast.testing import FakeOpenAI, call, reply
from holdfast.values.messages import assistant, user
from holdfast.workers import (
    AgentWorker,
    CustomAgentWorker,
    FunctionAgentWorker,
    FunctionComponent,
    ModelComponent,
    PipelineAgentWorker,
    PlanAndSolveAgentWorker,
    PromptComponent,
    ReActAgentWorker,
    StepContext,
    ToolComponent,
    link,
)
from tests.support.rig import Rig
from tests.support.workers import Doing, said

PLANNING = "plan how to"


def written(**dependencies: str) -> str:
    """Write a plan as a model would; each value names dependencies, separated by spaces."""
    parts = [
        {
            "name": name,
            "input": f"work on {name}",
            "expected_output": "",
            "dependencies": needs.split(),
        }
        for name, needs in dependencies.items()
    ]
    return json.dumps({"sub_tasks": parts})


DIAMOND = written(a="", b="a", c="a", d="b c")


def part(name: str) -> str:
    """Return a text that only requests of this sub-task hold."""
    return f"Sub-task '{name}':"


def solves(model: FakeOpenAI, **results: str) -> None:
    """Script the answer of each sub-task."""
    for name, text in results.items():
        model.reply(text, match=part(name))


def asked(model: FakeOpenAI) -> dict[str, int]:
    """Count the requests of each sub-task."""
    return {name: sum(r.holds(part(name)) for r in model.requests) for name in "abcd"}


async def steps_of(runner: AgentRunner, task: Task) -> list[str]:
    return [output.task_step.step_id for output in await runner.get_completed_steps(task)]


async def test_a_sub_task_is_undone_alone_and_done_again(rig: Rig, book: Tool) -> None:
    runner = await rig.make(book, worker=PlanAndSolveAgentWorker(refine=False))
    rig.model.reply(DIAMOND, match=PLANNING)
    solves(rig.model, a="res a", c="res c", d="res d")
    for how in ("plane", "train"):
        booked = call("book", {"city": how}, match=part("b"))
        rig.model.add(booked, reply(f"by {how}", match=part("b")))
    task = await runner.create_task("the request")
    for _ in range(2):
        await runner.run_step(task)
    before = await runner.get_upcoming_steps(task)
    assert str(await runner.run_step(task)) == "by plane"
    assert (await runner.undo_step(task, by="ann", reason="too loud")).steps == ("p1:b",)
    assert await runner.get_upcoming_steps(task) == before
    assert str(await runner.run_step(task)) == "by train"
    assert rig.world.done == ["book plane", "cancel plane", "book train"]
    again = [r for r in rig.model.requests if r.holds(part("b"))][2]
    assert again.holds("too loud")  # the sub-task's model is told, on its own messages
    assert str(await runner.run_task(task)) == "res d"
    assert rig.model.requests[-1].holds("by train")
    assert not rig.model.requests[-1].holds("by plane")
    assert asked(rig.model) == {"a": 1, "b": 4, "c": 1, "d": 1}
    response = await runner.finalize_response(task)
    assert [source.content for source in response.sources] == ["booked train"]


# ---- sub-tasks done by another AgentWorker


async def test_sub_tasks_are_done_by_the_steps_of_another_worker(rig: Rig) -> None:
    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"found {what}"

    worker = PlanAndSolveAgentWorker(refine=False, worker=ReActAgentWorker())
    runner = await rig.make(look, worker=worker)
    rig.model.reply(written(a="", b="a"), match=PLANNING)
    rig.model.reply('Thought: I look.\nAction: look\nAction Input: {"what": "x"}', match=part("a"))
    rig.model.reply("Thought: I can answer.\nAnswer: res a", match="found x")
    rig.model.reply("Thought: I can answer.\nAnswer: res b", match=part("b"))
    task = await runner.create_task("the request")
    assert str(await runner.run_task(task)) == "res b"
    assert await steps_of(runner, task) == ["s1", "p1:a", "p1:b"]
    observed = rig.model.requests[2]
    assert observed.holds("Observation: found x")
    assert observed.holds("Thought: I look.")
    assert rig.model.requests[3].holds("res a")
    assert not rig.model.requests[3].holds("found x")
    assert said(await runner.transcript(task)) == [("user", "the request"), ("assistant", "res b")]
    assert await runner.verify(task) == []


# ---- pipelineAgentWorker: a graph per step, its model calls and memos made once, its tools at once

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
            PromptComponent("language", "French"),
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


@pytest.mark.parametrize("on_error", ["fail", "text"])
async def test_a_failed_tool_fails_the_step_or_is_the_output(rig: Rig, on_error: Any) -> None:
    def search(query: str) -> str:
        """Search."""
        raise ValueError(query)

    search_it = ToolComponent("find", tool="search", on_error=on_error)
    worker = PipelineAgentWorker([search_it], [link("input", "find", to="query")], output="find")
    runner = await rig.make(search, worker=worker)
    if on_error == "text":
        assert "error" in str(await runner.chat("q"))
        return
    with pytest.raises(StepFailedError, match=r"called tool 'search', which failed: .*error"):
        await runner.chat("q")


# ---- several steps


async def test_a_pair_decides_and_previous_is_the_output_of_the_step_before(rig: Rig) -> None:
    worker = PipelineAgentWorker(
        [
            calls("draft", lambda asked, before: [asked, before]),
            ModelComponent("improve"),
            calls("judge", lambda text: (text, text == "good")),
        ],
        [
            link("input", "draft", to="asked"),
            link("previous", "draft", to="before"),
            link("draft", "improve"),
            link("improve", "judge"),
        ],
        output="judge",
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


# ---- functionAgentWorker: any function is a step; what it has made is not made again


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
    assert (await runner.chat("q")).output == output


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


# ---- CustomAgentWorker: one method from state to state, whatever happens in between

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
    stepping = asyncio.create_task(runner.run_step(await runner.create_task("q")))
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


class Wrong(Custom):
    initial_state = {"output": 1}  # noqa: RUF012  the mistake under test


def giving(answer: Any) -> FunctionAgentWorker:
    async def gives(text: str) -> Any:
        return answer

    return FunctionAgentWorker(gives)


def piped(component: Any, *links: Any) -> PipelineAgentWorker:
    return PipelineAgentWorker([component], [*links], output=component.name)


def _refuse(where: str) -> str:
    """Look."""
    raise OSError("the door is shut")


def _raises(x: str) -> str:
    raise KeyError(x)


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        (piped(calls("f", _raises), link("input", "f")), "Component 'f' failed: KeyError: 'q'"),
        (
            piped(ToolComponent("t"), link("input", "t", to="x")),
            "Component 't' calls tool 't', which agent 'agent' does not have.*'_refuse'",
        ),
        (
            piped(PromptComponent("p", "{x}"), link("input", "p", when=lambda text: text != "q")),
            "Component 'p' is the output of the pipeline and did not run.*were off: input -> p.x",
        ),
        (giving(None), "Function 'gives' returned None, not an answer"),
        (giving(object()), "Function 'gives' returned a object that cannot be"),
        (Wrong(anew), "The initial state of Wrong has the key 'output'"),
    ],
)
async def test_an_error_names_the_component_the_function_or_the_class(
    rig: Rig, worker: AgentWorker, text: str
) -> None:
    runner = await rig.make(_refuse, worker=worker)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=text):
        await runner.run_step(task)


@pytest.mark.parametrize("key", ["input", "output"])
async def test_a_reserved_key_is_refused_when_the_worker_is_made(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the key '{key}', which is reserved"):
        Custom(anew, {key: 1})


class Verdict(BaseModel):
    """The model's opinion."""

    good: bool


async def judge_twice(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Ask for two typed answers: the first one comes from the journal in the second activity."""
    one = await ctx.call_model([user("one")], output_type=Verdict)
    two = await ctx.call_model([user("two")], output_type=list[int])
    assert isinstance(one.parsed, Verdict)
    return TaskStepOutput(output=[one.parsed.good, two.parsed], task_step=step, is_last=True)


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


# ---- what workers of a user's own code are asked, and which questions and answers a session keeps


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


WORKERS = [
    FunctionAgentWorker(echo_step),
    Echo(),
    piped(calls("f", twice), link("input", "f", to="x")),
]


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
