"""The timeline of a task, drawn: a row for each step and each call, bars on a common axis."""

from __future__ import annotations

from nicegui import ui

from holdfast.desk.pages.parts import LINE, PANEL, QUIET, STRONG, TONES, moment, quiet, text
from holdfast.desk.views.axis import Axis, Bar
from holdfast.desk.views.timeline import Lane, Timeline
from holdfast.desk.views.words import counted
from holdfast.values.text.terminal import printable

_COLOURS = {
    "step": "bg-slate-300 dark:bg-slate-600",
    "model": "bg-indigo-500",
    "tool": "bg-emerald-600",
    "wait": "bg-amber-300 dark:bg-amber-700",
}
_STATES = {
    "failed": "bg-rose-600",
    "lost": "bg-rose-600",
    "unknown": "bg-rose-600",
    "void": "bg-slate-400 opacity-60 dark:bg-slate-500",
}
_HATCH = (
    "bg-[repeating-linear-gradient(120deg,transparent_0_5px,#fff_5px_8px)]"
    " dark:bg-[repeating-linear-gradient(120deg,transparent_0_5px,#0f172a_5px_8px)]"
)
"""Drawn over a bar where the axis is broken."""

_GRID = (
    "grid grid-cols-[7.5rem_minmax(0,1fr)] items-center gap-3 sm:grid-cols-[13rem_minmax(0,1fr)]"
)
_LATE, _EARLY = 75, 12
"""Places from which, and up to which, the time of a bar does not fit next to it."""

_LEGEND = (
    ("model", "model call", "bg-indigo-500"),
    ("tool", "tool call", "bg-emerald-600"),
    ("wait", "waits for a person", "bg-amber-300 dark:bg-amber-700"),
    ("bad", "failed, lost or unknown", "bg-rose-600"),
    ("void", "undone", "bg-slate-400"),
)


def draw_timeline(timeline: Timeline) -> None:
    """Draw a timeline."""
    if not timeline.lanes:
        quiet("Nothing is known to have run.")
        return
    with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
        quiet(f"{counted(len(timeline.lanes), 'step')} in {timeline.took}")
        for _, words, colour in _LEGEND:
            with ui.row().classes("items-center gap-1.5"):
                ui.element("span").classes(f"inline-block h-2.5 w-2.5 rounded-sm {colour}")
                text("span", words, f"text-xs {QUIET}")
    with ui.element("ol").props('aria-label="Timeline"').classes(PANEL):
        _draw_scale(timeline.axis)
        for lane in timeline.lanes:
            _draw_lane(lane, timeline.axis)
        for bar in timeline.waits:
            with ui.element("li").classes(f"{LINE} px-3 py-1"):
                _draw_bar(bar, timeline.axis)
    for gap in timeline.axis.gaps:
        quiet(f"{gap.words}: hatched, and drawn shorter", "text-xs")
    for mark in timeline.marks:
        tone = TONES["bad"] if mark.is_bad else TONES["calm"]
        with ui.row().classes("w-full items-center gap-2 flex-nowrap"):
            moment(mark.at, f"text-xs whitespace-nowrap {QUIET}")
            text("span", mark.text, f"min-w-0 break-words rounded px-2 py-0.5 text-xs {tone}")


def _draw_scale(axis: Axis) -> None:
    """Draw round times above the bars, and how long the breaks were."""
    with ui.element("li").classes(f"{_GRID} px-3 pt-2"):
        moment(axis.knots[0][0], f"text-xs {QUIET}")
        with ui.element("div").classes("relative h-5 min-w-0").props('aria-hidden="true"'):
            for k, (place, words) in enumerate(axis.ticks):
                tick = text("span", words, f"absolute {'max-sm:hidden' * (k % 2)} {_TICK}")
                tick.style(f"left: {place:.3f}%")
            for gap in axis.gaps:
                look = f"absolute text-center max-sm:hidden {_TICK}"
                drawn = text("span", f"… {gap.took} …", look)
                drawn.style(f"left: {gap.left:.3f}%; width: {gap.width:.3f}%")


_TICK = f"text-[11px] whitespace-nowrap {QUIET}"


def _draw_lane(lane: Lane, axis: Axis) -> None:
    with ui.element("li").classes(f"{LINE} px-3 py-2"):
        _draw_bar(lane.step, axis, is_strong=True, is_undone=lane.is_undone)
        for bar in lane.bars:
            _draw_bar(bar, axis)


def _draw_bar(bar: Bar, axis: Axis, *, is_strong: bool = False, is_undone: bool = False) -> None:
    left = axis.place(bar.start)
    width = max(axis.place(bar.end) - left, 0.6)
    weight = f"font-medium {STRONG}" if is_strong else f"pl-3 {QUIET}"
    struck = "line-through" if is_undone else ""
    colour = _STATES.get(bar.state, _COLOURS[bar.kind])
    moving = "animate-pulse" if bar.state == "running" and bar.kind != "step" else ""
    size = "h-1.5" if is_strong else "h-3.5"
    with ui.element("div").classes(f"{_GRID} py-0.5"):
        with ui.element("div").classes("flex min-w-0 items-baseline gap-2"):
            label = bar.label.replace(" for a person", "")  # as the colour says
            text("span", label, f"truncate text-xs {weight} {struck}")
            if bar.attempts > 1:
                often = text("span", f"{bar.attempts}x", "text-xs font-medium text-rose-700")
                often.classes("dark:text-rose-300").props["title"] = "number of attempts"
        with ui.element("div").classes("relative h-5 min-w-0"):
            _draw_gaps(axis)
            drawn = ui.element("div").classes(
                f"absolute top-1/2 -translate-y-1/2 rounded {size} {colour} {moving}"
            )
            drawn.style(f"left: {min(left, 99.4):.3f}%; width: {min(width, 100 - left):.3f}%")
            drawn.props('role="img"')
            words = printable(f"{bar.words}. {bar.detail}" if bar.detail else bar.words)
            drawn.props["aria-label"] = words
            drawn.props["title"] = words
            for gap in axis.breaks(bar):
                hatch = ui.element("div").classes(f"absolute inset-y-0 {_HATCH}")
                hatch.style(f"left: {gap.left:.3f}%; width: {gap.width:.3f}%")
            end = left + width
            side = f"left: calc({end:.3f}% + 6px)"
            if end > _LATE:
                side = f"right: calc({100 - left:.3f}% + 6px)"
            took = text(
                "span",
                bar.took,
                f"absolute top-1/2 -translate-y-1/2 text-[11px] whitespace-nowrap {QUIET}",
            )
            took.style(side if left > _EARLY or end <= _LATE else "left: 4px; color: #fff")
            took.props('aria-hidden="true"')


def _draw_gaps(axis: Axis) -> None:
    for gap in axis.gaps:
        drawn = ui.element("div").classes(
            "absolute inset-y-0 border-x border-dashed border-slate-300 dark:border-slate-600"
        )
        drawn.style(f"left: {gap.left:.3f}%; width: {gap.width:.3f}%")
        drawn.props["title"] = gap.words
        drawn.props('aria-hidden="true"')
