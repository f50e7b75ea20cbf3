"""Texts of models, tools and users on their way to a terminal: shown, never obeyed.

A terminal obeys escape sequences, whoever wrote them: they set its title, clear it, write to the
clipboard, or hide what follows. Marks that change the direction of writing show another text than
the one that is there.
"""

from __future__ import annotations

import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    "\u2028\u2029\ud800-\udfff]"  # line and paragraph separators, surrogates
)


def printable(text: str) -> str:
    r"""Write out what a terminal would obey, as in `\x1b`; newlines and tabs stay.

    A carriage return before a newline is left out.
    """
    return _OBEYED.sub(_written_out, text.replace("\r\n", "\n"))


def printable_json(text: str) -> str:
    r"""Write out, as in `\u009b`, what a terminal would obey in a JSON text: its value stays."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004  of one byte
