"""Items of a model as objects of the `openai` package."""

import copy
import json
import pickle
from typing import Any

import pytest
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
)

from holdfast import Agent
from holdfast.agents.items.run_items import InputItem, RawItem, RunItem
from holdfast.agents.runs.item_reading import message_items
from holdfast.agents.runs.results import response
from holdfast.agents.runs.teams import team_of
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.item_contents import FAKE_ID
from holdfast.models.openai.items import (
    assistant_message,
    from_response_items,
    made_items,
    shown_items,
    to_response_items,
)
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers.context.journal import read

ANN = Agent("Ann")
TEXT = ResponseOutputText(text="hi", type="output_text", annotations=[], logprobs=[])
SAID = ResponseOutputMessage(
    id="msg_1", type="message", role="assistant", status="completed", content=[TEXT]
)
CALL = ResponseFunctionToolCall(
    id="fc_1", type="function_call", call_id="c1", name="pay", arguments="{}", status="completed"
)
OTHER = CALL.model_copy(update={"id": "fc_2", "call_id": "c2"})
THOUGHT = ResponseReasoningItem(id="rs_1", type="reasoning", summary=[])
REFUSED = SAID.model_copy(
    update={"content": [ResponseOutputRefusal(type="refusal", refusal="No.")]}
)
ASKED = {"role": "user", "content": "q"}


def message_of(*given: Any) -> Message:
    return assistant_message([each.model_dump(exclude_unset=True) for each in given])


def items_of(*messages: Message) -> list[RunItem]:
    return message_items(messages, ANN, team_of(ANN))


def text(data: Any) -> str:
    """Write items as JSON, which has the order of their members."""
    return json.dumps(data)


@pytest.mark.parametrize("given", [(SAID, CALL), (THOUGHT, SAID, CALL), (THOUGHT, CALL)])
def test_an_item_is_input_to_the_byte_as_the_provider_has_sent_it(given: tuple[Any, ...]) -> None:
    sent = [each.model_dump(exclude_unset=True) for each in given]
    message = message_of(*given)
    items, answer = items_of(message), response(ModelAnswer(message=message))
    for _ in range(2):  # before and after they were read
        assert text([each.to_input_item() for each in items]) == text(sent)
        assert text(answer.to_input_items()) == text(sent)
        assert text([each.shown_item() for each in items]) == text(sent)
        assert [each.raw_item for each in items] == list(given) == answer.output


@pytest.mark.parametrize("given", [(SAID, CALL), (THOUGHT, SAID, CALL), (REFUSED, CALL), (CALL,)])
def test_items_that_are_given_again_are_the_answer_that_they_were(given: tuple[Any, ...]) -> None:
    message = message_of(*given)
    again = from_response_items([each.to_input_item() for each in items_of(message)])
    assert again == (message,)
    assert text(shown_items(again)) == text([each.to_input_item() for each in items_of(message)])


def test_plain_ids_are_no_part_of_what_a_model_is_sent() -> None:
    given = [each.to_input_item() for each in items_of(message_of(SAID, CALL))]
    plain: list[dict[str, Any]] = [
        {"content": "hi", "role": "assistant"},
        {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"},
    ]
    assert to_response_items(from_response_items(given)) == plain
    odd = {**given[0], "status": "in_progress"}
    assert to_response_items(from_response_items([odd]))[0].keys() == odd.keys() - {"id"}
    assert shown_items(from_response_items([odd])) == [odd]


def test_ids_beside_reasoning_are_sent_also_in_the_messages_right_after_it() -> None:
    thought, said = (each.to_input_item() for each in items_of(message_of(THOUGHT, SAID)))
    later = {**said, "id": "msg_2"}
    sent = to_response_items(from_response_items([thought, said, later, ASKED, later]))
    assert [each.get("id") for each in sent] == ["rs_1", "msg_1", "msg_2", None, None]


def test_items_of_a_provider_without_ids_have_that_of_the_sdk_and_it_is_not_sent() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    message = assistant("hi", calls=(ToolCall(id="c1", name="pay"),))
    message = message.model_copy(update={"items": (thought,)})
    items = items_of(message)
    assert [each.raw_item.id for each in items] == [FAKE_ID] * 3
    assert items[1].raw_item == SAID.model_copy(update={"id": FAKE_ID})
    assert items[2].raw_item == CALL.model_copy(update={"id": FAKE_ID, "status": None})
    given = [each.to_input_item() for each in items]
    again = from_response_items(given)
    assert to_response_items(again) == to_response_items([message])
    assert text(shown_items(again)) == text(given)


def test_an_item_that_code_puts_in_the_place_of_one_is_the_input() -> None:
    [said] = items_of(message_of(SAID))
    said.raw_item = {"role": "assistant", "content": "ho"}
    assert said.to_input_item() == said.shown_item() == {"role": "assistant", "content": "ho"}
    answer = response(ModelAnswer(message=message_of(SAID)))
    answer.output = [CALL]
    assert answer.to_input_items() == [CALL.model_dump(exclude_unset=True)]


def test_unread_and_read_items_survive_copies() -> None:
    for _ in range(2):
        items = items_of(message_of(SAID, CALL))
        kept = pickle.loads(pickle.dumps([vars(each) for each in copy.deepcopy(items)]))
        assert [each["_unread"].item["id"] for each in kept] == ["msg_1", "fc_1"]
        assert [each.raw_item for each in copy.deepcopy(items)] == [SAID, CALL]
        assert pickle.loads(pickle.dumps([each.raw_item for each in items])) == [SAID, CALL]
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


def test_ids_stay_with_their_calls() -> None:
    message = message_of(SAID, CALL, OTHER)
    quiet = message.model_copy(update={"calls": ()})
    renamed = message.model_copy(
        update={
            "calls": tuple(each.model_copy(update={"id": f"n{each.id}"}) for each in message.calls)
        }
    )
    assert [each["id"] for each in made_items(quiet)] == ["msg_1"]
    assert [each["id"] for each in made_items(renamed)] == ["msg_1", "fc_1", "fc_2"]
    twice = message_of(SAID, CALL, CALL.model_copy(update={"id": "fc_0"}), OTHER)
    once = read(ModelAnswer(message=twice), renames=True).message
    assert [each["id"] for each in made_items(once)] == ["msg_1", "fc_1", "fc_2"]
    for nothing in (None, FAKE_ID):
        assert message_of(CALL.model_copy(update={"id": nothing})).item_ids == ()
