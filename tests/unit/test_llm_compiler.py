"""LLMCompilerAgentWorker step by step, with a small scheduler in the place of a task."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import Agent, Task, TaskStep, tool
from holdfast.errors import InvalidArgumentError
from holdfast.models.base import ModelRequest
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import JournalEntry, OpenStep, StepResult
from holdfast.task.ledger.references import output_of_calls, resolve_adds
from holdfast.testing import ScriptedModel
from holdfast.values.base import Json
from holdfast.values.json_patch import apply
from holdfast.values.messages import Message, assistant, user
from holdfast.workers import LLMCompilerAgentWorker, StepContext
from holdfast.workers.context.model_calls import LAST_CALL
from holdfast.workers.driver import advance


@tool(effect="read")
def look(place: str) -> str:
    """Look somewhere."""
    return f"seen {place}"


@tool(effect="read")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


TOOLS = (look, add)
FINISH = "Thought: known\nAction: finish(all is known)"


def answer_tool(name: str, arguments: dict[str, Json]) -> Outcome:
    """Stand in for the tools: `fail` as an argument fails."""
    if "fail" in arguments.values():
        return Outcome(content="it is broken", is_error=True, status="failed")
    match name:
        case "look":
            return Outcome(content=f"seen {arguments['place']}")
        case "add":
            return Outcome(content=str(arguments["a"] + arguments.get("b", 1)))
        case _:
            return Outcome(content=f"Tool with name {name} not found", is_error=True)


class Bench:
    """Runs linked steps one after the other, as a task does, and keeps what it records.

    Attributes:
        ran: Step ids in the order in which they ran.
        called: Name and arguments of every tool call.
        outputs: Step id to output.
    """

    def __init__(
        self,
        script: Sequence[Any] | Callable[[ModelRequest], Any],
        *,
        tools: Sequence[Any] = TOOLS,
        worker: LLMCompilerAgentWorker | None = None,
        finish_at: int | None = None,
    ) -> None:
        self.model = ScriptedModel(script)
        self.worker = worker or LLMCompilerAgentWorker()
        agent = Agent(name="a", instructions="Be brief.", model=self.model, tools=list(tools))
        self.snapshot = agent.snapshot("m")
        self.queue = [TaskStep(step_id="s1", input="q")]
        self.transcript: list[Message] = []
        self.state: dict[str, Json] = {}
        self.outputs: dict[str, Json] = {}
        self.ran: list[str] = []
        self.called: list[tuple[str, dict[str, Json]]] = []
        self.finish_at = finish_at
        self.notes: list[Message] = []
        self.offered: list[str] | None = None

    async def run(self) -> Json:
        """Run to the last step; return its output."""
        for _ in range(100):
            result = await self.step()
            if result.last:
                return self.outputs[self.ran[-1]]
        raise AssertionError("the task does not end")

    async def step(self, input: str | None = None) -> StepResult:
        """Run the first step that is ready."""
        step = next(s for s in self.queue if set(s.prev_steps) <= self.outputs.keys())
        self.queue.remove(step)
        if input is not None:
            step = step.model_copy(update={"input": input})
        notes, self.notes = tuple(self.notes), []
        opened = OpenStep(step=step, state=self.state, notes=notes)
        journal: list[JournalEntry] = []
        for _ in range(9):
            result = await self.advance(opened, journal)
            if result is not None:
                return result
        raise AssertionError("the step does not end")

    async def retrieve(self, query: str) -> Sequence[str]:
        """Choose tools as a retriever does."""
        assert query
        return self.offered or []

    async def advance(self, opened: OpenStep, journal: list[JournalEntry]) -> StepResult | None:
        step = opened.step
        last = self.finish_at is not None and self.model.calls >= self.finish_at
        ctx = StepContext(
            agent=self.snapshot,
            head=TaskHead(agent="a"),
            opened=opened,
            transcript=tuple(self.transcript),
            respond=self.model.respond,
            inputs={id: self.outputs[id] for id in step.prev_steps},
            task_id="t",
            journal=tuple(journal),
            retrieve=self.retrieve if self.offered is not None else None,
            limit="finish" if last else "",
        )
        got = await advance(self.worker, ctx, opened)
        assert got.failure is None, got.failure
        journal += ctx.record.fresh
        assert not got.calls, "a call ends its step"
        if got.result is None:
            return None
        self.record(opened, got.result, journal)
        return got.result

    def call(self, step: TaskStep, result: StepResult) -> Json:
        """Run the call that a step ends with; return what the step then gives."""
        assert result.quiet
        assert not isinstance(result.calls, str)
        [call] = result.calls
        assert call.id == f"call_{step.step_id}"
        self.called.append((call.name, json.loads(call.arguments)))
        output, stored = output_of_calls([answer_tool(*self.called[-1])])
        assert stored is None
        return output

    def record(self, opened: OpenStep, result: StepResult, journal: list[JournalEntry]) -> None:
        from holdfast.task.data.records import OpenState

        step = opened.step
        texts = [e.answer.text for e in journal if e.answer is not None]
        self.ran.append(step.step_id)
        self.outputs[step.step_id] = texts[-1] if result.echo and texts else result.output
        if result.quiet:
            self.outputs[step.step_id] = self.call(step, result)
        open_state = OpenState(open=opened, n=1, started=0.0, journal=tuple(journal))
        self.transcript += resolve_adds(result, open_state)
        self.state = apply(self.state, result.patch)
        assert not {s.step_id for s in result.next} & {*self.ran, *(s.step_id for s in self.queue)}
        self.queue += result.next

    @property
    def asked(self) -> list[str]:
        """The last message of every request."""
        return [request.messages[-1].text for request in self.model.requests]


PLAN = """\
Thought: two places
1. look("Rome")
2. look(place="Oslo")
3. look("$1 and $2")
4. join()
<END_OF_PLAN>"""


# ---- a round


async def test_results_go_into_later_calls_and_to_the_joiner() -> None:
    bench = Bench([PLAN, FINISH])
    assert await bench.run() == "all is known"
    assert bench.called == [
        ("look", {"place": "Rome"}),
        ("look", {"place": "Oslo"}),
        ("look", {"place": "seen Rome and seen Oslo"}),
    ]
    assert bench.outputs["p1.1"] == "seen Rome"
    told = bench.asked[1]
    assert '3. look(place="$1 and $2")\nresult: seen seen Rome and seen Oslo' in told


# ---- failures


async def test_a_failed_call_is_an_observation_and_what_needs_it_is_not_run() -> None:
    plan = "1. look('fail')\n2. look('$1')\n3. look('a $2')\n4. look('b')\n5. join()"
    bench = Bench([plan, FINISH])
    assert await bench.run() == "all is known"
    assert bench.called == [("look", {"place": "fail"}), ("look", {"place": "b"})]
    assert bench.outputs["p1.1"] == {"content": "it is broken", "is_error": True}
    assert "$1" in bench.outputs["p1.2"]["content"]
    assert bench.outputs["p1.3"]["is_error"] is True
    assert "error: it is broken" in bench.asked[1]
    assert "result: seen b" in bench.asked[1]


@pytest.mark.parametrize("written", ["add(1, 2)", "add(a=1)"])
async def test_a_tool_that_is_not_on_offer_cannot_be_planned(written: str) -> None:
    bench = Bench([f"1. look('a')\n2. {written}\n3. join()", "1. look('b')\n2. join()", FINISH])
    bench.offered = ["look"]
    assert await bench.run() == "all is known"
    assert bench.called == [("look", {"place": "b"})]
    assert "- add(" not in bench.model.requests[0].instructions
    assert "2. add(" in bench.asked[1]
    assert "there is no such tool; the tools are: look" in bench.asked[1]


async def test_a_wrong_plan_is_told_and_written_again() -> None:
    bench = Bench(["1. look(where='Rome')\n2. join()", PLAN, FINISH])
    assert await bench.run() == "all is known"
    assert "no parameter 'where'; the parameters of look are: place" in bench.asked[1]
    assert bench.model.requests[1].messages[-2] == assistant("1. look(where='Rome')\n2. join()")
    assert bench.transcript == [user("q"), assistant("all is known")]
    assert len(bench.state["plans"]) == 1


async def test_without_a_plan_the_join_answers_and_everybody_can_see_why() -> None:
    bench = Bench(["I would look at Rome", "", FINISH])
    assert await bench.run() == "all is known"
    assert bench.ran == ["s1", "p1.join"]
    [problem] = bench.outputs["s1"]["problems"]
    assert "no call" in problem
    assert bench.state["plans"] == [{"version": 1, "nodes": [], "problems": [problem]}]
    assert problem in bench.asked[2]


LIMITS: list[dict[str, Any]] = [
    {"max_replans": -1},
    {"max_replans": None},
    {"max_replans": "3"},
    {"max_plan_attempts": 0},
    {"max_plan_attempts": True},
    {"max_plan_attempts": 2.0},
]


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    [(name, value)] = limits.items()
    with pytest.raises(InvalidArgumentError, match=f"{name} must be at least .* is {value!r}"):
        LLMCompilerAgentWorker(**limits)


# ---- joining and planning again


async def test_another_plan_sees_what_all_before_it_gave() -> None:
    bench = Bench(
        [
            "1. look('a')\n2. join()",
            "Thought: t\nAction: Replan(b is missing)",
            "1. look('b')\n2. join()",
            "Action: finish(Replan: c)",
            "1. look('c')\n2. join()",
            FINISH,
        ]
    )
    assert await bench.run() == "all is known"
    assert bench.ran == ["s1", "p1.1", "p1.join", "p2", "p2.1", "p2.join", "p3", "p3.1", "p3.join"]
    for said in ("Plan 1:", "result: seen a", "Why another plan was wanted: b is missing"):
        assert said in bench.asked[2]
        assert said in bench.asked[5]
    assert "seen b" in bench.asked[3]
    assert "seen c" in bench.asked[5]
    assert bench.transcript == [user("q"), assistant("all is known")]


async def test_the_joiner_may_replan_as_often_as_was_said_and_then_must_finish() -> None:
    def always(request: ModelRequest) -> str:
        if "The tools:" in request.instructions:
            return "1. look('a')\n2. join()"
        return "Thought: not yet\nAction: replan(more)"

    for most in (0, 1, 3):
        bench = Bench(always, worker=LLMCompilerAgentWorker(max_replans=most))
        assert await bench.run() == "not yet"
        assert len(bench.state["plans"]) == most + 1
        joiners = [r for r in bench.model.requests if "The tools:" not in r.instructions]
        told = ["No further plan" in r.instructions for r in joiners]
        assert told == [False] * most + [True, True]
        assert "No further plan" in bench.asked[-1]


async def test_an_unreadable_decision_is_told_once_and_then_is_the_answer() -> None:
    bench = Bench([PLAN, "It is sunny.", "It is very sunny."])
    assert await bench.run() == "It is very sunny."
    assert "neither of the two forms" in bench.asked[2]
    bench = Bench([PLAN, "It is sunny.", "Action: finish(sunny)"])
    assert await bench.run() == "sunny"


# ---- people in the middle of it


async def test_an_input_in_mid_round_begins_another_round_when_the_calls_are_done() -> None:
    bench = Bench([PLAN, "1. look('Bonn')\n2. join()", FINISH])
    await bench.step()
    await bench.step()
    await bench.step("and Bonn")
    assert await bench.run() == "all is known"
    assert bench.ran == ["s1", "p1.1", "p1.2", "p1.3", "p1.join", "p2", "p2.1", "p2.join"]
    assert bench.model.requests[1].messages[1] == user("and Bonn")
    assert "result: seen Rome" in bench.asked[1]
    assert bench.transcript == [user("q"), user("and Bonn"), assistant("all is known")]


# ---- budgets


@pytest.mark.parametrize("finish_at", [0, 1, 2, 3])
async def test_the_last_call_of_a_budget_gives_the_answer(finish_at: int) -> None:
    script = ["what?", PLAN, "no form", "last words"]
    script[finish_at] = "last words"
    bench = Bench(script, finish_at=finish_at)
    assert await bench.run() == "last words"
    assert bench.model.calls == finish_at + 1
    last = bench.model.requests[-1]
    assert (last.messages[-1], last.instructions) == (LAST_CALL, "Be brief.")
    assert bench.transcript[-1] == assistant("last words")
    kept = bench.worker.finalize_task(Task(task_id="t"), bench.transcript)
    assert list(kept) == [user("q"), assistant("last words")]
    if finish_at >= 2:
        assert "seen Rome" in last.messages[-2].text
