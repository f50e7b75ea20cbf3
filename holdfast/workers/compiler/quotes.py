"""Quoted texts whose inner quotes are not escaped: read where that is safe, else refused.

Pure. A model that forgets to escape writes `"he said "hi" to me"`, and one that takes a plan for a
program writes `"a" + "b"`. Passed to a tool as they are, both would be wrong without any error.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"[rRbBuUfF]{0,2}[\"']")
_SUM = re.compile(r"\$(?:[0-9]+|\{\s*[0-9]+\s*\})\s*\+\s*[\"']")
_SHOWN = 60


def is_code(text: str) -> bool:
    """Whether unquoted text looks like a quoted text, or like a sum of texts."""
    return _QUOTED.match(text) is not None or _SUM.match(text) is not None


def refusal(text: str) -> str:
    """Make the message that says why such a text is not a value, and how to write it."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return (
        f"{shown} is not a value: write a text in one pair of quotes, with \\ before such a quote"
        " inside it, and without prefix or +; $1 may stand inside the text"
    )


def escaped(text: str) -> str | None:
    """Return a quoted text with the quotes inside it escaped.

    Quotes inside must be apostrophes between letters, or pairs around words; anything else, as in
    `"a" + "b"`, may be several texts.

    Args:
        text: A text that begins with a quote.

    Returns:
        The text with both its outer quotes; None when it is uncertain which quotes those are.
    """
    quote, last = text[0], len(text) - 1
    if text[last] != quote or quote not in "\"'":
        return None
    parts, is_inside = [quote], False
    for at in range(1, last):
        letter, before, after = text[at], text[at - 1], text[at + 1]
        if letter != quote or before == "\\":
            parts.append(letter)
            continue
        if quote == "'" and before.isalnum() and after.isalnum():
            pass  # what's
        elif is_inside and _may_end(before) and not after.isalnum():
            is_inside = False
        elif not is_inside and (before.isspace() or before in "([{") and _may_begin(after):
            is_inside = True
        else:
            return None
        parts.append("\\" + quote)
    return None if is_inside else "".join((*parts, quote))


def _may_begin(letter: str) -> bool:
    return letter.isalnum() or letter == "$"


def _may_end(letter: str) -> bool:
    return letter.isalnum() or letter in ".!?,;:)}…"
