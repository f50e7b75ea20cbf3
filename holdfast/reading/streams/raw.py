"""An answer as the events of the Responses API, whatever API it comes by.

Made of deltas alone, so that a live answer and a recorded one give the same events at the same
places: only where a text is cut into deltas differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from holdfast.models.base import Delta, ModelAnswer
from holdfast.models.draft import as_told
from holdfast.models.openai.hosted_items import is_passed_on
from holdfast.models.openai.items import to_response_items
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text, is_array
from holdfast.values.messages import Message, ToolCall, Usage

AFTER_REASONING = 1 << 23
"""Places from here on are behind the reasoning at an answer's beginning, which some providers tell
and do not give back: without it, the rest of the answer is in the same places."""


class Raw(NamedTuple):
    """One event of an answer.

    Attributes:
        place: Its place in the answer; for a text, the place of its end.
        data: The event as JSON data.
        size: How many places it takes.
    """

    place: int
    data: dict[str, Json]
    size: int = 1

    def after(self, place: int) -> Raw | None:
        """Return what of it is behind a place, or None."""
        if self.place <= place:
            return None
        left = min(self.place - place, self.size)
        if left == self.size:
            return self
        return Raw(self.place, {**self.data, "delta": self.data["delta"][-left:]}, left)


class AnswerEvents:
    """Makes the events of one answer, in order, of the deltas as they come."""

    def __init__(self, name: str, *, created: float = 0.0) -> None:
        """Begin an answer.

        Args:
            name: Names the answer within its task: ids are made of it.
            created: When the model was asked, seconds since the epoch.
        """
        self._name = name
        self._created = created
        self._place = 0
        self._index = -1
        self._item: dict[str, Json] = {}
        self._part: dict[str, Json] = {}
        self._parts = 0
        self._text: list[str] = []
        self._begun = False
        self._is_reasoning = True
        self._call: int | None = None
        self.stuck = False
        """Whether a delta came that goes on with something earlier: only the record has it all."""

    def add(self, delta: Delta) -> Iterator[Raw]:
        """Yield the events of the next delta."""
        yield from self._begin()
        if self._is_reasoning and delta.kind != "reasoning":
            yield from self._close_item()
            self._is_reasoning = False
            self._place = max(self._place, AFTER_REASONING)
        self.stuck = self.stuck or (delta.kind == "arguments" and delta.place != self._call)
        if self.stuck:
            return
        match delta.kind:
            case "call":
                yield from self._begin_call(delta)
            case "reasoning":
                yield from self._begin_part("reasoning", delta.kind)
                yield from self._say("reasoning_summary_text", delta.text)
            case "text":
                yield from self._begin_part("message", delta.kind)
                yield from self._say("output_text", delta.text)
            case "refusal":
                yield from self._begin_part("message", delta.kind)
                yield from self._say("refusal", delta.text)
            case "arguments":
                yield from self._say("function_call_arguments", delta.text)
            case "item":
                yield from self._pass_on(delta)

    def whole(self, answer: ModelAnswer, told: Sequence[Delta] = ()) -> Iterator[Raw]:
        """Yield all events of a recorded answer.

        Args:
            answer: The answer.
            told: The deltas in which it came, as far as they are known.
        """
        yield from self._begin()
        deltas = as_told(answer, told)
        if not deltas and _says(answer.message):
            deltas = [Delta("text", "")]
        for delta in deltas:
            yield from self.add(delta)
        yield from self._close_item()
        incomplete = answer.finish in ("length", "content_filter")
        status = "incomplete" if incomplete else "completed"
        response = {
            **self._response(status),
            "id": answer.response_id or f"resp_{self._name}",
            "model": answer.model,
            "output": list(_output(answer, self._name)),
            "usage": _usage(answer.usage),
        }
        if incomplete:
            reason = "max_output_tokens" if answer.finish == "length" else answer.finish
            response["incomplete_details"] = {"reason": reason}
        yield self._event(f"response.{status}", response=response)

    def _begin(self) -> Iterator[Raw]:
        if not self._begun:
            self._begun = True
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._response("in_progress"))

    # ---- items and their parts

    def _begin_part(self, kind: str, part: str) -> Iterator[Raw]:
        if self._item.get("type") != kind:
            yield from self._close_item()
            extra: dict[str, Json] = {"role": "assistant", "status": "in_progress", "content": []}
            if kind == "reasoning":
                extra = {"summary": []}
            yield from self._begin_item({"type": kind, **extra})
        if self._part.get("kind") != part:
            yield from self._close_part()
            self._part = {"kind": part}
            name = "reasoning_summary_part" if part == "reasoning" else "content_part"
            yield self._event(f"response.{name}.added", **self._at(), part=_part(part, ""))

    def _begin_call(self, delta: Delta) -> Iterator[Raw]:
        yield from self._close_item()
        self._call = delta.place
        yield from self._begin_item(
            {
                "type": "function_call",
                "call_id": delta.id,
                "name": delta.name,
                **({"namespace": delta.namespace} if delta.namespace else {}),
                "arguments": "",
                "status": "in_progress",
            }
        )
        self._part = {"kind": "arguments"}

    def _pass_on(self, delta: Delta) -> Iterator[Raw]:
        """Tell of an item of the provider's own tools: it came whole, with the provider's id."""
        yield from self._close_item()
        item = as_object(json.loads(delta.text))
        yield from self._begin_item(item)
        self._item = {}
        yield self._event("response.output_item.done", output_index=self._index, item=item)

    def _begin_item(self, item: dict[str, Json]) -> Iterator[Raw]:
        self._index += 1
        self._item = {"id": item_id(self._name, self._index), **item}
        self._parts = 0
        yield self._event(
            "response.output_item.added", output_index=self._index, item=dict(self._item)
        )

    def _say(self, name: str, text: str) -> Iterator[Raw]:
        if not text:
            return
        self._text.append(text)
        more: dict[str, Json] = {"logprobs": []} if name == "output_text" else {}
        self._place += len(text) - 1
        event = self._event(f"response.{name}.delta", **self._at(), delta=text, **more)
        yield event._replace(size=len(text))

    def _close_part(self) -> Iterator[Raw]:
        kind, text = as_text(self._part.get("kind")), "".join(self._text)
        if not kind:
            return
        at = self._at()
        match kind:
            case "arguments":
                name, key, part = "function_call_arguments", "arguments", ""
                self._item["arguments"] = text
            case "reasoning":
                name, key, part = "reasoning_summary_text", "text", "reasoning_summary_part"
                self._item["summary"] = [*self._item["summary"], _part(kind, text)]
            case _:
                name, key = ("refusal", "refusal") if kind == "refusal" else ("output_text", "text")
                part = "content_part"
                self._item["content"] = [*self._item["content"], _part(kind, text)]
        more: dict[str, Json] = {"logprobs": []} if name == "output_text" else {}
        if kind == "arguments":
            more["name"] = self._item["name"]
        yield self._event(f"response.{name}.done", **at, **{key: text}, **more)
        if part:
            yield self._event(f"response.{part}.done", **at, part=_part(kind, text))
        self._part, self._text = {}, []
        self._parts += 1

    def _close_item(self) -> Iterator[Raw]:
        if not self._item:
            return
        yield from self._close_part()
        if "status" in self._item:
            self._item["status"] = "completed"
        yield self._event("response.output_item.done", output_index=self._index, item=self._item)
        self._item = {}

    def _at(self) -> dict[str, Json]:
        """Say where in the answer the present part is."""
        at: dict[str, Json] = {"item_id": self._item["id"], "output_index": self._index}
        match self._item["type"]:
            case "message":
                at["content_index"] = self._parts
            case "reasoning":
                at["summary_index"] = self._parts
            case _:
                pass
        return at

    def _event(self, kind: str, **data: Json) -> Raw:
        self._place += 1
        return Raw(self._place, {"type": kind, "sequence_number": self._place, **data})

    def _response(self, status: str) -> dict[str, Json]:
        return {
            "id": f"resp_{self._name}",
            "object": "response",
            "created_at": self._created,
            "model": "",
            "status": status,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }


def item_id(name: str, index: int) -> str:
    """Return the id of an item of an answer; the provider's are not all recorded."""
    return f"item_{name}_{index}"


def _part(kind: str, text: str) -> dict[str, Json]:
    match kind:
        case "reasoning":
            return {"type": "summary_text", "text": text}
        case "refusal":
            return {"type": "refusal", "refusal": text}
        case _:
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _says(message: Message) -> bool:
    """Whether there is a message among the items of an answer, if only an empty one."""
    items = to_response_items([message])
    return any(item.get("type", "message") == "message" for item in items)


def _output(answer: ModelAnswer, name: str) -> Iterator[dict[str, Json]]:
    """Yield the items of an answer as a Responses body has them."""
    index = 0
    for item in to_response_items([answer.message]):
        kind = as_text(item.get("type", "message"))
        if kind.startswith("chat."):
            continue
        whole: dict[str, Json] = {**item, "id": item_id(name, index), "type": kind}
        if is_passed_on(kind) and item.get("id"):
            whole["id"] = item["id"]
        if kind == "message":
            content: Json = item.get("content")
            if not is_array(content):
                said = "refusal" if answer.refusal else "text"
                whole["content"] = [_part(said, as_text(content))]
        if kind in ("message", "function_call"):
            whole["status"] = item.get("status", "completed")
        yield whole
        index += 1


def _usage(usage: Usage) -> dict[str, Json]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


@cache
def load_openai() -> dict[str, Any]:
    """Load the `openai` client's own classes of events, by type.

    This takes a second, so readers do it before there are events: each class builds its schema at
    its first use.
    """
    from openai.types import responses as api

    kinds: dict[str, Any] = {
        "response.created": api.ResponseCreatedEvent,
        "response.in_progress": api.ResponseInProgressEvent,
        "response.completed": api.ResponseCompletedEvent,
        "response.incomplete": api.ResponseIncompleteEvent,
        "response.output_item.added": api.ResponseOutputItemAddedEvent,
        "response.output_item.done": api.ResponseOutputItemDoneEvent,
        "response.content_part.added": api.ResponseContentPartAddedEvent,
        "response.content_part.done": api.ResponseContentPartDoneEvent,
        "response.output_text.delta": api.ResponseTextDeltaEvent,
        "response.output_text.done": api.ResponseTextDoneEvent,
        "response.refusal.delta": api.ResponseRefusalDeltaEvent,
        "response.refusal.done": api.ResponseRefusalDoneEvent,
        "response.function_call_arguments.delta": api.ResponseFunctionCallArgumentsDeltaEvent,
        "response.function_call_arguments.done": api.ResponseFunctionCallArgumentsDoneEvent,
        "response.reasoning_summary_part.added": api.ResponseReasoningSummaryPartAddedEvent,
        "response.reasoning_summary_part.done": api.ResponseReasoningSummaryPartDoneEvent,
        "response.reasoning_summary_text.delta": api.ResponseReasoningSummaryTextDeltaEvent,
        "response.reasoning_summary_text.done": api.ResponseReasoningSummaryTextDoneEvent,
    }
    call = ToolCall(id="c", name="c", arguments="{}")
    message = Message(role="assistant", content="text", calls=(call,))
    for raw in AnswerEvents("").whole(ModelAnswer(message=message)):
        kinds[raw.data["type"]].construct(**raw.data)
    return kinds


def to_openai(data: dict[str, Json]) -> Any:
    """Make the `openai` client's own object of an event."""
    return load_openai()[data["type"]].construct(**data)
