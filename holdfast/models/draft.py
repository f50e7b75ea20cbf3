"""Deltas of an unfinished answer, and a whole answer as deltas.

A place in an answer is a number of units: one for each character, one for each call that begins
and for each item of the provider's own tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.models.base import Delta, ModelAnswer
from holdfast.models.openai.hosted_items import is_passed_on, told_in_stream
from holdfast.models.openai.items import to_response_items
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_text, is_object

WINDOW = 8 * 1024
"""Units of an unfinished answer that a frame for another process holds; what is older comes with
the recorded answer."""


WHOLE = ("call", "item")
"""Kinds of deltas that are not cut: each counts as one unit."""


class Frame(NamedTuple):
    """A part of an unfinished answer.

    Attributes:
        attempt: Which attempt to get the answer this is of.
        at: Units of the answer before this part.
        deltas: The part.
    """

    attempt: int
    at: int
    deltas: tuple[Delta, ...]

    def after(self, units: int) -> Iterator[Delta]:
        """Yield what comes after a place; nothing when the part between is not here."""
        if units < self.at:
            return
        skip = units - self.at
        for delta in self.deltas:
            size = units_of(delta)
            if skip >= size:
                skip -= size
            elif skip and delta.kind not in WHOLE:
                yield delta._replace(text=delta.text[skip:])
                skip = 0
            else:
                yield delta


def units_of(delta: Delta) -> int:
    """Count the units of a delta."""
    return 1 if delta.kind in WHOLE else len(delta.text)


class Draft:
    """All deltas of one attempt to get an answer."""

    def __init__(self, attempt: int) -> None:
        """Begin with nothing."""
        self.attempt = attempt
        self._deltas: list[Delta] = []
        self._starts: list[int] = []
        self.units = 0

    def add(self, delta: Delta) -> None:
        """Append a piece. Another thread may read meanwhile: a piece is there after its place."""
        self._starts.append(self.units)
        self._deltas.append(delta)
        self.units += units_of(delta)

    def frame(self, since: int = 0) -> Frame:
        """Return the deltas from a place on."""
        first = len(self._deltas)
        while first and self._starts[first - 1] + units_of(self._deltas[first - 1]) > since:
            first -= 1
        at = self._starts[first] if first < len(self._starts) else self.units
        return Frame(self.attempt, at, tuple(self._deltas[first:]))

    def window(self) -> Frame:
        """Return the newest part, short enough for a heartbeat, in as few deltas as possible."""
        frame = self.frame(max(self.units - WINDOW, 0))
        return frame._replace(deltas=tuple(merged(frame.deltas)))


def merged(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Join neighbours that go on with the same text."""
    last: Delta | None = None
    texts: list[str] = []
    for delta in deltas:
        same = last is not None and (delta.kind, delta.place) == (last.kind, last.place)
        if last is not None and (not same or delta.kind in WHOLE):
            yield last._replace(text="".join(texts))
            texts.clear()
        last = delta
        texts.append(delta.text)
    if last is not None:
        yield last._replace(text="".join(texts))


def deltas_of(answer: ModelAnswer, *, size: int = 0) -> list[Delta]:
    """Return a whole answer as deltas.

    Args:
        answer: The answer.
        size: Characters of a delta; 0 for each text in one.
    """
    whole = [d for d in merged(_told(answer)) if d.text or d.kind == "call"]
    if not size:
        return whole
    return [piece for delta in whole for piece in _cut(delta, size)]


def as_told(answer: ModelAnswer, told: Sequence[Delta]) -> Sequence[Delta]:
    """Return a whole answer as the deltas in which it came, if these say exactly that.

    Args:
        answer: The answer.
        told: Its deltas, as far as they are known.
    """
    whole = deltas_of(answer)
    pieces = [delta for delta in told if delta.text or delta.kind == "call"]
    # The places of calls are other numbers in a record.
    same = [each._replace(place=0) for each in merged(_placed(pieces))] == [
        d._replace(place=0) for d in whole
    ]
    return pieces if same else whole


def _placed(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Yield deltas without the places that do not count: only those of calls do."""
    for delta in deltas:
        yield delta if delta.kind in ("call", "arguments") else delta._replace(place=0)


def _cut(delta: Delta, size: int) -> Iterator[Delta]:
    if delta.kind in WHOLE:
        yield delta
        return
    for start in range(0, len(delta.text), size):
        yield delta._replace(text=delta.text[start : start + size])


def _told(answer: ModelAnswer) -> Iterator[Delta]:
    """Yield an answer's items as deltas, in their order."""
    message = answer.message
    for place, item in enumerate(to_response_items([message])):
        match item.get("type", "message"):
            case "reasoning":
                yield from _texts(item.get("content"), "reasoning")
                yield from _texts(item.get("summary"), "reasoning")
            case "function_call":
                inside = as_text(item.get("namespace"))
                yield Delta("call", "", place, item["call_id"], item["name"], inside)
                yield Delta("arguments", item["arguments"], place)
            case "message" if answer.refusal and message.text == answer.refusal:
                yield Delta("refusal", answer.refusal)
            case "message":
                content: Json = item.get("content")
                yield from [Delta("text", content)] if isinstance(content, str) else _texts(content)
            case kind if is_passed_on(kind):
                yield Delta("item", told_in_stream(item), place, as_text(item.get("id")), kind)
            case _:
                continue


def _texts(parts: Json, kind: str = "") -> Iterator[Delta]:
    for part in filter(is_object, as_array(parts)):
        if part.get("type") == "refusal":
            yield Delta("refusal", as_text(part.get("refusal")))
        else:
            yield Delta("reasoning" if kind else "text", as_text(part.get("text")))


def goes_on(told: Sequence[Delta], whole: Sequence[Delta]) -> bool:
    """Return whether `told` is the beginning of `whole`.

    Reasoning at the beginning does not count: some providers stream it, but leave it out of the
    final answer.
    """
    ours, theirs = _flat(told), _flat(whole)
    if not ours:
        return True
    last = len(ours) - 1
    same = theirs[:last] == ours[:last] and len(theirs) > last
    return same and theirs[last].startswith(ours[last])


def _flat(deltas: Iterable[Delta]) -> list[str]:
    """Write deltas as texts to compare, one for each call or text."""
    joined = [delta for delta in merged(_placed(deltas)) if delta.text or delta.kind == "call"]
    while joined and joined[0].kind == "reasoning":
        joined.pop(0)
    # Providers may tell more of an item in a stream than in the answer, or less.
    texts = ("" if d.kind == "item" else d.text for d in joined)
    return [f"{d.kind} {d.id} {d.name} {text}" for d, text in zip(joined, texts, strict=True)]
