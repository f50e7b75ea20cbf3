"""Effects of commands on a ledger, and the signals of tasks and activities, as they are read.

Pure. Whatever was sent, nothing is raised: a signal must not block a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pydantic import ValidationError

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.task import waits
from holdfast.task.data.calls import LONG_CALL, LongCall
from holdfast.task.data.children import GIVEN, REPORTS, SAYS, ChildReport, OutputsGiven, ParentSays
from holdfast.task.data.commands import LONGEST_REASON, Command, Refusal
from holdfast.task.data.head import RunChange, RunSetting, TaskHead
from holdfast.task.data.records import mark_of
from holdfast.task.data.state import TURN, Claim
from holdfast.task.data.undo import FollowUp
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, standing
from holdfast.task.refusals import not_upcoming
from holdfast.task.requests.phase import told_parent
from holdfast.values.checks import gate
from holdfast.values.checks.gate import clean
from holdfast.values.messages import user
from holdfast.values.runs.verbs import VERBS
from holdfast.values.steps import TaskStep
from holdfast.values.text.shown import time_shown

HEARD: dict[str, type[ChildReport | ParentSays | LongCall | OutputsGiven | Claim]] = {
    SAYS: ParentSays,
    REPORTS: ChildReport,
    LONG_CALL: LongCall,
    GIVEN: OutputsGiven,
    TURN: Claim,
}
"""Name to type of the signals that tasks and activities send, as opposed to people."""


def hear(
    name: str, payloads: Sequence[bytes]
) -> ChildReport | ParentSays | LongCall | OutputsGiven | Claim | Refusal | None:
    """Read a signal of a parent, a child or an activity of the task; never raises.

    Args:
        name: Name of the signal.
        payloads: The data of its arguments.

    Returns:
        The signal's content, or why it is refused; None for a signal of another name.
    """
    kind = HEARD.get(name)
    if kind is None:
        return None
    if len(payloads) != 1:
        return Refusal(verb=name, reason=f"It is one value; this signal brought {len(payloads)}.")
    try:
        # a child reports values that have passed the gate already, in envelopes of our own
        data = gate.read(payloads[0], "It", deepest=gate.DEEPEST + gate.ENVELOPE)
        return kind.model_validate(data)
    except (InvalidArgumentError, UserError, ValidationError) as cause:
        return Refusal(verb=name, reason=f"It cannot be read: {clean(str(cause))}"[:LONGEST_REASON])


LONGEST_TEXT = 16 * 1024

LONGEST_NOTES = 4 * 1024 * 1024
"""Most characters of feedback that wait for one model call."""

MOST_FOLLOWUPS = 1000
"""Most inputs that wait for the task's answer."""


def obey(ledger: Ledger, command: Command, *, now: float) -> str:
    """Apply a command; return why it is refused, or empty. The workflow handles `abandon`.

    Args:
        ledger: The task.
        command: The command.
        now: Time, seconds since the epoch.
    """
    if command.branch and command.branch != str(ledger.s.branch):
        return f"The command is for branch {command.branch}; the task is on {ledger.s.branch}."
    if VERBS[command.verb].about == "approval":
        always = command.body.get("always")
        is_for_one = always is None or always is False
        decide = approvals.decide if is_for_one else standing.decide_always
        return decide(ledger, command, now=now)
    match command.verb:
        case "pause":
            return _pause(ledger, command, now=now)
        case "resume":
            if not ledger.s.paused:
                held = ledger.s.held and "The task that it works for is paused: resume that one."
                return held or "The task is not paused."
            resume(ledger)
            return ""
        case "revoke":
            return standing.revoke(ledger, command, now=now)
        case "feedback":
            return _feedback(ledger, command)
        case "edit_step" | "drop_step":
            wanted = command.body.get("step")
            at = next((k for k, step in enumerate(ledger.s.queue) if step.step_id == wanted), None)
            if at is None:
                return _not_queued(ledger, command)
            return (_edit if command.verb == "edit_step" else _drop)(ledger, command, at)
        case "wake" | "complete":
            return waits.obey(ledger, command, now=now)
        case "configure":
            return _configure(ledger, command)
        case _:
            raise NotImplementedError(f"{command.verb} has no effect here.")


def resume(ledger: Ledger) -> None:
    """End a pause."""
    ledger.s.paused = ""
    ledger.s.paused_by_run = False
    ledger.s.paused_after = 0
    ledger.s.paused_until = 0.0


def _pause(ledger: Ledger, command: Command, *, now: float) -> str:
    """Pause; a pause after an event replaces no other: the one who has paused may resume."""
    after = command.body.get("after", 0)
    if not isinstance(after, int) or after < 0:
        return f"after must be the offset of an event; it was {after!r:.80}."
    who = command.by or "somebody"
    why = f"{who}: {command.reason}" if command.reason else who
    stands, until = "after" in command.body and bool(ledger.s.paused), 0.0
    if command.body.get("until") is not None:
        until, refused = approvals.time_to_come(command.body["until"], now=now)
        if refused:
            return refused
        begun = ledger.s.steps or ledger.s.opens
        why += f"{', until' if begun else ', starts at'} {time_shown(until)}"
    ledger.s.paused = ledger.s.paused if stands else why
    ledger.s.paused_by_run = ledger.s.paused_by_run if stands else bool(command.body.get("run"))
    ledger.s.paused_after = mark_of(after) or ledger.s.paused_after
    ledger.s.paused_until = ledger.s.paused_until if stands else until
    return ""


def _feedback(ledger: Ledger, command: Command) -> str:
    text = command.body.get("text")
    if not isinstance(text, str) or not text.strip():
        return "Feedback needs a text."
    if len(text) > LONGEST_TEXT:
        return f"Feedback may have at most {LONGEST_TEXT} characters; this has {len(text)}."
    if told := told_parent(ledger):
        return told.message
    if command.body.get("when", "next_model_call") == "queued":
        if len(ledger.s.followups) >= MOST_FOLLOWUPS:
            return f"{MOST_FOLLOWUPS} inputs wait for the task's answer already: the most it takes."
        ledger.s.followups = (*ledger.s.followups, text)
    elif (noted := ledger.queue.noted) + len(text) > LONGEST_NOTES:
        return (
            f"{noted} characters of feedback wait for the next model call already; at most"
            f" {LONGEST_NOTES} can. Let the task go on first."
        )
    else:
        ledger.queue.add_note(user(text))
    if ledger.s.answered:
        ledger.queue.follow_up()
    return ""


def _configure(ledger: Ledger, command: Command) -> str:
    try:
        change = RunChange.model_validate(command.body)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
    except UserError as error:  # as settings of models say it
        return f"settings: {error}"
    if not change.names:
        return f"names must say which settings: {', '.join(get_args(RunSetting))}."
    return change.unread(command.body) or configure(ledger, change)


def configure(ledger: Ledger, change: RunChange) -> str:
    """Give the run of a task other settings, for all that is begun from now on.

    What is in progress ends with the settings that it was begun with.

    Returns:
        Why they are refused, or empty.
    """
    if not ledger.takes_settings:
        return (
            "This nested run has settings of its own, or works for one that has: a tool was given a"
            " run_config."
        )
    if ledger.given.parent is not None:
        change = change.inherited
        if not change.names:
            return "Error handlers are for the run itself; a nested run cannot have them."
    if _in_requests(change.applied(ledger.head)) != _in_requests(ledger.head):
        unfinished = (c for c in ledger.s.opens if c.result is None)
        step = next((c for c in unfinished if c.journal or c.n in ledger.money.asking), None)
        if step is not None:  # its calls are known by their requests
            return (
                f"Step {step.open.step.step_id!r} has asked {ledger.head.model or 'its model'}"
                " already, and is not over. Give another model or tool choice once it is, or begin"
                ' it again: run_step(restart="step").'
            )
    ledger.s.changed = change.after(ledger.s.changed)
    return ""


def _in_requests(head: TaskHead) -> tuple[str, str | None, str | None]:
    """Return the settings by which the answers to model calls of a step are known."""
    of_model = head.run.of_model
    return (
        head.model,
        None if head.settings is None else head.settings.choice,
        None if of_model is None else of_model.choice,
    )


def _edit(ledger: Ledger, command: Command, at: int) -> str:
    text = command.body.get("input")
    if not isinstance(text, str) or not text.strip():
        return "The new input of a step must be a text that says something."
    queue = list(ledger.s.queue)
    queue[at] = queue[at].model_copy(update={"input": text})
    ledger.s.queue = tuple(queue)
    return ""


def _drop(ledger: Ledger, command: Command, at: int) -> str:
    queue: list[TaskStep] = list(ledger.s.queue)
    del queue[at]
    over = not queue and not ledger.s.opens and ledger.s.concluded  # it was a follow-up
    ledger.s.queue = tuple(queue)
    ledger.s.answered = ledger.s.answered or over
    if command.body.get("step") == ledger.s.further.step:
        ledger.s.further = FollowUp()
    if ledger.s.lasts and not ledger.s.opens and not ledger.queue.ready():
        ledger.queue.join_lasts()
    return ""


def _not_queued(ledger: Ledger, command: Command) -> str:
    wanted = command.body.get("step")
    if wanted in {current.open.step.step_id for current in ledger.s.opens}:
        return f"Step {wanted!r} is in progress already: undo it, or run it again if it has failed."
    return not_upcoming(str(wanted), ledger.s.queue)
