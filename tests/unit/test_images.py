"""Images: what is one, how it is named, and how it gets into messages and out of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Image
from holdfast.archive.contents import refer, refer_all, rehydrate, store_image
from holdfast.archive.segments import Recent
from holdfast.errors import InvalidArgumentError
from holdfast.models import from_response_items, to_response_items
from holdfast.models.openai.chat import chat_message, result_files
from holdfast.values.base import digest
from holdfast.values.messages import (
    Blob,
    FilePart,
    ImagePart,
    ImageRef,
    Message,
    TextPart,
    assistant,
    shown,
    user,
)
from holdfast.values.parts import images
from holdfast.values.parts.images import Kind, address, data_url, read_data_url, sniff
from tests.support.pictures import png, url_of

PNG = png()
REF = ImageRef(sha256="ab12cd34" + "0" * 56, size=11_900, media_type="image/png")
PART = ImagePart(kind="image", stored=REF)
KINDS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"x" * 20,
    "image/gif": b"GIF89a" + b"x" * 20,
    "image/webp": b"RIFF\0\0\0\0WEBPVP8 ",
}


class Shelf:
    """An archive in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def aput(self, data: bytes) -> str:
        self.blobs[digest(data)] = data
        return digest(data)

    async def amac(self, text: str) -> str:
        return digest(f"key {text}".encode())[:32]

    async def data(self, kind: Kind, ref: ImageRef) -> str:
        assert kind == "image"
        return data_url(ref.media_type, self.blobs[ref.sha256])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


# ---- making one


@pytest.mark.parametrize(("media_type", "data"), KINDS.items())
def test_the_media_type_is_found_in_the_first_bytes(media_type: str, data: bytes) -> None:
    assert sniff(data) == media_type
    assert Image.from_bytes(data).media_type == media_type
    assert Image.from_bytes(data, media_type).data == data


def test_a_file_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)
    image = Image.from_path(path, detail="high")
    path.unlink()
    assert (image.data, image.media_type, image.detail) == (PNG, "image/png", "high")


def test_a_data_url_is_decoded_and_an_address_is_kept() -> None:
    assert Image.from_url(url_of(PNG)) == Image.from_bytes(PNG)
    web = Image.from_url("https://example.com/cat.png", detail="low")
    assert (web.url, web.data, web.detail) == ("https://example.com/cat.png", b"", "low")


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: Image.from_path("nowhere/cat.png"), r"'nowhere/cat\.png' cannot be read: No such"),
    (lambda: Image.from_path(Path(__file__).parent), "cannot be read: Is a directory"),
    (lambda: Image.from_path(__file__), "is not a PNG, JPEG, GIF or WebP image"),
    (lambda: Image.from_bytes(b""), "its 0 bytes begin with nothing"),
    (lambda: Image.from_bytes(b"%PDF-1.7"), "begin with 25 50 44 46 2d 31 2e 37"),
    (lambda: Image.from_bytes(PNG, "image/gif"), "said to be 'image/gif', but .* of image/png"),
    (lambda: Image.from_bytes("text"), "as bytes, not as str"),  # type: ignore[arg-type]
    (lambda: Image.from_bytes(PNG, detail="much"), "detail='much' is not one of"),  # type: ignore[arg-type]
    (lambda: Image.from_url("http://example.com/cat.png"), "begins with https: or data:"),
    (lambda: Image.from_url("cat.png"), "For a file use Image.from_path"),
    (lambda: Image.from_url("https://"), "begins with https: or data:"),
    (lambda: Image.from_url("https://example.com/" + "x" * 9000), "at most 8192 characters"),
    (lambda: Image.from_url("data:image/png;base64,a?"), "does not hold Base64"),
    (lambda: Image.from_url("data:image/png"), "is not a data: URL"),
]


@pytest.mark.parametrize(("make", "reason"), BAD)
def test_what_is_no_image_is_refused(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        make()


def test_a_large_image_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "LARGEST_IMAGE_BYTES", 50)
    path = tmp_path / "large.png"
    path.write_bytes(PNG)
    with pytest.raises(InvalidArgumentError, match=r"large\.png' has \d+ bytes; .* at most 50"):
        Image.from_path(path)
    with pytest.raises(InvalidArgumentError, match="at most 50"):
        Image.from_bytes(PNG)


# ---- names


@given(st.binary(max_size=200), st.sampled_from([*KINDS, "image/bmp"]))
def test_data_urls_give_back_what_they_hold(data: bytes, media_type: str) -> None:
    assert read_data_url(data_url(media_type, data)) == (media_type, data)


details = st.sampled_from(["auto", "low", "high", "original"])
refs = st.builds(
    ImageRef,
    sha256=st.binary(max_size=9).map(digest),
    size=st.integers(0, 10**9),
    media_type=st.sampled_from([*KINDS, "image/bmp", "application/octet-stream"]),
    mac=st.sampled_from(["", "0123456789abcdef" * 2]),
)
named = st.builds(ImagePart, kind=st.just("image"), stored=refs, detail=details)


@given(st.lists(named, min_size=1, max_size=3).map(tuple))
def test_references_survive_items_without_their_bytes(parts: tuple[ImagePart, ...]) -> None:
    messages = (user("q", parts), Message(role="tool", call_id="1", content=parts))
    assert from_response_items(to_response_items(messages)) == messages


def test_a_placeholder_names_kind_size_and_digest() -> None:
    assert str(PART) == "[image png 12 kB sha256 ab12cd34..]"
    assert shown((TextPart(kind="text", text="see"), PART)) == f"see\n{PART}"
    assert str(ImagePart(kind="image", url="https://a.b/c.png")) == "[image https://a.b/c.png]"
    assert str(ImagePart(kind="image", url=url_of(PNG))) == "[image]"
    blob = Blob(sha256="f" * 64, size=9)
    stored = TextPart(kind="text", text="", stored=blob)
    assert shown((stored,)) == shown(blob) == f"[9 bytes in the archive as {'f' * 64}]"


# ---- into the archive and out of it


async def test_a_message_gives_back_what_it_was_given(shelf: Shelf) -> None:
    given = user("q", (ImagePart(kind="image", url=url_of(PNG, "image/bmp"), detail="high"),))
    plain = assistant("no parts")
    [kept, same] = await refer_all([given, plain], shelf)
    assert same == plain
    assert "iVBOR" not in str(kept.wire())
    assert await rehydrate(kept, shelf.data) == given


AUDIO: dict[str, Any] = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}


def item_with(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [AUDIO, *parts]}


async def test_references_in_items_that_are_kept_whole_are_resolved(shelf: Shelf) -> None:
    part = await store_image(Image.from_bytes(PNG), shelf)
    named = {"type": "input_image", "image_url": address(part), "detail": "auto"}
    [kept] = await refer_all(from_response_items([item_with(named)]), shelf)
    assert kept.items == (item_with(named),)
    whole = await rehydrate(kept, shelf.data)
    assert whole.items == (item_with({**named, "image_url": url_of(PNG)}),)
    plain = Message(role="user", items=(item_with(),))
    assert await rehydrate(plain, shelf.data) is plain


@pytest.mark.parametrize("url", ["holdfast:nonsense", address(PART)])
@pytest.mark.parametrize("member", ["image_url", "file_data"])
async def test_a_reference_that_nobody_made_is_refused_in_items_too(
    shelf: Shelf, url: str, member: str
) -> None:
    item = {"type": "something_new", "output": [{"inner": {member: url}}]}
    with pytest.raises(InvalidArgumentError, match="not a reference that was made for this"):
        await refer_all(from_response_items([item]), shelf)


@pytest.mark.parametrize(
    "change", [{"sha256": "0" * 64}, {"size": 1}, {"media_type": "image/gif"}, {"mac": "é"}]
)
async def test_a_reference_counts_for_what_it_was_made_for(
    shelf: Shelf, change: dict[str, Any]
) -> None:
    part = await store_image(Image.from_bytes(PNG), shelf)
    assert part.stored is not None
    assert await refer(part, shelf) == part
    other = part.model_copy(update={"stored": part.stored.model_copy(update=change)})
    with pytest.raises(InvalidArgumentError, match="its code"):
        await refer(other, shelf)


BLOB = Blob(sha256="f" * 64, size=9)


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", content=BLOB),
        Message(role="user", content=(TextPart(kind="text", text="", stored=BLOB),)),
        Message(role="assistant", content="a", kept=BLOB),
    ],
)
async def test_a_given_message_cannot_name_a_blob_in_the_place_of_its_text(
    shelf: Shelf, message: Message
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"names the blob ffffffff\.\."):
        await refer_all([message], shelf)


# ---- memory


def test_what_was_used_least_lately_is_forgotten() -> None:
    recent = Recent[str](250)
    recent.keep("a", "x" * 100, 100)
    recent.keep("b", "y" * 100, 100)
    assert recent.get("a") == "x" * 100
    recent.keep("c", "z" * 100, 100)
    assert [recent.get(name) is None for name in "abc"] == [False, True, False]
    recent.keep("d", "w" * 1000, 1000)  # one text may pass the bound
    assert [recent.get(name) is None for name in "abcd"] == [True, True, True, False]


# ---- parts of contents that a program gives: none gets lost on its way to a model

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
