"""Filter a stream of ReAct text for the answer, shown only once it is certain to be the answer."""

from __future__ import annotations

from holdfast.workers.react.keywords import (
    Keyword,
    after_thinking,
    is_wrapped,
    keywords,
    may_be_thinking,
)
from holdfast.workers.react.parser import Answer, parse


class AnswerFilter:
    """Takes a model's reply in pieces, and returns the pieces that certainly belong to the answer.

    The returned pieces, joined, are the text of the `Answer` that `parse` reads from the whole
    reply; for any other reply they are empty. So a thought, or a polite opening before an action,
    is never shown as the answer. A reply without keywords is known to be the answer only at its
    end, and is returned there in one piece; so is an answer after a repeated observation, or after
    an action such as "None".

    It sees the reply only: an answer that a tool returns directly, or that a worker makes at its
    limit, does not pass through it.
    """

    def __init__(self) -> None:
        """Begin a reply."""
        self._pieces: list[str] = []
        self._held = ""  # before the answer: from the last line's start; in it: not yet let through
        self._sent = 0
        self._state = "begin"

    def feed(self, delta: str) -> str:
        """Take the next piece of the reply; return the next certain piece of the answer.

        Args:
            delta: Text of any length, also empty.
        """
        self._pieces.append(delta)
        if self._state == "closed":
            return ""
        self._held += delta
        if self._state == "begin":
            self._pass_thinking()
        if self._state == "before":
            self._look_for_answer()
        return self._let_through() if self._state == "answer" else ""

    def finish(self) -> str:
        """End the reply; return the rest of the answer."""
        self._state = "closed"
        match parse("".join(self._pieces)):
            case Answer(text=text):
                return text[self._sent :]
            case _:
                return ""

    def _pass_thinking(self) -> None:
        """Wait until it is certain that no `<think>` block is open or about to begin."""
        rest = after_thinking(self._held)
        if rest is not None and not may_be_thinking(rest):
            self._held = rest
            self._state = "before"

    def _look_for_answer(self) -> None:
        """Search the new lines for the keyword that decides the reply's kind."""
        key = next((k for k in keywords(self._held) if k.kind != "thought"), None)
        if key is None:
            self._held = self._held[self._held.rfind("\n") + 1 :]
        elif key.kind != "answer":
            self._state = "closed"
        elif self._is_settled(key):
            self._held = self._held[key.end :]
            reply = after_thinking("".join(self._pieces)) or ""
            certain = not key.mark and not is_wrapped(reply)
            self._state = "answer" if certain else "closed"

    def _is_settled(self, key: Keyword) -> bool:
        """Whether the text behind the keyword can no longer be a part of its markdown."""
        rest = self._held[key.end :].lstrip()
        return bool(rest) and not (key.mark and key.mark.startswith(rest))

    def _let_through(self) -> str:
        """Return the held text without white space at its end, where the reply may end."""
        certain = self._held.rstrip()
        self._held = self._held[len(certain) :]
        certain = certain if self._sent else certain.lstrip()
        self._sent += len(certain)
        return certain
