"""The page of the workers: each process with its queues, and open tasks without a worker."""

from __future__ import annotations

import time
from functools import partial

from nicegui import ui

from holdfast.desk.pages import parts
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import CARD
from holdfast.desk.pages.queues import read_queues
from holdfast.desk.views.workers import Process, Queue, processes_of, seen
from holdfast.values.text.shown import age, counted


class Workers:
    """The worker processes in one browser."""

    def __init__(self, frame: Frame) -> None:
        """Draw it."""
        self._frame = frame
        self._drawn: list[Queue] | None = None
        parts.heading("Workers", level=1)
        self._body = ui.column().classes("w-full gap-4")
        ui.timer(TICK_SECONDS * 2, lambda: self._frame.look(self._look))

    async def _look(self) -> None:
        desk = self._frame.desk
        found = await read_queues(desk.runner.client)
        if found == self._drawn:
            return
        self._drawn = found
        now = time.time()
        self._body.clear()
        with self._body:
            if not found:
                more = "A worker process appears here when it serves a queue that has tasks."
                parts.empty("dns", "No queue has open tasks or workers", more)
            for queue in found:
                if queue.is_unserved:
                    _draw_unserved(queue)
            for process in processes_of(found):
                _draw_process(process, now)


def _draw_unserved(queue: Queue) -> None:
    look = "ring-2 ring-rose-600 dark:ring-rose-500"
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3 {look}"):
        with ui.row().classes("w-full items-center gap-2"):
            parts.heading(queue.serves).classes("min-w-0 break-words")
            parts.chip(queue.words, "bad")
        parts.quiet(_load(queue), "break-words")
        with ui.row().classes("gap-x-4 gap-y-1"):
            for task in queue.tasks:
                parts.link(task, parts.task_url(task), "text-sm break-all")


def _load(queue: Queue) -> str:
    names = f" of {', '.join(queue.agents)}" if queue.agents else ""
    return counted(queue.open_tasks, "open task") + names


def _draw_process(process: Process, now: float) -> None:
    newest = max(process.workers, key=lambda each: each.seen)
    since = min(each.since for each in process.workers)
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3"):
        with ui.row().classes("w-full items-center gap-2"):
            parts.heading(process.name).classes("min-w-0 break-words")
            parts.chip("serving", "good")
        parts.facts(
            [
                ("Host", "" if newest.host else "known 10 s after its start"),
                ("Agents", process.agents),
                ("Started", partial(_draw_start, since, now) if since else ""),
                ("Build", newest.version),
                ("Busy", process.slots),
                ("Last poll", seen(newest, now=now)),
                *((queue.serves, _load(queue)) for queue in process.queues),
                ("Names", partial(_draw_names, process)),
            ]
        )


def _draw_start(since: float, now: float) -> None:
    parts.moment(since)
    parts.text("span", f", {age(now - since)} ago")


def _draw_names(process: Process) -> None:
    for name in dict.fromkeys(worker.identity for worker in process.workers):
        parts.copied(name, "pr-2")
