"""The dialog that creates a task."""

from __future__ import annotations

from nicegui import ui

from holdfast.desk.identity.tokens import BUSY_VERBS
from holdfast.desk.pages import parts
from holdfast.desk.pages.frame import Frame
from holdfast.desk.pages.parts import QUIET, STRONG

FIRST = (
    ("Serve an agent", "holdfast dev MODULE:AGENTS runs the agents of a Python module."),
    ("Create a task", "Here, by holdfast run, or by runner.create_task() in a program."),
    ("Decide", "Calls that need a person come to the inbox by themselves."),
)


def draw_first(frame: Frame, *, has_button: bool) -> None:
    """Say what to do at a desk that has no task yet."""
    with ui.column().classes("w-full items-center gap-4 px-4 py-12"):
        parts.heading("No tasks yet: three steps to the first")
        with ui.element("ol").classes("m-0 flex max-w-lg list-decimal flex-col gap-3 pl-6"):
            for title, more in FIRST:
                with ui.element("li").classes(STRONG):
                    parts.text("div", title, "text-sm font-medium")
                    parts.quiet(more)
        if has_button and frame.can("create"):
            new = parts.button("New task", tone="main", icon="add")
            new.on_click(lambda: ask_for_task(frame))


BUSY = {
    "queue": "Wait for its turn",
    "refuse": "Create no task",
    "interrupt": "Abandon that task",
    "merge": "Give that task the request",
}


def ask_for_task(frame: Frame) -> None:
    """Ask for a request, create the task, and go to its page."""
    runner = frame.desk.runner
    with parts.open_dialog("New task") as dialog:
        parts.heading("New task")
        more = "It runs until a person must decide."
        parts.text("p", more, f"m-0 text-sm {QUIET}")
        wish = ui.textarea("Request").props("outlined autogrow autofocus").classes("w-full")
        agent = ui.input("Agent", value=runner.agent).props("outlined").classes("w-full")
        session = ui.input("Session (or leave it empty)").props("outlined").classes("w-full")
        busy = ui.select(BUSY, value="queue", label="While another task of the session runs")
        busy.props("outlined").classes("w-full")

        is_sent = False

        async def submit() -> None:
            nonlocal is_sent
            said, named = (wish.value or "").strip(), (session.value or "").strip()
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
                    session=named or None,
                    on_busy=busy.value if named else None,
                    step_mode="automatic",
                    streams=True,
                    by=by,
                )
                ui.navigate.to(parts.task_url(made.task_id))

            async def ask(_: str) -> None:
                """Ask only whether they may do this to the task that has the floor."""

            verb = BUSY_VERBS.get(busy.value) if named else None
            may = verb is None or await frame.act(verb, named, ask, "")
            is_sent = may and await frame.act("create", "", create, "")
            if is_sent:
                dialog.close()

        wish.on("keydown.ctrl.enter", submit)
        parts.actions("Create", submit, dialog)
