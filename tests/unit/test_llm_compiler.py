"""LLMCompilerAgentWorker step by step, with a small scheduler in the place of a task."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import Task, tool
from holdfast.models.base import ModelRequest
from holdfast.task.data.calls import Outcome
from holdfast.values.base import Json
from holdfast.values.messages import assistant, user
from holdfast.workers import LLMCompilerAgentWorker
from holdfast.workers.context.journal import LAST_CALL
from tests.support.played import Played


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


def compiled(
    script: Sequence[Any] | Callable[[ModelRequest], Any],
    *,
    tools: Sequence[Any] = TOOLS,
    worker: LLMCompilerAgentWorker | None = None,
) -> Played:
    made = Played(worker or LLMCompilerAgentWorker(), script, *tools, input="q")
    made.answer = answer_tool
    return made


PLAN = """\
Thought: two places
1. look("Rome")
2. look(place="Oslo")
3. look("$1 and $2")
4. join()
<END_OF_PLAN>"""


# ---- a round


async def test_results_go_into_later_calls_and_to_the_joiner() -> None:
    bench = compiled([PLAN, FINISH])
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
    bench = compiled([plan, FINISH])
    assert await bench.run() == "all is known"
    assert bench.called == [("look", {"place": "fail"}), ("look", {"place": "b"})]
    assert bench.outputs["p1.1"] == {"content": "it is broken", "is_error": True}
    assert "$1" in bench.outputs["p1.2"]["content"]
    assert bench.outputs["p1.3"]["is_error"] is True
    assert "error: it is broken" in bench.asked[1]
    assert "result: seen b" in bench.asked[1]


@pytest.mark.parametrize("written", ["add(1, 2)", "add(a=1)"])
async def test_a_tool_that_is_not_on_offer_cannot_be_planned(written: str) -> None:
    bench = compiled([f"1. look('a')\n2. {written}\n3. join()", "1. look('b')\n2. join()", FINISH])
    bench.offered = ["look"]
    assert await bench.run() == "all is known"
    assert bench.called == [("look", {"place": "b"})]
    assert "- add(" not in bench.model.requests[0].instructions
    assert "2. add(" in bench.asked[1]
    assert "there is no such tool; the tools are: look" in bench.asked[1]


async def test_a_wrong_plan_is_told_and_written_again() -> None:
    bench = compiled(["1. look(where='Rome')\n2. join()", PLAN, FINISH])
    assert await bench.run() == "all is known"
    assert "no parameter 'where'; the parameters of look are: place" in bench.asked[1]
    assert bench.model.requests[1].messages[-2] == assistant("1. look(where='Rome')\n2. join()")
    assert bench.transcript == [user("q"), assistant("all is known")]
    assert len(bench.state["plans"]) == 1


async def test_without_a_plan_the_join_answers_and_everybody_can_see_why() -> None:
    bench = compiled(["I would look at Rome", "or not", FINISH])
    assert await bench.run() == "all is known"
    assert [*bench.outputs] == ["s1", "p1.join"]
    [problem] = bench.outputs["s1"]["problems"]
    assert "this is not a call" in problem
    assert bench.state["plans"] == [{"version": 1, "nodes": [], "problems": [problem]}]
    assert problem in bench.asked[2]


# ---- joining and planning again


async def test_another_plan_sees_what_all_before_it_gave() -> None:
    bench = compiled(
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
    assert [*bench.outputs] == [
        "s1",
        "p1.1",
        "p1.join",
        "p2",
        "p2.1",
        "p2.join",
        "p3",
        "p3.1",
        "p3.join",
    ]
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
        bench = compiled(always, worker=LLMCompilerAgentWorker(max_replans=most))
        assert await bench.run() == "not yet"
        assert len(bench.state["plans"]) == most + 1
        joiners = [r for r in bench.model.requests if "The tools:" not in r.instructions]
        told = ["No further plan" in r.instructions for r in joiners]
        assert told == [False] * most + [True, True]
        assert "No further plan" in bench.asked[-1]


async def test_an_unreadable_decision_is_told_once_and_then_is_the_answer() -> None:
    bench = compiled([PLAN, "It is sunny.", "It is very sunny."])
    assert await bench.run() == "It is very sunny."
    assert "neither of the two forms" in bench.asked[2]
    bench = compiled([PLAN, "It is sunny.", "Action: finish(sunny)"])
    assert await bench.run() == "sunny"


# ---- people in the middle of it


async def test_an_input_in_mid_round_begins_another_round_when_the_calls_are_done() -> None:
    bench = compiled([PLAN, "1. look('Bonn')\n2. join()", FINISH])
    await bench.step()
    await bench.step()
    await bench.step(input="and Bonn")
    assert await bench.run() == "all is known"
    assert [*bench.outputs] == ["s1", "p1.1", "p1.2", "p1.3", "p1.join", "p2", "p2.1", "p2.join"]
    assert bench.model.requests[1].messages[1] == user("and Bonn")
    assert "result: seen Rome" in bench.asked[1]
    assert bench.transcript == [user("q"), user("and Bonn"), assistant("all is known")]


# ---- budgets


@pytest.mark.parametrize("finish_at", [0, 1, 2, 3])
async def test_the_last_call_of_a_budget_gives_the_answer(finish_at: int) -> None:
    script = ["what?", PLAN, "no form", "last words"]
    script[finish_at] = "last words"
    bench = compiled(script)
    bench.finish_at = finish_at
    assert await bench.run() == "last words"
    assert bench.model.calls == finish_at + 1
    last = bench.model.requests[-1]
    assert (last.messages[-1], last.instructions) == (LAST_CALL, "Be good.")
    assert bench.transcript[-1] == assistant("last words")
    kept = bench.worker.finalize_task(Task(task_id="t"), bench.transcript)
    assert list(kept) == [user("q"), assistant("last words")]
    if finish_at >= 2:
        assert "seen Rome" in last.messages[-2].text
