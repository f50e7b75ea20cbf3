"""Plans and decisions of the LLMCompiler: what models write, read without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import tool
from holdfast.models.base import ToolSpec
from holdfast.values.base import Json
from holdfast.workers.compiler.join import Decision, parse_decision, without_grammar
from holdfast.workers.compiler.plan import MOST_CALLS, Call, Plan, PlanError, parse_plan
from holdfast.workers.compiler.prompts import described, planner_instructions
from holdfast.workers.compiler.references import fill, references, typed


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
TOOLS = [SEARCH, ADD, SEND, PUT, ANY]


def arguments(line: str, *tools: ToolSpec) -> dict[str, Json]:
    [call] = parse_plan(f"{line}\njoin()", tools or TOOLS).calls
    return call.arguments


def problems(text: str, *tools: ToolSpec) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, tools or TOOLS)
    assert caught.value.problems
    return str(caught.value)


# ---- arguments


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("search('Rome')", {"query": "Rome"}),
        ('search("Rome")', {"query": "Rome"}),
        ('search("""Rome "old" city""")', {"query": 'Rome "old" city'}),
        ("search(query='Rome')", {"query": "Rome"}),
        ("search(query = 'Rome')", {"query": "Rome"}),
        ("search(query: 'Rome')", {"query": "Rome"}),
        ('search({"query": "Rome"})', {"query": "Rome"}),
        ("search(weather in Rome)", {"query": "weather in Rome"}),
        ("search(weather in Rome, tomorrow)", {"query": "weather in Rome, tomorrow"}),
        ("search(what's up)", {"query": "what's up"}),
        ("search('what's up')", {"query": "what's up"}),
        (r"search('what's up\n')", {"query": "what's up\n"}),
        ("search('rock 'n' roll')", {"query": "rock 'n' roll"}),
        ('search("he said "hi" to me")', {"query": 'he said "hi" to me'}),
        ('search("he said "hi"")', {"query": 'he said "hi"'}),
        ("send('what's up', 'it's me')", {"to": "what's up", "text": "it's me"}),
        ("send(x, y, ['it's me', 'a'])", {"to": "x", "text": "y", "tags": ["it's me", "a"]}),
        ('search(a "quoted" word)', {"query": 'a "quoted" word'}),
        ('search("""print("total")\nprint(2)\n""")', {"query": 'print("total")\nprint(2)\n'}),
        (
            "search(query='''# add\nx = a)\n\n1. look (here)\n```\nThought: b''')",
            {"query": "# add\nx = a)\n\n1. look (here)\n```\nThought: b"},
        ),
        ("search('a)\nb')", {"query": "a)\nb"}),
        ("search(f(x, y) = 3)", {"query": "f(x, y) = 3"}),
        ("search((1 + 2) * 3)", {"query": "(1 + 2) * 3"}),
        ("search({name} is here)", {"query": "{name} is here"}),
        ("search(a == b)", {"query": "a == b"}),
        ("search(')')", {"query": ")"}),
        ("search('a, b) # c')", {"query": "a, b) # c"}),
        (r"search('it\'s')", {"query": "it's"}),
        (r'search("a\nb\t\"c\" \u00e9 \ud83d\ude00 \x41 \q")', {"query": 'a\nb\t"c" é 😀 A \\q'}),
        ("search('C:\\\\dir')", {"query": "C:\\dir"}),
        ("search('$$5 for $1')\n1. search(x)", {"query": "$$5 for $1"}),
        ("search('')", {"query": ""}),
        ("search( 'a' , )", {"query": "a"}),
        ("search('多', )", {"query": "多"}),
        ("search('a'\n)", {"query": "a"}),
        ("search(\n  query='a',\n)", {"query": "a"}),
        ("search('two\nlines')", {"query": "two\nlines"}),
        ("search()", {}),
        ("add(1, 2)", {"b": 1, "a": 2}),
        ("add(-1, b=2)", None),
        ("add(a=-1, b=2)", {"a": -1, "b": 2}),
        ("add(1.5, 2e3)", {"b": 1.5, "a": 2000.0}),
        ("add(1, a='$1')\n1. any()", {"b": 1, "a": "$1"}),
        ("add($1, ${1})\n1. any()", {"b": "$1", "a": "${1}"}),
        ("add((1), 2)", {"b": 1, "a": 2}),
        ("send('a', 'b', ['x', y, 3])", {"to": "a", "text": "b", "tags": ["x", "y", 3]}),
        (
            "send('a', 'b', ('x', [None, {'k': True}]))",
            {"to": "a", "text": "b", "tags": ["x", [None, {"k": True}]]},
        ),
        ("send(to='a', tags=[])", {"to": "a", "tags": []}),
        (
            "send(Ann, Hello there (again), [])",
            {"to": "Ann", "text": "Hello there (again)", "tags": []},
        ),
        ('put({"key": "k"})', {"data": {"key": "k"}}),
        (
            "put({'a': {'b': [1, 2.0, false, null]}, c: d}, 'k')",
            {"data": {"a": {"b": [1, 2.0, False, None]}, "c": "d"}, "key": "k"},
        ),
        ("any(x=1)", {"x": 1}),
        ("other(1, 'a', k=2)", {"arguments": [1, "a"], "k": 2}),
        ("other()", {}),
    ],
)
def test_arguments_are_read(written: str, expected: Any) -> None:
    text = f"7. {written}\njoin()"
    if expected is None:
        assert "given twice" in problems(text)
        return
    calls = {call.id: call for call in parse_plan(text, TOOLS).calls}
    assert calls[7].arguments == expected
    assert all(type(v) in (str, int, float, list, dict) for v in calls[7].arguments.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1. search('a'", "missing"),
        ("1. search('a\n2. join()", "missing"),
        ("1. search(\n2. search('b')\n3. join()", "missing"),
        ("1. search('a'))\n2. join()", "more behind the call"),
        ("1. search('a') + search('b')\n2. join()", "more behind the call"),
        ("1. search('a', 'b')\n2. join()", "the parameters of search are: query"),
        ("1. search(query='a', query='b')\n2. join()", "'query' is given twice"),
        ("1. search('a', query='b')\n2. join()", "'query' is given twice"),
        ("1. search(q='a')\n2. join()", "no parameter 'q'; the parameters of search are: query"),
        ("1. send(to='a', 'b')\n2. join()", "without a name follows"),
        ("1. add(1,,2)\n2. join()", "a value is missing"),
        ("1. search(add(1, 2))\n2. join()", "calls do not nest: give add"),
        ("1. search('x', add(1, 2))\n2. join()", "calls do not nest"),
        ("1. search(['a')\n2. join()", "missing"),
        ("Look at Rome first\n1. search('a')\n2. join()", "'Look at Rome first': this is no call"),
        ("1. look at Rome\n2. join()", "'1. look at Rome'"),
        ("1 search('a')\n2. join()", "\"1 search('a')\""),
        ("search('a')\n2. join()", "this is no call"),
        ("1234567. search('a')\n2. join()", "this is no call"),
        ("1. search('a')\n1. search('b')\n2. join()", "the id 1 is used 2 times"),
        ("1. search('$2')\n3. join()", "there is no call $2"),
        ("1. search('costs $500')\n3. join()", "written $$"),
        ("1. search('${12345678}')\n3. join()", "there is no call $12345678"),
        ("1. search('$1')\n2. join()", "it needs its own result, $1; a dollar sign in a text is"),
        ("1. search('costs $1.50')\n2. join()", "its own result, $1; a dollar sign in a text is"),
        ("1. search('echo ${1}')\n2. join()", "its own result, $1; a dollar sign in a text is"),
        ("1. search('$2')\n2. search('$1')\n3. join()", "wait for each other"),
        ("1. search('$2')\n2. search('$1')\n3. join()", "a dollar sign in a text is written $$"),
        ("1. search('a')\n2. search('$3')\n3. join()", "there is no call $3"),
        ("1. search(" + "[" * 50 + "\njoin()", "nest deeper"),
        ("", "no call in it"),
        ("<END_OF_PLAN>", "no call in it"),
        ("Thought: nothing to do", "no call in it"),
    ],
)
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
    assert "is no value: write a text in one pair of quotes" in told[0] or "closing '" in told[0]


def test_a_text_that_is_never_closed_is_one_problem() -> None:
    told = problems('1. search("""print(1)\nprint(2)\n2. search("b")\n3. join()')
    [only] = told.splitlines()
    assert 'the closing """ of a text is missing' in only


def test_a_forgotten_triple_quote_does_not_swallow_the_next_call() -> None:
    [only] = problems('1. search("""a)\n2. search("""b""")\n3. join()').splitlines()
    assert only.startswith("'1. search(")


def test_every_problem_is_said_at_once() -> None:
    told = problems("what\n1. search(q='a')\n2. search('a'\n3. join()")
    assert len(told.splitlines()) == 3


def test_a_plan_of_too_many_calls_is_refused() -> None:
    lines = [f"{k}. search('a')" for k in range(MOST_CALLS + 1)]
    assert "more than" in problems("\n".join([*lines, "join()"]))
    assert len(parse_plan("\n".join([*lines[1:], "join()"]), TOOLS).calls) == MOST_CALLS


# ---- lines


@pytest.mark.parametrize(
    "text",
    [
        "1. search('a')\n2. search('$1')\n3. join()<END_OF_PLAN>",
        "1. search('a')\n2. search('$1')\n3. join()\n<END_OF_PLAN>",
        "1. search('a')\n2. search('$1')\n3. join($1, $2)",
        "1. search('a')\n2. search('$1')\n3. join",
        "1. search('a')\n2. search('$1')\n3. **join**()",
        "1. search('a')\n2. search('$1')\n3. `join`()",
        "1. search('a')\n2. search('$1')\n**3.** **join()**",
        "**1.** **search**('a')\n**2.** **search**('$1')\n**join**()",
        "1. search('a')\n2. search('$1')\njoin()",
        "1. search('a')\n2. search('$1')\n3. Join() # done",
        "1. search('a')\n2. search('$1')\n3. join()\n4. search('never')\nAction: nonsense",
        "Plan:\n\n1. search('a')\n\n2. search('$1')\n3. join()\n",
        "```\n1. search('a')\n2. search('$1')\n3. join()\n```",
        "Thought: a, then $9\n1. search('a')  # why\nthought: b\n2. search('$1') // x\n# c\njoin()",
        "  1) search( 'a' )\n- 2: search('$1').\n3. join()",
        "**1.** `search`('a')\n2. search('${1}')\n3. join()",
        "2. search('$1')\n1. search('a')\n3. join()",
        "01. search('a')\n2. search('$01')\n3. join()",
    ],
)
def test_forms_of_one_plan(text: str) -> None:
    first, second = parse_plan(text, TOOLS).calls
    assert (first.id, first.tool, first.arguments, first.needs) == (1, "search", {"query": "a"}, ())
    assert (second.id, second.needs) == (2, (1,))


def test_gaps_zero_and_order_of_ids_are_kept() -> None:
    plan = parse_plan("10. search('$0 and $7')\n0. search('a')\n7. add($0, $0)\n99. join()", TOOLS)
    assert [(call.id, call.needs) for call in plan.calls] == [(0, ()), (7, (0,)), (10, (0, 7))]


def test_a_reference_to_ten_is_none_to_one() -> None:
    plan = parse_plan("10. search('a')\n11. search('$10')\njoin()", TOOLS)
    assert plan.calls[1].needs == (10,)


def test_references_are_found_wherever_they_stand() -> None:
    value = {"$1": ["a $2 b", {"k": "${ 3 }"}, 4, None], "x": "$$5 $x $"}
    assert list(references(value)) == ["1", "2", "3"]


def test_calls_keep_their_order_unless_they_need_another() -> None:
    plan = parse_plan("3. search('c')\n1. search('$2')\n2. search('b')\njoin()", TOOLS)
    assert [call.id for call in plan.calls] == [3, 2, 1]


def test_a_plan_of_join_alone_is_one() -> None:
    assert parse_plan("Thought: no tool is needed\n1. join()", TOOLS) == Plan()


def test_a_plan_without_join_is_one_and_says_so() -> None:
    plan = parse_plan("1. search('a')", TOOLS)
    assert (len(plan.calls), plan.is_joined) == (1, False)


def test_a_tool_named_join_is_called_when_it_gets_arguments() -> None:
    named = spec("join", left=STRING, right=STRING)
    plan = parse_plan("1. join('a', 'b')\n2. join()", [named])
    assert [call.arguments for call in plan.calls] == [{"left": "a", "right": "b"}]


def test_arguments_take_the_order_of_the_tools_own_parameters() -> None:
    @tool
    def move(zone: str, amount: int, reason: str = "") -> str:
        """Move something."""
        return zone + reason

    assert arguments('1. move("a", 2)', spec("x"), move_spec := _spec_of(move)) == {
        "zone": "a",
        "amount": 2,
    }
    assert "move(zone: string, amount: integer, reason: string" in described(move_spec)


def _spec_of(made: Any) -> ToolSpec:
    from holdfast import Agent

    [found] = Agent(name="a", model="offline", tools=[made]).snapshot("m").tools
    return found


def test_the_order_of_parameters_outlives_the_archive() -> None:
    from holdfast import Agent
    from holdfast.task.data.agent_snapshot import AgentSnapshot

    @tool
    def move(zone: str, amount: int, by: str = "") -> str:
        """Move something."""
        return zone + by

    snapshot = Agent(name="a", model="offline", tools=[move]).snapshot("m")
    read = AgentSnapshot.model_validate_json(snapshot.data)
    assert list(read.tools[0].parameters["properties"]) == ["zone", "amount", "by"]
    assert read.digest == snapshot.digest


def test_the_planner_is_told_of_every_tool_in_full() -> None:
    nested = spec("deep", items={"type": "array", "items": {"type": "integer"}, "description": "D"})
    text = planner_instructions("Be brief.", [SEARCH, nested])
    assert text.startswith("Be brief.\n\n")
    assert "- search(query?: string)" in text
    assert "  items: D" in text
    assert '"items": {"type": "integer"}' in text
    assert "$1 or ${1}" in text


# ---- results in the place of references


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("5", INTEGER, 5),
        ("5.0", INTEGER, 5),
        ("5.5", INTEGER, "5.5"),
        ("five", INTEGER, "five"),
        ("true", INTEGER, "true"),
        ("5", {"type": "number"}, 5),
        ("5.5", {"type": "number"}, 5.5),
        ("NaN", {"type": "number"}, "NaN"),
        ("1e999", {"type": "number"}, "1e999"),
        ("true", {"type": "boolean"}, True),
        ("5", STRING, "5"),
        ('"5"', STRING, '"5"'),
        ("5", {}, "5"),
        ("5", {"type": ["integer", "string"]}, "5"),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("[1, 2]", {"type": "object"}, "[1, 2]"),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ('{"a": 1}', {"$ref": "#/$defs/Point"}, {"a": 1}),
        ("null", {"anyOf": [INTEGER, {"type": "null"}]}, None),
        ("None", {"anyOf": [INTEGER, {"type": "null"}]}, None),
        ("7", {"anyOf": [INTEGER, {"type": "null"}]}, 7),
        ("7", {"anyOf": [INTEGER, {}]}, "7"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"const": 2}, 2),
        ("a", {"enum": ["a"]}, "a"),
        ("7", {"$ref": "#/$defs/Round"}, "7"),
        ("7", {"$ref": "#/$defs/Box%5Bint%5D"}, 7),
        ("[" * 9999, {"type": "array"}, "[" * 9999),
    ],
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
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text().map(lambda text: text.replace("$", "$$")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
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


@given(plans())
@settings(deadline=None)
def test_python_literals_without_names_are_read_back(plan: Plan) -> None:
    def line(call: Call) -> str:
        return f"{call.id}. wide({', '.join(map(repr, call.arguments.values()))})"

    text = "\n".join([*map(line, plan.calls), "join()"])
    read = parse_plan(text, [WIDE])
    assert [list(call.arguments.values()) for call in read.calls] == [
        list(call.arguments.values()) for call in plan.calls
    ]


PIECES = [
    "1. ",
    "2. ",
    "search",
    "add",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    ",",
    "=",
    ":",
    "$1",
    "$",
    "\\",
    "\n",
    " ",
    "join",
    "()",
    "#",
    "<END>",
    "Thought: ",
    "9" * 400,
    "1e999",
    "x",
    "é",
]


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@settings(deadline=None, max_examples=400)
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
        plan = parse_plan(text, TOOLS)
    except PlanError:
        return
    json.dumps(plan.wire(), ensure_ascii=False, allow_nan=False).encode()
    assert parse_plan(str(plan), TOOLS).calls == plan.calls


# ---- decisions


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("Thought: t\nAction: finish(42)", "finish", "42"),
        ("Thought: t\nAction: Finish(42)\n", "finish", "42"),
        ("Thought: t\nAction: finish(42)\n\n<END_OF_RESPONSE>", "finish", "42"),
        ("Thought: t\nAction: finish(42)\n```", "finish", "42"),
        ("Thought: t. Action: finish(42)", "finish", "42"),
        ("thought: t\naction: FINISH( 42 )", "finish", "42"),
        ("**Thought:** t\n**Action:** finish(42)", "finish", "42"),
        ("- Action: `finish(42)`", "finish", "42"),
        ("Action:\nfinish(42)", "finish", "42"),
        ("finish(42)", "finish", "42"),
        ("Action: finish 42", "finish", "42"),
        ("Action: finish(The answer is **42**)", "finish", "The answer is **42**"),
        ("Action: finish(**Paris**)", "finish", "**Paris**"),
        ("Action: finish(**Paris**)\n```", "finish", "**Paris**"),
        ("**Action: finish(**Paris**)**", "finish", "**Paris**"),
        ("**Action: finish(Paris)**\n<END_OF_RESPONSE>", "finish", "Paris"),
        ("Action: finish(So:\n```py\nf(1)\n```)", "finish", "So:\n```py\nf(1)\n```"),
        ("Action: finish(So:\n```py\nf(1\n```\n)", "finish", "So:\n```py\nf(1\n```"),
        ("```\nAction: finish(So:\n```\nf\n```)\n```", "finish", "So:\n```\nf\n```"),
        ("Action: finish The answer is **42**", "finish", "The answer is **42**"),
        ("Action: finish **42**", "finish", "**42**"),
        ("**Action: finish 42**", "finish", "42"),
        ("**Action: finish 2**3 is **8****", "finish", "2**3 is **8**"),
        ("```\nAction: finish 42\n```", "finish", "42"),
        ("Action: finish So:\n```\nf\n```", "finish", "So:\n```\nf\n```"),
        ("Action: finish(So:\n```\nf\n```", "finish", "So:\n```\nf\n```"),
        ('Action: finish("he said "hi" to me")', "finish", 'he said "hi" to me'),
        ("Action: finish: 42", "finish", "42"),
        ("Action: finish\n42\n43", "finish", "42\n43"),
        ('Action: finish("42")', "finish", "42"),
        ("Action: finish(answer='it\\'s 42')", "finish", "it's 42"),
        ('Action: finish("a" and "b")', "finish", '"a" and "b"'),
        ('Action: finish("a", "b")', "finish", '"a", "b"'),
        ("Action: finish(f(x) = (a) b)", "finish", "f(x) = (a) b"),
        ("Action: finish(a) one b) two)", "finish", "a) one b) two"),
        ("Action: finish(sad :( )", "finish", "sad :("),
        ("Action: finish(line 1\n\n1) line 2\n)", "finish", "line 1\n\n1) line 2"),
        ("Action: finish(42)\nObservation: (made up)", "finish", "42"),
        ("Action: finish(42", "finish", "42"),
        ("Action: finish(a (b) c", "finish", "a (b) c"),
        ("Action: finish(We must replan the trip.)", "finish", "We must replan the trip."),
        ("Action: finish(Replanning is done)", "finish", "Replanning is done"),
        ("Action: replan(more is needed)", "replan", "more is needed"),
        ("Thought: t\nAction: Replan(the (second) city)\n", "replan", "the (second) city"),
        ("Action: Replan", "replan", ""),
        ("Action: replan()", "replan", ""),
        ("Action: replan more is needed", "replan", "more is needed"),
        ("Action: finish(Replan)", "replan", ""),
        ("Action: finish(Replan: more)", "replan", "more"),
        ("Action: Finish('Replan')", "replan", ""),
        ("Replan(more)", "replan", "more"),
    ],
)
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


def test_the_thought_is_kept() -> None:
    decision = parse_decision("Thought: two\nlines\nAction: replan(more)")
    assert decision == Decision(kind="replan", text="more", thought="two\nlines")


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
    "Action:",
    "finish",
    "replan",
    "(",
    ")",
    "'",
    '"',
    " ",
    "\n",
    "Thought:",
    "x",
    "=",
    "<END>",
    "*",
]


@given(st.text() | st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@settings(deadline=None)
@example("Action: finish x" + "<END>" * 3_000)
def test_any_text_is_a_decision_or_none(text: str) -> None:
    decision = parse_decision(text)
    assert decision is None or decision.kind == "replan" or decision.text
    without_grammar(text)


@given(st.text(min_size=1).map(str.strip).filter(bool))
@settings(deadline=None)
def test_an_answer_in_quotes_is_given_as_it_is(answer: str) -> None:
    decision = parse_decision(f"Thought: t\nAction: finish({json.dumps(answer)})")
    assert decision is not None
    if decision.kind == "finish":
        assert decision.text == answer
