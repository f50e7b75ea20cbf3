"""The decisions that hold for later calls, over all tasks and sessions."""

from __future__ import annotations

from functools import partial
from typing import Literal

from nicegui import ui

from holdfast.client.agent_runner.schedules import Schedule
from holdfast.desk.pages import parts
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import CARD, STRONG
from holdfast.desk.views.cards import shown_rule
from holdfast.desk.views.words import cut
from holdfast.task.data.calls import StandingRule
from holdfast.values.checks.ids import task_of
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import time_shown


class Rules:
    """The list of these decisions in one browser."""

    def __init__(self, frame: Frame) -> None:
        """Draw it."""
        self._frame = frame
        parts.heading("Standing rules", level=1)
        parts.quiet(
            "Decisions that hold for later calls. What they have decided stays when they end."
        )
        self._body = parts.Part("m-0 flex w-full list-none flex-col gap-3 p-0", "ul")
        ui.timer(TICK_SECONDS * 2, lambda: self._frame.look(self._look))

    async def _look(self) -> None:
        found = await self._frame.desk.runner.standing_rules()
        self._body.show(found, lambda: self._draw_all(found))

    def _draw_all(self, found: list[StandingRule]) -> None:
        if not found:
            with ui.element("li").classes("w-full"):
                more = "In the inbox, w approves a call and later ones that fit."
                parts.empty("rule", "No decision holds for later calls", more)
        for rule in found:
            self._draw(rule)

    def _draw(self, rule: StandingRule) -> None:
        look = f"{CARD} flex flex-wrap items-center justify-between gap-3"
        with ui.element("li").classes(look):
            with ui.column().classes("min-w-0 gap-1"):
                said = redact(cut(shown_rule(rule)))
                parts.text("span", said, f"text-sm break-words {STRONG}")
                with ui.row().classes("gap-x-4 gap-y-1"):
                    parts.link(
                        "The task it was given in", parts.task_url(task_of(rule.id)), "text-sm"
                    )
                    if rule.session:
                        target = parts.url("/sessions", {"name": rule.session})
                        parts.link("Its session", target, "text-sm")
            if self._frame.can("revoke"):
                made = parts.button("Revoke").on_click(partial(self._revoke, rule))
                made.props["aria-label"] = f"Revoke {rule.id}"

    async def _revoke(self, rule: StandingRule) -> None:
        runner = self._frame.desk.runner

        async def run(by: str) -> None:
            await runner.revoke_rule(rule, by)

        await self._frame.act("revoke", rule.id, run, "Revoked.")
        await self._frame.look(self._look, at_once=True)


# The schedules: when tasks begin by themselves, what comes next, what was missed.

NEXT, NEWEST = 3, 5
"""Next times, and newest tasks, that are shown of each."""


class Schedules:
    """The list of schedules in one browser."""

    def __init__(self, frame: Frame) -> None:
        """Draw it."""
        self._frame = frame
        parts.heading("Schedules", level=1)
        self._body = parts.Part("m-0 flex w-full list-none flex-col gap-3 p-0", "ul")
        ui.timer(TICK_SECONDS * 4, lambda: frame.look(self._look))

    async def _look(self) -> None:
        found = await self._frame.desk.runner.list_schedules()
        self._body.show(found, lambda: self._draw_all(found))

    def _draw_all(self, found: list[Schedule]) -> None:
        if not found:
            with ui.element("li").classes("w-full"):
                parts.empty("schedule", "No schedules", "`holdfast schedule add` makes one.")
        for each in found:
            self._draw(each)

    def _draw(self, schedule: Schedule) -> None:
        look = f"{CARD} flex flex-wrap items-center justify-between gap-3"
        with ui.element("li").classes(look):
            with ui.column().classes("min-w-0 gap-1"):
                parts.text("span", redact(schedule.name), f"text-sm break-words {STRONG}")
                when = f"{', '.join(schedule.every)} {schedule.time_zone}"
                parts.quiet(f"{schedule.agent} · {when} · {redact(cut(schedule.input))}")
                if schedule.paused:
                    parts.quiet(f"Paused by {redact(cut(schedule.paused))}")
                elif schedule.next:
                    parts.quiet(f"Next: {', '.join(map(time_shown, schedule.next[:NEXT]))}")
                if schedule.trouble:
                    parts.quiet(f"Not begun: {schedule.trouble}")
                with ui.row().classes("gap-x-4 gap-y-1"):
                    for task_id in schedule.tasks[:NEWEST]:
                        parts.link(task_id, parts.task_url(task_id), "text-sm")
            verb: Literal["pause", "resume"] = "resume" if schedule.paused else "pause"
            if self._frame.can(verb):
                made = parts.button(verb.capitalize()).on_click(partial(self._change, schedule))
                made.props["aria-label"] = f"{verb.capitalize()} {schedule.name}"

    async def _change(self, schedule: Schedule) -> None:
        runner, name = self._frame.desk.runner, schedule.name

        async def run(by: str) -> None:
            if schedule.paused:
                await runner.resume_schedule(name, by)
            else:
                await runner.pause_schedule(name, by=by)

        if schedule.paused:
            await self._frame.act("resume", name, run, "Resumed.")
        else:
            await self._frame.act("pause", name, run, "Paused.")
        await self._frame.look(self._look, at_once=True)
