"""A card of the inbox, drawn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nicegui import ui

from holdfast.desk.pages import parts
from holdfast.desk.pages.parts import CARD, OF_COLOUR, QUIET, STRONG
from holdfast.desk.views.cards import Card, Field, waits_for
from holdfast.task.people.choices import TITLES, Choice

_EFFECT_TONES: dict[str, parts.Tone] = {"read": "calm", "reversible": "good", "irreversible": "bad"}
_LOOKS = {
    "positive": "bg-emerald-700 text-white",
    "primary": "bg-indigo-700 text-white",
    "negative": "bg-rose-100 text-rose-900 dark:bg-rose-950 dark:text-rose-100",
    "grey": "bg-slate-200 text-slate-900 dark:bg-slate-700 dark:text-slate-50",
}


_ACTIONS = "grid w-full grid-cols-[1fr_1fr_1fr_auto] gap-2 pt-1 sm:flex"
"""Three buttons and a menu: on one line also of a telephone."""


def draw_card(
    card: Card,
    *,
    now: float,
    choose: Callable[[Choice], None],
    uncover: Callable[[], object],
    steps: str,
    asked: str,
) -> None:
    """Draw a card.

    Args:
        card: What waits.
        now: Time, seconds since the epoch.
        choose: Called with the button that is pressed.
        uncover: Called to have the secrets of the arguments shown.
        steps: Place of the card among all, in words.
        asked: Names of those who may decide; empty for anybody.
    """
    with (
        ui.element("article")
        .classes(f"{CARD} flex flex-col gap-4")
        .props('aria-labelledby="card-title"')
    ):
        _head(card, now, steps)
        if card.deadline:
            parts.notice("warn", f"Expires {card.deadline}. Then {card.after}.")
        _rule(card, asked)
        if card.known:
            with ui.column().classes("w-full gap-1"):
                parts.heading("What is known", level=3)
                parts.text("p", card.known, f"m-0 text-sm whitespace-pre-wrap break-words {STRONG}")
        draw_arguments(card)
        if card.is_secret:
            parts.notice("warn", "A part of the call is hidden, because it looks like a secret.")
            if not all(each.barred for each in card.buttons):
                parts.button("Show it, which is recorded").on_click(uncover).props("data-uncover")
        _why(card)
        for why in card.barred:
            parts.notice("calm", why)
        with ui.element("div").classes(_ACTIONS):
            for each in card.first_buttons:
                _draw_button(each, choose)
            if others := [each for each in card.buttons if each not in card.first_buttons]:
                _draw_more(others, choose)


def _head(card: Card, now: float, steps: str) -> None:
    approval = card.approval
    with ui.column().classes("w-full gap-2"):
        with ui.row().classes("w-full items-center gap-2 flex-nowrap"):
            title = parts.heading(card.title).props('id="card-title" tabindex="-1"')
            title.classes("min-w-0 break-words text-xl", remove="text-base")
            ui.space()
            parts.quiet(steps, "whitespace-nowrap")
        with ui.row().classes("items-center gap-2"):
            parts.chip(TITLES[approval.kind], "warn" if approval.kind == "unknown" else "info")
            if card.effect:
                parts.chip(card.effect, _EFFECT_TONES.get(approval.effect, "calm"))
            parts.quiet(" · ".join(card.asker))
            parts.quiet(f"asked {waits_for(approval, now=now)} ago")
        with ui.row().classes("items-center gap-x-4 gap-y-1"):
            step = {"step": str(approval.n)} if approval.n else {}
            parts.link("Open the step", parts.task_url(card.task_id, **step), "text-sm font-medium")
            parts.copied(card.id, QUIET).props("data-approval")


def _rule(card: Card, asked: str) -> None:
    """Say who decides, how many have decided, and who gets it next."""
    parts.facts(
        [
            *((name.capitalize(), text) for name, text in card.approval.about.items()),
            ("Asked", asked if asked != card.approval.about.get("decides") else ""),
            ("Arguments", "as these have edited them" * bool(card.approval.agreed)),
            ("Escalation", card.escalation),
        ]
    )


def draw_arguments(card: Card) -> None:
    """Draw all that a call would run with."""
    approval = card.approval
    if not approval.tool or not approval.arguments:
        return
    with ui.column().classes("w-full gap-2"):
        parts.heading("Arguments", level=3)
        if card.fields:
            with ui.element("dl").classes(
                "m-0 w-full overflow-hidden rounded-lg border border-slate-200"
                " dark:border-slate-700"
            ):
                for k, field in enumerate(card.fields):
                    _field(field, is_first=k == 0)
        else:
            parts.code(card.raw)
        if card.filled_in:
            parts.code("\n".join(card.filled_in))
        if not card.is_whole:
            parts.notice(
                "warn", "Without a worker process, only the beginning of the call is known."
            )
        if card.undo:
            parts.quiet(card.undo)


def _field(field: Field, *, is_first: bool) -> None:
    line = "" if is_first else "border-t border-slate-200 dark:border-slate-700 "
    row = "grid grid-cols-1 gap-x-4 px-3 py-2 sm:grid-cols-[11rem_1fr]"
    with ui.element("div").classes(f"{line}{row}"):
        with ui.element("dt").classes("min-w-0 break-words"):
            parts.text("span", field.name, f"text-sm font-medium {STRONG}")
            parts.text("span", f" {field.type}", f"text-xs {QUIET}")
        with ui.element("dd").classes("m-0 min-w-0"):
            if field.is_given:
                parts.text(
                    "div",
                    field.text,
                    f"font-mono text-[13px] leading-6 whitespace-pre-wrap break-words {STRONG}",
                )
            else:
                parts.quiet("left out")
            if field.description:
                parts.text("div", field.description, f"text-xs {QUIET}")


def _why(card: Card) -> None:
    if not (card.why or card.goal):
        return
    with ui.column().classes("w-full gap-2"):
        parts.heading("Why the agent asks", level=3)
        if card.why:
            parts.prose(card.why, "border-l-4 border-indigo-300 pl-3 dark:border-indigo-700")
        if card.goal:
            with ui.row().classes("w-full gap-2 flex-nowrap"):
                parts.quiet("Its task:", "whitespace-nowrap")
                parts.text("span", card.goal, f"min-w-0 break-words text-sm {STRONG}")


def _draw_button(shown: Choice, choose: Callable[[Choice], None]) -> None:
    made = ui.button(on_click=lambda: choose(shown), color=None)
    made.props(f'unelevated no-caps data-verb="{shown.verb}"')
    made.classes(f"min-w-0 rounded-lg font-medium max-sm:px-2 {_LOOKS[shown.colour]}")
    made.set_enabled(not shown.barred)
    with made, ui.row().classes("items-center gap-2 flex-nowrap"):
        parts.text("span", shown.label, "min-w-0 break-words text-left")
        hint = parts.key_hint(shown.key).classes("max-sm:hidden")
        if shown.colour not in ("negative", "grey"):
            hint.classes("border-white/50 text-white", remove="border-slate-300 text-slate-700")
    made.tooltip(shown.more)


def _draw_more(others: list[Choice], choose: Callable[[Choice], None]) -> None:
    """Draw a menu of the decisions that are taken less often."""
    made = parts.button("", icon="more_horiz").classes("max-sm:px-2").props('aria-label="More"')
    with made, ui.menu():
        for each in others:
            item = ui.menu_item(on_click=partial(choose, each))
            item.props(f'role=menuitem data-verb="{each.verb}"')
            item.set_enabled(not each.barred)
            with item, ui.row().classes("w-full items-center justify-between gap-4 flex-nowrap"):
                parts.text("span", each.label, f"text-sm {STRONG}")
                parts.key_hint(each.key)


def draw_gone(approval_id: str, title: str, who: str) -> None:
    """Draw the outcome of a card that another person has decided meanwhile."""
    with ui.element("article").classes(f"{CARD} flex flex-col gap-3"):
        parts.heading(title)
        words = (
            f"Decided meanwhile: {who}" if who else "It no longer waits: its step or task is over"
        )
        parts.notice(OF_COLOUR["primary"], f"{words}. Nothing of yours was sent.")
        parts.quiet(approval_id, "font-mono break-all")
