"""The page that compares two tasks or branches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from holdfast.desk.pages import parts
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import CARD, STRONG, TONES
from holdfast.desk.views.comparison import (
    ASPECTS,
    Comparison,
    Pair,
    Prompt,
    Side,
    compare,
    prompt_of,
    prompts_differ,
)
from holdfast.desk.views.words import cut, dotted, span, spent
from holdfast.errors import InvalidArgumentError, NotFoundError, message_of
from holdfast.task.happenings import happenings
from holdfast.task.shown import path_of
from holdfast.task.step_body import StepBody
from holdfast.values.text.redact import redact

READ_SECONDS = 8.0
SIDES = ("left", "right")
NEWEST = 100
"""Newest tasks that are offered; any other can be entered by its id."""


class Compare:
    """A comparison in one browser."""

    def __init__(self, frame: Frame, query: dict[str, str]) -> None:
        """Draw it.

        Args:
            frame: The frame of the page.
            query: Ids of two tasks as `left` and `right`, and their branches, if not the present
                ones, as `left_branch` and `right_branch`.
        """
        self._frame = frame
        self._query = query
        parts.heading("Compare", level=1)
        self._inputs: dict[str, Any] = {}
        with ui.row().classes("w-full items-center gap-2"):
            for side in SIDES:
                self._draw_inputs(side)
            parts.button("Compare", tone="main").on_click(self._go)
        self._body = ui.column().classes("w-full gap-3")
        self._is_drawn = False
        ui.timer(TICK_SECONDS * 2, lambda: frame.look(self._look))

    def _draw_inputs(self, side: str) -> None:
        given = self._query.get(side) or None
        options = {given: given} if given else dict[str, str]()
        task: Any = ui.select(
            options,
            label=f"{side.capitalize()} task",
            value=given,
            with_input=True,
            new_value_mode="add-unique",
            key_generator=str,
        )
        task.props("dense outlined options-dense")
        task.classes("w-[calc(70%-0.25rem)] sm:w-80")
        branch = ui.input("Branch", value=self._query.get(f"{side}_branch", ""))
        branch.props("dense outlined").classes("w-[calc(30%-0.25rem)] sm:w-24")
        branch.on("keydown.enter", self._go)
        self._inputs[side], self._inputs[f"{side}_branch"] = task, branch

    def _go(self) -> None:
        given = {name: str(made.value or "").strip() for name, made in self._inputs.items()}
        ui.navigate.to(
            parts.url("/compare", {name: value for name, value in given.items() if value})
        )

    async def _look(self) -> None:
        """Read both until they were compared once: what has run does not change."""
        if self._is_drawn:
            return
        newest = await self._frame.desk.runner.list_tasks(limit=NEWEST)
        offered = {each.task_id: dotted(each.task_id, redact(each.input)) for each in newest}
        for side in SIDES:
            made = self._inputs[side]
            made.set_options({**offered, **made.options})
        left, right = (self._query.get(side, "") for side in SIDES)
        if not (left and right):
            with self._body:
                more = (
                    "Choose two tasks, or one task and the number of one of its earlier branches."
                )
                parts.empty("compare_arrows", "Two tasks, step by step", more)
            self._is_drawn = True
            return
        try:
            async with asyncio.timeout(READ_SECONDS):
                paths = await asyncio.gather(*map(self._path, SIDES))
                prompts = await asyncio.gather(*map(self._prompt, SIDES))
        except (InvalidArgumentError, NotFoundError) as error:
            with self._body:
                parts.notice("bad", message_of(error), role="alert")
        else:
            with self._body:
                self._draw(compare(*paths), *prompts)
        self._is_drawn = True

    async def _path(self, side: str) -> list[StepBody]:
        branch = self._query.get(f"{side}_branch", "")
        entries = await self._frame.desk.runner.ledger(self._query[side])
        return path_of(happenings(entries), _number(branch))

    async def _prompt(self, side: str) -> Prompt | None:
        """Return the agent of a side; None when it cannot be read."""
        snapshot = await self._frame.desk.feed.snapshot(self._query[side])
        return prompt_of(snapshot) if snapshot is not None else None

    def _draw(self, found: Comparison, left: Prompt | None, right: Prompt | None) -> None:
        words = "Both did the same."
        if found.first is not None:
            words = f"The first difference is in step {found.first + 1}."
        unlike = prompts_differ(left, right) if left and right else ()
        if unlike:
            words += f" The agents differ: {', '.join(unlike)}."
        parts.notice("good" if found.first is None and not unlike else "info", words)
        with ui.element("div").classes("grid w-full grid-cols-1 gap-3 md:grid-cols-2"):
            for k, side in enumerate(SIDES):
                with ui.column().classes("min-w-0 gap-0"):
                    parts.link(
                        self._query[side],
                        parts.task_url(self._query[side]),
                        "font-medium break-all",
                    )
                    branch = self._query.get(f"{side}_branch", "")
                    cost = spent(found.usages[k]), f"{span(found.seconds[k])} in steps"
                    parts.quiet(dotted(f"branch {branch}" if branch else "", *cost))
        if left and right and unlike:
            _draw_prompts(left, right, unlike)
        for k, pair in enumerate(found.pairs):
            _draw_pair(k + 1, pair, [self._query[side] for side in SIDES])


def _number(typed: str) -> int | None:
    """Return the number of a branch; None for the present one."""
    return int(typed[:9]) if typed.isdecimal() else None


def _draw_prompts(left: Prompt, right: Prompt, differs: tuple[str, ...]) -> None:
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3"):
        with ui.row().classes("items-center gap-2"):
            parts.heading("Agents")
            parts.chip("differ", "info")
        with ui.element("div").classes("grid w-full grid-cols-1 gap-3 md:grid-cols-2"):
            for side in (left, right):
                with ui.column().classes("min-w-0 gap-2"):
                    for aspect in differs:
                        _draw_aspect(aspect, side.text(aspect) or "none", differs)


def _draw_pair(number: int, pair: Pair, names: Sequence[str]) -> None:
    look = "ring-2 ring-indigo-500 dark:ring-indigo-400" if pair.is_first else ""
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3 {look}"):
        with ui.row().classes("items-center gap-2"):
            parts.heading(f"Step {number}")
            if pair.is_equal:
                parts.chip("the same", "good")
            else:
                parts.chip("first difference" if pair.is_first else "differs", "info")
        if pair.is_equal and pair.left is not None:
            with ui.expansion("Show it").classes("w-full"):
                _draw_side(pair.left, ())
            return
        with ui.element("div").classes("grid w-full grid-cols-1 gap-3 md:grid-cols-2"):
            for name, side in zip(names, (pair.left, pair.right), strict=True):
                with ui.column().classes("min-w-0 gap-2"):
                    parts.text("span", name, f"text-sm font-medium break-all md:hidden {STRONG}")
                    if side is None:
                        parts.quiet("no such step")
                    else:
                        _draw_side(side, pair.differs if pair.left and pair.right else ())


def _draw_side(side: Side, differs: tuple[str, ...]) -> None:
    parts.quiet(dotted(spent(side.usage), span(side.seconds)))
    for aspect in ASPECTS:
        if said := side.text(aspect):
            _draw_aspect(aspect, said, differs)


def _draw_aspect(aspect: str, said: str, differs: tuple[str, ...]) -> None:
    with ui.column().classes("w-full gap-1"):
        with ui.row().classes("items-center gap-2"):
            parts.heading(aspect.capitalize(), level=3)
            if aspect in differs:
                parts.chip("differs", "warn")
        shown = parts.code(cut(said))
        if aspect in differs:
            shown.classes(TONES["warn"], remove="bg-slate-100 dark:bg-slate-800")
