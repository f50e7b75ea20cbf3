"""The page of charts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from nicegui import ui

from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import (
    CARD,
    QUIET,
    Part,
    empty,
    heading,
    link,
    moment,
    quiet,
    text,
    url,
)
from holdfast.desk.views.charts import Asked, Chart, answers_in, charts_of, period_of
from holdfast.errors import HoldfastError
from holdfast.task.happenings import happenings
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import Task
from holdfast.values.text.terminal import printable

MOST_TASKS = 2_000
"""Newest tasks that are counted."""

MOST_READ = 200
"""Newest tasks whose model calls are counted."""

AT_ONCE = 8
DETAIL_SECONDS = 1.5

_OF_STATE: Mapping[str, str] = {
    "running": "bg-indigo-500",
    "waiting": "bg-amber-500",
    "paused": "bg-slate-300 dark:bg-slate-600",
    "needs_attention": "bg-rose-400",
    "answered": "bg-teal-400",
    "finished": "bg-emerald-700",
    "failed": "bg-rose-700",
    "abandoned": "bg-slate-500",
}
_OF_OTHERS = ("bg-indigo-500", "bg-emerald-600", "bg-amber-500", "bg-rose-600", "bg-slate-400")


class Charts:
    """The charts in one browser."""

    def __init__(self, frame: Frame, name: str) -> None:
        """Draw them.

        Args:
            frame: The frame of the page.
            name: The time that is looked at: "day" or "week".
        """
        self._frame = frame
        self._name = "week" if name == "week" else "day"
        self._known: dict[str, list[Asked]] = {}
        with ui.row().classes("w-full items-center justify-between gap-2"):
            heading(f"Charts of the last {self._name}", level=1)
            other = "day" if self._name == "week" else "week"
            link(f"The last {other}", url("/charts", {"of": other}), "text-sm")
        self._body = Part("grid w-full grid-cols-1 gap-4 md:grid-cols-2")
        ui.timer(TICK_SECONDS * 10, lambda: frame.look(self._look))

    async def _look(self) -> None:
        runner = self._frame.desk.runner
        period = period_of(self._name, time.time())
        tasks = [
            task
            for task in await runner.list_tasks(limit=MOST_TASKS)
            if task.created >= period.start
        ]
        waiting = await self._frame.desk.feed.waiting()
        asked = await some_at_once(self._answers, tasks[:MOST_READ], AT_ONCE)
        found = charts_of(period, tasks, waiting, [each for some in asked for each in some])
        self._body.show(found, lambda: self._draw(found))

    async def _answers(self, task: Task) -> list[Asked]:
        """Read the answers of models in a task; no answers when no worker process is up."""
        if task.task_id not in self._known or task.status not in CLOSED:
            reading = self._frame.desk.runner.reader.ledger(task.task_id, legible=True)
            try:
                async with asyncio.timeout(DETAIL_SECONDS):
                    self._known[task.task_id] = answers_in(happenings(*await reading))
            except (HoldfastError, TimeoutError):
                return self._known.get(task.task_id, [])
        return self._known[task.task_id]

    def _draw(self, found: list[Chart]) -> None:
        if not found:
            empty(
                "bar_chart", "Nothing has happened in this time", "Tasks appear here as they run."
            )
        for chart in found:
            _draw_chart(chart)


def _draw_chart(chart: Chart) -> None:
    names = [name for name, _ in chart.series]
    colours = {
        name: _OF_STATE.get(name, _OF_OTHERS[k % len(_OF_OTHERS)]) for k, name in enumerate(names)
    }
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3"):
        heading(chart.title)
        columns = ui.element("div").classes("flex h-36 w-full items-end gap-px").props('role="img"')
        columns.props["aria-label"] = printable(chart.words)
        with columns:
            for column in chart.columns:
                drawn = ui.element("div").classes("flex h-full min-w-0 flex-1 flex-col justify-end")
                shown = (f"{name}: {chart.show(value)}" for name, value in column.values)
                drawn.props["title"] = printable("\n".join(shown))
                with drawn:
                    for name, value in column.values:
                        part = ui.element("div").classes(f"w-full first:rounded-t {colours[name]}")
                        part.style(f"height: {100 * value / chart.top:.2f}%")
        with ui.row().classes(f"w-full justify-between text-xs {QUIET}"):
            moment(chart.columns[0].start)
            quiet(f"highest: {chart.show(chart.top)}", "text-xs")
            text("span", "now")
        with ui.row().classes("gap-x-4 gap-y-1"):
            for name, sum_ in chart.series:
                with ui.row().classes("items-center gap-1.5"):
                    ui.element("span").classes(f"h-2.5 w-2.5 rounded-sm {colours[name]}")
                    quiet(f"{name.replace('_', ' ')}: {sum_}", "text-xs")
