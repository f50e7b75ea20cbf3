"""Texts for a person who decides about them: what the model wrote must not hide what it does."""

from __future__ import annotations

import hashlib
import re

from holdfast.values.text.redact import REDACTED, known_secrets, replaced
from holdfast.values.text.terminal import escaped, printable_json

SHORTEST_LINE = 48
"""Fewest characters in a line of a private key."""

_PLAIN = re.compile(r"(?:(?:Bearer|Basic)\s+)?[A-Za-z0-9+/=_.~-]+")
"""Key material: nothing of it is an operator, a blank or an address to any program."""

_MARK = 0xF0000
_MARKED = re.compile(re.escape(REDACTED) + "([\U000f0000-\U000ffffd])")
"""Which of the hidden texts is there, for as long as others are looked for."""


_BLANKS = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def exact(text: str) -> str:
    """Write out what `printable` does, and odd blanks; a JSON text keeps its value."""
    return _BLANKS.sub(escaped, printable_json(text))


def for_decision(text: str) -> str:
    """Return a text for a person who decides about it: all that acts can be read."""
    return exact(covered(text))


def covered(text: str) -> str:
    """Hide secrets, but nothing that acts.

    What looks like a secret is hidden only where it is plain key material, and what is hidden has
    its length and the beginning of its digest. The model chooses the text: behind the name of a
    secret it could hide a command.
    """
    hidden: list[str] = []

    def hide(found: str) -> str:
        if not (_PLAIN.fullmatch(found) or _is_private_key(found) or found in known):
            return found
        hidden.append(found)
        return f"{REDACTED}{chr(_MARK + len(hidden) - 1)}"

    def said(found: re.Match[str]) -> str:
        at = ord(found[1]) - _MARK
        return _hidden(hidden[at]) if at < len(hidden) else found[0]

    known = known_secrets()
    return _MARKED.sub(said, replaced(text, hide))


def _is_private_key(text: str) -> bool:
    """Whether a text is a private key alone: lines of base64; only the last may be short."""
    inside = re.sub(r"-----(?:BEGIN|END) [A-Z ]*PRIVATE KEY-----", "", text)
    *lines, last = re.split(r"(?:\s|\\[nr])+", inside.strip().removesuffix("\\n")) or [""]
    are_long = all(len(line) >= SHORTEST_LINE for line in lines if line)
    return inside != text and are_long and all(map(_PLAIN.fullmatch, filter(None, (*lines, last))))


def _hidden(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[hidden: {len(text)} characters, sha256 {digest[:16]}]"
