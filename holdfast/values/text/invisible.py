"""The characters that nothing shows, by which one text can look like another."""

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
