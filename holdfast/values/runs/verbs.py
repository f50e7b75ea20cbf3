"""The verbs: what people and programs ask of a task, each declared once, in `VERBS`.

From a declaration are made: the signal with its description and the check of its body, the answers
of the table of phases, the role at the desk, the command, the route of the HTTP API, and a button
of the inbox. The effect is in `task/requests/command_effects.py`, or for verbs that are about an
approval in `task/people/approvals.py`. The client's method is written out, because people read its
signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Literal, get_args

Verb = Literal[
    "pause",
    "resume",
    "abandon",
    "approve",
    "reject",
    "respond",
    "snooze",
    "uncover",
    "revoke",
    "feedback",
    "edit_step",
    "drop_step",
    "wake",
    "complete",
    "configure",
]


Decision = Literal["approved", "rejected", "responded"]


@dataclass(frozen=True)
class Part:
    """What a person gives with a verb: an argument of the client's method.

    Attributes:
        help: What it is, for the help of the command.
        form: How a command takes it: as a word of its own, as an option, as one that is needed, as
            a flag, as a needed option that is a time, or as one that may be left out.
        choice: For a flag: the value of the argument if it is set, and the name of the option.
    """

    help: str
    form: Literal["word", "option", "needed", "flag", "time", "late"] = "option"
    choice: str = ""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One verb.

    Attributes:
        about: What it acts on.
        role: Who may do it at the desk; empty if the desk does not offer it.
        does: What it does, for the command and the route that are made of this.
        body: What the signal does, and its body: the description that Temporal's UI shows.
        arguments: Fields of the body, those included that only Holdfast's own clients send.
        method: The method of AgentRunner; empty for one of the verb's name.
        decided: What an approval is after it, for a verb that decides one; else empty.
        can_wait: Whether it is refused while an undo is in progress, which would take it back
            unseen together with the steps, and when the history of the task is nearly full.
        stuck: The answer while the task waits to close again: see `Answer` in `phase.py`.
        form: What its command takes; None for a verb without a command, or with one by hand.
        button: Key, label and meaning of its button in the inbox, for a verb about an approval that
            does not decide it.
    """

    about: Literal["task", "step", "approval", "rule", "call"] = "task"
    role: Literal["operator", "approver", ""]
    does: str = ""
    body: str
    arguments: tuple[str, ...]
    method: str = ""
    decided: Decision | Literal[""] = ""
    can_wait: bool = False
    stuck: Literal["take", "close", "closed"] = "closed"
    form: Mapping[str, Part] | None = None
    button: tuple[str, str, str] | None = None


_DECISION = ("approval", "note", "reason", "message", "always", "roles", "digest")
_WHY = Part("Why; kept with the task.")
_STEP = Part("Id of a step that is to come.", "word")

VERBS: Mapping[Verb, Declared] = {
    "pause": Declared(
        role="operator",
        does="Let no further step of a task begin.",
        body=(
            'Begin no further steps. {"by": "ann", "reason": "lunch"}; both optional, as "until":'
            " a time at which they begin again."
        ),
        arguments=("reason", "after", "run", "until"),
        form={"reason": _WHY, "until": Part("When it ends, in local time.", "late")},
    ),
    "resume": Declared(
        role="operator",
        does="Let the steps of a paused task begin again.",
        body='End a pause, or try again to close. {"by": "ann", "reason": "..."}; both optional.',
        arguments=("reason",),
        stuck="close",
        form={"reason": _WHY},
    ),
    "abandon": Declared(
        role="operator",
        does="End a task without an answer; nothing reaches its session.",
        body='End the task without an answer. {"by": "ann", "reason": "..."}; both optional.',
        arguments=("reason",),
        stuck="take",
        form={
            "reason": Part(_WHY.help, "needed"),
            "force": Part("End a task in which workflow code fails.", "flag"),
        },
    ),
    "approve": Declared(
        about="approval",
        role="approver",
        body=(
            'Approve what waits. {"approval": "<task id>:1", "by": "ann"}; optional: "arguments"'
            ' (an object instead of the proposed one), "note", "always" (true: later calls too;'
            ' or {"same": ["to"], "until": 1780000000}: those with the same values, and so long;'
            ' with "scope": "session" in all tasks of the session).'
        ),
        arguments=(*_DECISION, "arguments"),
        decided="approved",
    ),
    "reject": Declared(
        about="approval",
        role="approver",
        does="Do not let a call run.",
        body=(
            'Reject what waits. {"approval": "<task id>:1", "by": "ann"}; optional: "reason",'
            ' "message" (what the model reads), "always".'
        ),
        arguments=_DECISION,
        decided="rejected",
    ),
    "respond": Declared(
        about="approval",
        role="approver",
        does="Give a result in place of the tool; or: it happened, with this result.",
        body=(
            "Give the result of a call in its place, which is not made."
            ' {"approval": "<task id>:1", "by": "ann", "result": "..."}'
        ),
        arguments=(*_DECISION, "result"),
        decided="responded",
        form={"result": Part("What the model reads.", "word")},
    ),
    "snooze": Declared(
        about="approval",
        role="approver",
        does="Leave what waits out of the lists until a time; it can be decided all the same.",
        body=(
            'Leave what waits out of the lists until a time. {"approval": "<task id>:1",'
            ' "until": "2027-01-31T14:00:00Z", "by": "ann"}; "until" may be seconds since the'
            ' epoch; optional: "reason".'
        ),
        arguments=("approval", "until", "reason", "roles"),
        form={"until": Part("When it comes back, in local time.", "time"), "reason": _WHY},
        button=(
            "z",
            "Snooze",
            "It is left out of the lists until then. Its deadline stays, and it can be decided.",
        ),
    ),
    "uncover": Declared(
        about="approval",
        role="approver",
        body=(
            "Record that a person who may decide sees the secrets of what waits."
            ' {"approval": "<task id>:1", "by": "ann"}'
        ),
        arguments=("approval", "roles", "reason"),
    ),
    "revoke": Declared(
        about="rule",
        role="approver",
        body='End a decision for later calls. {"rule": "<task id>:1", "by": "ann"}',
        arguments=("rule", "reason"),
        method="revoke_rule",
    ),
    "feedback": Declared(
        role="operator",
        does="Say something to the model; nothing is interrupted.",
        body=(
            'Say something before the next model call. {"text": "...", "by": "ann"};'
            ' "when": "queued" makes it the next input, after the answer.'
        ),
        arguments=("text", "when"),
        method="give_feedback",
        can_wait=True,
        form={
            "text": Part("The message to the model.", "word"),
            "when": Part("As the next input, once the task has its answer.", "flag", "queued"),
        },
    ),
    "edit_step": Declared(
        about="step",
        role="operator",
        does="Change the input of an upcoming step.",
        body=(
            'Change the input of a queued step. {"step": "s3", "input": "...", "by": "ann"};'
            ' optional: "reason".'
        ),
        arguments=("step", "input", "reason"),
        can_wait=True,
        form={"step": _STEP, "input": Part("Its new input.", "word"), "reason": _WHY},
    ),
    "drop_step": Declared(
        about="step",
        role="operator",
        does="Take an upcoming step out of the queue.",
        body=('Take a step out of the queue. {"step": "s3", "by": "ann"}; optional: "reason".'),
        arguments=("step", "reason"),
        can_wait=True,
        form={"step": _STEP, "reason": _WHY},
    ),
    "wake": Declared(
        role="operator",
        does="End the wait of a call before its time, or change its time.",
        body=(
            'End the wait of a call now. {"by": "ann"}; optional: "until" (a time: it ends then),'
            ' "call" (the id of the call, if several wait), "reason".'
        ),
        arguments=("call", "until", "reason"),
        can_wait=True,
        form={
            "until": Part("When it ends, in local time; at once by default.", "late"),
            "call": Part("Id of the call, if several wait."),
            "reason": _WHY,
        },
    ),
    "complete": Declared(
        about="call",
        role="operator",
        does="Give a call that completes later its outcome, by its token; or more time.",
        body=(
            'Give a call its outcome. {"token": "...", "result": "..."}; in place of "result":'
            ' "error" (why it failed), or "until" (a time: how long it may take); optional: "by".'
        ),
        arguments=("token", "result", "error", "until"),
        can_wait=True,
        form={
            "result": Part("What the model reads."),
            "error": Part("Why it failed; the model reads it."),
            "until": Part("How long it may take, in local time.", "late"),
        },
    ),
    "configure": Declared(
        role="",
        body=(
            'Give the run new settings, as Runner.run with a state does. {"names": [...],'
            ' "run": {...}, "by": "ann"}; optional: "model", "settings".'
        ),
        arguments=("names", "model", "settings", "run"),
        method="change_run",
    ),
}

NAMES: tuple[Verb, ...] = get_args(Verb)

DECIDED: Mapping[str, Decision] = {
    str(verb): each.decided for verb, each in VERBS.items() if each.decided
}
"""Verbs that decide an approval, each to what the approval is then."""

LISTED = {"mine": "Only what you can decide.", "snoozed": "What is snoozed as well."}
"""What lists of approvals can be asked for, each with its meaning: an option of `approvals`, a
parameter of the HTTP API and a box of the inbox. `InboxFilter` says which approvals fit."""


def signature_of(
    taken: Mapping[str, tuple[Any, Any]], returned: Any = Signature.empty
) -> Signature:
    """Return the signature of a function that is made for a verb.

    Args:
        taken: Name of each argument to its type and its default, which is ... for none.
        returned: Type of the result.
    """
    made = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=Parameter.empty if default is ... else default,
        )
        for name, (kind, default) in taken.items()
    ]
    return Signature(made, return_annotation=returned)
