"""The verbs of a task's page, each with a reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

from nicegui import ui

from holdfast.desk.identity.tokens import READ, Verb
from holdfast.desk.pages import parts
from holdfast.desk.pages.feed import Desk
from holdfast.desk.pages.frame import Frame
from holdfast.desk.pages.parts import QUIET
from holdfast.desk.views.words import without_secrets
from holdfast.errors import EngineError
from holdfast.reading.erasable import Plan
from holdfast.reading.listing import STUCK
from holdfast.task.data.calls import Approval, StandingRule
from holdfast.task.data.head import AgentSnapshot
from holdfast.task.data.records import Entry, OpenState
from holdfast.task.happenings import Happening, happenings
from holdfast.task.step_body import StepBody
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import ListedTask, Task, TaskStep, TaskStepOutput

READ_SECONDS = 6.0
"""How long a page waits for a worker process that has just been killed, and counts as running."""


@dataclass(frozen=True)
class Facts:
    """What was read of a task.

    Attributes:
        task: The task.
        entries: Its ledger.
        opens: Its steps in progress.
        upcoming: The step in progress and the queued ones.
        approvals: What waits for a person.
        snapshot: The agent as the task began with it.
        children: Its child tasks.
    """

    task: Task
    entries: Sequence[Entry] = ()
    opens: Sequence[OpenState] = ()
    upcoming: Sequence[TaskStep] = ()
    approvals: Sequence[Approval] = ()
    rules: Sequence[StandingRule] = ()
    snapshot: AgentSnapshot | None = None
    children: Sequence[ListedTask] = ()

    @cached_property
    def found(self) -> list[Happening]:
        """What happened in the task."""
        return list(happenings(self.entries, self.opens))

    @cached_property
    def lost(self) -> str:
        """Which part of the ledger cannot be read, and why; empty if it is whole."""
        event = self.entries[0].event if self.entries else None  # it is in place of the oldest
        return event.text if event is not None and event.kind == "damaged" else ""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal facts."""
        task = self.task
        return (
            (
                task.status,
                task.steps,
                task.usage,
                task.error,
                task.blocked_by,
                task.waits,
                task.paused,
            ),
            len(self.entries),
            tuple(self.opens),
            tuple(self.upcoming),
            tuple((each.id, each.status) for each in self.approvals),
            tuple(each.id for each in self.rules),
            tuple((each.task_id, each.status) for each in self.children),
            self.snapshot is None,
        )


async def read_facts(desk: Desk, task_id: str, snapshot: AgentSnapshot | None) -> Facts:
    """Read a task.

    Args:
        desk: The desk.
        task_id: The task.
        snapshot: Its agent, if it was read before.

    Raises:
        TaskNotFoundError: There is no such id.
        NoWorkerError: It is open and no worker process is up to answer.
        ConnectError: The server could not be reached.
        TimeoutError: No answer came in time.
    """
    runner = desk.runner
    async with asyncio.timeout(READ_SECONDS):
        task = await runner.get_task(task_id)
        (entries, opens), upcoming, approvals, rules = await asyncio.gather(
            runner.reader.ledger(task_id, legible=True),
            runner.get_upcoming_steps(task_id),
            runner.pending_approvals(task_id),
            runner.standing_rules(task_id),
        )
    try:
        children: list[ListedTask] = await runner.list_tasks(parent=task_id)
    except EngineError:
        children = []
    return Facts(
        task=task,
        entries=entries,
        opens=opens,
        upcoming=upcoming,
        approvals=approvals,
        rules=rules,
        snapshot=snapshot or await desk.feed.snapshot(task_id),
        children=children,
    )


@dataclass(frozen=True)
class Asked:
    """What the dialog of a verb asks for.

    Attributes:
        argument: The argument of the client's method that it becomes; what is left empty is not
            given.
        label: Its label.
        kind: A text of several lines, a line, or a box, which stands for "keep".
        is_needed: Whether a text is needed.
    """

    argument: str
    label: str
    kind: Literal["text", "line", "box"] = "text"
    is_needed: bool = False

    def draw(self) -> Any:
        """Draw it."""
        if self.kind == "box":
            return ui.checkbox(self.label)
        if self.kind == "line":
            return ui.input(self.label).props("outlined").classes("w-full")
        return ui.textarea(self.label).props("outlined autogrow autofocus").classes("w-full")

    def typed(self, made: Any) -> str:
        """Return what a person has said to what `draw` returned."""
        return "keep" * made.value if self.kind == "box" else (made.value or "").strip()


REASON = Asked("reason", "Reason", is_needed=True)
WHY = Asked("reason", "Reason (or leave it empty)", "line")
KEEP = Asked("residue", "Go on where an effect cannot be undone; it is recorded", "box")

Run = Callable[..., Awaitable[Any]]
"""Does a verb: a method of the client, which is given the name to be recorded as `by`."""


class Verbs:
    """The verbs on one task, in one browser."""

    def __init__(self, frame: Frame, task_id: str, look: Callable[[], None]) -> None:
        """Act on a task.

        Args:
            frame: The frame of the page.
            task_id: The task.
            look: Has the page read what is new.
        """
        self._frame, self._task_id, self._look = frame, task_id, look
        self._runner = frame.desk.runner

    def key(self, facts: Facts) -> tuple[object, ...]:
        """Return what the buttons depend on."""
        status = facts.task.status
        has_steps = bool(facts.entries or facts.opens)
        is_stuck = facts.task.blocked_by == STUCK
        # A call can be woken; a task that waits for its turn has none yet.
        paused, waits = bool(facts.task.paused), bool(facts.task.waits and facts.opens)
        return (status, paused, waits, bool(facts.approvals), has_steps, is_stuck)

    def draw(self, facts: Facts) -> None:
        """Draw the buttons that make sense for the task as it is now."""
        status, is_paused, is_waiting, is_asking, has_steps, is_stuck = self.key(facts)
        is_closed = status in CLOSED
        can = self._frame.can
        with ui.row().classes("w-full gap-2"):
            if (status == "paused" or is_paused) and can("resume"):
                parts.button("Resume", tone="main", icon="play_arrow").on_click(self.resume)
            elif not is_closed and status != "answered" and can("pause"):
                parts.button("Pause", icon="pause").on_click(self.pause)
            if is_waiting and not is_closed and can("wake"):
                parts.button("Wake", icon="alarm").on_click(self.wake)
            if status in ("running", "needs_attention") and not is_asking and can("run"):
                parts.button("Run on", tone="main", icon="play_arrow").on_click(self.run_on)
                parts.button("One step", icon="skip_next").on_click(self.run_step)
            if status == "needs_attention" and can("run"):
                parts.button("Restart the step", icon="restart_alt").on_click(self.restart)
            if status == "answered" and can("finalize"):
                parts.button("Finalize", icon="done_all").on_click(self.finalize)
            if not is_closed and can("feedback"):
                parts.button("Feedback", icon="chat").on_click(self.feedback)
            if not is_closed and has_steps and can("undo"):
                parts.button("Undo last step", icon="undo").on_click(self.undo)
            if not is_closed and can("abandon"):
                title = "End by force" if is_stuck else "Abandon"
                made = parts.button(title, tone="danger", icon="block")
                made.on_click(partial(self.abandon, force=bool(is_stuck)))
            if is_closed and can("erase"):
                parts.button("Erase", tone="danger", icon="delete_forever").on_click(self.erase)
            parts.button("Verify", icon="verified").on_click(self.verify)
            parts.button("Audit", icon="download").on_click(self.audit)

    def resume(self) -> None:
        """Ask why, and resume the task."""
        run, more = partial(self._runner.resume, self._task_id), "Steps begin again."
        self._ask("resume", "Resume the task", more, run, "Resumed.", WHY)

    def wake(self) -> None:
        """Ask why, and end the wait of a call."""
        run = partial(self._runner.wake, self._task_id)
        more = "The wait is over as if its time had come."
        self._ask("wake", "End the wait now", more, run, "Woken.", WHY)

    async def run_on(self) -> None:
        """Run the task on, without waiting for its end."""
        await self._act("run", lambda _: self._runner.run_on(self._task_id), "It has run on.")

    async def run_step(self) -> None:
        """Run the next step of the task."""
        await self._act("run", lambda _: self._runner.run_step(self._task_id), "The step has run.")

    async def finalize(self) -> None:
        """Close the task with its answer."""
        finalize = partial(self._runner.finalize_response, self._task_id)
        await self._act("finalize", lambda _: finalize(), "Finalized.")

    def restart(self) -> None:
        """Ask whether to restart a failed step, and run it from its beginning."""

        def run(by: str) -> Awaitable[Any]:
            del by  # no record says who has run a step
            return self._runner.run_step(self._task_id, restart="step")

        more = "Its answered calls are given up: models and tools are called, and paid for, again."
        self._ask("run", "Restart the step", more, run, "It has run.")

    def pause(self) -> None:
        """Ask why, and pause the task."""
        run = partial(self._runner.pause, self._task_id)
        more = "Steps in progress are finished; no further step begins."
        self._ask("pause", "Pause the task", more, run, "Paused.", REASON)

    def abandon(self, *, force: bool = False) -> None:
        """Ask why, and abandon the task; by force if it obeys no command."""
        run = partial(self._runner.abandon, self._task_id, force=force)
        title, more = "Abandon the task", "It ends without an answer: running calls are cancelled."
        if force:
            title = "End the task by force"
            more = "Temporal ends it; its record is made from its history. Mended code could go on."
        more += " This cannot be taken back."
        self._ask("abandon", title, more, run, "Abandoned.", REASON, is_final=True)

    async def erase(self) -> None:
        """List what goes with the task, ask why, and erase it for good."""
        found: list[Plan] = []

        async def look(by: str) -> None:
            found.append(await self._runner.plan_erasure(self._task_id, by=by, forks="erase"))

        if await self._act("erase", look, ""):
            names = ", ".join(found[0].erasure.tasks)
            more = (
                f"These go for good, with child tasks and forks: {names}. Nothing of them can be"
                " read again, also not from a backup without keys/. This cannot be taken back."
            )
            run = partial(self._runner.erase, self._task_id, forks="erase")
            with self._frame.slot():
                self._ask("erase", "Erase the task", more, run, "Erased.", REASON, is_final=True)

    def feedback(self) -> None:
        """Ask for a message, and give it to the model."""
        run = partial(self._runner.give_feedback, self._task_id)
        more = "The model reads it before its next call; nothing is interrupted."
        message = Asked("text", "Message", is_needed=True)
        self._ask("feedback", "Give feedback", more, run, "Sent.", message)

    def revoke(self, rule: StandingRule) -> None:
        """Ask whether a decision for later calls is to end, and end it."""
        run = partial(self._runner.revoke_rule, rule)
        more = f"Later calls of {rule.tool} ask again; calls that it has decided stay."
        self._ask("revoke", "Revoke the rule", more, run, "Revoked.")

    def undo(self) -> None:
        """Ask why, and undo the last step."""
        run = partial(self._runner.undo_step, self._task_id)
        more = "Its effects are taken back by their tools' own undo, newest first."
        self._ask("undo", "Undo the last step", more, run, "Undone.", REASON, KEEP)

    def rewind(self, body: StepBody) -> None:
        """Ask why, and undo all steps after one."""
        run = partial(self._runner.rewind, self._task_id, _output(body))
        more = f"All steps after step {body.n} are undone, with their effects."
        self._ask("rewind", f"Rewind to step {body.n}", more, run, "Rewound.", REASON, KEEP)

    def fork(self, body: StepBody) -> None:
        """Ask for another input or agent, and fork the task after a step."""

        async def run(**given: Any) -> None:
            made = await self._runner.fork(self._task_id, _output(body), **given)
            ui.navigate.to(parts.task_url(made.task_id))

        more = (
            f"A new task begins with the steps up to step {body.n}. They do not run again, and"
            " this task is not touched."
        )
        other = Asked("input", "Another input (or leave it empty)")
        agent = Asked("agent", "Another agent (or leave it empty)", "line")
        self._ask("fork", f"Fork after step {body.n}", more, run, "Forked.", other, agent, WHY)

    def edit_step(self, step: TaskStep) -> None:
        """Ask for another input of a queued step."""
        run = partial(self._runner.edit_step, self._task_id, step)
        more = f"Step {step.step_id} begins with the new input."
        other = Asked("input", "Input", is_needed=True)
        self._ask("edit_step", "Edit the step", more, run, "Edited.", other, WHY)

    def drop_step(self, step: TaskStep) -> None:
        """Ask whether to drop a queued step."""
        run = partial(self._runner.drop_step, self._task_id, step)
        more = f"Step {step.step_id} will not run."
        self._ask("drop_step", "Drop the step", more, run, "Dropped.", WHY)

    async def verify(self) -> None:
        """Verify the record of the task, and show what was found."""
        found: list[Any] = []

        async def run(_: str) -> None:
            found.append(await self._runner.verify(self._task_id))

        if not await self._act(READ, run, ""):
            return
        result = found[0]
        with self._frame.slot(), parts.open_dialog("Verify") as dialog:
            parts.heading("The record is intact" if not result else "The record does not fit")
            for finding in result:
                parts.notice("bad", finding.text, role="alert")
            for said in result.proved:
                parts.text("p", f"Proved: {said}", f"m-0 text-sm {QUIET}")
            for said in result.unproved:
                parts.text("p", f"Not proved: {said}", f"m-0 text-sm {QUIET}")
            parts.button("Close", tone="main").on_click(dialog.close).props("autofocus")

    async def audit(self) -> None:
        """Download the audit as JSON lines."""

        async def run(_: str) -> None:
            events = await self._runner.audit(self._task_id)
            lines = [
                json.dumps(without_secrets(each.wire()), ensure_ascii=False) for each in events
            ]
            data = "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")
            ui.download(data, "audit.jsonl", media_type="application/x-ndjson")

        await self._act(READ, run, "")

    async def _act(self, verb: Verb, run: Callable[[str], Awaitable[Any]], done: str) -> bool:
        is_done = await self._frame.act(verb, self._task_id, run, done)
        with self._frame.slot():
            self._look()
        return is_done

    def _ask(
        self,
        verb: Verb,
        title: str,
        more: str,
        run: Run,
        done: str,
        *asks: Asked,
        is_final: bool = False,
    ) -> None:
        """Open the dialog of a verb."""
        with parts.open_dialog(title) as dialog:
            parts.heading(title)
            parts.text("p", more, f"m-0 text-sm {QUIET}")
            drawn = [(each, each.draw()) for each in asks]
            is_sent = False

            async def submit() -> None:
                nonlocal is_sent
                if is_sent:  # by the first click of two
                    return
                given: dict[str, str] = {}
                for each, made in drawn:
                    typed = each.typed(made)
                    if each.is_needed and not typed:
                        made.props(f'error error-message="{each.label} is needed."')
                        return
                    given |= {each.argument: typed} if typed else {}
                is_sent = True
                dialog.close()
                await self._act(verb, lambda by: run(by=by, **given), done)

            texts = [made for each, made in drawn if each.kind == "text"]
            for made in texts:
                made.on("keydown.ctrl.enter", submit)
            parts.actions(title, submit, dialog, is_danger=is_final, focus=not texts)


def _output(body: StepBody) -> TaskStepOutput:
    """Return a step as the verbs take it: with its branch, as ids are used again after an undo."""
    return TaskStepOutput(task_step=body.step, branch=body.branch)
