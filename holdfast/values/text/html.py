"""How a notebook shows a value: a small table, with everything in it escaped.

The tables set no colours, so that they have those of the notebook, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TypeVar

from holdfast.values.text.shown import cut

LONGEST = 2000
"""Characters of a value; what is longer is cut, with a note of its length."""

LONGEST_CELL = 200
"""The same for a value in a row of a list."""


class InNotebook:
    """A value that a notebook shows as a table."""

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return a title, and what is known under it, by name."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return table(*self._shown())


T = TypeVar("T", bound=InNotebook)


class Rows(list[T]):
    """A list that a notebook shows as a table, one row for each value."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        shown = [each._shown() for each in self]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return grid([{"": title, **rows} for title, rows in shown])


def written(value: object) -> str:
    """Return a part of a declaration: a text as it is, else its name or the name of its type."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(getattr(value, "__name__", type(value).__name__))


def table(title: str, rows: Mapping[str, object]) -> str:
    """Return an HTML table of a title and named values.

    Args:
        title: What is shown.
        rows: Values by name; one that is empty, as text, is left out.
    """
    shown = {name: str(value) for name, value in rows.items()}
    body = "".join(
        f"<tr>{_cell('th', name)}{_cell('td', cut(value, LONGEST))}</tr>"
        for name, value in shown.items()
        if value
    )
    caption = '<caption style="text-align:left;white-space:nowrap">'
    return f"<table>{caption}{escape(cut(title, LONGEST_CELL))}</caption>{body}</table>"


def grid(rows: Sequence[Mapping[str, object]]) -> str:
    """Return an HTML table with a row for each mapping, and a column for each name with values."""
    shown = [{name: str(value) for name, value in row.items()} for row in rows]
    known = dict.fromkeys(name for row in shown for name in row)
    names = [name for name in known if any(row.get(name) for row in shown)]
    head = "".join(_cell("th", name) for name in names)
    lines = [
        "".join(_cell("td", cut(row.get(n, ""), LONGEST_CELL)) for n in names) for row in shown
    ]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(tag: str, text: str) -> str:
    return f'<{tag} style="text-align:left;white-space:pre-wrap">{escape(text)}</{tag}>'
