"""The conformance suite, on the AgentWorkers of this package."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import AgentWorkerConformance, FakeOpenAI, call, reply
from holdfast.testing.conformance.process import Notebook
from holdfast.testing.conformance.suite import checks
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall, user
from holdfast.values.steps import TaskStep, TaskStepOutput
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


class FunctionCalling(AgentWorkerConformance):
    commits = ("user", "assistant", "tool", "assistant")

    def make_worker(self) -> AgentWorker:
        return FunctionCallingAgentWorker()

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.add(call("note", {"text": input}), f"done: {input}")


def cost(check: str) -> Any:
    """Leave checks that kill a process to `make test-all`."""
    return all_of(check) if "killed" in check else check


@pytest.mark.parametrize("check", [cost(each) for each in checks()])
def test_function_calling(check: str) -> None:
    getattr(FunctionCalling(), check)()


@pytest.mark.exhaustive
class TestReAct(AgentWorkerConformance):
    commits = ("user", "assistant")

    def make_worker(self) -> AgentWorker:
        return ReActAgentWorker()

    def script(self, api: FakeOpenAI, input: str) -> None:
        given = json.dumps({"text": input})
        api.reply(f"Thought: I must write it down.\nAction: note\nAction Input: {given}")
        api.reply(f"Thought: I can answer.\nAnswer: done: {input}")


@pytest.mark.exhaustive
class TestMultimodalReAct(TestReAct):
    def make_worker(self) -> AgentWorker:
        return MultimodalReActAgentWorker()


@pytest.mark.exhaustive
class TestPlanAndSolve(AgentWorkerConformance):
    commits = ("user", "assistant")
    steps = 4

    def make_worker(self) -> AgentWorker:
        return PlanAndSolveAgentWorker(refine=False)

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


@pytest.mark.exhaustive
class TestLLMCompiler(AgentWorkerConformance):
    commits = ("user", "assistant")
    steps = 4

    def make_worker(self) -> AgentWorker:
        return LLMCompilerAgentWorker()

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.reply(f'1. note("{input}")\n2. note("$1 again")\n3. join()<END_OF_PLAN>')
        api.reply(f"Thought: It is written down.\nAction: finish(done: {input})")


@pytest.mark.exhaustive
class TestChainOfAbstraction(AgentWorkerConformance):
    commits = ("user", "assistant")
    steps = 4

    def make_worker(self) -> AgentWorker:
        return ChainOfAbstractionAgentWorker()

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


@pytest.mark.exhaustive
class TestCustom(AgentWorkerConformance):
    commits = ("user", "assistant")

    def make_worker(self) -> AgentWorker:
        return Noting()

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.add(call("note", {"text": input}), f"done: {input}")


async def note_and_say(question: str, ctx: StepContext) -> str:
    """Note the question and ask the model, in one step."""
    wish = await ctx.memo(f"wish {question}", lambda: {"text": question})
    await ctx.call_tools([ToolCall(id="call_1", name="note", arguments=json.dumps(wish))])
    return (await ctx.call_model(tools=())).text


@pytest.mark.exhaustive
class TestFunction(AgentWorkerConformance):
    commits = ("user", "assistant")
    steps = 1

    def make_worker(self) -> AgentWorker:
        return FunctionAgentWorker(note_and_say)

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.reply(f"done: {input}")


@pytest.mark.exhaustive
class TestPipeline(AgentWorkerConformance):
    """Two runs of a graph: a model's text is noted, then the answer is made of what was noted."""

    commits = ("user", "assistant")

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


@pytest.mark.exhaustive
class TestCounting(AgentWorkerConformance):
    uses_model = False
    uses_tools = False

    def make_worker(self) -> AgentWorker:
        return Counting(3)


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


class Polling(AgentWorkerConformance):
    """A worker that honestly asks for the same more than once."""

    uses_tools = False

    def make_worker(self) -> AgentWorker:
        return Polled()

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
