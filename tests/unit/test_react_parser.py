"""The ReAct parser and its lenient reader of JSON, which keeps every argument or says why not."""

import itertools
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
from holdfast.workers import AnswerFilter
from holdfast.workers.react.parser import Action, Answer, Parsed, ParseFailure, parse
from tests.support.drawn import FINITE, SCALARS, json_of
from tests.support.scale import times
from tests.support.tables import table

ADD = '{"a": 1, "b": 2}'
SUM = {"a": 1, "b": 2}


def acts(arguments: Any = None, *, tool: str = "add", thought: str = "") -> tuple[Any, ...]:
    return ("action", thought, tool, SUM if arguments is None else arguments)


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


CASES = [
    *table("react_replies"),
    ["too deep", of('{"a": ' + "[" * 500), ["failure", "nested deeper"]],
    ["too many digits", of('{"a": ' + "9" * 5000 + "}"), ["failure", "digits"]],
]
"""Name, text, and what it is: an action, an answer, or a failure with words of its text."""


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in CASES], ids=[str(case[0]) for case in CASES]
)
def test_a_reply_is_read(text: str, expected: list[Any]) -> None:
    parsed = parse(text)
    assert is_as_expected(parsed, tuple(expected)), parsed


READ = table("react_arguments")


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in READ], ids=[str(case[0]) for case in READ]
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


# ---- properties


INNER = json_of(SCALARS | FINITE, st.text(max_size=4), 8)
ARGUMENTS = st.dictionaries(st.text(max_size=8), INNER, max_size=5)


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


@settings(max_examples=times(30, 300), deadline=None)
@given(arguments=ARGUMENTS, render=st.sampled_from(RENDERED), inline=st.booleans())
def test_arguments_come_back_as_they_were(arguments: Any, render: Any, inline: bool) -> None:
    text = render(arguments)
    parsed = parse(f"Action: do({text})" if inline else of(text))
    if isinstance(parsed, ParseFailure):
        assert joins_texts(text), parsed
        return
    assert isinstance(parsed, Action)
    assert json.loads(parsed.arguments) == arguments


@settings(max_examples=times(25, 200), deadline=None)
@given(arguments=ARGUMENTS, render=st.sampled_from(RENDERED[:4]), data=st.data())
def test_an_object_that_is_cut_off_is_never_an_action(
    arguments: Any, render: Any, data: st.DataObject
) -> None:
    text = render(arguments)
    assert isinstance(parse(of(text[: data.draw(st.integers(0, len(text) - 1))])), ParseFailure)


PIECES = st.sampled_from(
    [
        "Thought:", "Action:", "Action Input:", "Answer:", "Observation:", "**", "```",
        "```json\n", "<think>", "</think>", "Action: None\nAnswer: x", "• ", "* ", "1. ", "\n",
        "\n\n", " ", "{", "}", '"', "'", "(", ")", "[", "]", ":", ",", "=", "\\", "\\u", "/*",
        "add", "1", "None", '{"a": 1}', "x", "#", "\ud800", "\N{FULLWIDTH COLON}", "_", "`",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join)


@settings(max_examples=times(30, 300), deadline=None)
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


@settings(max_examples=times(30, 300), deadline=None)
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


@settings(max_examples=times(40, 500), deadline=None)
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


# ---- the answer in a stream of ReAct text: never a thought or a preamble


def filtered(deltas: list[str]) -> list[str]:
    """Return what each piece let through, and at last what the end did."""
    stream = AnswerFilter()
    return [*(stream.feed(delta) for delta in deltas), stream.finish()]


def answer_of(text: str) -> str:
    parsed = parse(text)
    return parsed.text if isinstance(parsed, Answer) else ""


SHORT = [
    "Answer: 42\nObs",
    "Answer: a\n\nObservation: b",
    "**Answer:** **x** ",
    "**Answer: x** y",
    "Thought: t\nAnswer:\n x",
    "Thought: t Answer: x",
    "Sure!\nAction: f\nAction Input: {}",
    "```\nAnswer: 4\n```",
    "Sure, here: 42",
    "Answer: \nObservation: x",
    "answer: a\n- **obs** b",
    "<think>Answer: 1</think>\nAnswer: 2",
    "<think>a</think>b",
    "<think>Answer: 1",
    "<thin Answer: 1",
    "* **Answer**: x *y*",
    "1. Answer: x",
    "Observation: 3\nAnswer: 3",
    "Action: None\nAnswer: 4",
    "",
]


@pytest.mark.parametrize("text", SHORT)
def test_every_split_in_three_gives_the_answer(text: str) -> None:
    ends = range(len(text) + 1)
    for i, j in itertools.combinations_with_replacement(ends, 2):
        assert "".join(filtered([text[:i], text[i:j], text[j:]])) == answer_of(text), (i, j)
    assert "".join(filtered(list(text))) == answer_of(text)


def test_an_answer_comes_out_while_it_is_written() -> None:
    deltas = ["Thought: hm\n", "Ans", "wer:", " The", " sum", "\n", "is 3", ".\n"]
    assert filtered(deltas) == ["", "", "", "The", " sum", "", "\nis 3", ".", ""]


def test_the_answer_after_thinking_comes_out_while_it_is_written() -> None:
    deltas = ["\n<th", "ink>\nAnswer: 1", "\n</thi", "nk>\n", "Answer:", " 4", "2"]
    assert filtered(deltas) == ["", "", "", "", "", "4", "2", ""]


STREAMED = st.sampled_from(
    [
        "Thought:", "Action:", "Action Input:", "Answer:", "answer:", "Observation:", "obser",
        "<think>", "</think>", "</", "Action: None", "• ", "* ", "1. ", "**", "```", "\n",
        "\n\n", " ", "- ", "{}", "a", "add", "\n**Obs", "vation", ": ", "_", "`", "\r\n",
        "Final Answer:", "\n\nAnswer: x", "\nObservation: y", "\N{LATIN SMALL LETTER LONG S}",
    ]
)  # fmt: skip


@settings(max_examples=times(40, 400), deadline=None)
@given(st.lists(STREAMED | st.text(max_size=4), max_size=25), st.sampled_from(["", "Answer: "]))
@example(["Ob\N{LATIN SMALL LETTER LONG S}ervation", ": x"], "Answer: a\n")
def test_the_pieces_joined_are_the_answer_or_nothing(deltas: list[str], first: str) -> None:
    assert "".join(filtered([first, *deltas])) == answer_of(first + "".join(deltas))
