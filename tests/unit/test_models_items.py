"""Messages as items of the Responses API, and back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidArgumentError
from holdfast.models import from_response_items, to_response_items
from holdfast.models.openai.item_contents import without_empty_logprobs
from holdfast.models.openai.items import assistant_message, shown_items
from holdfast.values.messages import ImagePart, Message, TextPart, ToolCall, assistant, user

Item = dict[str, Any]

words = st.text(max_size=12)
keys = st.text(alphabet="abcdef_", min_size=1, max_size=6)
parts = st.lists(
    st.one_of(
        st.builds(TextPart, kind=st.just("text"), text=words),
        st.builds(ImagePart, kind=st.just("image"), url=words),
        st.builds(ImagePart, kind=st.just("image"), file_id=st.text(min_size=1, max_size=9)),
    ),
    max_size=3,
).map(tuple)
contents = st.one_of(words, parts)
extras = st.fixed_dictionaries(
    {"type": st.sampled_from(["reasoning", "web_search_call", "something_new"])},
    optional={"id": words, "summary": st.lists(st.fixed_dictionaries({"text": words}))},
)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """One user turn and what follows it, calls with their results."""
    told = draw(st.sampled_from(["user", "system"]))
    messages = [Message.model_validate({"role": told, "content": draw(contents)})]
    for step in range(draw(st.integers(0, 2))):
        ids = [f"call_{number}_{step}_{n}" for n in range(draw(st.integers(1, 3)))]
        calls = tuple(ToolCall(id=each, name=draw(keys), arguments=draw(words)) for each in ids)
        items = tuple(draw(st.lists(extras, max_size=2)))
        messages.append(Message(role="assistant", content=draw(words), calls=calls, items=items))
        messages += [
            Message(role="tool", call_id=each, content=draw(contents), is_error=draw(st.booleans()))
            for each in ids
        ]
    if draw(st.booleans()):
        text_only = st.lists(st.builds(TextPart, kind=st.just("text"), text=words), max_size=2)
        content = draw(st.one_of(words, text_only.map(tuple)))
        if content:  # an assistant that says nothing is no item
            messages.append(Message(role="assistant", content=content))
    return messages


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    count = draw(st.integers(0, 4))
    return tuple(message for number in range(count) for message in draw(turns(number)))


@given(conversations())
def test_messages_survive_the_way_through_items(messages: tuple[Message, ...]) -> None:
    assert from_response_items(to_response_items(messages)) == messages


texts = st.fixed_dictionaries({"type": st.just("input_text"), "text": words})
images = st.fixed_dictionaries(
    {
        "type": st.just("input_image"),
        "image_url": words,
        "detail": st.sampled_from(["auto", "low", "high"]),
    },
    optional={"file_id": words},
)
files = st.fixed_dictionaries({"type": st.just("input_file"), "file_id": words})
said = st.fixed_dictionaries(
    {
        "type": st.just("output_text"),
        "text": words,
        "annotations": st.lists(st.fixed_dictionaries({"url": words}), max_size=1),
    }
)
refused = st.fixed_dictionaries({"type": st.just("refusal"), "refusal": words})
easy = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "system"]),
        "content": st.one_of(words, st.lists(st.one_of(texts, images, files), max_size=3)),
    }
)
full = st.fixed_dictionaries(
    {
        "type": st.just("message"),
        "role": st.just("assistant"),
        "content": st.lists(st.one_of(said, refused), max_size=2),
    },
    optional={"id": words, "status": st.just("completed"), "phase": st.just("commentary")},
)
output = st.fixed_dictionaries(
    {
        "type": st.just("function_call_output"),
        "call_id": words,
        "output": st.one_of(words, st.lists(st.one_of(texts, images, files), max_size=2)),
    },
    optional={"id": words, "status": st.sampled_from(["completed", "incomplete"])},
)


@st.composite
def item_lists(draw: st.DrawFn) -> list[Item]:
    """Any order of items that the API knows, each call with an id of its own."""
    items: list[Item] = draw(st.lists(st.one_of(easy, full, output, extras), max_size=8))
    for number in range(draw(st.integers(0, 4))):
        call: Item = {
            "type": "function_call",
            "call_id": f"call_{number}",
            "name": draw(keys),
            "arguments": draw(words),
        }
        if draw(st.booleans()):
            call |= {"id": f"fc_{number}", "status": "completed"}
        items.insert(draw(st.integers(0, len(items))), call)
    return items


@given(item_lists())
def test_items_survive_the_way_through_messages(items: list[Item]) -> None:
    read = from_response_items(items)
    assert named(shown_items(read)) == named(items)
    assert unnamed(to_response_items(read)) == unnamed(items)


def named(items: list[Item]) -> list[Item]:
    """Write items without the members that are shown beside the id of an answer."""
    return [without_empty_logprobs(item) if "id" in item else item for item in items]


def unnamed(items: list[Item]) -> list[Item]:
    """Write items without what a provider need not be sent again."""
    return [plain(item) for item in items]


def plain(item: Item) -> Item:
    """Write an item of an answer by what it says."""
    if item.get("type") == "function_call":
        return {key: item[key] for key in item if key not in ("id", "status")}
    if item.get("role") != "assistant":
        return item
    parts: Any = item["content"]
    if not isinstance(parts, str) and [part["type"] for part in parts] == ["output_text"]:
        parts = parts[0]["text"]
    return {"role": "assistant", "content": parts}


def said_item(text: str, **more: Any) -> Item:
    part: Item = {"type": "output_text", "text": text, "annotations": []}
    item: Item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return item | more


def call_item(call_id: str, **more: Any) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}"} | more


def test_plain_answer_keeps_no_items() -> None:
    message = assistant_message([said_item("Hi", id="msg_1"), call_item("c1", id="fc_1")])
    said = assistant("Hi", calls=(ToolCall(id="c1", name="add"),))
    assert message == said.model_copy(update={"item_ids": ("msg_1", "fc_1")})
    assert to_response_items([message]) == to_response_items([said])


@pytest.mark.parametrize(
    "answer",
    [
        [{"type": "reasoning", "id": "rs_1", "summary": []}, said_item("Hi", id="msg_1")],
        [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            call_item("c1", id="fc_1"),
            {"type": "reasoning", "id": "rs_2", "summary": []},
            call_item("c2", id="fc_2"),
        ],
        [said_item("First", id="m1", phase="commentary"), said_item("Then", id="m2")],
        [{"type": "web_search_call", "id": "ws_1"}, said_item("Found", id="m1")],
        [said_item("", content=[{"type": "refusal", "refusal": "No."}])],
        [said_item("Look", phase="commentary"), call_item("c1")],
    ],
)
def test_answer_is_handed_back_as_it_came(answer: list[Item]) -> None:
    assert to_response_items([assistant_message(answer)]) == answer


def test_a_call_taken_out_of_a_message_is_not_sent() -> None:
    reasoning: Item = {"type": "reasoning", "id": "rs_1", "summary": []}
    message = assistant_message([reasoning, call_item("c1", id="f1"), call_item("c2", id="f2")])
    edited = message.model_copy(
        update={"calls": (ToolCall(id="c2", name="add", arguments='{"a": 1}'),)}
    )
    assert to_response_items([edited]) == [
        reasoning,
        call_item("c2", id="f2", arguments='{"a": 1}'),
    ]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("hello", "type is str"),
        ({}, "neither a 'type' nor a 'role'"),
        ({"role": "robot", "content": "x"}, "role is 'robot'"),
        ({"role": "user"}, "'content' is missing"),
        ({"role": "user", "content": 3}, "'content' is a int"),
        ({"role": "user", "content": ["x"]}, "part 0 of its 'content'"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "no text in 'text'"),
        ({"type": "function_call", "call_id": "1", "name": "x"}, "'arguments' is missing"),
        ({"type": "function_call", "call_id": None, "name": "x"}, "'call_id' is a NoneType"),
        ({"type": "function_call_output", "call_id": "1"}, "'output' is missing"),
        (
            {"type": "custom_tool_call_output", "call_id": "1", "output": ["x"]},
            "part 0 of its 'output'",
        ),
    ],
)
def test_bad_item_is_named_by_index_and_reason(item: object, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Item 1 of the input list") as caught:
        from_response_items([{"role": "user", "content": "x"}, item])
    assert reason in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"image_url": None, "detail": None}])
def test_an_image_by_its_id_needs_no_second_copy(more: Item) -> None:
    given = {"type": "input_image", "file_id": "file_1", **more}
    part = ImagePart(kind="image", file_id="file_1")
    output: Item = {"type": "function_call_output", "call_id": "c1", "output": [given]}
    messages = from_response_items([{"role": "user", "content": [given]}, output])
    assert messages == (user("", (part,)), Message(role="tool", call_id="c1", content=(part,)))
