"""The page of charts."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from holdfast.desk.pages import parts
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import CARD, QUIET
from holdfast.desk.views.charts import PERIODS, Chart
from holdfast.values.text.terminal import printable

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
        self._name = name if name in PERIODS else "day"
        with ui.row().classes("w-full items-center justify-between gap-2"):
            parts.heading(f"Charts of the last {self._name}", level=1)
            other = "day" if self._name == "week" else "week"
            parts.link(f"The last {other}", parts.url("/charts", {"of": other}), "text-sm")
        self._body = parts.Part("grid w-full grid-cols-1 gap-4 md:grid-cols-2")
        ui.timer(TICK_SECONDS * 10, lambda: frame.look(self._look))

    async def _look(self) -> None:
        found = await self._frame.desk.feed.charts(self._name)
        self._body.show(found, lambda: self._draw(found))

    def _draw(self, found: list[Chart]) -> None:
        if not found:
            parts.empty(
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
        parts.heading(chart.title)
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
            parts.moment(chart.columns[0].start)
            parts.quiet(f"highest: {chart.show(chart.top)}", "text-xs")
            parts.text("span", "now")
        with ui.row().classes("gap-x-4 gap-y-1"):
            for name, sum_ in chart.series:
                with ui.row().classes("items-center gap-1.5"):
                    ui.element("span").classes(f"h-2.5 w-2.5 rounded-sm {colours[name]}")
                    parts.quiet(f"{name.replace('_', ' ')}: {sum_}", "text-xs")
