"""Decisions that hold for later calls of a tool as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.calls import Approval, ApprovalKind, StandingRule
from holdfast.task.data.commands import Command
from holdfast.task.data.head import SessionRef, ToolPolicy
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, decisions
from holdfast.values.base import Json, canonical
from holdfast.values.checks import gate
from holdfast.values.runs.approval_rules import Always
from holdfast.values.runs.verbs import DECIDED

ONCE: Mapping[ApprovalKind, str] = {
    "limit": "The approval asks whether to go on past a budget",
    "unknown": "The approval asks about a call of unknown outcome",
    "undo": "The approval asks about an undo",
    "question": "The approval asks a question",
}
"""Why a decision holds for one approval alone, by the kinds that have no later calls."""

LARGEST_RULE = 4 * 1024
"""Most bytes of the texts and values of a rule in a session, which keeps many of them."""


def rules(ledger: Ledger) -> list[StandingRule]:
    """List the decisions that hold for later calls, oldest first; an undo ends them."""
    return [rule for rule in ledger.s.standing.values() if rule.branch == ledger.s.branch]


def listed(ledger: Ledger) -> list[StandingRule]:
    """List the decisions that the task has, those in transit to its session included."""
    handed = (rule for rule in ledger.s.to_session if not rule.revoked)
    return [*rules(ledger), *handed]


def standing_rule(
    ledger: Ledger, n: int, i: int, policy: ToolPolicy, of_session: Sequence[StandingRule] = ()
) -> StandingRule | None:
    """Return the newest decision that holds for a call, though its time may be over.

    Agents of one task may have different rules for tools of one name: a decision holds for calls
    that the person may decide.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call.
        policy: The rules of its tool.
        of_session: The decisions that the task's session has; those of the task come first.
    """
    call, asker = ledger.at(n).calls[i], ledger.given.head.asker
    agent = agent_of(ledger, n)
    probe = Approval(
        id="", arguments=call.arguments, tool=call.name, agent=agent, server=call.server
    )
    if policy.approval is not None:
        said = decisions.of_rule(policy.approval, "tool", asker=asker, now=0)
        probe = probe.model_copy(update=said)
    handed = (rule for rule in ledger.s.to_session if not rule.revoked)
    known = (*of_session, *handed, *rules(ledger))
    return next((rule for rule in reversed(known) if _holds(rule, probe)), None)


def agent_of(ledger: Ledger, n: int) -> str:
    """Return the name of the agent that runs a step."""
    return ledger.at(n).open.step.agent or ledger.given.head.agent


def stands(
    ledger: Ledger,
    n: int,
    i: int,
    policy: ToolPolicy,
    of_session: Sequence[StandingRule] = (),
    *,
    now: float,
) -> bool:
    """Apply the decision for later calls of a tool to one call; return whether there is one.

    One whose time is over is dropped, so that a person is asked. Arguments are those of
    `standing_rule`, and the time, seconds since the epoch.
    """
    rule = standing_rule(ledger, n, i, policy, of_session)
    if rule is None:
        return False
    if rule.until and now >= rule.until:
        _drop(ledger, rule.id)
        return False
    asked = approvals.ask(ledger, n, i, "tool", now=now, rule=policy.approval)
    _apply(ledger, asked, rule, now=now)
    return True


def revoke(ledger: Ledger, command: Command, *, now: float) -> str:
    """End a decision for later calls; return why not, or empty. What it has allowed stays.

    One in transit to the session goes on as one that was revoked: it may have arrived already.
    """
    wanted = str(command.body.get("rule", ""))
    if not command.by:
        return "To revoke a standing rule, say who does so (by)."
    if wanted not in {rule.id for rule in listed(ledger)}:
        known = ", ".join(rule.id for rule in listed(ledger)) or "none"
        return f"No standing rule of this task is {wanted!r}; there are: {known}."
    ended = {"revoked": command.by, "revoked_at": now}
    handed = tuple(
        rule.model_copy(update=ended) if rule.id == wanted else rule for rule in ledger.s.to_session
    )
    kept = {id: rule for id, rule in ledger.s.standing.items() if id != wanted}
    ledger.s.standing = kept
    ledger.s.to_session = handed
    return ""


def _drop(ledger: Ledger, rule_id: str) -> None:
    kept = {id: rule for id, rule in ledger.s.standing.items() if id != rule_id}
    handed = tuple(rule for rule in ledger.s.to_session if rule.id != rule_id)
    ledger.s.standing = kept
    ledger.s.to_session = handed


def decide_always(ledger: Ledger, command: Command, *, now: float) -> str:
    """Decide a call, the waiting calls of the same tool, and its later calls."""
    found = ledger.asked.find(str(command.body.get("approval", "")))
    bounds = _bounds(command.body.get("always")) if command.verb in DECIDED else None
    if bounds is None or found is None or found.status != "open":
        return approvals.decide(ledger, command, now=now)
    if isinstance(bounds, str):
        return bounds
    if found.kind != "tool":
        return f"{ONCE[found.kind]}: a decision on it cannot hold for later ones (always)."
    session = ledger.given.head.session if bounds.scope == "session" else None
    reason = _barred(command, found, bounds, session, now=now)
    reason = reason or approvals.decide(ledger, command, now=now)
    decided = ledger.asked.find(found.id)
    if reason or decided is None:
        return reason
    arguments = arguments_of(found)
    rule = StandingRule(
        verb="approve" if command.verb == "approve" else "reject",
        by=decided.by,
        message=decided.message,
        note=decided.note,
        branch=ledger.s.branch,
        roles=approvals.roles_of(command),
        id=decided.id,
        tool=decided.tool,
        server=decided.server,
        values={name: arguments[name] for name in bounds.same},
        until=float(cast("float", bounds.until or 0)),
        session=session.name if session else "",
        agent=decided.agent,
    )
    if session:
        ledger.s.to_session = (*ledger.s.to_session, rule)
    else:
        ledger.s.standing = {**ledger.s.standing, rule.id: rule}
    for approval in approvals.pending(ledger):
        if approval.kind == "tool" and _holds(rule, approval):
            _apply(ledger, approval, rule, now=now)
    return ""


def _barred(
    command: Command, found: Approval, bounds: Always, session: SessionRef | None, *, now: float
) -> str:
    """Return why a decision cannot hold for later calls, or empty."""
    if command.verb == "respond" or command.body.get("arguments") is not None:
        return "Only a plain approve or reject can hold for later calls as well."
    if command.verb == "approve" and found.quorum > 1:
        return f"{found.quorum} people must approve each call: one cannot for later calls."
    arguments = arguments_of(found)
    missing = [name for name in bounds.same if name not in arguments]
    if missing:
        return f"The call has no argument {missing[0]!r}, so later calls cannot have the same."
    if bounds.until and now >= float(cast("float", bounds.until)):
        return "The time until which it shall hold for later calls is over already."
    if bounds.scope == "task":
        return ""
    if session is None:
        return "The task has no session, so the decision can hold in this task alone."
    kept = {name: arguments[name] for name in bounds.same}
    size = len(canonical([kept, command.said, command.body.get("message")]))
    if size > LARGEST_RULE:
        return (
            f"A session keeps rules of at most {LARGEST_RULE} bytes; this one has {size}. Say less,"
            " or name other arguments as the same."
        )
    return ""


def _bounds(given: Json) -> Always | str:
    """Return for which later calls a decision holds as well, or why that is unreadable."""
    if given is True:
        return Always()
    if not isinstance(given, dict):
        return f"always must be true, false or an object; it was {given!r:.80}."
    try:
        return Always(**cast("dict[str, Any]", given))
    except InvalidArgumentError as error:
        return str(error)


def arguments_of(approval: Approval) -> dict[str, Json]:
    """Return the arguments of the call as they were proposed; none if they are no object."""
    try:
        data = gate.read(approval.arguments)
    except InvalidArgumentError:
        return {}
    return cast("dict[str, Json]", data) if isinstance(data, dict) else {}


def _holds(rule: StandingRule, approval: Approval) -> bool:
    """Whether a rule holds for a call: not if others must decide it, or more than one."""
    if (rule.tool, rule.server) != (approval.tool, approval.server):
        return False
    if rule.agent not in ("", approval.agent):
        return False
    if approval.quorum > 1 and rule.verb == "approve":
        return False
    given = arguments_of(approval) if rule.values else {}
    same = all(
        name in given and canonical(given[name]) == canonical(value)
        for name, value in rule.values.items()
    )
    return same and not decisions.refused(approval, rule.by, rule.roles)


def _apply(ledger: Ledger, approval: Approval, rule: StandingRule, *, now: float) -> None:
    changes = {"by": rule.by, "at": now, "note": rule.note, "message": rule.message}
    decided = approval.model_copy(update=changes)
    body = {**decisions.facts(ledger, approval), "verb": rule.verb, "rule": rule.id}
    body |= {"session": rule.session} if rule.session else {}
    ledger.note("standing", now=now, by=rule.by, text=rule.note, body=body)
    if rule.verb == "approve":
        decisions.approve(ledger, decided)
    else:
        decisions.reject(ledger, decided)
