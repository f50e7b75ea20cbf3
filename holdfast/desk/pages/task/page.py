"""The page of one task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from nicegui import ui

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.pages import parts
from holdfast.desk.pages.feed import read_forks
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import CARD, LINE, OF_COLOUR, PANEL, QUIET, STRONG, TONES
from holdfast.desk.pages.task.sections import (
    Steps,
    draw_artifacts,
    draw_branches,
    draw_effects,
    draw_transcript,
    draw_upcoming,
)
from holdfast.desk.pages.task.verbs import Facts, Verbs, read_facts
from holdfast.desk.views.axis import Axis, Bar
from holdfast.desk.views.branches import ForkedTask, branches_of, origin_of
from holdfast.desk.views.cards import shown_rule
from holdfast.desk.views.markdown import rendered
from holdfast.desk.views.tasks import COLOURS, MEANING
from holdfast.desk.views.timeline import Lane, Timeline, effects_of, timeline_of
from holdfast.desk.views.words import cut
from holdfast.errors import EngineError, HoldfastError, StuckTaskError, TaskNotFoundError
from holdfast.reading.artifacts import artifacts_in
from holdfast.reading.listing import STUCK
from holdfast.reading.streams.reader import RawResponsesStreamEvent, StreamEvent
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.head import AgentSnapshot
from holdfast.task.people.choices import TITLES, title_of
from holdfast.task.shown import bodies_in, path_of, undone_steps
from holdfast.values.messages import Message
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import Task
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import counted, pretty, shortened
from holdfast.values.text.terminal import printable

# The timeline of a task, drawn: a row for each step and each call, bars on a common axis.

_COLOURS = {
    "step": "bg-slate-300 dark:bg-slate-600",
    "model": "bg-indigo-500",
    "tool": "bg-emerald-600",
    "wait": "bg-amber-300 dark:bg-amber-700",
}
_VOID = "bg-slate-400 opacity-60 dark:bg-slate-500"
_STATES = {
    **dict.fromkeys(("failed", "unknown", "cut off"), "bg-rose-600"),
    **dict.fromkeys(("not run", "undone", "restarted"), _VOID),
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
    ("bad", "failed, unknown or cut off", "bg-rose-600"),
    ("void", "undone or not run", "bg-slate-400"),
)


def draw_timeline(timeline: Timeline) -> None:
    """Draw a timeline."""
    if not timeline.lanes:
        parts.quiet("Nothing is known to have run.")
        return
    with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
        parts.quiet(f"{counted(len(timeline.lanes), 'step')} in {timeline.took}")
        for _, words, colour in _LEGEND:
            with ui.row().classes("items-center gap-1.5"):
                ui.element("span").classes(f"inline-block h-2.5 w-2.5 rounded-sm {colour}")
                parts.text("span", words, f"text-xs {QUIET}")
    with ui.element("ol").props('aria-label="Timeline"').classes(PANEL):
        _draw_scale(timeline.axis)
        for lane in timeline.lanes:
            _draw_lane(lane, timeline.axis)
        for bar in timeline.waits:
            with ui.element("li").classes(f"{LINE} px-3 py-1"):
                _draw_bar(bar, timeline.axis)
    for gap in timeline.axis.gaps:
        parts.quiet(f"{gap.words}: hatched, and drawn shorter", "text-xs")
    for mark in timeline.marks:
        tone = TONES["bad"] if mark.is_bad else TONES["calm"]
        with ui.row().classes("w-full items-center gap-2 flex-nowrap"):
            parts.moment(mark.at, f"text-xs whitespace-nowrap {QUIET}")
            parts.text("span", mark.text, f"min-w-0 break-words rounded px-2 py-0.5 text-xs {tone}")


def _draw_scale(axis: Axis) -> None:
    """Draw round times above the bars, and how long the breaks were."""
    with ui.element("li").classes(f"{_GRID} px-3 pt-2"):
        parts.moment(axis.knots[0][0], f"text-xs {QUIET}")
        with ui.element("div").classes("relative h-5 min-w-0").props('aria-hidden="true"'):
            for k, (place, words) in enumerate(axis.ticks):
                tick = parts.text("span", words, f"absolute {'max-sm:hidden' * (k % 2)} {_TICK}")
                tick.style(f"left: {place:.3f}%")
            for gap in axis.gaps:
                look = f"absolute text-center max-sm:hidden {_TICK}"
                drawn = parts.text("span", f"… {gap.took} …", look)
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
            parts.text("span", label, f"truncate text-xs {weight} {struck}")
            if bar.attempts > 1:
                often = parts.text("span", f"{bar.attempts}x", "text-xs font-medium text-rose-700")
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
            took = parts.text(
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


# The answer of a task as it is written, token by token.

AGAIN_SECONDS = 1.0


class Answer:
    """Follows what models say in a task.

    Attributes:
        text: What the newest answer says so far.
        is_whole: Whether that answer is complete.
    """

    def __init__(self, runner: AgentRunner, task_id: str) -> None:
        """Follow nothing yet."""
        self._runner, self._task_id = runner, task_id
        self._offset = 0
        self.text = ""
        self.is_whole = True

    async def follow(self) -> None:
        """Follow until the task is closed; go on when a worker or the server is back."""
        while True:
            try:
                events = self._runner.stream_events(self._task_id, offset=self._offset)
                async with aclosing(events):
                    async for event in events:
                        self._offset = event.offset
                        self._take(event)
            except TaskNotFoundError:
                return
            except (EngineError, HoldfastError):
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    def _take(self, event: StreamEvent) -> None:
        if not isinstance(event, RawResponsesStreamEvent):
            return
        data: Any = event.data
        match data.type:
            case "response.created":
                self.text, self.is_whole = "", False
            case "response.output_text.delta":
                self.text += data.delta
            case "response.completed" | "response.incomplete" | "response.failed":
                self.is_whole = True
            case _:
                return


TABS = {
    "timeline": "Timeline",
    "steps": "Steps",
    "effects": "Effects",
    "artifacts": "Artifacts",
    "transcript": "Transcript",
    "branches": "Branches",
}
MOVING_SECONDS = 1.0
"""How often the bars of a running task are redrawn."""


class TaskPage:
    """One task in one browser."""

    def __init__(self, frame: Frame, task_id: str, *, tab: str, step: str) -> None:
        """Draw it.

        Args:
            frame: The frame of the page.
            task_id: The task.
            tab: The section that is shown first.
            step: Number of the step that is open first; empty for none.
        """
        self._frame, self._task_id, self._step = frame, task_id, step
        self._tab = tab if tab in TABS else "steps" if step else "timeline"
        self._facts: Facts | None = None
        self._snapshot: AgentSnapshot | None = None
        self._drawn_at = 0.0
        self._drawings = self._reads = self._newest = 0
        self._is_drawn = False
        self._answer = Answer(frame.desk.runner, task_id)
        self._verbs = Verbs(frame, task_id, self._soon)
        self._is_gone = False
        self._draw()

    def _draw(self) -> None:
        with ui.column().classes("w-full gap-3"):
            self._title = parts.Part()
            self._state = parts.Part()
            self._links = parts.Part()
            self._notices = parts.Part("flex w-full flex-col gap-2")
            self._buttons = parts.Part()
            self._waits = parts.Part("flex w-full flex-col gap-2")
        self._written = ui.column().classes(f"{CARD} gap-2")
        with self._written:
            parts.heading("The answer, as it is written")
            self._words = parts.prose("").props('aria-live="off" data-answer')
        self._written.set_visibility(False)
        with ui.tabs(value=cast("Any", self._tab), on_change=self._turn).classes(
            "w-full text-slate-800 dark:text-slate-100"
        ) as tabs:
            tabs.props('align="left" no-caps dense inline-label mobile-arrows outside-arrows')
            for name, label in TABS.items():
                ui.tab(name, label)
        self._body = ui.column().classes("w-full gap-3")
        self._steps: Steps | None = None
        self._upcoming: parts.Part | None = None
        ui.timer(TICK_SECONDS, self._tick)
        ui.timer(0.1, self._show_answer)
        following = asyncio.create_task(self._answer.follow())
        client: Any = ui.context.client
        client.on_delete(following.cancel)

    def _soon(self) -> None:
        ui.timer(0, lambda: self._tick(at_once=True), once=True)

    async def _tick(self, *, at_once: bool = False) -> None:
        if not self._is_gone:
            await self._frame.look(self._look, at_once=at_once)

    async def _look(self) -> None:
        """Read the task, and draw what has changed."""
        self._reads += 1
        mine = self._reads
        try:
            found = await read_facts(self._frame.desk, self._task_id, self._snapshot)
        except TaskNotFoundError:
            self._is_gone = True
            self._clear()
            with self._body:
                parts.empty("search_off", "There is no such task", self._task_id)
            return
        except (EngineError, TimeoutError) as error:
            if is_stuck := isinstance(error, StuckTaskError):
                self._facts = None  # it can only be ended by force, also from a page of before
            if self._facts is None:
                await self._draw_listed(is_stuck=is_stuck)
            raise
        if mine < self._newest:  # a reading that began later is drawn already
            return
        self._newest, self._snapshot = mine, found.snapshot
        if self._facts is None or found.key != self._facts.key:
            self._facts, self._is_drawn = found, False
            self._draw_head(found)
        is_moving = self._tab == "timeline" and bool(found.opens or found.approvals)
        if not self._is_drawn or (is_moving and time.time() - self._drawn_at > MOVING_SECONDS):
            await self._draw_body()

    async def _draw_listed(self, *, is_stuck: bool) -> None:
        """Draw what lists know of the task: no worker process can tell more."""
        task = (await self._frame.desk.feed.listed(self._task_id)).task
        stuck = {"blocked_by": STUCK} if is_stuck else {}  # lists say so after more attempts
        self._draw_head(Facts(task=task.model_copy(update=stuck)))
        self._clear()
        with self._body:
            parts.quiet("Its steps are shown when a worker process can read them.")

    def _turn(self, event: Any) -> None:
        self._tab = str(event.value)
        parts.show_address(parts.task_url(self._task_id, tab=self._tab))
        self._clear()
        self._is_drawn = False
        ui.timer(0, self._draw_body, once=True)

    def _show_answer(self) -> None:
        is_shown = not self._answer.is_whole and bool(self._answer.text)
        if self._written.visible != is_shown:
            self._written.set_visibility(is_shown)
        if is_shown:
            self._words.set_content(rendered(redact(self._answer.text)))

    # ---- the head

    def _draw_head(self, found: Facts) -> None:
        task = found.task
        title = redact(shortened(task.input, 200)) or self._task_id
        self._title.show(
            title, lambda: parts.heading(title, level=1).classes("min-w-0 break-words")
        )
        is_idle = task.status == "running" and bool(found.upcoming) and not found.opens
        self._state.show((task.status, is_idle), lambda: _draw_state(task, is_idle=is_idle))
        self._links.show(_linked(found), lambda: _draw_links(found))
        said = (task.error, task.blocked_by, task.paused, found.lost)
        self._notices.show(said, lambda: _draw_notices(task, found.lost))
        self._buttons.show(self._verbs.key(found), lambda: self._verbs.draw(found))
        revoke = self._verbs.revoke if self._frame.can("revoke") else None
        waiting = [each.id for each in found.approvals], [each.id for each in found.rules]
        self._waits.show(waiting, lambda: _draw_waits(found, revoke))

    # ---- the sections

    async def _draw_body(self) -> None:
        """Draw the section that is looked at, unless a later drawing of it begins meanwhile."""
        found, tab = self._facts, self._tab
        if found is None:
            return
        self._drawings += 1
        mine, self._drawn_at = self._drawings, time.time()
        messages: list[Message] = []
        forks: list[ForkedTask] = []
        runner = self._frame.desk.runner
        if tab == "transcript":
            messages = await runner.all_messages(self._task_id)
        elif tab == "branches":
            forks = await read_forks(runner, found.task)
        if mine != self._drawings:
            return
        self._is_drawn = True
        if tab == "steps":
            self._draw_steps(found)
            return
        self._clear()
        with self._body:
            match tab:
                case "timeline":
                    self._draw_answer(found)
                    draw_timeline(timeline_of(found.found, now=time.time()))
                case "effects":
                    draw_effects(effects_of(found.found, found.snapshot))
                case "artifacts":
                    draw_artifacts(self._task_id, artifacts_in(found.entries, found.opens))
                case "transcript":
                    draw_transcript(messages)
                case _:
                    draw_branches(self._task_id, branches_of(found.found), forks)

    def _clear(self) -> None:
        self._body.clear()
        self._steps = self._upcoming = None

    def _draw_answer(self, found: Facts) -> None:
        """Draw the answer of the task, once it has one."""
        path = path_of(found.found)
        if not path or path[-1].status != "last":
            return
        with ui.element("section").classes(f"{CARD} flex flex-col gap-2"):
            parts.heading("Answer")
            output = path[-1].output
            (parts.prose if isinstance(output, str) else parts.code)(redact(cut(pretty(output))))

    def _draw_steps(self, found: Facts) -> None:
        if self._steps is None or self._upcoming is None:
            self._clear()
            with self._body:
                self._steps = Steps(
                    self._step, self._verbs.fork if self._frame.can("fork") else None
                )
                self._upcoming = parts.Part("flex w-full flex-col gap-3")
        is_closed = found.task.status in CLOSED
        can = self._frame.can
        rewind = None if is_closed or not can("rewind") else self._verbs.rewind
        self._steps.show(bodies_in(found.found), undone_steps(found.found), rewind)
        running = {each.open.step.step_id for each in found.opens}
        edit = self._verbs.edit_step if can("edit_step") else None
        drop = self._verbs.drop_step if can("drop_step") else None
        self._upcoming.show(
            (tuple(found.upcoming), running),
            lambda: draw_upcoming(found.upcoming, running, edit, drop),
        )


def _draw_state(task: Task, *, is_idle: bool) -> None:
    with ui.row().classes("items-center gap-2"):
        state = parts.chip(task.status.replace("_", " "), OF_COLOUR[COLOURS[task.status]])
        state.props["title"] = MEANING[task.status]
        idle = "No step is in progress. Run on begins the next one."
        parts.quiet(idle if is_idle else MEANING[task.status])


def _draw_notices(task: Task, lost: str) -> None:
    if lost:
        text = f"A part of the record is lost, and missing below: {lost}"
        parts.notice("bad", redact(text), role="alert")
    if task.error:
        parts.notice("bad", redact(cut(task.error)), role="alert")
    if task.blocked_by:
        parts.notice("warn", redact(cut(task.blocked_by)))
    if task.waits:
        parts.notice("info", redact(cut(f"It {task.waits}")))
    if task.paused:
        parts.notice("warn", redact(f"Paused by {task.paused}"))


def _draw_waits(found: Facts, revoke: Callable[[StandingRule], None] | None) -> None:
    for approval in found.approvals:
        with parts.notice("warn", f"{title_of(approval)}: {TITLES[approval.kind]}"):
            parts.link("Decide in the inbox", parts.url("/", {"card": approval.id})).classes(
                "text-sm"
            )
    for rule in found.rules:
        with parts.notice("info", redact(cut(shown_rule(rule)))):
            if revoke is not None:
                parts.button("Revoke").on_click(partial(revoke, rule)).props("dense")


def _linked(found: Facts) -> tuple[object, ...]:
    """Return what the links are drawn of."""
    children = tuple((each.task_id, each.agent, each.status) for each in found.children)
    task = found.task
    return (
        task.task_id,
        task.agent,
        task.usage,
        task.branch_usage,
        children,
        origin_of(found.found),
    )


def _draw_links(found: Facts) -> None:
    task = found.task
    cost = task.usage.in_words
    if task.branch_usage != task.usage:
        cost += f"; of it the present branch: {task.branch_usage.in_words}"
    parts.facts(
        [
            ("Agent", task.agent),
            ("Created", partial(parts.moment, task.created) if task.created else ""),
            ("Task", partial(parts.copied, task.task_id)),
            ("Cost", cost if task.usage.requests else ""),
        ]
    )
    origin = origin_of(found.found)
    with ui.row().classes("items-center gap-x-4 gap-y-1 pt-2 text-sm"):
        if task.session:
            parts.link(f"Session {task.session}", parts.url("/sessions", {"name": task.session}))
        if task.parent:
            parts.link("Its parent task", parts.task_url(task.parent))
        parts.link("Compare with another task", parts.url("/compare", {"left": task.task_id}))
        if origin is not None:
            parts.link(
                f"Forked after step {origin.n} of {origin.task_id}", parts.task_url(origin.task_id)
            )
            query = {"left": origin.task_id, "right": task.task_id}
            parts.link("Compare with it", parts.url("/compare", query))
        for child in found.children:
            parts.link(f"Child task {child.agent}: {child.status}", parts.task_url(child.task_id))
