"""What a person can do with an approval, labelled by what it does in its case."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from holdfast.task.data.calls import Approval
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
    asks: Literal["", "note", "reason", "result", "arguments", "later", "time"] = ""
    warning: str = ""
    colour: Colour = "grey"
    barred: str = ""


def asked_twice(choices: tuple[Choice, ...], why: str) -> tuple[Choice, ...]:
    """Return choices of which those that let a call run are asked twice, if there is a reason."""
    runs = ("approve", "always")
    return tuple(
        replace(each, warning=f"{each.warning} {why}".strip())
        if why and each.verb in runs
        else each
        for each in choices
    )


def choices_of(approval: Approval) -> tuple[Choice, ...]:
    """Return what can be done with an approval; decisions say what they do in its case."""
    more = (_more(verb, each) for verb, each in VERBS.items() if each.button)
    return (*_decisions(approval), *more)


def _more(verb: Verb, declared: Declared) -> Choice:
    key, label, more = declared.button or ("", "", "")
    asks = any(part.form == "time" for part in (declared.form or {}).values())
    return Choice(verb=verb, key=key, label=label, more=more, asks="time" if asks else "")


def _decisions(approval: Approval) -> tuple[Choice, ...]:
    tool = approval.tool or "it"
    match approval.kind:
        case "tool":
            return _of_call(approval, tool)
        case "unknown":
            return _of_unknown(tool)
        case "limit":
            return _of_limit(approval)
        case "question":
            return (
                Choice(
                    verb="respond",
                    key="v",
                    label="Answer",
                    more="The call goes on with your answer: an object with the fields asked for.",
                    asks="result",
                    colour="primary",
                ),
                Choice(
                    verb="reject",
                    key="r",
                    label="Decline",
                    more="The call goes on without an answer.",
                    asks="reason",
                ),
            )
        case "undo":
            return (
                Choice(
                    verb="approve",
                    key="a",
                    label=f"Undo {tool}",
                    more="The tool's own undo runs now.",
                    colour="primary",
                ),
                Choice(
                    verb="reject",
                    key="r",
                    label=f"Leave {tool} as it is",
                    more="It stays as it is, and the undo ends here.",
                    asks="reason",
                    colour="negative",
                ),
                Choice(
                    verb="respond",
                    key="v",
                    label="It is undone already",
                    more="You have undone it by other means: enter how.",
                    asks="result",
                ),
            )


def _of_limit(approval: Approval) -> tuple[Choice, ...]:
    finish = Choice(
        verb="reject",
        key="r",
        label="Finish now",
        more="The model gives its last answer, without tools.",
        asks="reason",
        colour="negative",
    )
    raised = arguments_of(approval).get("max_dollars")
    if not isinstance(raised, str):
        one_more = Choice(
            verb="approve",
            key="a",
            label="Allow one more model call",
            more="The task goes on for one model call over its budget.",
            colour="primary",
        )
        return one_more, finish
    return (
        Choice(
            verb="approve",
            key="a",
            label=f"Raise the budget to ${raised}",
            more="The task goes on until that is used up.",
            colour="primary",
        ),
        Choice(
            verb="edit",
            key="e",
            label="Raise it to another amount",
            more="The task goes on with the budget that you give.",
            asks="arguments",
        ),
        finish,
    )


def _of_call(approval: Approval, tool: str) -> tuple[Choice, ...]:
    final = f"{tool} cannot be undone." if approval.effect not in ("read", "reversible") else ""
    found = (
        Choice(
            verb="approve",
            key="a",
            label=f"Run {tool}",
            more="The call runs with these arguments.",
            warning=final,
            colour="positive",
        ),
        Choice(
            verb="edit",
            key="e",
            label="Edit arguments",
            more="The call runs with the arguments that you give; the agent reads the change.",
            asks="arguments",
            warning=final,
            colour="primary",
        ),
        *_for_later(approval, tool, final),
        Choice(
            verb="reject",
            key="r",
            label=f"Do not run {tool}",
            more="The call does not run; the agent reads your reason.",
            asks="reason",
            colour="negative",
        ),
        Choice(
            verb="respond",
            key="v",
            label="Enter a result",
            more="The call does not run; the agent reads your result instead.",
            asks="result",
        ),
    )
    if not approval.is_as_it_stands:
        return found
    return tuple(each for each in found if each.verb not in ("edit", "respond"))


def _for_later(approval: Approval, tool: str, warning: str) -> tuple[Choice, ...]:
    """Return the approval of later calls, which one person can give where one decides alone."""
    if approval.quorum > 1:
        return ()
    made = Choice(
        verb="always",
        key="w",
        label=f"Run {tool}, and later calls",
        more="This call runs, and so do later ones that fit, without asking.",
        asks="later",
        warning=warning,
    )
    return (made,)


def _of_unknown(tool: str) -> tuple[Choice, ...]:
    return (
        Choice(
            verb="approve",
            key="a",
            label=f"It did not happen: {tool} now",
            more="The call runs again.",
            warning=f"If {tool} has happened after all, it happens twice.",
            colour="primary",
        ),
        Choice(
            verb="respond",
            key="v",
            label="It happened: enter the result",
            more="The call does not run again; the agent reads your result.",
            asks="result",
            colour="positive",
        ),
        Choice(
            verb="reject",
            key="r",
            label="Give it up",
            more="The call does not run again; the agent reads that its outcome is unknown.",
            asks="reason",
            colour="negative",
        ),
    )
