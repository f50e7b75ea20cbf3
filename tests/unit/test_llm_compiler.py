"""LLMCompilerAgentWorker step by step, with a small scheduler in the place of a task."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import Task, tool
from holdfast.models.base import ModelRequest, ToolSpec
from holdfast.task.data.calls import Outcome
from holdfast.values.base import Json
from holdfast.values.messages import assistant, user
from holdfast.workers import LLMCompilerAgentWorker
from holdfast.workers.compiler.plan import Call, Plan, PlanError, parse_plan
from holdfast.workers.compiler.references import fill, references, typed
from holdfast.workers.compiler.worker import parse_decision, without_grammar
from holdfast.workers.context.journal import LAST_CALL
from tests.support.drawn import FINITE, json_of
from tests.support.played import Played
from tests.support.scale import times
from tests.support.tables import table


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


# ---- plans and decisions of the LLMCompiler: what models write, read without a server


def spec(name: str, more: Json = None, **properties: Json) -> ToolSpec:
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    if more is not None:
        schema["additionalProperties"] = more
    return ToolSpec(name=name, parameters=schema)


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
SEARCH = spec("search", query=STRING)
ADD = spec("add", more=False, b=INTEGER, a=INTEGER)
SEND = spec("send", to=STRING, text=STRING, tags={"type": "array", "items": STRING})
PUT = spec("put", data={"type": "object"}, key=STRING)
ANY = spec("any")
OF_PLAN = [SEARCH, ADD, SEND, PUT, ANY]


def problems(text: str, *tools: ToolSpec) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, tools or OF_PLAN)
    assert caught.value.problems
    return str(caught.value)


# ---- arguments


@pytest.mark.parametrize(("written", "expected"), table("compiler_arguments"))
def test_arguments_are_read(written: str, expected: Any) -> None:
    text = f"7. {written}\njoin()"
    if expected is None:
        assert "given twice" in problems(text)
        return
    calls = {call.id: call for call in parse_plan(text, OF_PLAN).calls}
    assert calls[7].arguments == expected
    assert all(type(v) in (str, int, float, list, dict) for v in calls[7].arguments.values())


@pytest.mark.parametrize(("text", "said"), table("compiler_problems"))
def test_what_is_wrong_with_a_plan_is_said(text: str, said: str) -> None:
    assert said in problems(text)


@pytest.mark.parametrize(
    "written",
    [
        '"foo" OR "bar"',
        '"a" + "b"',
        '"a "+b+" c"',
        "'a' 'b'",
        "'the dogs' bowl'",
        '"he said "hi, Bob" to me"',
        "'tis so",
        r'r"\d+"',
        'f"{$0} more"',
        'f"a, b"',
        "rb'a'",
        '$0 + "b"',
        '["a" + "b"]',
        '{"k": "a" + "b"}',
        '"a".upper()',
    ],
)
@pytest.mark.parametrize("tool", ["search", "send", "other"])
def test_what_is_neither_a_text_nor_plain_is_refused(written: str, tool: str) -> None:
    told = problems(f"0. add(1, 2)\n1. {tool}({written})\n2. join()").splitlines()
    assert len(told) == 1
    assert told[0].startswith(repr(f"1. {tool}({written})"))
    assert "is not a value: write a text in one pair of quotes" in told[0] or "closing '" in told[0]


def test_every_problem_is_said_at_once() -> None:
    assert len(problems("what\n1. search(q='a')\n2. search('a'\n3. join()").splitlines()) == 3


# ---- lines


@pytest.mark.parametrize("text", table("compiler_forms"))
def test_forms_of_one_plan(text: str) -> None:
    first, second = parse_plan(text, OF_PLAN).calls
    assert (first.id, first.tool, first.arguments, first.needs) == (1, "search", {"query": "a"}, ())
    assert (second.id, second.needs) == (2, (1,))


def test_calls_keep_their_order_unless_they_need_another() -> None:
    plan = parse_plan("3. search('c')\n1. search('$2')\n2. search('b')\njoin()", OF_PLAN)
    assert [call.id for call in plan.calls] == [3, 2, 1]


def test_a_tool_named_join_is_called_when_it_gets_arguments() -> None:
    named = spec("join", left=STRING, right=STRING)
    plan = parse_plan("1. join('a', 'b')\n2. join()", [named])
    assert [call.arguments for call in plan.calls] == [{"left": "a", "right": "b"}]


# ---- results in the place of references


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [*table("compiler_results"), ("[" * 9999, {"type": "array"}, "[" * 9999)],
)
def test_a_result_becomes_what_the_schema_wants(text: str, schema: Json, expected: Json) -> None:
    definitions = {"Point": {"type": "object"}, "Round": {"$ref": "#/$defs/Round"}}
    root = {"$defs": {**definitions, "Box[int]": INTEGER}}
    made = typed(text, schema, root)
    assert (made, type(made)) == (expected, type(expected))


def test_references_are_filled_at_every_depth() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": INTEGER,
            "all": {"type": "array", "items": INTEGER},
            "box": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Box"}]},
            "free": {"type": "object", "additionalProperties": INTEGER},
            "text": STRING,
        },
        "$defs": {"Box": {"type": "object", "properties": {"w": INTEGER}}},
    }
    value = {
        "n": "$1",
        "all": ["$01", "${ 10 }", 3],
        "box": {"w": "$1", "name": "$1"},
        "free": {"$1": "$10"},
        "text": "$10 and ${1}0, $$1 is left",
    }
    assert fill(value, {"1": "7", "10": "20"}, schema, schema) == {
        "n": 7,
        "all": [7, 20, 3],
        "box": {"w": 7, "name": "7"},
        "free": {"7": 20},
        "text": "20 and 70, $1 is left",
    }


def test_a_result_that_looks_like_a_reference_is_not_read_again() -> None:
    assert fill("a $1 b", {"1": "$2 $$ ${1}"}, {}, {}) == "a $2 $$ ${1} b"


# ---- properties

KEYS = st.text("abc$_ é", min_size=1).map(lambda text: text.replace("$", "$$"))
TEXTS = st.text().map(lambda text: text.replace("$", "$$"))
VALUES = json_of(st.none() | st.booleans() | st.integers() | FINITE | TEXTS, KEYS, 12)
LOOSE = {"type": ["object", "string"]}
WIDE = spec("wide", more=False, p0=LOOSE, p1=LOOSE, p2=LOOSE)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    ids: list[int] = draw(st.lists(st.integers(0, 999), unique=True, max_size=6))
    calls: list[Call] = []
    for k, id in enumerate(ids):
        made: dict[str, Json] = {}
        names: list[str] = draw(st.lists(st.sampled_from(["p0", "p1", "p2"]), unique=True))
        for name in names:
            made[name] = draw(VALUES)
            refers: bool = draw(st.booleans())
            if ids[:k] and refers:
                needed = draw(st.sampled_from(ids[:k]))
                mark = draw(st.sampled_from([f"${needed}", f"a ${{{needed}}} b"]))
                made[name] = draw(st.sampled_from([mark, [made[name], mark], {"k": mark}]))
        needs = tuple(sorted({int(each) for each in references(made)}))
        calls.append(Call(id=id, tool="wide", arguments=made, needs=needs))
    return Plan(calls=tuple(calls))


@given(plans())
@settings(deadline=None)
@example(Plan(calls=(Call(id=0, tool="wide", arguments={"p0": "\u2028\x85\x1c\r\n"}),)))
def test_a_plan_that_is_written_is_read_back(plan: Plan) -> None:
    assert parse_plan(str(plan), [WIDE]) == plan


PIECES = [
    "1. ", "2. ", "search", "add", "(", ")", "[", "]", "{", "}", "'", '"', ",", "=", ":", "$1",
    "$", "\\", "\n", " ", "join", "()", "#", "<END>", "Thought: ", "9" * 400, "1e999", "x", "é",
]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@settings(deadline=None, max_examples=times(40, 400))
@example("1. search(" + "(" * 5000)
@example("1. search(" + "[" * 5000)
@example("1. search(" + "{a:" * 5000)
@example(" " * 9_000 + "x")
@example("1. search('\\ud800')\njoin()")
@example("1. search('\\")
@example("1. search(" + "9" * 5000 + ")")
@example("1. search('a\u2028b\x85c')\r\njoin()")
def test_any_text_is_a_plan_or_says_why_not(text: str) -> None:
    try:
        plan = parse_plan(text, OF_PLAN)
    except PlanError:
        return
    json.dumps(plan.wire(), ensure_ascii=False, allow_nan=False).encode()
    assert parse_plan(str(plan), OF_PLAN).calls == plan.calls


# ---- decisions


@pytest.mark.parametrize(("text", "kind", "said"), table("compiler_decisions"))
def test_a_decision_is_read(text: str, kind: str, said: str) -> None:
    decision = parse_decision(text)
    assert decision is not None
    assert (decision.kind, decision.text) == (kind, said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "Thought: t",
        "Action: search(x)",
        "Action: finish()",
        "Action: finish",
        "I finish (now)",
        "Action: finished(42)",
    ],
)
def test_what_is_no_decision_is_none(text: str) -> None:
    assert parse_decision(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("plain words", "plain words"),
        ("Thought: t\nAction: finish(42)", "42"),
        ("Thought: what is known\nAction: replan(more)", "what is known"),
        ("Action: replan(more)", "Action: replan(more)"),
        ("", ""),
    ],
)
def test_an_answer_loses_the_grammar(text: str, answer: str) -> None:
    assert without_grammar(text) == answer


WORDS = [
    "Action:", "finish", "replan", "(", ")", "'", '"', " ", "\n", "Thought:", "x", "=", "<END>",
    "*",
]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@settings(deadline=None)
@example("Action: finish x" + "<END>" * 3_000)
def test_any_text_is_a_decision_or_none(text: str) -> None:
    decision = parse_decision(text)
    assert decision is None or decision.kind == "replan" or decision.text
    without_grammar(text)
