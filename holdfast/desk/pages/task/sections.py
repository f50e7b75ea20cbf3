"""Sections of a task's page: steps, effects, branches, transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from holdfast.desk.pages import parts
from holdfast.desk.pages.parts import LINE, OF_COLOUR, PANEL, QUIET, STRONG
from holdfast.desk.views.artifacts import about, download_url, preview_url
from holdfast.desk.views.branches import Branch, ForkedTask
from holdfast.desk.views.comparison import side_of
from holdfast.desk.views.tasks import COLOURS
from holdfast.desk.views.timeline import Effect
from holdfast.desk.views.words import cut, dotted, span, spent
from holdfast.reading.artifacts import KeptArtifact
from holdfast.task.shown import step_state, step_title
from holdfast.task.step_body import StepBody
from holdfast.values.messages import Message, shown
from holdfast.values.steps import TaskStep
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import counted
from holdfast.values.text.terminal import printable

OnStep = Callable[[StepBody], None]


class Steps:
    """The steps, each with what it was asked, what it did and what it gave."""

    def __init__(self, chosen: str, fork: OnStep | None) -> None:
        """Draw none yet.

        Args:
            chosen: Number of the step that is open at first.
            fork: Forks the task after a step; None when who looks may not.
        """
        self._chosen, self._fork = chosen, fork
        self._none = parts.quiet("No step is known to have begun.")
        self._list = parts.PartList("Steps", tag="ol", item=LINE)
        self._open: set[tuple[int, int]] = set()

    def show(
        self, bodies: Sequence[StepBody], undone: set[tuple[int, int]], rewind: OnStep | None
    ) -> None:
        """Show these steps; unchanged ones stay as they are.

        Args:
            bodies: The steps.
            undone: Branch and ordinal of the undone ones.
            rewind: Undoes all steps after one; None when the task is closed.
        """
        self._none.set_visibility(not bodies)
        items: list[tuple[object, object, Callable[[], object]]] = []
        for body in bodies:
            place = (body.branch, body.n)
            if str(body.n) == self._chosen:
                self._open.add(place)
            is_undone = body.is_left or place in undone
            can_rewind = None if is_undone or body.last else rewind
            draw = partial(self._draw, body, is_undone=is_undone, rewind=can_rewind)
            items.append((place, (body, is_undone, can_rewind is None), draw))
        self._chosen = ""
        self._list.show(items)

    def _draw(self, body: StepBody, *, is_undone: bool, rewind: OnStep | None) -> None:
        place = (body.branch, body.n)
        is_open = place in self._open
        title = printable(_title(body, is_undone=is_undone))
        with ui.expansion(title, value=is_open) as fold:
            fold.classes(f"w-full {STRONG}").props("dense-toggle")
            fold.classes("line-through" * is_undone)
            inside = ui.column().classes("w-full gap-3 no-underline")

        def turned(event: ValueChangeEventArguments[Any]) -> None:
            (self._open.add if event.value else self._open.discard)(place)
            if event.value:
                fill()

        def fill() -> None:
            """Draw what is in it, once it is opened."""
            if not inside.default_slot.children:
                with inside:
                    _draw_inside(body, rewind, self._fork)

        fold.on_value_change(turned)
        if is_open:
            fill()


def _title(body: StepBody, *, is_undone: bool) -> str:
    side = side_of(body)
    branch = f"branch {body.branch}" if body.branch else ""
    state = step_state(body, is_undone=is_undone)
    took = span(side.seconds) if body.ended else ""
    return dotted(step_title(body), branch, state, took, spent(side.usage))


def _draw_inside(body: StepBody, rewind: OnStep | None, fork: OnStep | None) -> None:
    side = side_of(body)
    _draw_text("Input", side.input)
    _draw_text("Model", side.answers, parts.prose)
    _draw_text("Calls", side.calls)
    _draw_text("Results", side.results)
    if body.failure is not None:
        _draw_text("Failure", redact(cut(body.failure.text)))
    if body.is_completed:
        with ui.row().classes("gap-2"):
            if rewind is not None:
                parts.button("Rewind to here").on_click(lambda: rewind(body))
            if fork is not None:
                parts.button("Fork from here").on_click(lambda: fork(body))


def _draw_text(title: str, content: str, show: Callable[[str], object] = parts.code) -> None:
    if content:
        with ui.column().classes("w-full gap-1"):
            parts.heading(title, level=3)
            show(cut(content))


def draw_upcoming(
    upcoming: Sequence[TaskStep],
    running: set[str],
    edit: Callable[[TaskStep], None] | None,
    drop: Callable[[TaskStep], None] | None,
) -> None:
    """Draw the queued steps, which a person may change."""
    queued = [step for step in upcoming if step.step_id not in running]
    if not queued:
        return
    parts.heading("Upcoming steps")
    with ui.element("ol").props('aria-label="Upcoming steps"').classes(PANEL):
        for step in queued:
            with ui.element("li").classes(
                f"{LINE} flex w-full flex-wrap items-center gap-2 px-4 py-2"
            ):
                parts.text("span", step.step_id or "next", f"font-mono text-sm {STRONG}")
                what = redact(step.input) if step.input else "goes on"
                parts.text("span", what, f"min-w-0 flex-1 truncate text-sm {QUIET}")
                if edit is not None:
                    parts.button("Edit").on_click(partial(edit, step)).props("dense")
                if drop is not None:
                    parts.button("Drop", tone="danger").on_click(partial(drop, step)).props("dense")


def draw_effects(effects: Sequence[Effect]) -> None:
    """Draw what a task did outside."""
    if not effects:
        parts.quiet("No call is known to have changed anything outside: reads only so far.")
        return
    counts = [
        f"{sum(e.words == words for e in effects)} {words}"
        for words in dict.fromkeys(e.words for e in effects)
    ]
    parts.quiet(" · ".join(counts))
    with ui.element("ul").props('aria-label="Effects"').classes(PANEL):
        for effect in effects:
            with ui.element("li").classes(
                f"{LINE} grid grid-cols-1 items-start gap-x-4 gap-y-1 px-4 py-3"
                " sm:grid-cols-[8.5rem_minmax(0,1fr)]"
            ):
                with ui.row().classes("items-center gap-2"):
                    parts.chip(effect.words, OF_COLOUR[effect.colour])
                with ui.column().classes("min-w-0 gap-0.5"):
                    call = f"{effect.tool} {effect.arguments}"
                    parts.text("span", call, f"w-full break-words font-mono text-[13px] {STRONG}")
                    if effect.result:
                        parts.text("span", effect.result, f"w-full break-words text-sm {STRONG}")
                    with ui.row().classes(f"items-baseline gap-2 text-xs {QUIET}"):
                        parts.moment(effect.at)
                        parts.text("span", _circumstances(effect))
                    if effect.child:
                        parts.link("Its child task", parts.task_url(effect.child), "text-xs")


def _circumstances(effect: Effect) -> str:
    return dotted(
        f"step {effect.n}" + (f", branch {effect.branch}" if effect.branch else ""),
        f"approved by {effect.by}" if effect.by else "",
        "arguments edited" if effect.edited else "",
        f"undone by {effect.undone_by}" if effect.undone_by else "",
    )


def draw_artifacts(task_id: str, found: Sequence[KeptArtifact]) -> None:
    """Draw the files that the tools of a task have kept, each with the step that has it."""
    if not found:
        parts.quiet("No file is kept with the steps of the present branch.")
        return
    with ui.element("ul").props('aria-label="Artifacts"').classes(PANEL):
        for each in found:
            with ui.element("li").classes(f"{LINE} flex w-full flex-col gap-1 px-4 py-3"):
                target = parts.link(each.name, download_url(task_id, each), "break-all text-sm")
                target.props["download"] = each.name
                if (kept := preview_url(task_id, each)) is not None:
                    shown = ui.image(kept).classes("max-w-xs").props("fit=contain")
                    shown.props["alt"] = printable(each.name)
                with ui.row().classes(f"items-baseline gap-2 text-xs {QUIET}"):
                    if each.at:
                        parts.moment(each.at)
                    parts.text("span", about(each))


def draw_branches(
    task_id: str, branches: Sequence[Branch], forks: Sequence[ForkedTask] = ()
) -> None:
    """Draw the branches as a tree, each beginning after a step of the one before, and the forks."""
    if len(branches) == 1:
        parts.quiet("No undo is known: there is one branch.")
    with ui.element("ul").props('aria-label="Branches"').classes(PANEL):
        for k, branch in enumerate(branches):
            with ui.element("li").classes(f"{LINE} flex w-full flex-col gap-1 px-4 py-3"):
                with (
                    ui.row()
                    .classes("items-center gap-2")
                    .style(f"padding-left: {min(k, 6) * 0.75}rem")
                ):
                    parts.chip(f"branch {branch.number}", "info" if branch.is_present else "calm")
                    parts.quiet(
                        f"after step {branch.after}" if branch.after else "from the beginning"
                    )
                    parts.quiet(counted(len(branch.steps), "completed step"))
                    if not branch.is_present:
                        query = {
                            "left": task_id,
                            "left_branch": str(branch.number),
                            "right": task_id,
                        }
                        parts.link(
                            "Compare with the present one", parts.url("/compare", query), "text-sm"
                        )
                if not branch.is_present:
                    by = f" by {branch.by}" if branch.by else ""
                    why = f": {branch.reason}" if branch.reason else ""
                    with ui.row().classes(f"items-baseline gap-2 text-sm {QUIET}"):
                        parts.moment(branch.at)
                        parts.text("span", f"undone{by}{why}", "break-words")
                for remains in branch.remains:
                    parts.text(
                        "span", f"remains: {remains}", "text-sm text-rose-800 dark:text-rose-300"
                    )
    if forks:
        parts.heading("Forks", level=3)
        with ui.element("ul").props('aria-label="Forks"').classes(PANEL):
            for fork in forks:
                _draw_fork(task_id, fork)


def _draw_fork(task_id: str, fork: ForkedTask) -> None:
    task = fork.task
    with ui.element("li").classes(f"{LINE} flex w-full flex-wrap items-center gap-2 px-4 py-3"):
        parts.chip(task.status.replace("_", " "), OF_COLOUR[COLOURS[task.status]])
        parts.quiet(f"after step {fork.n}")
        parts.link(task.task_id, parts.task_url(task.task_id), "min-w-0 break-all text-sm")
        query = {"left": task_id, "right": task.task_id}
        parts.link("Compare with it", parts.url("/compare", query), "text-sm")


def draw_transcript(messages: Sequence[Message]) -> None:
    """Draw the messages of a task."""
    if not messages:
        parts.quiet("Nothing was said yet.")
        return
    with ui.element("ol").props('aria-label="Transcript"').classes(PANEL):
        for message in messages:
            with ui.element("li").classes(
                f"{LINE} grid grid-cols-1 gap-x-4 gap-y-1 px-4 py-3"
                " sm:grid-cols-[6rem_minmax(0,1fr)]"
            ):
                parts.text("span", message.role, f"text-xs font-medium {QUIET}")
                with ui.column().classes("min-w-0 gap-1"):
                    said = redact(cut(shown(message.content)))
                    if said.strip() and message.role != "tool":
                        parts.prose(said)
                    elif said.strip():
                        failed = "text-rose-800 dark:text-rose-300" if message.is_error else STRONG
                        parts.text("div", said, f"text-sm whitespace-pre-wrap break-words {failed}")
                    for call in message.calls:
                        parts.code(redact(f"{call.name} {cut(call.arguments)}"))
