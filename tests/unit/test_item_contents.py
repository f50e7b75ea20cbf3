"""Parts of contents that a program gives: none gets lost on its way to a model."""

from typing import Any

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.models import from_response_items
from holdfast.models.openai.chat import chat_message, result_files
from holdfast.values.messages import FilePart, ImagePart, Message, TextPart

TEXT = {"type": "input_text", "text": "What?"}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
URL = "https://example.org/cat.png"
OF_CHAT = [
    {"type": "text", "text": "What?"},
    {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
]
"""Text and image in the words of Chat Completions."""


def asked(*parts: Any) -> Message:
    """Read a message of a user."""
    [message] = from_response_items([{"role": "user", "content": [*parts]}])
    return message


def test_sound_reaches_chat_completions_in_its_place() -> None:
    [sent] = chat_message(asked(SOUND, TEXT, SOUND))
    assert sent["content"] == [SOUND, {"type": "text", "text": "What?"}, SOUND]
    [alone] = chat_message(asked(SOUND))
    assert alone["content"] == [SOUND]


def test_parts_in_the_words_of_chat_completions_are_read() -> None:
    message = asked(*OF_CHAT)
    image = ImagePart(kind="image", url=URL, detail="low")
    assert message.content == (TextPart(kind="text", text="What?"), image)
    [sent] = chat_message(message)
    assert sent["content"] == OF_CHAT


@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "input_video", "url": "x"}, "does not take a part of type 'input_video'"),
        ({"type": "input_image"}, "names no image"),
        ({"type": "input_image", "image_url": {"url": URL}}, "names no image"),
        ({"type": "image_url", "image_url": URL}, "names no image"),
        ({"type": "text", "text": 1}, "does not take a part of type 'text'"),
        ({"type": "input_file"}, "neither by data nor by an id"),
    ],
)
def test_what_chat_completions_do_not_take_is_refused_and_not_left_out(
    role: str, part: dict[str, Any], said: str
) -> None:
    [message] = from_response_items([{"role": role, "content": [TEXT, part]}])
    with pytest.raises(InvalidArgumentError, match=said):
        chat_message(message)


def test_sound_in_a_result_follows_it() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": [TEXT, SOUND]}
    [message] = from_response_items([item])
    [sent] = chat_message(message)
    assert sent["content"] == "What?"
    assert result_files(message) == [SOUND]


def test_chat_completions_are_told_the_highest_detail_that_they_know() -> None:
    image = ImagePart(kind="image", url=URL, detail="original")
    [sent] = chat_message(Message(role="user", content=(image,)))
    assert sent["content"] == [{"type": "image_url", "image_url": {"url": URL, "detail": "high"}}]


def test_a_file_that_is_named_by_its_address_is_refused_by_chat_completions() -> None:
    part = FilePart(kind="file", url="https://example.org/a.pdf")
    with pytest.raises(InvalidArgumentError, match="named by its address 'https://example"):
        chat_message(Message(role="user", content=(part,)))
