"""Texts of models, tools and users for a terminal: shown, never obeyed.

A terminal obeys escape sequences of any author: they set its title, clear it, write to the
clipboard, or hide what follows. Marks that change the direction of writing show another text than
the one that is there, and so do characters without width, which also hide whole texts.
"""

from __future__ import annotations

import re

JOINERS = "\u200c\u200d"
SELECTORS = "\ufe0e\ufe0f"
"""Joiners and selectors of a sign's colour have a use between certain characters."""

OTHERS = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2028\u2029\u2800"
)
"""The rest, as the inside of a character class: Unicode's Default_Ignorable_Code_Point (which has
the marks of direction and the tags), annotations, separators of lines, and the braille blank."""

INVISIBLE = re.compile(f"[{JOINERS}{SELECTORS}{OTHERS}]")
"""Any of them."""


_SIGN = "\xa9\xae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    f"\ud800-\udfff{OTHERS}]"
    f"|(?<![^\n\t -~{JOINERS}])[{JOINERS}]|[{JOINERS}](?![^\n\t -~{JOINERS}])"  # that join nothing
    f"|(?<![{_SIGN}])[{SELECTORS}](?!\u20e3)"  # where they select nothing; a keycap has one, too
)


def printable(text: str) -> str:
    r"""Write out what a terminal would obey, as in `\x1b`; newlines and tabs stay.

    A carriage return before a newline is left out.
    """
    return _OBEYED.sub(_written_out, text.replace("\r\n", "\n"))


def printable_json(text: str) -> str:
    r"""Write out, as in `\u009b`, what a terminal would obey in a JSON text: its value stays."""
    return _OBEYED.sub(escaped, text)


def escaped(found: re.Match[str]) -> str:
    r"""Return a character as a JSON text escapes it, as in `\u009b`."""
    return "".join(f"\\u{unit:04x}" for unit in _units(found[0]))


def _units(character: str) -> tuple[int, ...]:
    """Return the units of a character in UTF-16, as escapes in JSON have them."""
    data = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(data[k : k + 2], "big") for k in range(0, len(data), 2))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:  # noqa: PLR2004  of one byte
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004  of two bytes
