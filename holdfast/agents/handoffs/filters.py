"""Input filters of handoffs, which choose the conversation that the next agent sees.

Pure. Items are those of the Responses API, as in `RunResult.to_input_list()`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import UserError
from holdfast.models.openai.items import shown_items
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_array, is_object
from holdfast.values.messages import Message
from holdfast.values.steps import HistoryRef
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.items.run_items import RunItem
    from holdfast.values.runs.run_context import RunContextWrapper

Item = dict[str, Json]

HandoffHistoryMapper = Callable[[list[Item]], list[Item]]
"""Makes the items that the next agent sees from the items of the whole conversation."""

START = "<CONVERSATION HISTORY>"
END = "</CONVERSATION HISTORY>"


@dataclass
class _Wrappers:
    """The markers around a folded conversation, in this process.

    Attributes:
        start: The one before it.
        end: The one behind it.
        used: All pairs that were in use: what was folded with them is unfolded as well.
    """

    start: str = START
    end: str = END
    used: list[tuple[str, str]] = field(default_factory=lambda: [(START, END)])


_wrappers = _Wrappers()
PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"
"""The Agents SDK's words: what it has folded is unfolded as well, and the other way round."""

NOTHING = "(no previous turns recorded)"

_WHO = re.compile(r"(?P<role>user|assistant|system|developer)(?: \((?P<name>[^()]+)\))?")
_TOOL_KINDS = re.compile(r".*_call(_output)?|mcp_.*|tool_search_.*|program(_output)?|reasoning")
_FOLDED_KINDS = re.compile(r"function_call(_output)?|program(_output)?|reasoning")
_LINE = re.compile(r"\d+\. (.*)")


@dataclass(frozen=True)
class HandoffInputData:
    """The conversation at a handoff, which an input filter takes and returns.

    The next agent sees `input_history`, `pre_handoff_items`, and `input_items` or else `new_items`.

    Attributes:
        input_history: The run's input: a text, or items. After an earlier handoff with a filter,
            the result of that filter.
        pre_handoff_items: Items made since then, before the turn of this handoff.
        new_items: Items of that turn, including the call of the handoff and its result.
        run_context: The run's context.
        input_items: Items that the next agent sees in place of `new_items`; None for `new_items`.
    """

    input_history: str | tuple[Item, ...]
    pre_handoff_items: tuple[RunItem, ...]
    new_items: tuple[RunItem, ...]
    run_context: RunContextWrapper[Any] | None = None
    input_items: tuple[RunItem, ...] | None = None
    _moved: tuple[tuple[Item, RunItem], ...] = field(
        default=(), init=False, repr=False, compare=False
    )

    def clone(self, **changes: Any) -> HandoffInputData:
        """Return a copy with some fields changed."""
        made = dataclasses.replace(self, **changes)
        object.__setattr__(made, "_moved", self._moved)
        return made

    def moved_from(self, was: HandoffInputData) -> tuple[int, ...]:
        """Return the positions of the items of the input that were moved there word for word.

        An item that the filter has taken out of the run's, or put in its place, was not moved.

        Args:
            was: What the filter was given.
        """
        items = _given(self)
        known = (*was.pre_handoff_items, *self.new_items)
        found: list[int] = []
        for item, run_item in self._moved:
            same = [k for k, each in enumerate(items) if each is item]
            same = same or [k for k, each in enumerate(items) if each == item]
            free = [k for k in same if k not in found]
            if free and any(each.has_mark(run_item.mark()) for each in known):
                found.append(free[0])
        return tuple(sorted(found))


def remove_all_tools(handoff_input_data: HandoffInputData) -> HandoffInputData:
    """Keep only messages: remove calls of tools and handoffs, results, and reasoning.

    Raises:
        UserError: The argument is not HandoffInputData.
    """
    data = _checked(handoff_input_data)
    history = data.input_history
    if not isinstance(history, str):
        history = tuple(item for item in history if not _is_of_tools(item))
    own = data.input_items
    return data.clone(
        input_history=history,
        pre_handoff_items=_without_tools(data.pre_handoff_items),
        new_items=_without_tools(data.new_items),
        input_items=None if own is None else _without_tools(own),
    )


def _checked(given: HandoffInputData) -> HandoffInputData:
    if not isinstance(cast("object", given), HandoffInputData):
        msg = f"A filter of a handoff takes HandoffInputData; it was given {shown(given)}."
        raise UserError(msg)
    return given


def nest_handoff_history(
    handoff_input_data: HandoffInputData, *, history_mapper: HandoffHistoryMapper | None = None
) -> HandoffInputData:
    """Fold the conversation into assistant messages between markers.

    User messages since the run began, and messages of the handoff's turn, stay as they are, in
    their place; the items before and after each of them are folded into one message. A message that
    an earlier handoff folded is unfolded first, so that folded messages are never nested. Nothing
    is hidden: arguments and results of tools are in the text.

    Args:
        handoff_input_data: The conversation.
        history_mapper: Makes the items that the next agent sees from the whole conversation, in
            place of folding.

    Raises:
        UserError: The mapper did not return a list of items, or the conversation is not
            HandoffInputData.
    """
    data = _checked(handoff_input_data)
    if history_mapper is not None:
        return nested(data, history_mapper(conversation(data)))
    before, now = _written(data.pre_handoff_items), _written(data.new_items)
    parts = [*((*each, False) for each in before), *((*each, True) for each in now)]
    made: list[Item] = []
    moved: list[tuple[Item, RunItem]] = []
    folding = unfolded(_given(data))
    for item, run_item, since in parts:
        if not _is_said(item, since=since):
            folding.append(item)
            continue
        if folding or not made:
            made += default_handoff_history_mapper(folding)
            folding = []
        made.append(item)
        run_item.mark()  # a filter may copy it
        moved.append((item, run_item))
    if folding or not made:
        made += default_handoff_history_mapper(folding)
    whole = nested(data, made)
    object.__setattr__(whole, "_moved", tuple(moved))
    return whole


def set_conversation_history_wrappers(*, start: str | None = None, end: str | None = None) -> None:
    """Set the markers around conversations that this process folds from now on.

    Set them in each worker process that serves the agents.

    Args:
        start: The marker before the conversation; None leaves it as it is.
        end: The marker behind it; None leaves it as it is.
    """
    _wrappers.start = _wrappers.start if start is None else start
    _wrappers.end = _wrappers.end if end is None else end
    pair = get_conversation_history_wrappers()
    if pair not in _wrappers.used:
        _wrappers.used.append(pair)


def reset_conversation_history_wrappers() -> None:
    """Set the markers around folded conversations back to those of Holdfast."""
    _wrappers.start, _wrappers.end = START, END


def get_conversation_history_wrappers() -> tuple[str, str]:
    """Return the markers before and behind a folded conversation."""
    return _wrappers.start, _wrappers.end


def default_handoff_history_mapper(transcript: list[Item]) -> list[Item]:
    """Fold items into one assistant message: a numbered line for each, between two markers.

    Raises:
        UserError: The transcript is not a list of items.
    """
    given = cast("object", transcript)
    if not is_array(given) or not all(map(is_object, given)):
        raise UserError(f"A transcript is a list of input items; it was {shown(given)}.")
    lines = [f"{k}. {_line(item)}" for k, item in enumerate(transcript, 1)] or [NOTHING]
    start, end = get_conversation_history_wrappers()
    return [{"role": "assistant", "content": "\n".join((PREAMBLE, start, *lines, end))}]


def conversation(data: HandoffInputData) -> list[Item]:
    """List the whole conversation for a mapper, with messages of earlier handoffs unfolded."""
    own = _items((*data.pre_handoff_items, *data.new_items))
    return [*unfolded(_given(data)), *own]


def nested(data: HandoffInputData, made: object) -> HandoffInputData:
    """Return the data with exactly these items for the next agent; `new_items` stay as they are.

    Raises:
        UserError: It is not a list of items.
    """
    if not isinstance(made, list | tuple) or not all(
        isinstance(item, dict) for item in cast("Sequence[object]", made)
    ):
        msg = f"A handoff_history_mapper must return a list of items; it gave {shown(made)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        raise UserError(msg)
    items = cast("Sequence[Item]", made)
    return data.clone(input_history=tuple(items), pre_handoff_items=(), input_items=())


def next_input(data: object) -> tuple[list[Item], list[Item]]:
    """List the items that the next agent sees, from filtered data: the input, and those after it.

    Raises:
        UserError: The filter returned something else than HandoffInputData.
    """
    if not isinstance(data, HandoffInputData):
        raise UserError(
            f"An input filter of a handoff must return a HandoffInputData; it gave {shown(data)}."
            " Change what it was given with data.clone(...)."
        )
    new = data.new_items if data.input_items is None else data.input_items
    return _given(data), _items((*data.pre_handoff_items, *new))


def input_left(ref: HistoryRef, seen: Sequence[Message]) -> str | list[Item] | None:
    """Return the input that a handoff has left to the next agent; None if it is the run's own.

    Args:
        ref: What the next agent sees.
        seen: Those of its messages that are the input.
    """
    match ref.input:
        case "text":
            return "".join(message.text for message in seen)
        case "items":
            return shown_items(seen)
        case _:
            return None


def unfolded(items: Iterable[Item]) -> list[Item]:
    """Replace messages of the default mapper by the items that were folded into them."""
    found: list[Item] = []
    for item in items:
        inside = _inside(item)
        found += [item] if inside is None else inside
    return found


def _given(data: HandoffInputData) -> list[Item]:
    history = data.input_history
    if isinstance(history, str):
        return [{"role": "user", "content": history}]
    return list(history)


def _items(items: Iterable[Any]) -> list[Item]:
    """Write run items as input items."""
    return [item for item, _ in _written(items)]


def _written(items: Iterable[Any]) -> list[tuple[Item, RunItem]]:
    """Write run items as input items, each with the one that it was."""
    made: list[tuple[Item, RunItem]] = []
    for item in items:
        if not hasattr(item, "to_input_item"):
            msg = f"A handoff's items must be run items, as they were given; one is {shown(item)}."
            raise UserError(msg)
        if item.type != "tool_approval_item":  # its call is an item of its own
            made.append((dict(item.to_input_item()), item))
    return made


def _without_tools(items: Iterable[RunItem]) -> tuple[RunItem, ...]:
    return tuple(
        item
        for item in items
        if item.type != "tool_approval_item" and not _is_of_tools(item.to_input_item())
    )


def _is_of_tools(item: Item) -> bool:
    return _TOOL_KINDS.fullmatch(_kind(item)) is not None


def _kind(item: Item) -> str:
    return str(item.get("type") or "message")


def _is_said(item: Item, *, since: bool) -> bool:
    """Whether an item is a message that is not folded.

    Args:
        item: The item.
        since: Whether it belongs to the turn of the handoff, whose assistant messages stay as well.
    """
    if _FOLDED_KINDS.fullmatch(_kind(item)):
        return False
    return since or item.get("role") != "assistant"


def _line(item: Item) -> str:
    """Write an item in one line: a message of one line as text, any other item as JSON."""
    content: Json = item.get("content", "")
    if "role" in item and isinstance(content, str) and not re.search(r"[\r\n]", content):
        name = item.get("name")
        who = f"{item['role']} ({name})" if isinstance(name, str) and name else item["role"]
        return f"{who}: {content}"
    return json.dumps(item, ensure_ascii=False, default=str)


def _inside(item: Item) -> list[Item] | None:
    """Return the items folded into a message of the default mapper; None for any other item."""
    content: Json = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, str):
        return None
    for start, end in reversed(_wrappers.used):
        begins, ends = f"{PREAMBLE}\n{start}\n", f"\n{end}"
        if content.startswith(begins) and content.endswith(ends):
            read = [_read_line(line) for line in content[len(begins) : -len(ends)].split("\n")]
            return [each for each in read if each is not None]
    return None


def _read_line(line: str) -> Item | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    who, colon, words = found[1].partition(": ")
    said = _WHO.fullmatch(who)
    if colon and said is not None:
        name = {} if said["name"] is None else {"name": said["name"]}
        return {"role": said["role"], **name, "content": words}
    try:
        read: Json = json.loads(found[1])
    except ValueError:
        return None
    return cast("Item", read) if isinstance(read, dict) else None
