"""The contents of items: text and parts of the Responses API, written and read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, assert_never

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import APPROVAL_REQUEST
from holdfast.models.openai.local_items import LOCAL_CALLS, LOCAL_RESULTS, local_problem
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import as_object, as_text, is_array, is_object
from holdfast.values.messages import Blob, Content, FilePart, ImagePart, Message, Part, TextPart
from holdfast.values.parts.images import address, file_data, file_with, read_image
from holdfast.values.text.shown import type_shown

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = {
    "function_call": ("call_id", "name", "arguments"),
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
}
"""Members of calls that must be texts."""

FAKE_ID = "__fake_id__"
"""Id that the Agents SDK gives items for which the provider has none."""

_TEXT_FIELDS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}


def kind_of(item: dict[str, Json]) -> str:
    """Return an item's type; the easy form `{role, content}` is a message."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else ""


def check_item(index: int, item: object) -> dict[str, Json]:
    """Return `item` when it can be read as an item of an input list.

    Raises:
        InvalidArgumentError: It cannot; the text names the index and what is wrong.
    """
    if not is_object(item):
        _refuse(index, f"its type is {type_shown(item)}, not a dict")
    if wrong := gate.flaw(item, "it"):
        _refuse(index, wrong.removesuffix("."))
    kind = kind_of(item)
    match kind:
        case "":
            _refuse(index, "it has neither a 'type' nor a 'role'")
        case "message":
            if as_text(item.get("role")) not in _ROLES:
                _refuse(index, f"its role is {item.get('role')!r}, not one of {', '.join(_ROLES)}")
            _check_content(index, item, "content")
        case "function_call" | "mcp_approval_request":
            for key in _TEXTS[kind]:
                _check_text(index, item, key)
        case "function_call_output":
            _check_text(index, item, "call_id")
            _check_content(index, item, "output")
        case "mcp_approval_response":
            _check_text(index, item, "approval_request_id")
            if not isinstance(item.get("approve"), bool):
                _refuse(index, "its 'approve' is neither true nor false")
        case _ if kind in LOCAL_CALLS | LOCAL_RESULTS:
            _check_local(index, kind, item)
        case _:
            pass
    return item


def has_refusal(item: dict[str, Json]) -> bool:
    """Whether a message holds a refusal of the model."""
    content: Json = item["content"]
    return is_array(content) and any(part.get("type") == "refusal" for part in content)


def has_logprobs(item: dict[str, Json]) -> bool:
    """Whether a message holds log probabilities of its tokens."""
    content: Json = item.get("content")
    return is_array(content) and any(part.get("logprobs") for part in content)


def has_annotations(item: dict[str, Json]) -> bool:
    """Whether a message holds annotations, such as citations."""
    content: Json = item.get("content")
    return is_array(content) and any(
        is_object(part) and part.get("annotations") for part in content
    )


def is_cut_off(item: dict[str, Json]) -> bool:
    """Whether an item of an answer has another status than "completed"."""
    return kind_of(item) in ("message", "function_call") and (
        item.get("status") not in (None, "completed")
    )


def _check_text(index: int, item: dict[str, Json], key: str) -> None:
    if not isinstance(item.get(key), str):
        _refuse(index, f"its {key!r} is {_field_shown(item, key)}, not a text")


def _check_local(index: int, kind: str, item: dict[str, Json]) -> None:
    if wrong := local_problem(item):
        _refuse(index, wrong)
    if kind == "custom_tool_call_output" and is_array(item.get("output")):
        _check_content(index, item, "output")  # read as parts, as the output of a function


def _check_content(index: int, item: dict[str, Json], key: str) -> None:
    content: object = item.get(key)
    if isinstance(content, str):
        return
    if not is_array(content):
        _refuse(
            index, f"its {key!r} is {_field_shown(item, key)}, neither a text nor a list of parts"
        )
    for place, part in enumerate(content):
        if not is_object(part) or not isinstance(part.get("type"), str):
            _refuse(index, f"part {place} of its {key!r} is not a dict with a 'type'")
        field = _TEXT_FIELDS.get(part["type"])
        if field is not None and not isinstance(part.get(field), str):
            _refuse(index, f"part {place} of its {key!r} has no text in {field!r}")


def _field_shown(item: dict[str, Json], key: str) -> str:
    return f"a {type(item[key]).__name__}" if key in item else "missing"


def _refuse(index: int, reason: str) -> NoReturn:
    raise InvalidArgumentError(
        f"Item {index} of the input list cannot be used: {reason}. Items are messages (role and"
        " content), function_call, function_call_output, or other items of the Responses API."
    )


Item = dict[str, Json]
_OF_FILES = ("file_data", "file_url", "file_id", "filename")
_IMAGES_AND_FILES = ("input_image", "image_url", "input_file")

_WITH_PARTS = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}
"""Type of an item to the member that may be a list of parts."""


_ORDERS: dict[str, tuple[str, ...]] = {
    "message": ("id", "content", "role", "status", "type"),
    "output_text": ("annotations", "text", "type", "logprobs"),
    "function_call": ("arguments", "call_id", "name", "type", "id", "async", "caller", "namespace"),
    "function_call_output": ("call_id", "output", "type"),
    "reasoning": ("id", "summary", "type", "content", "encrypted_content"),
}
"""Type of an item or part to its members, as the `openai` package and so the Agents SDK order them;
others follow."""

_CALL_ID = "fc_"
"""How ids of function calls begin that the Responses API has given; it gives a status as well."""


def answer_parts(content: Json) -> Json:
    """Return the content of a model's message as parts, as the API writes it."""
    if not isinstance(content, str):
        return content
    return [{"type": "output_text", "text": content, "annotations": list[Json]()}]


def whole_item(item: Item, shown_id: str = "") -> Item:
    """Return an item of an answer as the API writes it, with all members, in the SDK's order.

    Args:
        item: The item, as a model is sent it.
        shown_id: The provider's id of it, if it has no id of its own; else empty.
    """
    kind = kind_of(item)
    if kind not in _ORDERS:
        return item
    found = {"id": shown_id, **item} if shown_id else item
    if kind == "message" and item.get("role") == "assistant":
        usual: Item = {} if "type" in item else {"status": "completed", "type": "message"}
        parts = [_whole_part(part) for part in answer_parts(item["content"])]
        found = {**usual, **found, "content": parts}
    elif kind == "function_call" and shown_id.startswith(_CALL_ID):
        found = {"status": "completed", **found}
    return _ordered(found, kind)


def _whole_part(part: Json) -> Json:
    if not is_object(part) or part.get("type") != "output_text":
        return part
    return _ordered({"annotations": [], "logprobs": [], **part}, "output_text")


def _ordered(item: Item, kind: str) -> Item:
    first = [key for key in _ORDERS[kind] if key in item]
    return {key: item[key] for key in dict.fromkeys((*first, *item))}


def without_id(item: Item) -> tuple[Item, str]:
    """Take the id out of an item of an answer, with what `whole_item` adds next to it.

    Returns:
        The item, and the id; empty if there is no id, or one that not only readers need.
    """
    own, kind = as_text(item.get("id")), kind_of(item)
    is_apart = kind in ("message", "function_call") or (own == FAKE_ID and kind != APPROVAL_REQUEST)
    if not own or not is_apart:
        return item, ""
    rest = {key: item[key] for key in item if key != "id"}
    if kind == "message":
        easy: Item = {"content": text_of(read_content(item)), "role": "assistant"}
        whole = {**item, "content": answer_parts(item["content"])}
        is_plain = easy["content"] and without_empty_logprobs(whole_item(easy, own)) == whole
        return (easy if is_plain else rest), own
    if kind == "function_call" and own.startswith(_CALL_ID) and rest.get("status") == "completed":
        del rest["status"]
    return rest, own


def write_content(content: Content, text_type: str) -> Json:
    """Write a content as the Responses API takes it: one text, or parts with this type of text.

    Raises:
        InvalidArgumentError: As for `written_content`.
    """
    return written_content(content, lambda part: _write_part(part, text_type))


def message_item(role: str, content: Content) -> Item:
    """Write a message by its content alone."""
    text_type = "output_text" if role == "assistant" else "input_text"
    return {"content": write_content(content, text_type), "role": role}


def output_item(message: Message) -> Item:
    """Write a tool's result; a failure has a status."""
    item: Item = {
        "type": "function_call_output",
        "call_id": message.call_id,
        "output": write_content(message.content, "input_text"),
    }
    return {**item, "status": "incomplete"} if message.is_error else item


def without_status(item: Item) -> Item:
    """Return an item; a tool's result without its status, as a failure has one."""
    if kind_of(item) != "function_call_output":
        return item
    return {key: item[key] for key in item if key != "status"}


def written_content(content: Content, write_part: Callable[[Part], Json]) -> Json:
    """Write a content: one text, or its parts.

    Args:
        content: The content.
        write_part: Writes a part as an API takes it.

    Raises:
        InvalidArgumentError: It is a reference to the archive.
    """
    match content:
        case str(text):
            return text
        case Blob():
            raise InvalidArgumentError(
                f"A message's content is still the archive reference {content.sha256!r}. Resolve"
                " references before the messages are sent."
            )
        case parts:
            return [write_part(part) for part in parts]


def _write_part(part: Part, text_type: str) -> Item:
    match part:
        case TextPart(text=text):
            return {"type": text_type, "text": text}
        case ImagePart(file_id=file_id) if file_id:
            return {"type": "input_image", "file_id": file_id, "detail": part.detail}
        case ImagePart():
            return {"type": "input_image", "image_url": address(part), "detail": part.detail}
        case FilePart():
            known = {
                "file_data": file_data(part),
                "file_url": part.url,
                "file_id": part.file_id,
                "filename": part.filename,
            }
            return {"type": "input_file", **{key: known[key] for key in known if known[key]}}
        case _:
            assert_never(part)


def read_content(item: Item) -> Content:
    """Read an assistant message's content: the API's own form becomes one text."""
    content: Json = item["content"]
    if is_array(content) and "type" in item:
        return "".join(_part_text(part) for part in content)
    return read_parts(content)


def read_parts(content: Json) -> Content:
    """Read text or parts; parts that our form does not know are left out."""
    if not is_array(content):
        return as_text(content)
    return tuple(part for part in map(read_part, content) if part is not None)


def read_part(part: Item) -> Part | None:
    """Read a part, also in the words of Chat Completions; None for one that is not known."""
    match part.get("type"):
        case "input_text" | "output_text":
            return TextPart(kind="text", text=part["text"])
        case "text":
            text: Json = part.get("text")
            return TextPart(kind="text", text=text) if isinstance(text, str) else None
        case "refusal":
            return TextPart(kind="text", text=part["refusal"])
        case "input_image":
            return read_image(part)
        case "image_url":
            named = as_object(part.get("image_url"))
            return read_image({"image_url": named.get("url"), "detail": named.get("detail")})
        case "input_file":
            data, url, file_id, name = (as_text(part.get(key)) for key in _OF_FILES)
            return file_with(data, url=url, file_id=file_id, filename=name)
        case _:
            return None


def _part_text(part: Item) -> str:
    read = read_part(part)
    return read.text if isinstance(read, TextPart) else ""


def text_of(content: Content) -> str:
    """Return the text of a content, without what is not text."""
    return Message(role="assistant", content=content).text


def without_images(item: Item) -> Item:
    """Leave images and files out of a model's answer: it could name those of others."""
    content: Json = item.get("content")
    if kind_of(item) != "message" or not is_array(content):
        return item
    kept = [part for part in content if as_text(part.get("type")) not in _IMAGES_AND_FILES]
    return item if len(kept) == len(content) else {**item, "content": kept}


def without_empty_logprobs(item: Item) -> Item:
    """Leave out log probabilities that were not requested: the API gives an empty list then."""
    content: Json = item.get("content")
    if kind_of(item) != "message" or not is_array(content):
        return item
    return {**item, "content": [_without_empty(part) for part in content]}


def _without_empty(part: Json) -> Json:
    if is_object(part) and not part.get("logprobs"):
        return {key: part[key] for key in part if key != "logprobs"}
    return part


def all_parts(message: Message) -> Sequence[Part | Item]:
    """Return the parts of a content in order, with parts that only its item has, such as sound.

    For who writes messages without their items: what it does not know must not get lost unsaid.
    """
    content = message.content
    if not isinstance(content, tuple):
        return ()
    for item in message.items:
        kind = str(item.get("type") or "message")
        given: Json = item.get(_WITH_PARTS.get(kind, ""))
        if not is_array(given):
            continue
        is_known = [read_part(part) is not None for part in given]
        if is_known.count(True) == len(content):
            known = iter(content)
            pairs = zip(given, is_known, strict=True)
            return [next(known) if is_read else part for part, is_read in pairs]
    return content


def is_equal(written: Item, item: Item) -> bool:
    """Compare, forgiving what is documented as normalised."""
    plain = {key: item[key] for key in item if (key, item[key]) != ("type", "message")}
    if plain.get("role") == "developer":
        plain["role"] = "system"
    content_key = "output" if "output" in plain else "content"
    if is_array(plain[content_key]):
        plain[content_key] = [_with_detail(part) for part in plain[content_key]]
    written = {key: written[key] for key in written if (key, written[key]) != ("type", "message")}
    return written == plain


def _with_detail(part: Item) -> Item:
    if part.get("type") == "input_file":
        return {key: part[key] for key in part if part[key] is not None}
    if part.get("type") != "input_image":
        return part
    return {"detail": "auto", **{key: part[key] for key in part if part[key] is not None}}
