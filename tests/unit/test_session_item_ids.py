"""Which ids of a session's items a model is sent."""

from typing import Any

from holdfast.client.caller_sessions.compaction import without_plain_ids


def said(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "content": "x", **more}


def ids(*items: Any) -> list[Any]:
    return [item.get("id") for item in without_plain_ids(items)]


ASKED = {"id": "u_1", "role": "user", "content": "q"}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": list[Any]()}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
DONE = {"id": "o_1", "type": "function_call_output", "call_id": "c", "output": "x"}


def test_ids_of_plain_answers_are_left_out_and_those_of_others_stay() -> None:
    assert ids(ASKED, CALL, DONE, said("msg_1"), ASKED) == ["u_1", None, "o_1", None, "u_1"]


def test_ids_stay_in_an_answer_that_has_reasoning_or_a_phase_and_not_in_the_next_one() -> None:
    assert ids(THOUGHT, CALL, DONE, said("msg_1")) == ["rs_1", "fc_1", "o_1", None]
    assert ids(said("msg_1", phase="final_answer")) == ["msg_1"]
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
    assert ids(said("msg_1", content=[part])) == [None]
    assert ids(said("msg_1", content=[{**part, "logprobs": [{"token": "x"}]}])) == ["msg_1"]


def test_an_id_that_stands_for_none_is_left_out_everywhere() -> None:
    assert ids(THOUGHT, said("__fake_id__")) == ["rs_1", None]


def test_items_that_are_no_dicts_are_left_as_they_are() -> None:
    item = object()
    assert without_plain_ids([item]) == [item]
