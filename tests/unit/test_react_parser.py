"""The ReAct parser and its lenient reader of JSON, which keeps every argument or says why not."""

from __future__ import annotations

import json
import pprint
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.values.checks.lenient_json import NotReadableError, read_value
from holdfast.workers.react.parser import Action, Answer, Parsed, ParseFailure, parse

ADD = '{"a": 1, "b": 2}'
SUM = {"a": 1, "b": 2}
REPORT = "# Lab report\nHypothesis: it floats.\nObservation: it sank.\nConclusion: it does not."


def acts(arguments: Any = None, *, tool: str = "add", thought: str = "") -> tuple[Any, ...]:
    return ("action", thought, tool, SUM if arguments is None else arguments)


def answers(text: str, *, thought: str = "") -> tuple[Any, ...]:
    return ("answer", thought, text)


def fails(*words: str) -> tuple[Any, ...]:
    return ("failure", *words)


def is_as_expected(parsed: Parsed, expected: tuple[Any, ...]) -> bool:
    match parsed:
        case Action(thought=thought, tool=tool, arguments=arguments):
            return ("action", thought, tool, json.loads(arguments)) == expected
        case Answer(thought=thought, text=text):
            return ("answer", thought, text) == expected
        case ParseFailure(text=text):
            return expected[0] == "failure" and all(word in text for word in expected[1:])


def of(arguments: str, tool: str = "add") -> str:
    return f"Thought: hm\nAction: {tool}\nAction Input: {arguments}"


CASES: list[tuple[str, str, tuple[Any, ...]]] = [
    # ---- the plain forms
    ("action", of(ADD), acts(thought="hm")),
    ("answer", "Thought: I know.\nAnswer: 42", answers("42", thought="I know.")),
    ("answer of several lines", "Thought: x\nAnswer: a\n\nb\n", answers("a\n\nb", thought="x")),
    ("bare text", "  Just 42.\n", answers("Just 42.")),
    ("answer on the next line", "Answer:\n42", answers("42")),
    ("final answer", "Thought: x\nFinal Answer: 42", answers("42", thought="x")),
    ("answer without a thought", "Answer: 42", answers("42")),
    # ---- what is around the action
    ("no thought", f"Action: add\nAction Input: {ADD}", acts()),
    (
        "prose for a thought",
        f"Let me add.\nAction: add\nAction Input: {ADD}",
        acts(thought="Let me add."),
    ),
    (
        "thought of two lines",
        f"Thought: a\nb\nAction: add\nAction Input: {ADD}",
        acts(thought="a\nb"),
    ),
    ("no space after the colon", f"Thought:x\nAction:add\nAction Input:{ADD}", acts(thought="x")),
    ("lower case", f"thought: x\naction: add\naction input: {ADD}", acts(thought="x")),
    ("upper case", f"THOUGHT: x\nACTION: add\nACTION INPUT: {ADD}", acts(thought="x")),
    (
        "empty lines between",
        f"\n\nThought: x\n\n\nAction: add\n\nAction Input: {ADD}",
        acts(thought="x"),
    ),
    (
        "carriage returns",
        f"Thought: x\r\nAction: add\r\nAction Input: {ADD}\r\n",
        acts(thought="x"),
    ),
    ("input on the line of the action", f"Action: add Action Input: {ADD}", acts()),
    ("all on one line", f"Thought: x. Action: add Action Input: {ADD}", acts(thought="x.")),
    ("indented keywords", f"  Thought: x\n  Action: add\n  Action Input: {ADD}", acts(thought="x")),
    ("numbered keywords", f"Thought 1: x\nAction 1: add\nAction Input 1: {ADD}", acts(thought="x")),
    ("input on the next line", f"Action: add\nAction Input:\n{ADD}", acts()),
    ("name on the next line", f"Action:\nadd\nAction Input: {ADD}", acts()),
    ("text after the object", f"Action: add\nAction Input: {ADD}\nThat should do.", acts()),
    ("a name for the input", f"Action: add\nAction Input: json = {ADD}", acts()),
    ("a name for the input on a line", f"Action: add\nAction Input:\nArguments: {ADD}", acts()),
    ("a full stop after the object", f"Action: add\nAction Input: {ADD}.", acts()),
    ("a lead-in before the object", f"Action: add\nAction Input: the arguments are: {ADD}", acts()),
    (
        "wide colon",
        f"Thought\N{FULLWIDTH COLON} x\nAction: add\nAction Input: {ADD}",
        acts(thought="x"),
    ),
    (
        "two actions",
        f"Action: add\nAction Input: {ADD}\nThought: y\nAction: mul\nAction Input: {{}}",
        acts(),
    ),
    ("action, then an answer", f"Action: add\nAction Input: {ADD}\nAnswer: 3", acts()),
    ("made-up observation", f"Action: add\nAction Input: {ADD}\nObservation: 3\nAnswer: 3", acts()),
    ("second object", f'Action: add\nAction Input: {ADD} {{"c": 3}}', acts()),
    # ---- markdown
    (
        "bold keywords",
        f"**Thought:** x\n**Action:** add\n**Action Input:** {ADD}",
        acts(thought="x"),
    ),
    ("bold before the colon", f"**Action**: add\n**Action Input**: {ADD}", acts()),
    ("bold answer keyword", "**Answer:** **42**", answers("**42**")),
    ("bold answer line", "**Answer: 42** or so", answers("42 or so")),
    ("bold value of an answer", "Answer: **42**", answers("**42**")),
    (
        "headings and bullets",
        f"### Thought: x\n- Action: add\n- Action Input: {ADD}",
        acts(thought="x"),
    ),
    (
        "bullets before bold keywords",
        f"* **Thought**: x\n* **Action**: add\n* **Action Input**: {ADD}",
        acts(thought="x"),
    ),
    ("numbers", f"1. Thought: x\n2. Action: add\n3. Action Input: {ADD}", acts(thought="x")),
    ("numbers in bold", f"1) **Action:** add\n2) **Action Input:** {ADD}", acts()),
    ("round bullets", f"• Action: add\n• Action Input: {ADD}", acts()),
    ("bullet before an answer", "* Thought: x\n* Answer: *42*", answers("*42*", thought="x")),
    ("no-break space before a keyword", "\N{NO-BREAK SPACE}Answer: 42", answers("42")),
    ("a number in a reply", "1. Actions: add", answers("1. Actions: add")),
    ("underscores", f"__Action__: add\n_Action Input_: {ADD}", acts()),
    ("name in backticks", f"Action: `add`\nAction Input: `{ADD}`", acts()),
    ("name in quotes", f'Action: "add".\nAction Input: {ADD}', acts()),
    ("bold name", f"Action: **add**\nAction Input: {ADD}", acts()),
    ("input in a fence", f"Action: add\nAction Input:\n```json\n{ADD}\n```", acts()),
    ("input in a fence on one line", f"Action: add\nAction Input: ```{ADD}```", acts()),
    (
        "reply in a fence",
        f"```\nThought: x\nAction: add\nAction Input: {ADD}\n```",
        acts(thought="x"),
    ),
    ("answer in a fence", "```text\nThought: x\nAnswer: 42\n```", answers("42", thought="x")),
    ("fence inside an answer", "Answer: ```py\nx = 1\n```", answers("```py\nx = 1\n```")),
    ("fence as bare text", "```py\nx = 1\n```", answers("```py\nx = 1\n```")),
    # ---- names
    (
        "tool of several words",
        of("{}", "my nice tool"),
        acts({}, tool="my nice tool", thought="hm"),
    ),
    ("tool in Chinese", of("{}", "加法"), acts({}, tool="加法", thought="hm")),
    ("remark beside the name", of(ADD, "add (adds numbers)"), acts(thought="hm")),
    ("name in brackets", of(ADD, "[add]"), acts(thought="hm")),
    ("name with a namespace", of(ADD, "functions.add"), acts(thought="hm")),
    ("full stop in Chinese", of(ADD, "add\N{IDEOGRAPHIC FULL STOP}"), acts(thought="hm")),
    ("no-break space", of(ADD, "\N{NO-BREAK SPACE}add\N{NO-BREAK SPACE}"), acts(thought="hm")),
    ("underscore first", of("{}", "_private_"), acts({}, tool="_private_", thought="hm")),
    # ---- arguments beside the name
    ("object in parentheses", f"Action: add({ADD})", acts()),
    ("object of several lines in parentheses", 'Action: add({\n"a": 1,\n"b": 2\n})', acts()),
    ("keyword arguments", "Action: add(a=1, b=2)", acts()),
    (
        "keyword text",
        "Action: say(text='a, (b)', loud=True,)",
        acts({"text": "a, (b)", "loud": True}, tool="say"),
    ),
    ("empty parentheses", "Action: now()", acts({}, tool="now")),
    ("empty parentheses and an input", f"Action: add()\nAction Input: {ADD}", acts()),
    ("parentheses and an empty input", f"Action: add({ADD})\nAction Input: {{}}", acts()),
    ("the same twice", f"Action: add({ADD})\nAction Input: {ADD}", acts()),
    ("braces beside the name", f"Action: add {ADD}", acts()),
    ("different twice", f'Action: add({ADD})\nAction Input: {{"a": 3}}', fails("twice", "differ")),
    ("positional arguments", "Action: add(1, 2)", fails("beside the tool name")),
    (
        "positional arguments and an empty input",
        "Action: add(1, 2)\nAction Input: {}",
        fails("beside the tool name", "1"),
    ),
    (
        "positional text and an empty input",
        'Action: search("weather in Paris")\nAction Input: {}',
        fails("beside the tool name", "weather"),
    ),
    (
        "a word in parentheses and an empty input",
        "Action: search (Paris)\nAction Input: {}",
        fails("beside the tool name", "Paris"),
    ),
    (
        "more after braces beside the name",
        'Action: add {"a": 1}, "b": 2}',
        fails("beside the tool name", "goes on"),
    ),
    (
        "unreadable object in parentheses",
        'Action: add({"a": )\nAction Input: {}',
        fails("beside the tool name"),
    ),
    # ---- keywords elsewhere
    (
        "an answer about an action",
        "Answer: the next Action: is add\nAction: add\nAction Input: {}",
        answers("the next Action: is add\nAction: add\nAction Input: {}"),
    ),
    (
        "a thought and an answer on one line",
        "Thought: x Answer: the next Action: is y",
        answers("the next Action: is y", thought="x"),
    ),
    (
        "a keyword inside a line of bare text",
        "I know the Answer: 42",
        answers("I know the Answer: 42"),
    ),
    (
        "a thought about an answer",
        f"Thought: the Answer: is near\nAction: add\nAction Input: {ADD}",
        acts(thought="the Answer: is near"),
    ),
    ("observation in an answer", f"Answer: {REPORT}", answers(REPORT)),
    (
        "observation first in an answer",
        "Answer:\n- **Observation:** sales fell\n- **Action:** lower the price",
        answers("- **Observation:** sales fell\n- **Action:** lower the price"),
    ),
    (
        "observation repeated before an answer",
        "Observation: 3\nso it is\nThought: x\nAnswer: 3",
        answers("3", thought="x"),
    ),
    (
        "observations repeated before an action",
        f"\nObservation: 1\nObservation: 2\nAction: add\nAction Input: {ADD}",
        acts(),
    ),
    # ---- what a reasoning model thinks before its reply
    (
        "thinking before an action",
        f"<think>\nAnswer: 1?\n</think>\n\nThought: x\nAction: add\nAction Input: {ADD}",
        acts(thought="x"),
    ),
    ("thinking before an answer", "<think>Action: f</think>Answer: 42", answers("42")),
    ("thinking before bare text", "<think>hm</think>\n42", answers("42")),
    ("thinking twice", "<think>a</think> <think>b</think>\n42", answers("42")),
    ("thinking before a fence", "<think>a</think>\n```\nAnswer: 42\n```", answers("42")),
    ("thinking that is quoted", "Answer: <think>a</think>", answers("<think>a</think>")),
    ("thinking without an end", "<think>\nAnswer: 42", fails("</think>")),
    # ---- an action that is none
    ("no action", "Thought: x\nAction: None\nAnswer: 42", answers("42", thought="x")),
    ("no action in lower case", "Action: none.\nThought: y\nFinal Answer: 42", answers("42")),
    ("no action with an input", "Action: N/A\nAction Input: N/A\nAnswer: 42", answers("42")),
    ("no action, with a remark", "Action: None (I know)\nAnswer: 42", answers("42")),
    (
        "a tool with an odd name",
        of(f"{ADD}\nAnswer: 42", "None"),
        acts(tool="None", thought="hm"),
    ),
    ("neither action nor answer", "Action: None\nThought: hm", fails("Action Input")),
    (
        "no action, then one",
        f"Action: None\nAction: add\nAction Input: {ADD}\nAnswer: 3",
        fails("Action Input"),
    ),
    # ---- failures
    ("empty", "", fails("empty")),
    ("white space", " \n\t ", fails("empty")),
    ("only a thought", "Thought: hm", fails("neither")),
    ("only an observation", "Observation: 3", fails("neither")),
    (
        "a made-up observation between thought and answer",
        "Thought: x\nObservation: 3\nAnswer: 3",
        fails("neither"),
    ),
    ("bare text with an observation", "Let me see.\nObservation: 3\nAnswer: 3", fails("neither")),
    ("no input", "Action: add", fails("Action Input")),
    (
        "no input before the next keyword",
        "Action: add\nAnswer: 3\nAction Input: {}",
        fails("Action Input"),
    ),
    ("input without an action", "Action Input: {}", fails('without an "Action:"')),
    ("no name", "Action:\nAction Input: {}", fails("no tool name")),
    ("empty answer", "Thought: x\nAnswer:  ", fails("nothing after")),
    ("empty input", "Action: add\nAction Input:", fails("empty", "{}")),
    ("list", of("[1, 2]"), fails("one JSON object", "[1, 2]")),
    ("object in a list", of('[{"a": 1}]'), fails("one JSON object")),
    ("quoted text", of('"Paris"'), fails("one JSON object", "Paris")),
    ("unquoted text", of("Paris"), fails("one JSON object", "Paris")),
    ("text before the object", of('Paris {"unit": "C"}'), fails("one JSON object", "Paris")),
    (
        "an assignment before the object",
        of('trip = {"from": "Rome"}\nseats = 2'),
        fails("one JSON object", "trip"),
    ),
    (
        "a key before the object",
        of('trip: {"from": "Rome"}\nseats: 2'),
        fails("one JSON object", "trip"),
    ),
    (
        "an argument before the key of the object",
        of('- start: Rome\n- trip: {"seats": 2}'),
        fails("one JSON object", "start"),
    ),
    (
        "a brace too many",
        of('{"trip": {"from": "Rome"}}, "seats": 2}'),
        fails("not a readable JSON object", "goes on", "seats"),
    ),
    ("a key after the object", of(f'{ADD}, "c": 3'), fails("goes on")),
    ("a list of objects", of('{"from": 1}, {"to": 2}'), fails("goes on")),
    ("a brace after the object", of(f"{ADD}}}"), fails("goes on")),
    ("a quote after the object", of(f'{ADD} "c": 3'), fails("goes on")),
    ("a colon after the object", of(f"{ADD}: 3"), fails("goes on")),
    ("a comma on the next line", of(f'{ADD}\n, "c": 3'), fails("goes on")),
    ("LaTeX", of(r'{"tex": "\alpha \frac{1}{2} \beta"}'), fails(r"\a", r"\f", "double every")),
    ("a pattern with a tab", of(r'{"re": "\d+\t\w+"}'), fails(r"\d", r"\t", "double every")),
    (
        "a text that begins with a path",
        of(r'{"a": "C:\Users: a\nb"}'),
        fails(r"\U", r"\n", "double every"),
    ),
    (
        "LaTeX that begins like a share",
        of(r'{"a": "\\alpha \frac \gamma"}'),
        fails(r"\g", r"\f", "double every"),
    ),
    ("null", of("null"), fails("one JSON object")),
    ("cut off", of('{"a": 1, "b": "so'), fails("not a readable JSON object", "quote")),
    ("not closed", of('{"a": 1'), fails("not a readable JSON object", "end of the text")),
    ("unquoted value", of("{a: Paris}"), fails("not a readable JSON object", "quotes")),
    ("not a number", of('{"a": NaN}'), fails("not a readable JSON object", "NaN")),
    ("infinite", of('{"a": 1e999}'), fails("too large")),
    ("leading zero", of('{"phone": 0049}'), fails("0")),
    ("the same key twice", of('{"a": 1, "a": 2}'), fails("'a' comes twice")),
    ("no comma", of('{"a": 1 "b": 2}'), fails("comma")),
    ("a set", of("{1, 2}"), fails("should follow the key '1'")),
    ("too deep", of('{"a": ' + "[" * 500), fails("nested deeper")),
    ("too many digits", of('{"a": ' + "9" * 5000 + "}"), fails("digits")),
]


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_reply_is_read(text: str, expected: tuple[Any, ...]) -> None:
    parsed = parse(text)
    assert is_as_expected(parsed, expected), parsed


READ: list[tuple[str, str, dict[str, Any]]] = [
    ("no arguments", "{}", {}),
    ("single quotes", "{'a': 1, 'b': 2}", SUM),
    ("keys without quotes", "{a: 1, b: 2}", SUM),
    ("trailing comma", '{"a": 1, "b": 2,}', SUM),
    ("comments", '{"a": 1, /* one */ "b": 2 // two\n# three\n}', SUM),
    ("Python constants", "{'a': True, 'b': False, 'c': None}", {"a": True, "b": False, "c": None}),
    (
        "tuples",
        "{'a': (1, 2), 'b': (1,), 'c': (), 'd': (1)}",
        {"a": [1, 2], "b": [1], "c": [], "d": 1},
    ),
    ("nested", '{"a": {"b": [{"c": {}}]}}', {"a": {"b": [{"c": {}}]}}),
    ("brace inside a text", '{"a": "}", "b": "{"}', {"a": "}", "b": "{"}),
    ("line break inside a text", '{"a": "x\ny"}', {"a": "x\ny"}),
    (
        "keywords inside a text",
        '{"a": "x\nObservation: y\nAnswer: z"}',
        {"a": "x\nObservation: y\nAnswer: z"},
    ),
    (
        "numbers of JSON5",
        "{a: .5, b: 5., c: +1, d: 0x1F, e: -1e3}",
        {"a": 0.5, "b": 5.0, "c": 1, "d": 31, "e": -1000.0},
    ),
    ("long number", '{"a": 12345678901234567890123}', {"a": 12345678901234567890123}),
    ("escapes", r'{"a": "\"\\\/\n\u00e9\ud83d\ude00"}', {"a": '"\\/\né😀'}),
    ("escapes of Python", r"{'a': 'it\'s \x41 \U0001f600'}", {"a": "it's A 😀"}),
    ("half of a character", r'{"a": "\ud800"}', {"a": "\ud800"}),
    ("backslashes that escape nothing", r'{"a": "\d+\.\w"}', {"a": r"\d+\.\w"}),
    ("a path that was not escaped", r'{"a": "C:\Users\new\report"}', {"a": r"C:\Users\new\report"}),
    ("a share that was not escaped", r'{"a": "\\host\share"}', {"a": r"\\host\share"}),
    ("LaTeX that was escaped", r'{"a": "\\alpha\n\\frac"}', {"a": "\\alpha\n\\frac"}),
    ("LaTeX without control characters", r'{"a": "\alpha \gamma"}', {"a": r"\alpha \gamma"}),
    ("files in a folder", r'{"a": "C:\Users\new one\*.txt"}', {"a": r"C:\Users\new one\*.txt"}),
    ("a path that was escaped", r'{"a": "C:\\Users\\new"}', {"a": r"C:\Users\new"}),
    ("a text that only begins like a path", r'{"a": "Q:\nWhy?"}', {"a": "Q:\nWhy?"}),
]


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in READ], ids=[case[0] for case in READ]
)
def test_arguments_are_read(text: str, expected: dict[str, Any]) -> None:
    parsed = parse(of(text))
    assert is_as_expected(parsed, acts(expected, thought="hm")), parsed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{of(ADD)}\nObservation: 3\nThought: y\nAnswer: 3", of(ADD)),
        (f"{of(ADD)}\n\nThought: y\nAction: mul\nAction Input: {{}}", of(ADD)),
        (
            f"Action: add\nAction Input: ```\n{ADD}\n```\n",
            f"Action: add\nAction Input: ```\n{ADD}\n```",
        ),
        ("Answer: 42\nObservation: 43", "Answer: 42\nObservation: 43"),
        ("Observation: 3\nThought: x\nAnswer: 3", "Thought: x\nAnswer: 3"),
        ("Observation: 3", ""),
        ("<think>x</think>\nAnswer: 3", "Answer: 3"),
        ("<think>x", ""),
        ("Action: None\nAnswer: 42\n", "Action: None\nAnswer: 42"),
        ("Action: add\nObservation: 43", "Action: add"),
        ("```\nAnswer: 42\n```", "Answer: 42"),
        ("Hello\n", "Hello"),
        ("", ""),
    ],
)
def test_what_was_said_ends_where_the_model_began_to_make_things_up(text: str, said: str) -> None:
    assert parse(text).said == said


def test_arguments_are_the_text_of_a_json_object_that_people_can_read() -> None:
    parsed = parse(of("{'city': 'Zürich', n: 1}"))
    assert isinstance(parsed, Action)
    assert parsed.arguments == '{"city": "Zürich", "n": 1}'


# ---- properties

ARGUMENTS = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=5,
)


def as_they_are(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def indented(arguments: Any) -> str:
    return json.dumps(arguments, indent=2)


def printed(arguments: Any) -> str:
    return pprint.pformat(arguments, width=30, sort_dicts=False)


RENDERED: list[Callable[[Any], str]] = [json.dumps, as_they_are, indented, repr, printed]


def joins_texts(text: str) -> bool:
    """Whether pprint wrapped a long text into several, which only Python joins again.

    In JSON a comma may be missing there as well, so it is refused.
    """
    return re.search(r"""['"]\n *['"]""", text) is not None


@settings(max_examples=300, deadline=None)
@given(arguments=ARGUMENTS, render=st.sampled_from(RENDERED), inline=st.booleans())
def test_arguments_come_back_as_they_were(arguments: Any, render: Any, inline: bool) -> None:
    text = render(arguments)
    parsed = parse(f"Action: do({text})" if inline else of(text))
    if isinstance(parsed, ParseFailure):
        assert joins_texts(text), parsed
        return
    assert isinstance(parsed, Action)
    assert json.loads(parsed.arguments) == arguments


@settings(max_examples=200, deadline=None)
@given(arguments=ARGUMENTS, render=st.sampled_from(RENDERED[:4]), data=st.data())
def test_an_object_that_is_cut_off_is_never_an_action(
    arguments: Any, render: Any, data: st.DataObject
) -> None:
    text = render(arguments)
    cut = data.draw(st.integers(0, len(text) - 1))
    assert isinstance(parse(of(text[:cut])), ParseFailure)


JUNK = st.text(st.characters(exclude_characters="{}\"'#/", codec="utf-8"), max_size=6)


@settings(max_examples=300, deadline=None)
@given(values=st.lists(JUNK, min_size=1, max_size=4), single=st.booleans())
def test_an_action_has_every_key_of_its_object(values: list[str], single: bool) -> None:
    quote = "'" if single else '"'
    pairs = [f"{quote}k{i}{quote}: {value}" for i, value in enumerate(values)]
    parsed = parse(of(f"{{{', '.join(pairs)}}}"))
    if isinstance(parsed, Action):
        assert {f"k{i}" for i in range(len(values))} <= json.loads(parsed.arguments).keys()


PIECES = st.sampled_from(
    [
        "Thought:",
        "Action:",
        "Action Input:",
        "Answer:",
        "Observation:",
        "**",
        "```",
        "```json\n",
        "<think>",
        "</think>",
        "Action: None\nAnswer: x",
        "• ",
        "* ",
        "1. ",
        "\n",
        "\n\n",
        " ",
        "{",
        "}",
        '"',
        "'",
        "(",
        ")",
        "[",
        "]",
        ":",
        ",",
        "=",
        "\\",
        "\\u",
        "/*",
        "add",
        "1",
        "None",
        '{"a": 1}',
        "x",
        "#",
        "\ud800",
        "\N{FULLWIDTH COLON}",
        "_",
        "`",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example("Action: x(" + "{" * 3000)
@example("Action Input: {" * 200)
def test_any_text_is_read_without_an_error(text: str) -> None:
    match parse(text):
        case Action(tool=tool, arguments=arguments):
            assert tool
            assert isinstance(json.loads(arguments), dict)
        case Answer(text=answer):
            assert answer == answer.strip() != ""
        case ParseFailure(text=problem):
            assert problem


@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example("```\nAnswer: ```\n```\n```")
@example("<think></think>```\nObservation: x\nAnswer: ```\n```")
@example("Observation:\nAction: None\nAnswer: <think>")
def test_what_was_said_reads_as_the_whole_reply_did(text: str) -> None:
    """The transcript keeps only that part, and finalize reads it again."""
    parsed = parse(text)
    if isinstance(parsed, Answer):
        again = parse(parsed.said)
        assert isinstance(again, Answer)
        assert again.text == parsed.text


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_the_lenient_reader_gives_what_the_strict_one_gives(text: str) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise NotReadableError
        return dict(pairs)

    try:
        strict = json.loads(text, object_pairs_hook=unique, parse_constant=int)
        lenient = read_value(text).value
    except ValueError:
        return
    assert lenient == strict


@pytest.mark.parametrize(
    "text",
    [
        "Action: a\nAction Input: " + "`" * 50_000,
        "Action: a\nAction Input: " + "=" * 50_000 + "{",
        "Action: a\nAction Input: {" + "9" * 50_000 + "x",
        "Action: a\nAction Input: {a: " + "9" * 50_000 + "x",
        'Action: a\nAction Input: {"' + "\\" * 50_001,
        "Action: a\nAction Input: {" + "/*" * 25_000,
        " " * 50_000 + "Answer",
        "\n" * 50_000 + "```",
        "<think></think>" * 3000 + "<think>",
        "\n".join(["1. Observation:"] * 3000),
        "Action: a\nAction Input: " + "a:" * 99 + "{}",
        "*" * 50_000 + "\n" + ">-#" * 20_000,
    ],
)
def test_hostile_text_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    """A guard against runaway patterns, which would take hours here: no measurement."""
    begin = time.process_time()
    parse(text)
    assert time.process_time() - begin < 20
