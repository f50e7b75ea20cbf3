"""A streamed answer of the Chat Completions API, put together from its chunks."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field

from holdfast.errors import ModelError
from holdfast.models.base import Delta, Tell
from holdfast.models.openai.http.failures import cut_off, malformed
from holdfast.models.openai.model import read_usage
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array, is_object


@dataclass
class _Call:
    """A tool call that is being streamed; pieces are joined once, at the end."""

    place: int
    id: str
    name: str = ""
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

    def goes_on(self, call_id: str, name: str, arguments: Json) -> bool:
        """Return whether a piece for its place is of this call, and not the begin of another.

        Servers give all calls one index, repeat the name in each piece, or give each piece an id.
        """
        if name and self.name:
            is_other = name != self.name or call_id not in ("", self.id)
            return not is_other and not (_may_begin(arguments) and self._has_all())
        if name or call_id in ("", self.id):
            return True
        return bool(arguments) and not self._has_all()

    def _has_all(self) -> bool:
        if self.given is not None:
            return True
        try:
            json.loads("".join(self.pieces))
        except (ValueError, RecursionError):
            return False
        return True


def _may_begin(arguments: Json) -> bool:
    """Whether a piece may be the begin of a call's arguments; they are an object."""
    return arguments.lstrip().startswith("{") if isinstance(arguments, str) else bool(arguments)


class CompletionStream:
    """Puts the body of one answer together; only the first choice counts, as in `read_answer`."""

    def __init__(self, tell: Tell) -> None:
        """Pass deltas to this function."""
        self._tell = tell
        self._head: dict[str, Json] = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: list[_Call] = []
        self._newest: dict[int | None, _Call] = {}
        self._logprobs: list[Json] = []
        self._annotations: list[Json] = []
        self._thinking: list[dict[str, Json]] = []
        self._extra: dict[str, Json] = {}
        self._finish: Json = None
        self._has_begun = self._is_ended = False
        self._place: Json = 0
        self._old: list[dict[str, Json]] = []

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
            message["tool_calls"] = [call.whole() for call in self._calls]
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
            if not is_object(choice):
                continue
            if not self._has_begun:  # the first one has another number at some servers
                self._has_begun, self._place = True, choice.get("index", 0)
            if choice.get("index", 0) == self._place:
                is_new = not (self._texts or self._calls)  # some servers end with all of it as well
                self._delta(as_object(choice.get("delta") or (is_new and choice.get("message"))))
                self._logprobs += as_array(as_object(choice.get("logprobs")).get("content"))
                self._finish = as_text(choice.get("finish_reason")) or self._finish
                if self._finish is not None:
                    self._take_old()

    def _delta(self, said: dict[str, Json]) -> None:
        reasoning = as_text(said.get("reasoning_content"))
        content, refusal = text_of(said.get("content")), as_text(said.get("refusal"))
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
        for call in as_array(said.get("tool_calls")):
            if is_object(call):
                self._call(call)
        self._old += [{"function": said["function_call"]}] if said.get("function_call") else []

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
        """Begin a call or go on with one; some servers leave out index, id or, at first, name."""
        function = as_object(said.get("function"))
        name, given = as_text(function.get("name")), function.get("arguments")
        call = self._find(said, name, given)
        for key in ("extra_content", "provider_specific_fields"):
            if said.get(key) is not None:
                call.extra[key] = said[key]
        if name and not call.name:
            call.name = name
            self._tell(Delta("call", "", call.place, call.id, name))
            for piece in call.pieces:
                self._tell(Delta("arguments", piece, call.place))
        if isinstance(given, str):
            call.pieces += [given] if given else []
            if given and call.name:
                self._tell(Delta("arguments", given, call.place))
        elif given is not None:
            call.given = given

    def _find(self, said: dict[str, Json], name: str, arguments: Json) -> _Call:
        """Return the call that a piece is of; a new one if it begins one."""
        index, call_id = said.get("index"), as_text(said.get("id"))
        place = index if isinstance(index, int) else None
        call = self._newest.get(place)
        other = call is not None and place is None and call_id not in ("", call.id)
        if call is None or other or not call.goes_on(call_id, name, arguments):
            # Some servers leave the id out; a result cannot be matched without one.
            call = _Call(len(self._calls), call_id or f"call_{uuid.uuid4().hex[:24]}")
            self._calls.append(call)
        # A piece without an index goes on with the newest call.
        self._newest[None] = self._newest[place] = call
        return call

    def end(self) -> None:
        """Take the answer as whole without a finish_reason, which some servers leave out."""
        self._is_ended = True
        self._take_old()
        if self._finish is None and self._has_begun:
            self._finish = "tool_calls" if self._calls else "stop"

    def _take_old(self) -> None:
        """Take the call of the time before there were several, unless there are such."""
        pieces, self._old = self._old, []
        for piece in () if self._calls else pieces:
            self._call(piece)

    def missing(self, model: str) -> ModelError:
        """Make the error for a stream without its last chunk, or without any choice."""
        if self._is_ended:
            usage = read_usage(self._head.get("usage"), "prompt", "completion")
            return malformed(model, "it holds no choice", usage=usage)
        return cut_off(model, "there was no finish_reason")


def as_streamed(body: dict[str, Json]) -> dict[str, Json] | None:
    """Return a whole body as it would be if it were streamed; None for one without a choice.

    So an odd answer has one outcome, however it came.
    """
    coming = CompletionStream(lambda _: None)
    for choice in map(as_object, as_array(body.get("choices"))[:1]):
        said = as_object(choice.get("message"))
        found = filter(is_object, as_array(said.get("tool_calls")))
        calls: list[Json] = [{**call, "index": i} for i, call in enumerate(found)]
        coming.take({**body, "choices": [{**choice, "delta": {**said, "tool_calls": calls}}]})
    coming.end()
    return coming.body


def text_of(content: Json) -> str:
    """Return the text of a message's content, a text or a list of parts."""
    if is_array(content):
        return "".join(as_text(part.get("text")) for part in content if is_object(part))
    return as_text(content)
