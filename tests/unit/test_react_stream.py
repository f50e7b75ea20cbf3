"""The answer in a stream of ReAct text: never a thought or a preamble."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.workers import AnswerFilter
from holdfast.workers.react.parser import Answer, parse
from tests.support.scale import times


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


PIECES = st.sampled_from(
    [
        "Thought:", "Action:", "Action Input:", "Answer:", "answer:", "Observation:", "obser",
        "<think>", "</think>", "</", "Action: None", "• ", "* ", "1. ", "**", "```", "\n",
        "\n\n", " ", "- ", "{}", "a", "add", "\n**Obs", "vation", ": ", "_", "`", "\r\n",
        "Final Answer:", "\n\nAnswer: x", "\nObservation: y", "\N{LATIN SMALL LETTER LONG S}",
    ]
)  # fmt: skip


@settings(max_examples=times(40, 400), deadline=None)
@given(st.lists(PIECES | st.text(max_size=4), max_size=25), st.sampled_from(["", "Answer: "]))
@example(["Ob\N{LATIN SMALL LETTER LONG S}ervation", ": x"], "Answer: a\n")
def test_the_pieces_joined_are_the_answer_or_nothing(deltas: list[str], first: str) -> None:
    assert "".join(filtered([first, *deltas])) == answer_of(first + "".join(deltas))
