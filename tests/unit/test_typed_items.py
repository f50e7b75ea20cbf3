"""Items of a model as objects of the `openai` package."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from holdfast import Agent
from holdfast.agents.items.raw_items import RawItem, plain
from holdfast.agents.items.run_items import InputItem, RunItem
from holdfast.agents.items.typed_items import typed
from holdfast.agents.runs.item_reading import message_items
from holdfast.agents.runs.teams import team_of
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.item_checks import FAKE_ID
from holdfast.models.openai.items import assistant_message
from holdfast.models.openai.output_items import to_output_items
from holdfast.reading.run_results import response
from holdfast.task.data.head import STEPS
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers.context.model_calls import read

ANN = Agent("Ann")
TEXT = ResponseOutputText(text="hi", type="output_text", annotations=[], logprobs=[])
SAID = ResponseOutputMessage(
    id="msg_1", type="message", role="assistant", status="completed", content=[TEXT]
)
CALL = ResponseFunctionToolCall(
    id="fc_1", type="function_call", call_id="c1", name="pay", arguments="{}"
)
OTHER = ResponseFunctionToolCall(
    id="fc_2", type="function_call", call_id="c2", name="pay", arguments="{}"
)
AS_INPUT: list[dict[str, Any]] = [
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "hi", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"},
]


def message_of(*given: Any) -> Message:
    return assistant_message([each.model_dump(exclude_unset=True) for each in given])


def items_of(*messages: Message) -> list[RunItem]:
    return message_items(messages, ANN, team_of(ANN))


def test_a_models_items_are_those_that_the_provider_sent() -> None:
    message = message_of(SAID, CALL, OTHER)
    assert [each.raw_item for each in items_of(message)] == [SAID, CALL, OTHER]
    assert response(ModelAnswer(message=message)).output == [SAID, CALL, OTHER]
    calls = message_of(CALL, OTHER)
    assert [each.raw_item for each in items_of(calls)] == [CALL, OTHER]


def test_an_id_that_models_are_not_sent_is_in_no_input() -> None:
    message = message_of(SAID, CALL)
    items, answer = items_of(message), response(ModelAnswer(message=message))
    for _ in range(2):  # before and after they were read
        assert [each.to_input_item() for each in items] == AS_INPUT
        assert answer.to_input_items() == AS_INPUT
        shown = [each.shown_item() for each in items]
        assert [each["id"] for each in shown] == ["msg_1", "fc_1"]
        assert [each.raw_item.id for each in items] == ["msg_1", "fc_1"]
        assert [each.id for each in answer.output] == ["msg_1", "fc_1"]


def test_an_id_that_the_provider_needs_again_is_in_the_input() -> None:
    thought = ResponseReasoningItem(id="rs_1", type="reasoning", summary=[])
    message = message_of(thought, SAID, CALL)
    items = items_of(message)
    assert message.item_ids == ()  # they are in its items
    assert [each.to_input_item()["id"] for each in items] == ["rs_1", "msg_1", "fc_1"]
    assert [each.raw_item for each in items] == [thought, SAID, CALL]
    assert [each.to_input_item()["id"] for each in items] == ["rs_1", "msg_1", "fc_1"]


def test_a_message_without_an_id_has_that_of_the_sdk_and_shows_none() -> None:
    [said, called] = items_of(assistant("hi", calls=(ToolCall(id="c1", name="pay"),)))
    assert said.raw_item == SAID.model_copy(update={"id": FAKE_ID})
    assert called.raw_item == CALL.model_copy(update={"id": None})
    assert [each.shown_item() for each in (said, called)] == AS_INPUT


def test_a_members_change_is_in_the_input() -> None:
    [said] = items_of(message_of(SAID))
    said.raw_item.content[0].text = "ho"
    assert said.to_input_item()["content"][0]["text"] == "ho"


def test_an_item_that_code_puts_in_the_place_of_one_is_the_input() -> None:
    [said] = items_of(message_of(SAID))
    said.raw_item = {"role": "assistant", "content": "ho"}
    assert said.to_input_item() == said.shown_item() == {"role": "assistant", "content": "ho"}
    answer = response(ModelAnswer(message=message_of(SAID)))
    answer.output = [CALL]
    assert answer.to_input_items() == [CALL.model_dump(exclude_unset=True)]


def test_a_thread_that_has_missed_an_item_gets_the_one_that_another_has_made() -> None:
    [said] = items_of(message_of(SAID))
    answer = response(ModelAnswer(message=message_of(SAID)))
    for owner, name in ((said, "raw_item"), (answer, "output")):
        made = getattr(owner, name)
        missed: Any = owner
        assert missed.__getattr__(name) is made


def test_unread_and_read_items_survive_copies() -> None:
    for _ in range(2):
        items = items_of(message_of(SAID, CALL))
        kept = pickle.loads(pickle.dumps([vars(each) for each in copy.deepcopy(items)]))
        assert [each["_unread"].id for each in kept] == ["msg_1", "fc_1"]
        assert [each.raw_item for each in copy.deepcopy(items)] == [SAID, CALL]
        made = pickle.loads(pickle.dumps([each.raw_item for each in items]))
        assert made == [SAID, CALL]
        assert [each.model_dump(exclude_unset=True) for each in made] == AS_INPUT
        answer = response(ModelAnswer(message=message_of(SAID, CALL)))
        assert pickle.loads(pickle.dumps(answer)).output == [SAID, CALL]
        assert answer == copy.copy(answer)


def test_what_the_package_does_not_know_is_a_dict_and_so_is_input() -> None:
    action = {"type": "search", "query": "q"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    odd = {"type": "odd_call", "id": "o_1"}
    items = items_of(assistant_message([search, odd]), user("more"))
    assert isinstance(items[0].raw_item, ResponseFunctionWebSearch)
    assert items[0].to_input_item() == search
    assert isinstance(items[1].raw_item, RawItem)
    assert items[1].raw_item == odd
    assert isinstance(items[2], InputItem)
    assert items[2].raw_item == {"role": "user", "content": "more"}


def test_a_member_that_the_package_names_otherwise_keeps_its_name() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"}
    called = {**call, "async": True}
    assert plain(typed(called)) == called


def test_ids_stay_with_their_calls() -> None:
    message = message_of(SAID, CALL, OTHER)
    quiet = message.model_copy(update={"calls": ()})
    renamed = message.model_copy(
        update={
            "calls": tuple(each.model_copy(update={"id": f"n{each.id}"}) for each in message.calls)
        }
    )
    assert [each.id for each in to_output_items(quiet)] == ["msg_1"]
    assert [each.id for each in to_output_items(renamed)] == ["msg_1", "fc_1", "fc_2"]
    twice = message_of(SAID, CALL, CALL.model_copy(update={"id": "fc_0"}), OTHER)
    once = read(ModelAnswer(message=twice), STEPS).message
    assert [each.id for each in to_output_items(once)] == ["msg_1", "fc_1", "fc_2"]
    for nothing in (None, FAKE_ID):
        assert message_of(CALL.model_copy(update={"id": nothing})).item_ids == ()
