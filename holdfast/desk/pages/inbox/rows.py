"""The rows of the inbox, which change one by one: the keyboard's place in them is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nicegui import ui
from nicegui.element import Element

from holdfast.desk.pages.parts import QUIET, STRONG, button, chip, quiet, text
from holdfast.desk.views.cards import TITLES, title_of, waits_for
from holdfast.desk.views.words import brief, data_of
from holdfast.task.data.calls import Approval
from holdfast.task.people.choices import Choice, choices_of
from holdfast.values.text.decided import for_decision

AT_FIRST = 50
"""Rows that are shown at first; more when they are asked for."""

_CHOSEN = "border-indigo-500 bg-[#fff] dark:bg-slate-800"
_OTHER = "border-transparent hover:bg-[#fff] dark:hover:bg-slate-800"


class Row:
    """One approval in the list."""

    def __init__(
        self,
        approval: Approval,
        choose: Callable[[str], None],
        mark: Callable[[str, bool], None],
    ) -> None:
        """Draw it.

        Args:
            approval: The approval.
            choose: Shows its card.
            mark: Marks it for a decision on several, or takes the mark away.
        """
        self._approval = approval
        self._is_chosen = False
        self._item = ui.element("li").classes("w-full")
        with self._item, ui.row().classes("w-full items-center flex-nowrap gap-0"):
            self._mark = ui.checkbox(
                on_change=lambda event: mark(approval.id, bool(event.value)),
            )
            self._mark.props["aria-label"] = f"Mark {approval.id}"
            self._mark.props("dense size=sm")
            self._row = ui.element("button").classes(
                f"min-w-0 flex-1 cursor-pointer rounded-lg border-l-4 px-3 py-2 text-left {_OTHER}"
            )
            self._row.props('type="button"').on("click", lambda: choose(approval.id))
            with self._row:
                self._draw()

    def _draw(self) -> None:
        approval = self._approval
        with ui.element("span").classes("flex w-full items-center gap-2"):
            text("span", title_of(approval), f"truncate text-sm font-medium {STRONG}")
            ui.space()
            self._age = text("span", "", f"text-xs whitespace-nowrap {QUIET}")
        what = for_decision(brief(data_of(approval.as_agreed)) or approval.text)
        text("span", what, f"block truncate text-xs {QUIET}")
        with ui.element("span").classes("mt-1 flex items-center gap-2"):
            text("span", approval.agent, f"truncate text-xs {QUIET}")
            if approval.kind != "tool":
                chip(TITLES[approval.kind], "warn")

    def show(self, *, now: float, is_chosen: bool, is_marked: bool) -> None:
        """Show its age, whether its card is the one that is shown, and whether it is marked."""
        age = waits_for(self._approval, now=now)
        if self._age.text != age:
            self._age.text = age
        if self._mark.value != is_marked:
            self._mark.value = is_marked
        if self._is_chosen != is_chosen:
            self._is_chosen = is_chosen
            add, remove = (_CHOSEN, _OTHER) if is_chosen else (_OTHER, _CHOSEN)
            self._row.classes(add, remove=remove)
            self._row.props(
                add="aria-current=true" if is_chosen else None,
                remove=None if is_chosen else "aria-current",
            )

    def delete(self) -> None:
        """Take it out of the list."""
        self._item.delete()


class Rows:
    """The list of what waits."""

    def __init__(self, choose: Callable[[str], None], mark: Callable[[str, bool], None]) -> None:
        """Draw it, empty.

        Args:
            choose: Shows the card of an approval.
            mark: Marks an approval, or takes the mark away.
        """
        self._choose, self._mark = choose, mark
        self._rows: dict[str, Row] = {}
        self._most = AT_FIRST
        self._shown: Sequence[Approval] = ()
        self._list: Element = (
            ui.element("ul")
            .props('aria-label="What waits"')
            .classes("m-0 flex w-full list-none flex-col gap-1 p-0")
        )
        self._more = button("").on_click(self._grow)
        self._more.set_visibility(False)
        self._last: tuple[float, str, frozenset[str]] = (0.0, "", frozenset())

    def show(
        self, shown: Sequence[Approval], *, now: float, chosen: str, marked: frozenset[str]
    ) -> None:
        """Show these approvals.

        Args:
            shown: The approvals, oldest first.
            now: Time, seconds since the epoch.
            chosen: Id of the one whose card is shown.
            marked: Ids of the marked ones.
        """
        self._shown, self._last = shown, (now, chosen, marked)
        wanted = shown[: self._most]
        ids = {each.id for each in wanted}
        for gone in [each for each in self._rows if each not in ids]:
            self._rows.pop(gone).delete()
        if [*self._rows] != [each.id for each in wanted[: len(self._rows)]]:
            self._list.clear()
            self._rows.clear()
        with self._list:
            for approval in wanted[len(self._rows) :]:
                self._rows[approval.id] = Row(approval, self._choose, self._mark)
        for approval_id, row in self._rows.items():
            row.show(now=now, is_chosen=approval_id == chosen, is_marked=approval_id in marked)
        self._more.set_visibility(len(shown) > self._most)
        self._more.text = f"Show more of {len(shown):,}"

    def _grow(self) -> None:
        self._most += AT_FIRST
        now, chosen, marked = self._last
        self.show(self._shown, now=now, chosen=chosen, marked=marked)


def draw_several(
    marked: Sequence[Approval],
    press: Callable[[Choice], None],
    clear: Callable[[], None],
    barred: str,
) -> None:
    """Draw the decisions on all approvals that are marked, if they are calls of one tool.

    Args:
        marked: The approvals.
        press: Called with the decision.
        clear: Takes the marks away.
        barred: Why who looks may not decide one of them; empty when they may decide all.
    """
    look = "w-full gap-2 rounded-lg border border-indigo-300 p-3 dark:border-indigo-700"
    with ui.column().classes(look):
        if len({(each.tool, each.kind) for each in marked}) > 1:
            quiet(f"{len(marked)} marked, of several tools: mark calls of one tool only.")
        else:
            for chosen in choices_of(marked[0]):
                if chosen.verb in ("approve", "reject"):
                    label = f"{chosen.label} ({len(marked)})"
                    made = button(label, tone="danger" if chosen.verb == "reject" else "main")
                    made.on_click(partial(press, chosen)).classes("w-full").set_enabled(not barred)
            if barred:
                quiet(barred)
        button("Clear marks").on_click(clear).props("dense")
