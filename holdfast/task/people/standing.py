"""Decisions that hold for later calls of a tool as well."""

from __future__ import annotations

import json
from typing import Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.agent_snapshot import ToolPolicy
from holdfast.task.data.calls import Approval, StandingRule
from holdfast.task.data.commands import Command
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, deciders, decisions
from holdfast.values.base import Json, canonical
from holdfast.values.messages import ToolCall
from holdfast.values.settings import Always


def rules(ledger: Ledger) -> list[StandingRule]:
    """List the decisions that hold for later calls, oldest first; an undo ends them."""
    return [rule for rule in ledger.s.standing.values() if rule.branch == ledger.s.branch]


def standing_rule(ledger: Ledger, call: ToolCall, policy: ToolPolicy) -> StandingRule | None:
    """Return the newest decision that holds for a call, though its time may be over.

    Agents of one task may have different rules for tools of one name: a decision holds for calls
    that the person may decide.
    """
    asker = ledger.given.head.asker
    of_policy = deciders.of_rule(policy.approval, "tool", asker=asker, now=0)
    probe = Approval(id="", arguments=call.arguments, tool=call.name).model_copy(update=of_policy)
    return next((rule for rule in reversed(rules(ledger)) if _holds(rule, probe)), None)


def stands(ledger: Ledger, n: int, i: int, policy: ToolPolicy, *, now: float) -> bool:
    """Apply the decision for later calls of a tool to one call; return whether there is one.

    One whose time is over is dropped, so that a person is asked.
    """
    rule = standing_rule(ledger, ledger.at(n).calls[i], policy)
    if rule is None:
        return False
    if rule.until and now >= rule.until:
        _drop(ledger, rule.id)
        return False
    asked = approvals.ask(ledger, n, i, "tool", now=now)
    _apply(ledger, asked, rule, now=now)
    return True


def revoke(ledger: Ledger, command: Command) -> str:
    """End a decision for later calls; return why not, or empty. What it has allowed stays."""
    wanted = str(command.body.get("rule", ""))
    if not command.by:
        return "To revoke a standing rule, say who does so (by)."
    if wanted not in {rule.id for rule in rules(ledger)}:
        known = ", ".join(rule.id for rule in rules(ledger)) or "none"
        return f"No standing rule of this task is {wanted!r}; there are: {known}."
    _drop(ledger, wanted)
    return ""


def _drop(ledger: Ledger, rule_id: str) -> None:
    kept = {id: rule for id, rule in ledger.s.standing.items() if id != rule_id}
    ledger.change(standing=kept)


def decide_always(ledger: Ledger, command: Command, *, now: float) -> str:
    """Decide a call, the waiting calls of the same tool, and its later calls."""
    found = ledger.asked.find(str(command.body.get("approval", "")))
    bounds = _bounds(command.body.get("always"))
    if bounds is None or found is None or found.kind != "tool" or found.status != "open":
        return approvals.decide(ledger, command, now=now)
    if isinstance(bounds, str):
        return bounds
    if command.verb == "respond" or command.body.get("arguments") is not None:
        return "Only a plain approve or reject can hold for later calls as well."
    if command.verb == "approve" and found.quorum > 1:
        return f"{found.quorum} people must approve each call: one cannot for later calls."
    arguments = _arguments(found)
    missing = [name for name in bounds.same if name not in arguments]
    if missing:
        return f"The call has no argument {missing[0]!r}, so later calls cannot have the same."
    if bounds.until and now >= float(cast("float", bounds.until)):
        return "The time until which it shall hold for later calls is over already."
    reason = approvals.decide(ledger, command, now=now)
    decided = ledger.asked.find(found.id)
    if reason or decided is None:
        return reason
    rule = StandingRule(
        verb="approve" if command.verb == "approve" else "reject",
        by=decided.by,
        message=decided.message,
        note=decided.note,
        branch=ledger.s.branch,
        roles=approvals.roles_of(command),
        id=decided.id,
        tool=decided.tool,
        values={name: arguments[name] for name in bounds.same},
        until=float(cast("float", bounds.until or 0)),
    )
    ledger.change(standing={**ledger.s.standing, rule.id: rule})
    for approval in approvals.pending(ledger):
        if approval.kind == "tool" and _holds(rule, approval):
            _apply(ledger, approval, rule, now=now)
    return ""


def _bounds(given: Json) -> Always | str | None:
    """Return for which later calls a decision holds as well, or why that is unreadable."""
    if given is True:
        return Always()
    try:
        return Always(**cast("dict[str, Any]", given)) if isinstance(given, dict) else None
    except InvalidArgumentError as error:
        return str(error)


def _arguments(approval: Approval) -> dict[str, Json]:
    try:
        data: Json = json.loads(approval.arguments)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Json]", data) if isinstance(data, dict) else {}


def _holds(rule: StandingRule, approval: Approval) -> bool:
    """Whether a rule holds for a call: not if others must decide it, or more than one."""
    if rule.tool != approval.tool or (approval.quorum > 1 and rule.verb == "approve"):
        return False
    given = _arguments(approval) if rule.values else {}
    same = all(
        name in given and canonical(given[name]) == canonical(value)
        for name, value in rule.values.items()
    )
    return same and not deciders.refused(approval, rule.by, rule.roles)


def _apply(ledger: Ledger, approval: Approval, rule: StandingRule, *, now: float) -> None:
    changes = {"by": rule.by, "at": now, "note": rule.note, "message": rule.message}
    decided = approval.model_copy(update=changes)
    body = {**decisions.facts(ledger, approval), "verb": rule.verb, "rule": rule.id}
    ledger.note("standing", now=now, by=rule.by, text=rule.note, body=body)
    if rule.verb == "approve":
        decisions.approve(ledger, decided)
    else:
        decisions.reject(ledger, decided)
