"""What a person can do with an approval, labelled by what it does in its case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.task.data.calls import Approval, ApprovalKind
from holdfast.task.people.standing import arguments_of
from holdfast.values.runs.verbs import VERBS, Declared, Verb

Done = Literal[Verb, "always", "edit"]
Colour = Literal["positive", "primary", "negative", "grey"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of the things that a person can do with an approval.

    Attributes:
        verb: What is decided; "edit" approves with other arguments, "always" later calls as well.
        key: The key for it.
        label: What it does in this case.
        more: What it does, in a sentence.
        asks: What a person must say: "" for nothing, "later" for which later calls.
        warning: Why it is asked twice; empty when it is not.
        colour: How it is drawn.
        barred: Why who looks may not do it; empty when they may.
    """

    verb: Done
    key: str
    label: str
    more: str
    asks: Literal["", "reason", "result", "arguments", "later", "time"] = ""
    warning: str = ""
    colour: Colour = "grey"
    barred: str = ""


TITLES: Mapping[ApprovalKind, str] = {
    "tool": "needs approval",
    "unknown": "may have happened",
    "limit": "budget is used up",
    "undo": "undo needs approval",
    "question": "asks a question",
    "unread": "cannot be read",
}
"""Why something waits for a person, in a few words."""


def title_of(approval: Approval) -> str:
    """Return what waits, in a few words."""
    match approval.kind:
        case "limit":
            return "The budget is used up"
        case "undo":
            return f"Undo of {approval.tool}" if approval.tool else "An undo"
        case "unread":
            return "Approvals that cannot be read"
        case "tool":
            return approval.tool
        case kind:
            return f"{approval.tool} {TITLES[kind]}"


def asked_twice(choices: tuple[Choice, ...], why: str) -> tuple[Choice, ...]:
    """Return choices; the ones that let a call run are asked twice, if there is a reason."""
    runs = ("approve", "always")
    return tuple(
        replace(each, warning=f"{each.warning} {why}".strip())
        if why and each.verb in runs
        else each
        for each in choices
    )


def choices_of(approval: Approval) -> tuple[Choice, ...]:
    """Return what can be done with an approval; decisions say what they do in its case."""
    of_all = () if approval.kind == "unread" else VERBS.items()
    more = (_more(verb, each) for verb, each in of_all if each.button)
    return (*_decisions(approval), *more)


def _more(verb: Verb, declared: Declared) -> Choice:
    key, label, more = declared.button or ("", "", "")
    asks = any(part.form == "time" for part in (declared.form or {}).values())
    return Choice(verb=verb, key=key, label=label, more=more, asks="time" if asks else "")


_DECIDED: dict[Done, tuple[str, Literal["", "reason", "result", "arguments", "later"]]] = {
    "approve": ("a", ""),
    "edit": ("e", "arguments"),
    "always": ("w", "later"),
    "reject": ("r", "reason"),
    "respond": ("v", "result"),
}
"""The key of each decision, and what a person must say, whatever it does in its case."""


def _choice(
    verb: Done, label: str, more: str, *, warning: str = "", colour: Colour = "grey"
) -> Choice:
    key, asks = _DECIDED[verb]
    return Choice(
        verb=verb, key=key, label=label, more=more, asks=asks, warning=warning, colour=colour
    )


def _decisions(approval: Approval) -> tuple[Choice, ...]:
    tool = approval.tool or "it"
    match approval.kind:
        case "tool":
            return _of_call(approval, tool)
        case "unknown":
            return _of_unknown(tool)
        case "limit":
            return _of_limit(approval)
        case "unread":
            return ()
        case "question":
            return (
                _choice(
                    "respond",
                    "Answer",
                    "The call goes on with your answer: an object with the fields asked for.",
                    colour="primary",
                ),
                _choice("reject", "Decline", "The call goes on without an answer."),
            )
        case "undo":
            return (
                _choice(
                    "approve", f"Undo {tool}", "The tool's own undo runs now.", colour="primary"
                ),
                _choice(
                    "reject",
                    f"Leave {tool} as it is",
                    "It stays as it is, and the undo ends here.",
                    colour="negative",
                ),
                _choice(
                    "respond",
                    "It is undone already",
                    "You have undone it by other means: enter how.",
                ),
            )


def _of_limit(approval: Approval) -> tuple[Choice, ...]:
    finish = _choice(
        "reject", "Finish now", "The model gives its last answer, without tools.", colour="negative"
    )
    raised = arguments_of(approval).get("max_dollars")
    if not isinstance(raised, str):
        one_more = _choice(
            "approve",
            "Allow one more model call",
            "The task goes on for one model call over its budget.",
            colour="primary",
        )
        return one_more, finish
    return (
        _choice(
            "approve",
            f"Raise the budget to ${raised}",
            "The task goes on until that is used up.",
            colour="primary",
        ),
        _choice(
            "edit", "Raise it to another amount", "The task goes on with the budget that you give."
        ),
        finish,
    )


def _of_call(approval: Approval, tool: str) -> tuple[Choice, ...]:
    final = f"{tool} cannot be undone." if approval.effect not in ("read", "reversible") else ""
    found = (
        _choice(
            "approve",
            f"Run {tool}",
            "The call runs with these arguments.",
            warning=final,
            colour="positive",
        ),
        _choice(
            "edit",
            "Edit arguments",
            "The call runs with the arguments that you give; the agent reads the change.",
            warning=final,
            colour="primary",
        ),
        *_for_later(approval, tool, final),
        _choice(
            "reject",
            f"Do not run {tool}",
            "The call does not run; the agent reads your reason.",
            colour="negative",
        ),
        _choice(
            "respond",
            "Enter a result",
            "The call does not run; the agent reads your result instead.",
        ),
    )
    if not approval.is_as_it_stands:
        return found
    return tuple(each for each in found if each.verb not in ("edit", "respond"))


def _for_later(approval: Approval, tool: str, warning: str) -> tuple[Choice, ...]:
    """Return the approval of later calls, which one person can give where one decides alone."""
    if approval.quorum > 1:
        return ()
    made = _choice(
        "always",
        f"Run {tool}, and later calls",
        "This call runs, and so do later ones that fit, without asking.",
        warning=warning,
    )
    return (made,)


def _of_unknown(tool: str) -> tuple[Choice, ...]:
    return (
        _choice(
            "approve",
            f"It did not happen: {tool} now",
            "The call runs again.",
            warning=f"If {tool} has happened after all, it happens twice.",
            colour="primary",
        ),
        _choice(
            "respond",
            "It happened: enter the result",
            "The call does not run again; the agent reads your result.",
            colour="positive",
        ),
        _choice(
            "reject",
            "Give it up",
            "The call does not run again; the agent reads that its outcome is unknown.",
            colour="negative",
        ),
    )
