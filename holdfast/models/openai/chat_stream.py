"""A streamed answer of the Chat Completions API, put together from its chunks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from holdfast.errors import ModelError
from holdfast.models.base import Delta, Tell
from holdfast.models.openai.http.failures import cut_off
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_array, as_object, as_text, is_array, is_object


@dataclass
class _Call:
    """A tool call that is being streamed; pieces are joined once, at the end."""

    id: str
    name: str
    pieces: list[str] = field(default_factory=list[str])
    given: Json = None
    extra: dict[str, Json] = field(default_factory=dict[str, Json])

    def whole(self) -> dict[str, Json]:
        """Write it as the API would have sent it in one piece."""
        arguments = self.given if self.given is not None else "".join(self.pieces)
        made: dict[str, Json] = {
            "id": self.id,
            "function": {"name": self.name, "arguments": arguments},
        }
        return {**made, **self.extra}


class CompletionStream:
    """Puts the body of one answer together; only the first choice counts, as in `read_answer`."""

    def __init__(self, tell: Tell) -> None:
        """Pass deltas to this function."""
        self._tell = tell
        self._head: dict[str, Json] = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, _Call] = {}
        self._logprobs: list[Json] = []
        self._annotations: list[Json] = []
        self._thinking: list[dict[str, Json]] = []
        self._extra: dict[str, Json] = {}
        self._finish: Json = None

    @property
    def body(self) -> dict[str, Json] | None:
        """The body that the API would have sent in one piece; None before the answer's end."""
        if self._finish is None:
            return None
        message: dict[str, Json] = {key: "".join(told) for key, told in self._texts.items()}
        if self._annotations:
            message["annotations"] = self._annotations
        if self._extra:
            message["extra_content"] = self._extra
        if self._thinking:
            message["thinking_blocks"] = self._thinking
        if self._calls:
            message["tool_calls"] = [call.whole() for call in self._calls.values()]
        choice: dict[str, Json] = {"index": 0, "message": message, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        return {**self._head, "choices": [choice]}

    def take(self, chunk: dict[str, Json]) -> None:
        """Take the next chunk."""
        for key in ("id", "model", "usage"):
            if chunk.get(key) is not None:
                self._head[key] = chunk[key]
        choices: Json = chunk.get("choices")
        for choice in choices if is_array(choices) else []:
            if is_object(choice) and choice.get("index", 0) == 0:
                self._delta(as_object(choice.get("delta")))
                self._logprobs += as_array(as_object(choice.get("logprobs")).get("content"))
                self._finish = choice.get("finish_reason") or self._finish

    def _delta(self, said: dict[str, Json]) -> None:
        reasoning = as_text(said.get("reasoning_content"))
        content, refusal = as_text(said.get("content")), as_text(said.get("refusal"))
        if reasoning:
            self._add("reasoning_content", reasoning)
            self._tell(Delta("reasoning", reasoning))
        if content:
            self._add("content", content)
            self._tell(Delta("text", content))
        if refusal:
            self._add("refusal", refusal)
            self._tell(Delta("refusal", refusal))
        self._annotations += as_array(said.get("annotations"))
        self._extra |= as_object(said.get("extra_content"))
        for block in as_array(said.get("thinking_blocks")):
            self._think(as_object(block))
        calls: Json = said.get("tool_calls")
        for call in calls if is_array(calls) else []:
            if is_object(call):
                self._call(call)

    def _think(self, piece: dict[str, Json]) -> None:
        """Begin a block of signed reasoning or go on with one; the signature ends it."""
        last = self._thinking[-1] if self._thinking else {}
        if piece.get("type") != "thinking" or last.get("signature") or not last:
            self._thinking.append(dict(piece))
            return
        last["thinking"] = as_text(last.get("thinking")) + as_text(piece.get("thinking"))
        if piece.get("signature"):
            last["signature"] = piece["signature"]

    def _add(self, key: str, text: str) -> None:
        self._texts.setdefault(key, []).append(text)

    def _call(self, said: dict[str, Json]) -> None:
        """Begin a call or go on with one; some servers leave out index or id."""
        function = as_object(said.get("function"))
        place = self._place(said)
        call = self._calls.get(place)
        if call is None:
            # Some servers leave the id out; a result cannot be matched without one.
            call_id = as_text(said.get("id")) or f"call_{uuid.uuid4().hex[:24]}"
            name = as_text(function.get("name"))
            self._calls[place] = call = _Call(call_id, name)
            self._tell(Delta("call", "", place, call_id, name))
        for key in ("extra_content", "provider_specific_fields"):
            if said.get(key) is not None:
                call.extra[key] = said[key]
        given: Json = function.get("arguments")
        if isinstance(given, dict):
            call.given = given
        elif isinstance(given, str) and given:
            call.pieces.append(given)
            self._tell(Delta("arguments", given, place))

    def _place(self, said: dict[str, Json]) -> int:
        index: Json = said.get("index")
        if isinstance(index, int):
            return index
        newest = max(self._calls, default=-1)
        known = newest >= 0 and said.get("id") in (None, "", self._calls[newest].id)
        return newest if known else newest + 1

    def missing(self, model: str) -> ModelError:
        """Make the error for a stream without its last chunk."""
        return cut_off(model, "there was no finish_reason")
