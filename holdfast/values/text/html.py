"""How a notebook shows a value: a small table, with everything in it escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

LONGEST = 2000
"""Characters of a value; what is longer is cut, with a note of how much is missing."""


def table(title: str, rows: Mapping[str, object]) -> str:
    """Return an HTML table of a title and named values.

    Args:
        title: What is shown.
        rows: Values by name; one that is empty, as text, is left out.
    """
    shown = {name: str(value) for name, value in rows.items()}
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left;white-space:pre-wrap">{escape(_cut(value))}</td></tr>'
        for name, value in shown.items()
        if value
    )
    return f'<table><caption style="text-align:left">{escape(title)}</caption>{body}</table>'


def _cut(text: str) -> str:
    beyond = len(text) - LONGEST
    return text if beyond <= 0 else f"{text[:LONGEST]}… ({beyond} more characters)"
