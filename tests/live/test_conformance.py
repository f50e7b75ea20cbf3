"""The conformance suite: the AgentWorkers of this package pass it, and broken ones do not."""

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import Message, Task, TaskStep, TaskStepOutput
from holdfast.errors import StepFailedError
from holdfast.testing import AgentWorkerConformance, FakeOpenAI, call, reply
from holdfast.testing.conformance.process import Notebook
from holdfast.testing.conformance.suite import checks
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall, assistant, system, user
from holdfast.workers import (
    AgentWorker,
    ChainOfAbstractionAgentWorker,
    CustomAgentWorker,
    FunctionAgentWorker,
    FunctionCallingAgentWorker,
    FunctionComponent,
    LLMCompilerAgentWorker,
    ModelComponent,
    MultimodalReActAgentWorker,
    PipelineAgentWorker,
    PlanAndSolveAgentWorker,
    PromptComponent,
    ReActAgentWorker,
    StepContext,
    ToolComponent,
    link,
)
from tests.support.scale import all_of
from tests.support.workers import Counting


class Made(AgentWorkerConformance):
    """The suite of a worker that is made without arguments."""

    worker: Callable[[], AgentWorker]

    def make_worker(self) -> AgentWorker:
        return type(self).worker()


class Calling(Made):
    """A worker that works; classes below break it."""

    worker: Callable[[], AgentWorker] = FunctionCallingAgentWorker

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.add(call("note", {"text": input}), f"done: {input}")


class FunctionCalling(Calling):
    commits = ("user", "assistant", "tool", "assistant")


def cost(check: str) -> Any:
    """Leave checks that kill a process to `make test-all`."""
    return all_of(check) if "killed" in check else check


@pytest.mark.parametrize("check", [cost(each) for each in checks()])
def test_function_calling(check: str) -> None:
    getattr(FunctionCalling(), check)()


@pytest.mark.exhaustive
class Exhaustive(Made):
    """A suite of `make test-all`."""

    commits = ("user", "assistant")


class TestReAct(Exhaustive):
    worker = ReActAgentWorker

    def script(self, api: FakeOpenAI, input: str) -> None:
        given = json.dumps({"text": input})
        api.reply(f"Thought: I must write it down.\nAction: note\nAction Input: {given}")
        api.reply(f"Thought: I can answer.\nAnswer: done: {input}")


class TestMultimodalReAct(TestReAct):
    worker = MultimodalReActAgentWorker


class TestPlanAndSolve(Exhaustive):
    steps = 4
    worker = partial(PlanAndSolveAgentWorker, refine=False)

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.reply(json.dumps({"sub_tasks": PLAN}), match="sub_tasks")
        api.call("note", {"text": input}, match="Write it down.")
        api.add(reply("written", match="Write it down."), reply("thought", match="Think about it."))
        api.reply(f"done: {input}", match="Put both together.")


PLAN: list[dict[str, Json]] = [
    {"name": "left", "input": "Write it down.", "expected_output": "a note", "dependencies": []},
    {"name": "right", "input": "Think about it.", "expected_output": "text", "dependencies": []},
    {
        "name": "both",
        "input": "Put both together.",
        "expected_output": "an answer",
        "dependencies": ["left", "right"],
    },
]


class TestLLMCompiler(Exhaustive):
    steps = 4
    worker = LLMCompilerAgentWorker

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.reply(f'1. note("{input}")\n2. note("$1 again")\n3. join()<END_OF_PLAN>')
        api.reply(f"Thought: It is written down.\nAction: finish(done: {input})")


class TestChainOfAbstraction(Exhaustive):
    steps = 4
    worker = ChainOfAbstractionAgentWorker

    def script(self, api: FakeOpenAI, input: str) -> None:
        first, second = f'[FUNC note("{input}") = y1]', '[FUNC note("y1 again") = y2]'
        api.add(f"Write down {first}, then {second}.", f"done: {input}")


class Noting(CustomAgentWorker):
    """Asks the model what to note, notes it, and asks for the answer, in two steps."""

    async def next_state(
        self, state: dict[str, Json], ctx: StepContext
    ) -> tuple[dict[str, Json], bool]:
        answer = await ctx.call_model()
        ctx.add(answer.message)
        for result in await ctx.call_tools(answer.message.calls):
            ctx.add(result.message)
        return {"output": answer.text}, not answer.message.calls


class TestCustom(Exhaustive):
    worker = Noting

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.add(call("note", {"text": input}), f"done: {input}")


async def note_and_say(question: str, ctx: StepContext) -> str:
    """Note the question and ask the model, in one step."""
    wish = await ctx.memo(f"wish {question}", lambda: {"text": question})
    await ctx.call_tools([ToolCall(id="call_1", name="note", arguments=json.dumps(wish))])
    return (await ctx.call_model(tools=())).text


class TestFunction(Exhaustive):
    steps = 1
    worker = partial(FunctionAgentWorker, note_and_say)

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.reply(f"done: {input}")


class TestPipeline(Exhaustive):
    """Two runs of a graph: a model's text is noted, then the answer is made of what was noted."""

    def make_worker(self) -> AgentWorker:
        return PipelineAgentWorker(
            [
                PromptComponent("ask", "{question} Before: {previous}"),
                ModelComponent("write", conversation=True),
                ToolComponent("keep", tool="note"),
                FunctionComponent("count", count),
            ],
            [
                link("input", "ask", to="question"),
                link("previous", "ask", to="previous"),
                link("ask", "write"),
                link("write", "keep", to="text", when=is_to_be_noted),
                link("write", "count", to="text"),
            ],
            output="count",
        )

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.add(f"note: {input}", f"done: {input}")


def count(text: str, state: dict[str, Any]) -> tuple[str, bool]:
    """Count the runs; the second is the last."""
    state["runs"] = state.get("runs", 0) + 1
    return text, state["runs"] == 2


def is_to_be_noted(text: Json) -> bool:
    """Tell which texts are noted."""
    return str(text).startswith("note")


class Silent(Made):
    """A worker without model; classes below break it."""

    uses_model = False
    uses_tools = False
    steps = 3
    worker: Callable[[], AgentWorker] = Counting


@pytest.mark.exhaustive
class TestCounting(Silent):
    worker = partial(Counting, 3)


WORKERS = (
    TestReAct,
    TestMultimodalReAct,
    TestPlanAndSolve,
    TestLLMCompiler,
    TestChainOfAbstraction,
    TestCustom,
    TestFunction,
    TestPipeline,
    TestCounting,
)


@pytest.mark.parametrize("suite", WORKERS)
def test_each_worker_is_led_to_its_answer_step_by_step(suite: type[Any]) -> None:
    suite().test_run_step_leads_to_one_answer()


class Polled(AgentWorker):
    """Asks the same question three times, twice in a step."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        question = [user(f"Yes or no: {(await ctx.task()).input}")]
        if step.step_state.get("asked"):
            last = await ctx.call_model(question)
            return TaskStepOutput(output=last.text, task_step=step, is_last=True)
        answers = [(await ctx.call_model(question)).text for _ in range(2)]
        following = (step.get_next_step(step_state={"asked": True}),)
        return TaskStepOutput(output=answers, task_step=step, next_steps=following)


class Polling(Made):
    """A worker that honestly asks for the same more than once."""

    uses_tools = False
    worker = Polled

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.add("yes", "no", "yes")


def test_the_same_request_asked_twice_in_a_task_is_no_mistake() -> None:
    Polling().test_step_run_again_repeats_its_requests()


def test_a_call_that_runs_is_not_a_held_call(tmp_path: Path) -> None:
    book = Notebook(tmp_path)
    book.write("begun", "runs by itself")
    assert book.held == 0
    book.hold()
    assert book.held == 1
    book.let_go()
    assert book.held == 0


# ---- each check of the conformance suite fails for a worker that breaks what it claims


def counted(step: TaskStep, n: int, *, state: dict[str, Any] | None = None) -> TaskStepOutput:
    """Count to three."""
    following = () if n >= 3 else (step.get_next_step(step_state=state or {}),)
    return TaskStepOutput(output=n, task_step=step, next_steps=following, is_last=n >= 3)


class OnSelf(AgentWorker):
    """Counts on itself, for all tasks."""

    def __init__(self) -> None:
        self.n = 0

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.n = self.n % 3 + 1
        return counted(step, self.n)


class OnClass(AgentWorker):
    """Counts on its class: only another process has another count."""

    counts: ClassVar = Counter[str]()

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.counts[step.task_id] += 1
        return counted(step, self.counts[step.task_id])


class OnSelfByTask(AgentWorker):
    """Counts on itself, for each task."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.counts[ctx.task_id] += 1
        return counted(step, self.counts[ctx.task_id])


class TupleState(AgentWorker):
    """Hands on what JSON changes."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        n = len(step.step_state.get("done", ())) + 1
        return counted(step, n, state={"done": ("x",) * n})


class ByChance(AgentWorker):
    """Answers by chance."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return counted(step, 3).model_copy(update={"output": random.random()})


class RandomRequest(FunctionCallingAgentWorker):
    """Puts something new into each request."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(system(f"Request {uuid.uuid4()}"))
        return await super().run_step(step, ctx)


class CommitsTwice(FunctionCallingAgentWorker):
    """Keeps all messages twice."""

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        return (*transcript, *transcript)


class Deaf(AgentWorker):
    """Shows its model the input, and nothing else that was said."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        said = user((await ctx.task()).input)
        if step.step_state.get("asked"):
            answer = await ctx.call_model([said, assistant("noted")])
            return TaskStepOutput(output=answer.text, task_step=step, is_last=True)
        answer = await ctx.call_model([said])
        following = (step.get_next_step(step_state={"asked": True}),)
        return TaskStepOutput(
            output="", task_step=step, next_steps=following, calls=answer.message.calls
        )


class Stubborn(FunctionCallingAgentWorker):
    """Takes only answers in its own form."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        output = await super().run_step(step, ctx)
        if output.is_last and not str(output).startswith("done"):
            raise ValueError("not in my form")
        return output


class Insistent(FunctionCallingAgentWorker):
    """Calls a tool again and again until it works."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        output = await super().run_step(step, ctx)
        results = list(output.calls)
        while results:
            [result] = await ctx.call_tools(results[:1])
            if not result.is_error:
                break
        return output.model_copy(update={"calls": ()})


class CalledOnSelf(AgentWorker):
    """Remembers on itself whether it has called its tool."""

    def __init__(self) -> None:
        self.called = False

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if self.called:
            return TaskStepOutput(output="done", task_step=step, is_last=True)
        self.called = True
        call = ToolCall(id=f"c{ctx.n}", name="note", arguments='{"text": "amber"}')
        return TaskStepOutput(
            output="", task_step=step, next_steps=(step.get_next_step(),), calls=(call,)
        )


# At the top level, because a worker process that is killed must import them.


class SilentOnClass(Silent):
    worker = OnClass


class CallingRandom(Calling):
    worker = RandomRequest


class ToolOnSelf(Silent):
    uses_tools = True
    steps = 2
    worker = CalledOnSelf


def made(base: type[AgentWorkerConformance], kind: type[AgentWorker], **attributes: Any) -> Any:
    """Make a conformance class of a worker."""
    return type(kind.__name__, (base,), {"worker": kind, **attributes})()


BROKEN = [
    (made(Silent, Counting, steps=1), "run_step_leads_to_one_answer", "steps = 1 is declared"),
    (made(Silent, ByChance, steps=1), "run_task_gives_the_same_answer", "The answer is not that"),
    (made(Silent, ByChance, steps=1), "chat_gives_the_same_answer", "The answer differs"),
    (made(Silent, ByChance, steps=1), "runner_run_gives_the_same_answer", "The answer differs"),
    (made(Silent, OnSelf), "two_tasks_at_once_do_not_mix", "the worker keeps state of its own"),
    (made(Silent, OnSelfByTask), "undone_step_runs_again", "gives another output"),
    (made(Silent, OnSelfByTask), "rewind_to_the_first_step", "not that of run_step"),
    (made(Silent, OnSelfByTask), "fork_at_each_step", "Forked at step 1"),
    (made(Silent, TupleState), "state_is_plain_json", "step_state comes back otherwise"),
    (SilentOnClass(), "worker_killed_between_steps", "The steps' outputs differ"),
    (ToolOnSelf(), "worker_killed_while_a_tool_runs", "The steps' outputs differ"),
    (CallingRandom(), "worker_killed_while_the_model_answers", "asked its model something else"),
    (CallingRandom(), "step_run_again_repeats_its_requests", "asked its model something else"),
    (made(Calling, CommitsTwice), "session_keeps_what_finalize_task_returned", "gives a message 2"),
    (made(Calling, Deaf), "feedback_reaches_the_model", "no later model request holds it"),
    (made(Calling, Deaf), "next_task_sees_the_session", "No request of the second task"),
    (made(Calling, Stubborn), "budget_ends_with_an_answer", "not in my form"),
    (made(Calling, Insistent), "rejected_call_does_not_run", "asked more than 20 times"),
    (made(Silent, Counting, uses_tools=True), "approved_call_goes_on", "did not wait for approval"),
]


def cases() -> Iterator[Any]:
    """Leave to `make test-all` most of what kills processes, and further checks of a worker."""
    seen = set[str]()
    for suite, name, text in BROKEN:
        kind = "killed" if "killed" in name else type(suite).__name__
        marks = pytest.mark.exhaustive if kind in seen else ()
        seen.add(kind)
        yield pytest.param(suite, name, text, marks=marks, id=f"{type(suite).__name__}-{name}")


@pytest.mark.parametrize(("suite", "name", "text"), list(cases()))
def test_a_broken_worker_fails_the_check(suite: Any, name: str, text: str) -> None:
    with pytest.raises((AssertionError, StepFailedError), match=text):
        getattr(suite, f"test_{name}")()


def test_a_worker_process_that_cannot_import_the_class_says_so() -> None:
    class Inside(Silent):
        pass

    with pytest.raises(AssertionError, match="Define it at the top level of its module"):
        Inside().test_worker_killed_between_steps()


def test_checks_that_do_not_apply_are_not_made_and_say_why() -> None:
    assert set(Silent.not_checked.values()) == {"uses_model is False", "uses_tools is False"}
    assert {name for name in checks() if getattr(Silent, name) is None} == set(Silent.not_checked)
    assert Calling.not_checked == {}
    assert all(callable(getattr(Calling, name)) for name in checks())

    class Again(Silent):
        uses_model = True

    assert callable(Again.test_feedback_reaches_the_model)
    assert Again.test_approved_call_goes_on is None


def test_a_worker_without_script_is_told_what_to_write() -> None:
    suite = made(Silent, Counting, uses_model=True)
    with pytest.raises(NotImplementedError, match=r"script must append .* uses_model = False"):
        suite.test_chat_gives_the_same_answer()
