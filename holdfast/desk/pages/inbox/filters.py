"""Around the list of the inbox: its filters, the help for keys, and the words for an empty one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, cast

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from holdfast.desk.pages.parts import button, empty, heading, open_dialog, text
from holdfast.desk.views.cards import TITLES
from holdfast.desk.views.words import counted
from holdfast.reading.inbox import InboxFilter, choices
from holdfast.task.data.calls import Approval
from holdfast.values.runs.verbs import LISTED, VERBS

KEYS = (
    ("a", "approve"),
    ("e", "edit the arguments"),
    ("w", "approve, and later calls that fit"),
    ("r", "reject, with a reason"),
    ("v", "give the result yourself"),
    *((each.button[0], each.button[1].lower()) for each in VERBS.values() if each.button),
    ("s", "skip to the next"),
    ("j / k", "next and previous"),
    ("x", "mark for a decision on several"),
    ("?", "this help"),
)
OLDER = {0: "Any age", 60: "Over 1 min", 3600: "Over 1 h", 86400: "Over 1 day"}


def draw_nothing(outside: int) -> None:
    """Say that no approval is shown.

    Args:
        outside: How many the filter leaves out.
    """
    if outside:
        more = f"{counted(outside, 'approval')} wait outside of this filter."
        empty("filter_alt_off", "Nothing fits this filter", more)
    else:
        empty(
            "task_alt",
            "Nothing waits for a person",
            "Calls that need approval, calls that may have happened, used up budgets and undos"
            " come here by themselves.",
        )


class Filters:
    """The filters, which offer the agents and tools of what waits."""

    def __init__(self, filter_by: Callable[..., None]) -> None:
        """Make room for them.

        Args:
            filter_by: Called with what a person has changed.
        """
        self._filter_by = filter_by
        self._row = ui.row().classes("w-full items-center gap-2")
        self._selects: dict[Literal["agent", "tool"], Any] = {}

    def show(self, wanted: InboxFilter, approvals: Sequence[Approval]) -> None:
        """Draw them once, and offer what has come since.

        Args:
            wanted: What they are set to.
            approvals: What they are chosen from.
        """
        if not self._selects:
            with self._row:
                self._draw(wanted)
        for name, made in self._selects.items():
            known = {*choices(approvals, name), cast("str", getattr(wanted, name))} - {""}
            options = {"": f"Any {name}"} | {each: each for each in sorted(known)}
            if made.options != options:
                made.set_options(options)

    def _draw(self, wanted: InboxFilter) -> None:
        search = ui.input(
            placeholder="Search",
            value=wanted.q,
            on_change=lambda event: self._filter_by(q=event.value or ""),
        ).props('dense outlined debounce=200 clearable type=search aria-label="Search"')
        search.classes("w-full sm:w-56")
        names: tuple[Literal["agent", "tool"], ...] = ("agent", "tool")
        for name in names:
            given = cast("str", getattr(wanted, name))
            options = {"": f"Any {name}"} | ({given: given} if given else {})
            self._selects[name] = self._select(name, name.capitalize(), options, given)
        kinds = {"": "Any kind"} | {str(kind): words.capitalize() for kind, words in TITLES.items()}
        self._select("kind", "Kind", kinds, wanted.kind)
        ages = OLDER if wanted.older in OLDER else {**OLDER, wanted.older: f"Over {wanted.older} s"}
        self._select("older", "Age", ages, wanted.older)
        for flag, means in LISTED.items():
            made = ui.checkbox(flag.capitalize(), value=bool(getattr(wanted, flag)))
            made.on_value_change(partial(self._tick, flag)).tooltip(means)

    def _tick(self, flag: str, event: ValueChangeEventArguments[Any]) -> None:
        self._filter_by(**{flag: bool(event.value)})

    def _select(self, name: str, label: str, options: Any, value: object) -> Any:
        made: Any = ui.select(
            options, value=value, on_change=lambda event: self._filter_by(**{name: event.value})
        )
        made.props(f'dense outlined options-dense aria-label="{label}"').classes(
            "w-[calc(50%-0.25rem)] sm:w-[9.5rem]"
        )
        return made


def show_keys(closed: Callable[[], None]) -> None:
    """Show what the keys do; `closed` is called when the dialog is."""
    with open_dialog("Keys", wide=False, closed=closed) as dialog:
        heading("Keys")
        with ui.element("dl").classes("m-0 grid grid-cols-[auto_1fr] gap-x-4 gap-y-2 text-sm"):
            for key, does in KEYS:
                text("dt", key, "font-mono font-semibold")
                text("dd", does, "m-0")
        button("Close", tone="main").on_click(dialog.close).props("autofocus")
