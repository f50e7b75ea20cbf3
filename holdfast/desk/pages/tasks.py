"""The list of tasks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any

from nicegui import ui

from holdfast.desk.pages import parts
from holdfast.desk.pages.creation import ask_for_task, draw_first
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import LINE, OF_COLOUR, QUIET, STRONG
from holdfast.desk.views.tasks import MEANING, MOST_SEARCHED, STATUSES, Row, TaskFilter, row_of
from holdfast.desk.views.words import cut, dotted, spent
from holdfast.errors import HoldfastError
from holdfast.task.data.calls import Approval
from holdfast.values.checks.ids import task_of
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import ListedTask, Task
from holdfast.values.text.shown import counted
from holdfast.values.text.terminal import printable

PAGE_ROWS = 25
"""Tasks of a page: each is asked for its steps and tokens."""

DETAIL_SECONDS = 1.5
"""How long a page waits for one task to tell its steps and tokens."""


class Tasks:
    """The list of tasks in one browser."""

    def __init__(self, frame: Frame, wanted: TaskFilter) -> None:
        """Draw it."""
        self._frame, self._wanted = frame, wanted
        self._details: dict[str, Task] = {}
        self._ages: dict[str, Any] = {}
        self._more = False
        self._next = ""
        self._before: list[str] = []
        self._draw()

    def _draw(self) -> None:
        wanted = self._wanted
        with ui.row().classes("w-full items-center justify-between gap-2"):
            parts.heading("Tasks", level=1)
            with ui.row().classes("items-center gap-4"):
                parts.link("Schedules", "/schedules", "text-sm")
                parts.link("Charts", "/charts", "text-sm")
                if self._frame.can("create"):
                    new = parts.button("New task", tone="main", icon="add")
                    new.on_click(lambda: ask_for_task(self._frame))
        with ui.row().classes("w-full items-center gap-2"):
            search = ui.input(
                placeholder="Search",
                value=wanted.text,
                on_change=lambda event: self._filter(text=event.value or ""),
            ).props('dense outlined debounce=250 clearable type=search aria-label="Search"')
            search.classes("w-full sm:w-64")
            agent = ui.input(
                placeholder="Agent",
                value=wanted.agent,
                on_change=lambda event: self._filter(agent=event.value or ""),
            ).props('dense outlined debounce=250 clearable aria-label="Agent"')
            agent.classes("w-[calc(50%-0.25rem)] sm:w-44")
            options = {"": "Any status"} | {each: each.replace("_", " ") for each in STATUSES}
            status = ui.select(
                options,
                value=wanted.status or "",
                on_change=lambda event: self._filter(status=event.value or None),
            ).props('dense outlined options-dense aria-label="Status"')
            status.classes("w-[calc(50%-0.25rem)] sm:w-44")
        self._none = parts.Part()
        self._table = parts.PartList("Tasks", tag="ul", item=_ROW)
        self._foot = parts.Part("flex w-full items-center justify-between gap-2")
        self._table.element.set_visibility(False)
        ui.timer(TICK_SECONDS * 1.5, lambda: self._frame.look(self._look))

    def _filter(self, **changes: Any) -> None:
        self._wanted, self._before = replace(self._wanted, page=1, after="", **changes), []
        self._show_address()
        ui.timer(0, lambda: self._frame.look(self._look, at_once=True), once=True)

    def _turn(self, by: int) -> None:
        wanted, after = self._wanted, ""
        if wanted.text:
            after = wanted.after
        elif by > 0:
            self._before.append(wanted.after)
            after = self._next
        elif self._before:
            after = self._before.pop()
        is_first = not wanted.text and not after
        self._wanted = replace(wanted, after=after, page=1 if is_first else wanted.page + by)
        self._show_address()
        ui.timer(0, lambda: self._frame.look(self._look, at_once=True), once=True)

    def _show_address(self) -> None:
        parts.show_address(parts.url("/tasks", self._wanted.query))

    async def _look(self) -> None:
        wanted = self._wanted
        tasks = await self._read(wanted)
        if not self._ages and wanted is self._wanted:  # steps and approvals come a moment later
            now = time.time()
            self._frame.loaded()
            self._draw_rows([row_of(task, now=now) for task in tasks])
        waiting = await self._frame.desk.feed.waiting()
        self._frame.count(waiting)
        asked: dict[str, list[Approval]] = {}
        for approval in waiting:
            asked.setdefault(task_of(approval.id), []).append(approval)
        known = await asyncio.gather(*map(self._detail, tasks))
        if wanted is not self._wanted:  # the filter has changed meanwhile
            return
        now = time.time()
        self._draw_rows([row_of(each, asked.get(each.task_id, ()), now=now) for each in known])

    async def _read(self, wanted: TaskFilter) -> list[ListedTask]:
        """Return the tasks of the page, and learn whether there are more."""
        runner, agent = self._frame.desk.runner, wanted.agent or None
        limit = MOST_SEARCHED if wanted.text else PAGE_ROWS
        found = await runner.list_tasks(wanted.status, agent, limit=limit, after=wanted.after)
        fitting = [task for task in found if wanted.takes(task)]
        first = (wanted.page - 1) * PAGE_ROWS if wanted.text else 0
        if wanted is self._wanted:
            self._next = found.next
            self._more = len(fitting) > first + PAGE_ROWS if wanted.text else bool(found.next)
        return fitting[first : first + PAGE_ROWS]

    async def _detail(self, listed: ListedTask) -> ListedTask:
        """Read a task itself, if it may have changed and can answer."""
        kept = self._details.get(listed.task_id)
        if kept is not None and listed.status in CLOSED and kept.status == listed.status:
            return kept
        try:
            async with asyncio.timeout(DETAIL_SECONDS):
                # Not get_task: for each row it would ask the server, too, what blocks a task.
                read = await self._frame.desk.runner.reader.task(listed.task_id)
        except (HoldfastError, TimeoutError):
            return kept or listed
        found = read.model_copy(update={"blocked_by": listed.blocked_by})
        self._details[listed.task_id] = found
        return found

    def _draw_rows(self, rows: list[Row]) -> None:
        is_filtered = bool(self._wanted.query)
        first = partial(draw_first, self._frame, has_button=False)
        hint = "Change the filter to see others."
        none = partial(parts.empty, "list_alt", "No task fits", hint) if is_filtered else first
        self._none.show((bool(rows), is_filtered), (lambda: None) if rows else none)
        items = [(row.task_id, replace(row, age=""), partial(self._draw_row, row)) for row in rows]
        self._table.show(items)
        for row in rows:
            said = _numbers(row)
            if self._ages[row.task_id].text != said:
                self._ages[row.task_id].text = said
        page, more = self._wanted.page, self._more
        foot = partial(self._draw_foot, page, has_more=more)
        self._foot.show((page, more), foot if page > 1 or more else lambda: None)

    def _draw_foot(self, page: int, *, has_more: bool) -> None:
        parts.quiet(f"Page {page}")
        with ui.row().classes("gap-2"):
            if page > 1:
                parts.button("Newer").on_click(lambda: self._turn(-1))
            if has_more:
                parts.button("Older").on_click(lambda: self._turn(1))

    def _draw_row(self, row: Row) -> None:
        with ui.column().classes("min-w-0 gap-0.5"):
            label = row.input or row.task_id
            made = parts.link(
                label, parts.task_url(row.task_id), "w-full truncate text-sm font-medium"
            )
            made.props["title"] = printable(cut(label, longest=500))
            names = [row.agent, row.task_id, *([f"session {row.session}"] * bool(row.session))]
            parts.text("span", " · ".join(names), f"w-full truncate text-xs {QUIET}")
        with ui.column().classes("min-w-0 items-start gap-0.5"):
            state = parts.chip(row.status.replace("_", " "), OF_COLOUR[row.colour])
            state.props["title"] = MEANING.get(row.status, "")
            if row.waits_for:
                parts.text("span", row.waits_for, f"w-full truncate text-xs {STRONG}")
        self._ages[row.task_id] = parts.text("span", "", f"text-xs md:text-right {QUIET}")


_ROW = (
    f"{LINE} grid grid-cols-1 items-center gap-x-4 gap-y-1 px-4 py-3"
    " hover:bg-slate-50 md:grid-cols-[minmax(0,1fr)_15rem_13rem] dark:hover:bg-slate-800"
)


def _numbers(row: Row) -> str:
    steps = counted(row.steps, "step") if row.steps is not None else ""
    return dotted(f"{row.age} ago", steps, spent(row.usage) if row.usage is not None else "")
