"""Messages as items of the Responses API, and back: the input lists of the OpenAI Agents SDK.

Pure. An assistant turn that needs more than text and calls (reasoning items, ids, `phase`, an order
other than text before calls) is kept in `Message.items` in its order. What the message itself
knows is left out there: `{"type": "message", "id": ...}` without `content` stands for the message's
content, `{"type": "function_call", "call_id": ...}` without `name` for the call of that id. So
nothing enters the history twice, and the API gets back what it sent, byte for byte.

Ids of plain messages and calls are kept apart, in `Message.item_ids`: a provider needs them again
only next to reasoning and other items of its own, and another one refuses them. What anyone who
reads items is shown has them all.

An image of the archive has a `holdfast:` URL in items, which comes back as the same reference.

Normalised on the way in, otherwise exact: `{"type": "message", "role", "content": str}` loses its
`type`, `developer` becomes `system`, images without a `detail` get `detail: auto` and lose what is
null. Answers with an id are shown with the members that the API gives them, given or not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never, cast

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import (
    APPROVAL_REQUEST,
    APPROVAL_RESPONSE,
    answered_request,
    approval_call,
    approval_request,
)
from holdfast.models.openai.item_contents import (
    FAKE_ID,
    answer_parts,
    check_item,
    has_annotations,
    has_logprobs,
    has_refusal,
    is_cut_off,
    is_equal,
    kind_of,
    message_item,
    output_item,
    read_content,
    read_parts,
    text_of,
    whole_item,
    without_empty_logprobs,
    without_id,
    without_images,
    without_status,
    write_content,
)
from holdfast.models.openai.local_items import (
    LOCAL_CALLS,
    LOCAL_RESULTS,
    asked_in,
    call_item,
    is_stub,
    local_call,
    local_result,
    result_item,
    run_by_provider,
    without_asked,
)
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import as_text, is_array
from holdfast.values.messages import Content, Message, Role, ToolCall, qualified_name
from holdfast.values.text.shown import shown

Item = dict[str, Json]
CALLS = frozenset({"function_call", APPROVAL_REQUEST, *LOCAL_CALLS})
"""Items that are calls of a message."""

_CALL = frozenset({"type", "call_id", "name", "arguments"})
"""Members of a function call that its `ToolCall` knows."""

_RESULTS = frozenset({"function_call_output", APPROVAL_RESPONSE, *LOCAL_RESULTS})
"""Items that answer one of them."""


def to_response_items(messages: Iterable[Message]) -> list[Item]:
    """Write messages as a Responses input list.

    A tool message with a failure has `status: incomplete`.

    Raises:
        InvalidArgumentError: A content is a reference to the archive, or the argument is not a list
            of messages.
    """
    if not isinstance(cast("object", messages), Iterable):
        raise InvalidArgumentError(f"Messages are given as a list; it was given {shown(messages)}.")
    messages = list(messages)
    for each in messages:
        if not isinstance(cast("object", each), Message):
            msg = f"A list of messages holds Messages; {shown(each)} is not one."
            raise InvalidArgumentError(msg)
    return [item for message in messages for item in _sent(message)]


def kept_items(message: Message) -> list[Item]:
    """Write a message as the items that it keeps, also with ids that no model is sent.

    Raises:
        InvalidArgumentError: As for `to_response_items`.
    """
    return list(_items_of(message))


def from_response_items(items: Sequence[object]) -> tuple[Message, ...]:
    """Read a Responses input list.

    Items of an unknown type are carried in the `items` of an assistant message, unchanged.

    Raises:
        InvalidArgumentError: An item cannot be read; the text names its index and what is wrong.
    """
    if not isinstance(cast("object", items), Iterable):
        msg = f"Items are given as a list; it was given {shown(items)} ({type(items).__name__})."
        raise InvalidArgumentError(msg)
    messages: list[Message] = []
    turn = _Turn()
    for index, item in enumerate(items):
        checked = check_item(index, item)
        if _is_of_assistant(checked):
            if turn.is_ended_by(checked):
                messages.append(turn.message())
                turn = _Turn(beside_own=turn.needs_ids)
            turn.add(without_empty_logprobs(checked) if "id" in checked else checked)
            continue
        if turn.entries:
            messages.append(turn.message())
            turn = _Turn()
        messages.append(_other_message(checked))
    if turn.entries:
        messages.append(turn.message())
    return tuple(messages)


def assistant_message(output: Sequence[Item]) -> Message:
    """Make the one message of a model's answer."""
    turn = _Turn()
    for index, item in enumerate(output):
        whole = gate.mended(item) if item.get("type") == "message" else item
        turn.add(without_empty_logprobs(without_images(check_item(index, whole))))
    return turn.answer()


class _Turn:
    """The items of one assistant message, being collected.

    Args:
        beside_own: Whether the items right before it need their ids.
    """

    def __init__(self, *, beside_own: bool = False) -> None:
        self.entries: list[Item] = []
        self.kinds: list[str] = []
        self._beside_own = beside_own

    def add(self, item: Item) -> None:
        self.entries.append(item)
        self.kinds.append(kind_of(item))

    @property
    def needs_ids(self) -> bool:
        """Whether the provider is sent the ids again: next to reasoning and other own items."""
        return self._beside_own or any(
            kind not in ("message", "function_call", APPROVAL_REQUEST)
            or "phase" in item
            or has_logprobs(item)
            or has_annotations(item)
            for kind, item in zip(self.kinds, self.entries, strict=True)
        )

    @property
    def says_more_than_once(self) -> bool:
        """Whether there is more than one message: such an answer keeps its ids in its items."""
        return self.kinds.count("message") > 1

    def _is_call(self, item: Item) -> bool:
        return kind_of(item) in CALLS and not self._is_run(item)

    def _is_run(self, item: Item) -> bool:
        """Whether an item is a call that the provider has run itself."""
        is_local = kind_of(item) in LOCAL_CALLS
        return is_local and item["call_id"] in run_by_provider(self.entries)

    def is_ended_by(self, item: Item) -> bool:
        """Return whether `item` belongs to the next message.

        Reasoning between two calls does not end a turn: the results of both follow together. Nor
        does a text after calls whose results are still to come: some APIs refuse a message there.
        """
        kind = kind_of(item)
        if kind == "message":
            return "message" in self.kinds
        if kind in CALLS:
            return False
        return "message" in self.kinds and not self._calls

    @property
    def _calls(self) -> bool:
        return any(kind in CALLS for kind in self.kinds)

    def message(self) -> Message:
        """Make a message that says exactly what the items do, but for ids that are kept apart."""
        needs_ids = self.needs_ids
        apart = [
            (item, "") if needs_ids and item.get("id") != FAKE_ID else without_id(item)
            for item in self.entries
        ]
        return self._made(apart, exact=True)

    def answer(self) -> Message:
        """Make the message of a model's answer: what says nothing next to text and calls goes."""
        apart = [(item, "") for item in self.entries]
        if not self.needs_ids and not self.says_more_than_once:
            apart = [without_id(item) for item in self.entries]
            apart = [(item, "" if own == FAKE_ID else own) for item, own in apart]
        return self._made(apart, exact=self.needs_ids or any(map(is_cut_off, self.entries)))

    def _made(self, apart: Sequence[tuple[Item, str]], *, exact: bool) -> Message:
        entries = [item for item, _ in apart]
        calls = tuple(_read_call(item) for item in entries if self._is_call(item))
        contents = [read_content(item) for item in entries if kind_of(item) == "message"]
        content: Content = contents[0] if len(contents) == 1 else "".join(map(text_of, contents))
        items = self._kept(entries, content, exact=exact)
        is_said = content or any(kind_of(item) == "message" for item in items)
        said = [own for item, own in apart if kind_of(item) == "message"] if is_said else []
        ids = [*(said or [""])[:1], *(own for item, own in apart if kind_of(item) in CALLS)]
        while ids and not ids[-1]:
            ids.pop()
        return Message(
            role="assistant", content=content, calls=calls, items=items, item_ids=tuple(ids)
        )

    def _kept(self, entries: Sequence[Item], content: Content, *, exact: bool) -> tuple[Item, ...]:
        """Return what must be kept next to content and calls, in order.

        A message without content is kept too: else it could not be distinguished from none.
        """
        refusal = any(kind_of(item) == "message" and has_refusal(item) for item in entries)
        usual = sorted(self.kinds, key=_usual_place) == self.kinds and not self.says_more_than_once
        plain = not exact or all(_is_plain(item) for item in entries if _usual_place(kind_of(item)))
        empty = not content and self.kinds == ["message"]
        if usual and plain and not refusal and not empty:
            return tuple(item for item in entries if not _usual_place(kind_of(item)))
        return tuple(item if self._is_run(item) else _shorten(item, content) for item in entries)


def _usual_place(kind: str) -> int:
    return 1 if kind == "message" else 2 if kind in CALLS else 0


def _read_call(item: Item) -> ToolCall:
    if kind_of(item) == APPROVAL_REQUEST:
        return approval_call(item)
    if kind_of(item) in LOCAL_CALLS:
        return local_call(item)
    inside = as_text(item.get("namespace"))
    name = qualified_name(item["name"], inside)
    return ToolCall(id=item["call_id"], name=name, arguments=item["arguments"], namespace=inside)


def _is_of_assistant(item: Item) -> bool:
    kind = kind_of(item)
    return kind not in _RESULTS and (kind != "message" or item["role"] == "assistant")


def _is_plain(item: Item) -> bool:
    """Return whether content or call alone give this item back."""
    if kind_of(item) == "function_call":
        keys = item.keys()
        return keys == _CALL or (keys == _CALL | {"namespace"} and bool(as_text(item["namespace"])))
    if kind_of(item) == APPROVAL_REQUEST:
        return item == approval_request(approval_call(item))
    if kind_of(item) in LOCAL_CALLS:
        return False
    return item == message_item("assistant", read_content(item))


def _shorten(item: Item, content: Content) -> Item:
    """Leave out what the message itself knows, if that gives the item back exactly."""
    match kind_of(item):
        case "function_call" | "mcp_approval_request":
            return {key: item[key] for key in item if key not in ("name", "arguments")}
        case "message":
            stub = {key: item[key] for key in item if key != "content"}
            if "type" in stub:
                stub.pop("role")
            return stub if _fill_message(stub, content) == item else item
        case kind if kind in LOCAL_CALLS:
            return without_asked(item)
        case _:
            return item


def _fill_message(stub: Item, content: Content) -> Item:
    if "type" not in stub:
        return {**stub, "content": write_content(content, "output_text")}
    return {**stub, "role": "assistant", "content": answer_parts(text_of(content))}


def _sent(message: Message) -> list[Item]:
    """Write a message as a model is sent it."""
    items = kept_items(message)
    if len(message.items) <= 1:  # it does not say more than one thing
        return items
    turn = _Turn()
    for item in items:
        turn.add(item)
    is_named = turn.needs_ids or not turn.says_more_than_once
    return items if is_named else [without_id(item)[0] for item in items]


def _items_of(message: Message) -> Iterator[Item]:
    kinds = [kind_of(item) for item in message.items]
    left = list(message.calls)
    for item in message.items:
        if is_stub(item):
            yield result_item(item, message, write_content(message.content, "input_text"))
        elif kind_of(item) in CALLS and not _is_whole(item):
            yield from _take_call(item, left)
        elif kind_of(item) == "message" and "content" not in item:
            yield _fill_message(item, message.content)
        else:
            yield dict(item)
    match message.role:
        case "tool":
            if not any(kind in _RESULTS for kind in kinds):
                yield output_item(message)
        case "user" | "system" | "assistant":
            is_silent = not message.content and message.role == "assistant"
            if "message" not in kinds and not is_silent:
                yield message_item(message.role, message.content)
        case _:
            assert_never(message.role)
    for call in left:
        if call.kind:
            yield call_item(call)
        else:
            yield approval_request(call) if call.server else _call_item(call)


def _is_whole(item: Item) -> bool:
    """Whether an item is kept whole: a call that the provider has run itself."""
    return kind_of(item) in LOCAL_CALLS and without_asked(item) != item


def _take_call(item: Item, left: list[ToolCall]) -> Iterator[Item]:
    """Put the call that `item` stands for in its place; a call that was taken out leaves none."""
    wanted = item["id"] if kind_of(item) == APPROVAL_REQUEST else item["call_id"]
    for call in left:
        if call.id == wanted:
            left.remove(call)
            yield {**item, **(asked_in(call) if call.kind else _said(call))}
            return


def _call_item(call: ToolCall) -> Item:
    return {"type": "function_call", "call_id": call.id, **_said(call)}


def _said(call: ToolCall) -> Item:
    said: Item = {"name": call.bare_name, "arguments": call.arguments}
    return {**said, "namespace": call.namespace} if call.namespace else said


def _other_message(item: Item) -> Message:
    """Read a user, system or tool item; what our form cannot say is kept verbatim in `items`."""
    if kind_of(item) == APPROVAL_RESPONSE:
        return answered_request(item)
    if kind_of(item) in LOCAL_RESULTS:
        return _local_result(item)
    if kind_of(item) == "function_call_output":
        output = read_parts(item["output"])
        message = Message(
            role="tool",
            call_id=item["call_id"],
            content=output,
            is_error=item.get("status") == "incomplete",
        )
    else:
        role: Role = "user" if item["role"] == "user" else "system"
        message = Message(role=role, content=read_parts(item["content"]))
    if is_equal(next(_items_of(message)), item):
        return message
    return message.model_copy(update={"items": (item,)})


def _local_result(item: Item) -> Message:
    """Read the result of a call; that of a custom tool may have images and files."""
    message = local_result(item)
    if kind_of(item) != "custom_tool_call_output" or not is_array(item.get("output")):
        return message
    return message.model_copy(update={"content": read_parts(item["output"])})


def made_items(message: Message) -> list[Item]:
    """Write a message as items that a run has made.

    A provider that gives no ids has those of the Agents SDK. A result does not say whether it is a
    failure.

    Raises:
        InvalidArgumentError: As for `to_response_items`.
    """
    if message.role != "assistant":
        return [whole_item(without_status(item)) for item in to_response_items([message])]
    is_named = message.item_ids or any("id" in item for item in message.items)
    needed = ("message", "reasoning") if is_named else ("message", "reasoning", "function_call")
    return [
        whole_item(item, shown_id or (FAKE_ID if kind_of(item) in needed else ""))
        for item, shown_id in _named(message)
    ]


def shown_items(messages: Iterable[Message]) -> list[Item]:
    """Write messages as an input list that shows them: what was given as a text stays one.

    Users' code gets it, and may change it in place: the messages may be of other tasks as well.

    Raises:
        InvalidArgumentError: As for `to_response_items`.
    """
    return copy.deepcopy([item for message in messages for item in _shown(message)])


def _shown(message: Message) -> Iterator[Item]:
    if message.role != "assistant":
        yield from map(whole_item, to_response_items([message]))
        return
    for item, shown_id in _named(message):
        is_answer = shown_id or "id" in item or kind_of(item) != "message"
        yield whole_item(item, shown_id) if is_answer else item


def _named(message: Message) -> Iterator[tuple[Item, str]]:
    """Yield a message's items, each with the id that models are not sent; empty for none."""
    said, *called = message.item_ids or ("",)
    left = iter(called)
    for item in kept_items(message):
        kind = kind_of(item)
        if kind == "message":
            yield item, said
        elif kind == "reasoning" and FAKE_ID in message.item_ids:
            yield item, FAKE_ID
        else:
            yield item, next(left, "") if kind in CALLS else ""
