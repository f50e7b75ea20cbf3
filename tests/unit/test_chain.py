"""Reading chains of abstraction: reasoning with calls in the place of their results."""

import pytest

from holdfast.models.base import ToolSpec
from holdfast.workers.chain import parse_chain
from holdfast.workers.compiler.plan import PlanError


def tool(name: str, *parameters: str) -> ToolSpec:
    properties = {each: {"type": "integer"} for each in parameters}
    return ToolSpec(name=name, parameters={"type": "object", "properties": properties})


ADD, SEARCH = tool("add", "a", "b"), tool("search", "query")


def lines(text: str) -> list[str]:
    return [str(call) for call in parse_chain(text, [ADD, SEARCH]).plan.calls]


def test_calls_are_found_in_the_text_and_refer_to_each_other_by_name() -> None:
    text = "She has [FUNC add(3, 2) = y1] pears, then [FUNC add(y1, b=4) = y2]."
    assert lines(text) == ["1. add(a=3, b=2)", '2. add(a="${1}", b=4)']


def test_a_name_inside_a_text_is_a_reference_and_y10_is_not_y1() -> None:
    text = '[FUNC add(1, 2) = y1] [FUNC add(3, 4) = y10] [FUNC search("y1 or y10, y2?") = y3]'
    assert lines(text)[2] == '3. search(query="${1} or ${10}, y2?")'


def test_a_call_written_before_the_one_that_it_needs_is_put_behind_it() -> None:
    assert lines("[FUNC add(y2, 1) = y1] [FUNC add(1, 1) = y2]")[0] == "2. add(a=1, b=1)"


def test_commas_and_brackets_in_a_quoted_text_belong_to_it() -> None:
    assert lines('[FUNC search("a, (b) = y9]") = y1]') == ['1. search(query="a, (b) = y9]")']


def test_results_take_the_place_of_calls_and_of_their_names() -> None:
    chain = parse_chain("It is [FUNC add(3, 2) = y1]. So y1 and y2 pears.", [ADD])
    assert chain.filled({1: "5"}) == "It is 5. So 5 and y2 pears."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[FUNC add(1, 2)]", "a call ends with the name of its result"),
        ("[FUNC add(1, 2, 3) = y1]", "there are 3 arguments"),
        ("[FUNC fly(1) = y1]", "there is no tool 'fly'"),
        ("[FUNC add(1, 1) = y1] [FUNC add(2, 2) = y1]", "the id 1 is used 2 times"),
        ("[FUNC add(y2, 1) = y1] [FUNC add(y1, 1) = y2]", "the calls wait for each other"),
    ],
)
def test_a_chain_that_cannot_be_run_says_why(text: str, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        parse_chain(text, [ADD])
