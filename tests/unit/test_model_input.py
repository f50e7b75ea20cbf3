"""Items that a `call_model_input_filter` has repeated are sent once, all others as they are."""

from typing import Any

import pytest

from holdfast import Agent
from holdfast.agents.runs.model_input import CallModelData, ModelInputData, filtered, once_each
from holdfast.models import ModelRequest
from holdfast.models.openai.items import from_response_items


def call(arguments: str = "{}", call_id: str = "call_0") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments}


def output(text: str, call_id: str = "call_0") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": text}


QUESTION = {"role": "user", "content": "q"}
ANSWER: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


@pytest.mark.parametrize(
    "items",
    [
        [QUESTION, call("1"), output("a"), call("2"), output("b")],
        [QUESTION, call("1"), output("a"), call("1"), output("b")],
        [QUESTION, call("1"), output("a"), call("2"), output("a")],
        [QUESTION, QUESTION],
        [call("1"), call("2"), output("a"), output("b")],
        [ANSWER, {**ANSWER, "phase": "commentary"}],
    ],
)
def test_what_the_conversation_has_under_one_id_is_kept(items: list[Any]) -> None:
    assert once_each(items, items) == items


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ([call(), output("a"), QUESTION] * 2, [call(), QUESTION, output("a"), QUESTION]),
        ([call(), call(), output("a")], [call(), output("a")]),
        ([output("old"), output("new"), QUESTION], [output("new"), QUESTION]),
        ([call(), output("old"), call("2"), output("new")], [call("2"), output("new")]),
        ([SEARCH, QUESTION, SEARCH], [QUESTION, SEARCH]),
        ([thought("old"), QUESTION, thought("new")], [thought("new"), QUESTION]),
        ([ANSWER, QUESTION, ANSWER], [QUESTION, ANSWER]),
    ],
)
def test_repeated_items_are_left_out(items: list[Any], kept: list[Any]) -> None:
    assert once_each(items) == kept


def test_what_the_conversation_itself_repeats_stays() -> None:
    turn = [call(), output("same")]
    before = [QUESTION, *turn, *turn]
    assert once_each([*before, QUESTION], before) == [*before, QUESTION]
    assert len(once_each([*before, *turn], before)) == 5


async def test_a_filter_that_changes_nothing_leaves_calls_of_one_id() -> None:
    def same(data: CallModelData) -> ModelInputData:
        return data.model_data

    turns = [call("1"), output("a"), call("2"), output("b"), call("2"), output("b")]
    messages = from_response_items([QUESTION, *turns])
    request = ModelRequest(model="m", messages=messages)
    sent = await filtered(same, request, Agent(name="a", model="offline"), None)
    assert sent.messages == messages
