"""The dialog that creates a task."""

from __future__ import annotations

from nicegui import ui

from holdfast.desk.pages.frame import Frame
from holdfast.desk.pages.parts import QUIET, button, heading, open_dialog, task_url, text


def ask_for_task(frame: Frame) -> None:
    """Ask what is to be done, create the task, and go to its page."""
    runner = frame.desk.runner
    with open_dialog("New task") as dialog:
        heading("New task")
        more = "It runs by itself, up to where a person must decide."
        text("p", more, f"m-0 text-sm {QUIET}")
        wish = ui.textarea("Request").props("outlined autogrow autofocus").classes("w-full")
        agent = ui.input("Agent", value=runner.agent).props("outlined").classes("w-full")
        session = ui.input("Session (or leave it empty)").props("outlined").classes("w-full")

        is_sent = False

        async def submit() -> None:
            nonlocal is_sent
            said = (wish.value or "").strip()
            if not said:
                wish.props('error error-message="Request is needed."')
                return
            if is_sent:  # by the first click of two
                return
            is_sent = True

            async def create(by: str) -> None:
                made = await runner.create_task(
                    said,
                    agent=(agent.value or "").strip() or None,
                    session=(session.value or "").strip() or None,
                    step_mode="automatic",
                    streams=True,
                    by=by,
                )
                ui.navigate.to(task_url(made.task_id))

            is_sent = await frame.act("create", "", create, "")
            if is_sent:
                dialog.close()

        wish.on("keydown.ctrl.enter", submit)
        with ui.row().classes("w-full justify-end gap-2"):
            button("Cancel").on_click(dialog.close)
            button("Create", tone="main").on_click(submit).props("data-submit")
