"""Each check of the conformance suite fails for a worker that breaks what it claims."""

import random
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast import Message, Task, TaskStep, TaskStepOutput
from holdfast.errors import StepFailedError
from holdfast.testing import AgentWorkerConformance, FakeOpenAI
from holdfast.testing.conformance.suite import checks
from holdfast.values.messages import ToolCall, assistant, system, user
from holdfast.workers import AgentWorker, FunctionCallingAgentWorker, StepContext
from tests.support.workers import Counting


class Calling(AgentWorkerConformance):
    """A worker that works, to be broken by the classes below."""

    worker: type[AgentWorker] = FunctionCallingAgentWorker

    def make_worker(self) -> AgentWorker:
        return self.worker()

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.call("note", {"text": input})
        api.reply(f"done: {input}")


class Silent(AgentWorkerConformance):
    """A worker without model, to be broken."""

    uses_model = False
    uses_tools = False
    steps = 3
    worker: type[AgentWorker] = Counting

    def make_worker(self) -> AgentWorker:
        return self.worker()


def count(step: TaskStep, n: int, *, state: dict[str, Any] | None = None) -> TaskStepOutput:
    """Count to three."""
    following = () if n >= 3 else (step.get_next_step(step_state=state or {}),)
    return TaskStepOutput(output=n, task_step=step, next_steps=following, is_last=n >= 3)


class OnSelf(AgentWorker):
    """Counts on itself, for all tasks."""

    def __init__(self) -> None:
        self.n = 0

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.n = self.n % 3 + 1
        return count(step, self.n)


class OnSelfByTask(AgentWorker):
    """Counts on itself, for each task."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.counts[ctx.task_id] += 1
        return count(step, self.counts[ctx.task_id])


class TupleState(AgentWorker):
    """Hands on what JSON changes."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        n = len(step.step_state.get("done", ())) + 1
        return count(step, n, state={"done": ("x",) * n})


class ByChance(AgentWorker):
    """Answers by chance."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return count(step, 3).model_copy(update={"output": random.random()})


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


class SilentOnSelf(Silent):
    worker = OnSelf


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
    (SilentOnSelf(), "worker_killed_between_steps", "The steps' outputs differ"),
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
    """Leave to `make test-all` what kills processes, and further checks of a kind of worker."""
    seen = set[str]()
    for suite, name, text in BROKEN:
        kind = type(suite).__name__
        marks = pytest.mark.exhaustive if "killed" in name or kind in seen else ()
        seen.add("" if "killed" in name else kind)
        yield pytest.param(suite, name, text, marks=marks, id=f"{kind}-{name}")


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


def test_a_class_below_one_that_left_a_check_out_makes_it_again() -> None:
    class Again(Silent):
        uses_model = True

    assert callable(Again.test_feedback_reaches_the_model)
    assert Again.test_approved_call_goes_on is None


def test_a_worker_without_script_is_told_what_to_write() -> None:
    suite = made(Silent, Counting, uses_model=True)
    with pytest.raises(NotImplementedError, match=r"script must append .* uses_model = False"):
        suite.test_chat_gives_the_same_answer()
