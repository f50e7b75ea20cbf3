"""Approvals: opened once, decided once, and valid on the branch on which they were opened.

There are four kinds: a tool call that needs approval, a call that may have happened, a used up
budget, and an undo that needs approval or may have happened. The same verbs decide all of them.

| verb    | approval of a call    | unknown effect             | budget        | undo           |
| ------- | --------------------- | -------------------------- | ------------- | -------------- |
| approve | run it, edited or not | it did not happen: run it  | one more call | undo it        |
| reject  | tell the model why    | give it up, tell the model | finish now    | it ends here   |
| respond | use this as result    | it happened, with this     |               | it was undone  |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from holdfast.task.data.calls import Approval, ApprovalKind, Outcome, StandingRule, call_digest
from holdfast.task.data.commands import Command
from holdfast.task.data.records import Entry
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.base import Json, same_json
from holdfast.values.messages import ToolCall, system
from holdfast.values.text.shown import time_shown

CARD_TEXT = 500
NOT_IN_TIME = "nobody decided in time"
REJECTED = "Tool execution was not approved."


def latest(ledger: Ledger, n: int, i: int, kind: ApprovalKind | None = None) -> Approval | None:
    """Return the newest approval of an open call of a step, or None.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call.
        kind: Kind of the approval; None for every kind but "undo", whose step and position are
            those of the undone call, and may equal those of a call of the open step.
    """
    found = ledger.asked.at(ledger.s.branch, n, i)
    wanted = (each for each in found if (each.kind == kind if kind else each.kind != "undo"))
    return next(wanted, None)


def ask(
    ledger: Ledger,
    n: int,
    i: int,
    kind: ApprovalKind,
    *,
    now: float,
    seconds: float = 0,
    text: str = "",
    call: ToolCall | None = None,
    agent: str = "",
) -> Approval:
    """Open an approval.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call among the open calls; -1 for none.
        kind: Kind of the approval.
        now: Time, seconds since the epoch.
        seconds: Seconds until it expires to rejected; 0 for never.
        text: Why a person must decide, for the reviewer.
        call: The call, when it is not one of the open calls.
        agent: The agent that asks; the step's by default.
    """
    current = ledger.find(n)
    if call is None and current is not None and 0 <= i < len(current.calls):
        call = current.calls[i]
    if not agent and current is not None:
        agent = current.open.step.agent
    described = ledger.s.described
    policy = described.rules(agent).policies.get(call.name) if call and described else None
    serial = ledger.s.approval_serial + 1
    approval = Approval(
        id=f"{ledger.task_id}:{serial}",
        kind=kind,
        agent=agent or ledger.given.head.agent,
        tool=call.name if call else "",
        effect=policy.effect if policy else "",
        call_id=call.id if call else "",
        arguments=call.arguments if call else "",
        digest=call_digest(call) if call else "",
        n=n,
        i=i,
        branch=ledger.s.branch,
        asked=now,
        expires=now + seconds if seconds else 0,
        text=text,
    )
    ledger.put_approval(approval)
    ledger.change(approval_serial=serial)
    body: dict[str, Json] = {"id": approval.id, "kind": kind, "tool": approval.tool}
    body |= {"arguments": approval.arguments, "call_id": approval.call_id}
    if approval.expires:
        body["expires"] = approval.expires
    body |= step_of(ledger, approval)
    ledger.note("asked", now=now, text=text, body=body)
    return approval


def step_of(ledger: Ledger, approval: Approval) -> dict[str, Json]:
    """Return the id of an approval's step, if it is in progress, as a part of an event's body."""
    current = ledger.find(approval.n) if approval.branch == ledger.s.branch else None
    return {} if current is None else {"step": current.open.step.step_id}


def place_of(ledger: Ledger, approval_id: str) -> dict[str, Json]:
    """Return the tool and the step of an approval, as a part of the event of a decision."""
    found = ledger.asked.find(approval_id) if approval_id else None
    return {} if found is None else {"tool": found.tool, **step_of(ledger, found)}


def _facts(ledger: Ledger, approval: Approval) -> dict[str, Json]:
    return {"id": approval.id, "tool": approval.tool, **step_of(ledger, approval)}


def pending(ledger: Ledger) -> list[Approval]:
    """List the open approvals of the task, oldest first."""
    return [approval for approval in ledger.s.approvals if approval.status == "open"]


def asked_everywhere(ledger: Ledger) -> list[Approval]:
    """List the open approvals of the task and its child tasks."""
    children = ledger.s.children.values()
    return [*pending(ledger), *(each for child in children for each in child.approvals)]


def shown(ledger: Ledger) -> list[Approval]:
    """List the approvals of a task and its child tasks that are open or were just decided."""
    asked = [approval for child in ledger.s.children.values() for approval in child.approvals]
    return [*ledger.s.approvals, *asked]


def waits(ledger: Ledger, n: int) -> bool:
    """Whether a step waits for a person, as a whole or with one of its calls."""
    return any(approval.n == n and approval.kind != "undo" for approval in pending(ledger))


def undo_waits(ledger: Ledger) -> bool:
    """Whether the undo in progress waits for a person; other open approvals do not delay it."""
    return any(approval.kind == "undo" for approval in asked_everywhere(ledger))


def drop_undo(ledger: Ledger) -> None:
    """Drop the decisions on an undo that has ended: the next undo needs new ones."""
    kept = tuple(approval for approval in ledger.s.approvals if approval.kind != "undo")
    ledger.change(approvals=kept)


def settle(ledger: Ledger, n: int, i: int, *, now: float) -> None:
    """Withdraw the approval of a call whose outcome has become known without a decision."""
    approval = latest(ledger, n, i, "unknown")
    if approval is not None and approval.status == "open":
        _withdraw(ledger, approval, now=now)


def decide(ledger: Ledger, command: Command, *, now: float) -> str:
    """Apply approve, reject or respond; return why it is refused, or empty."""
    wanted = str(command.body.get("approval", ""))
    found = ledger.asked.find(wanted)
    if found is None:
        known = decided_by(ledger.entries, wanted)
        why = f"it was decided already: {known}" if known else "its step may be over or undone"
        return f"There is no open approval {wanted!r}; {why}."
    if found.status != "open":
        who, when = found.by or "the clock", time_shown(found.at)
        return f"Approval {wanted!r} was {found.status} by {who} already, at {when}."
    if found.branch != ledger.s.branch:
        return f"Approval {wanted!r} belongs to a branch that was undone."
    if found.expires and now >= found.expires:
        expire(ledger, now=now)
        return f"Approval {wanted!r} has expired: {NOT_IN_TIME}."
    if not command.by:
        return "A decision needs the name of who decides (by)."
    bound = str(command.body.get("digest", found.digest))
    if bound != found.digest:
        return f"Approval {wanted!r} is for other arguments than those that were decided on."
    note = str(command.body.get("note", "") or command.reason)
    message = str(command.body.get("message", ""))
    changes = {"by": command.by, "at": now, "note": note, "message": message}
    decided = found.model_copy(update=changes)
    if command.body.get("always") is True and found.kind == "tool":
        return _decide_always(ledger, decided, command, now=now)
    match command.verb:
        case "approve":
            reason = _approve(ledger, decided, command.body.get("arguments"))
        case "reject":
            reason = _reject(ledger, decided)
        case "respond":
            reason = _respond(ledger, decided, command.body.get("result"))
        case _:
            reason = f"{command.verb!r} does not decide an approval."
    return reason


def is_decided(ledger: Ledger, approval_id: str) -> bool:
    """Whether this run of the task knows the decision on an approval: a refusal names it then."""
    found = ledger.asked.find(approval_id)
    if found is None:
        return bool(decided_by(ledger.entries, approval_id))
    return found.status != "open"


def decided_by(entries: Sequence[Entry], approval_id: str) -> str:
    """Return the decision on an approval: its verb, who made it and when; empty for none."""
    for entry in reversed(entries):
        event = entry.event
        if event is not None and event.kind == "command":
            given: Json = event.body.get("arguments") or {}
            if given.get("approval") == approval_id:
                return f"{event.body.get('verb')} by {event.by} at {time_shown(event.at)}"
    return ""


def standing_rule(ledger: Ledger, tool: str) -> StandingRule | None:
    """Return the decision for all calls of a tool; an undo ends it, as it ends approvals."""
    rule = ledger.s.standing.get(tool)
    return rule if rule is not None and rule.branch == ledger.s.branch else None


def stands(ledger: Ledger, n: int, i: int, *, now: float) -> bool:
    """Apply the decision for all calls of a tool to one call; return whether there is one."""
    rule = standing_rule(ledger, ledger.at(n).calls[i].name)
    if rule is None:
        return False
    asked = ask(ledger, n, i, "tool", now=now)
    _apply(ledger, asked, rule, now=now)
    return True


def _decide_always(ledger: Ledger, decided: Approval, command: Command, *, now: float) -> str:
    """Decide a call, the waiting calls of the same tool, and its later calls."""
    if command.verb == "respond" or command.body.get("arguments") is not None:
        return "Only a plain approve or reject can hold for later calls as well."
    rule = StandingRule(
        verb="approve" if command.verb == "approve" else "reject",
        by=decided.by,
        message=decided.message,
        note=decided.note,
        branch=ledger.s.branch,
    )
    ledger.change(standing={**ledger.s.standing, decided.tool: rule})
    same = [a for a in pending(ledger) if a.kind == "tool" and a.tool == decided.tool]
    for approval in same:
        if approval.id == decided.id:
            _approve(ledger, decided, None) if rule.verb == "approve" else _reject(ledger, decided)
        else:
            _apply(ledger, approval, rule, now=now)
    return ""


def _apply(ledger: Ledger, approval: Approval, rule: StandingRule, *, now: float) -> None:
    changes = {"by": rule.by, "at": now, "note": rule.note, "message": rule.message}
    decided = approval.model_copy(update=changes)
    body = {**_facts(ledger, approval), "verb": rule.verb}
    ledger.note("standing", now=now, by=rule.by, text=rule.note, body=body)
    if rule.verb == "approve":
        _approve(ledger, decided, None)
    else:
        _reject(ledger, decided)


def expire(ledger: Ledger, *, now: float) -> None:
    """Reject approvals that have passed their deadline without a decision."""
    for approval in pending(ledger):
        if approval.expires and now >= approval.expires:
            late = approval.model_copy(update={"at": now, "note": NOT_IN_TIME})
            ledger.note("expired", now=now, body=_facts(ledger, approval))
            _reject(ledger, late, status="expired")


def deadline(ledger: Ledger) -> float:
    """Return when the next approval expires, 0 for never."""
    return min((a.expires for a in pending(ledger) if a.expires), default=0)


def checked(ledger: Ledger, approval: Approval, refused: str, *, now: float) -> None:
    """Accept edited arguments, or open the approval again and say why."""
    if refused:
        body = {**_facts(ledger, approval), "arguments": approval.effective}
        ledger.note("refused", now=now, by=approval.by, text=refused, body=body)
        again = {
            "status": "open",
            "effective": "",
            "by": "",
            "at": 0.0,
            "note": "",
            "text": f"Edited arguments were refused: {refused}",
        }
        ledger.put_approval(approval.model_copy(update=again))
        return
    ledger.put_approval(approval.model_copy(update={"status": "approved"}))
    _tell(
        ledger,
        f"{approval.by} changed the arguments of {approval.tool} (call {approval.call_id}) from"
        f" {approval.arguments} to {approval.effective} before it ran.",
    )


def card(approval: Approval) -> dict[str, Json]:
    """Return what a list shows of an open approval; long texts are cut."""
    shown = approval.model_copy(
        update={"arguments": approval.arguments[:CARD_TEXT], "text": approval.text[:CARD_TEXT]}
    )
    return shown.wire()


def effective_call(approval: Approval, call: ToolCall) -> ToolCall:
    """Return the call as it was approved; a second approval of it keeps an earlier edit."""
    return call.model_copy(update={"arguments": approval.effective or approval.arguments})


def close_open(ledger: Ledger, *, now: float) -> None:
    """Close the open approvals, because the task ends or its branch is left."""
    for approval in pending(ledger):
        _withdraw(ledger, approval, now=now)


def _withdraw(ledger: Ledger, approval: Approval, *, now: float) -> None:
    ledger.note("withdrawn", now=now, body=_facts(ledger, approval))
    ledger.put_approval(approval.model_copy(update={"status": "closed", "at": now}))


def _approve(ledger: Ledger, approval: Approval, arguments: Json) -> str:
    if arguments is None:
        ledger.put_approval(approval.model_copy(update={"status": "approved"}))
        if approval.kind == "limit":
            ledger.allow_one_more(approval.n)
        if approval.kind == "unknown":
            text = f"It did not take effect: so says {approval.by}."
            ledger.call_failed(approval.n, approval.i, text, now=approval.at)
        return ""
    if approval.kind == "limit":
        return "A budget is approved without arguments: it allows one more model call."
    if approval.kind == "undo":
        return "An undo is approved without arguments: it takes the call back as it ran."
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if same_json(text, approval.arguments):
        return _approve(ledger, approval, None)
    ledger.put_approval(approval.model_copy(update={"status": "checking", "effective": text}))
    return ""


def _reject(
    ledger: Ledger, approval: Approval, *, status: Literal["rejected", "expired"] = "rejected"
) -> str:
    ledger.put_approval(approval.model_copy(update={"status": status}))
    who = f" by {approval.by}" if approval.by else ""
    why = f": {approval.note}" if approval.note else "."
    match approval.kind:
        case "tool":
            text = f"The call was not run: it was rejected{who}{why}"
            if _is_bare(ledger, approval):
                text = REJECTED
                if ledger.given.head.run.tool_error_formatter:  # a worker process words it
                    return ""
            text = approval.message or text
            refused = Outcome(content=text, is_error=True, status="failed", attempts=0)
            ledger.outcome(approval.n, approval.i, refused)
        case "unknown":
            text = f"It is not known whether the call took effect; it was given up{who}{why}"
            edited = _edited(ledger, approval)
            given_up = Outcome(content=text, is_error=True, status="unknown", edited=edited)
            ledger.outcome(approval.n, approval.i, given_up)
        case "limit":
            ledger.finish_early(approval.n)
        case "undo":
            pass
    return ""


def _is_bare(ledger: Ledger, approval: Approval) -> bool:
    """Whether a call was rejected without a reason, in a dialect with a fixed text for that."""
    said = approval.note or approval.message
    return not said and ledger.given.head.dialect.tool_error == "fixed"


def rejected(ledger: Ledger, n: int, i: int, text: str) -> None:
    """Record the outcome of a rejected call, with the text of the run's formatter."""
    refused = Outcome(content=text, is_error=True, status="failed", attempts=0)
    ledger.outcome(n, i, refused)


def _respond(ledger: Ledger, approval: Approval, result: Json) -> str:
    if approval.kind == "limit":
        return "There is no result to respond with: approve or reject."
    if result is None:
        return "respond needs a result."
    text = result if isinstance(result, str) else json.dumps(result)
    if approval.kind == "undo":  # it is undone already: the text says how that is known
        ledger.put_approval(approval.model_copy(update={"status": "responded", "message": text}))
        return ""
    ledger.put_approval(approval.model_copy(update={"status": "responded"}))
    attempts = 0 if approval.kind == "tool" else 1
    edited = _edited(ledger, approval)
    said = Outcome(content=text, attempts=attempts, edited=edited)
    ledger.outcome(approval.n, approval.i, said)
    return ""


def _edited(ledger: Ledger, approval: Approval) -> str:
    """Return the arguments with which a call may have happened, if a person had changed them."""
    current = ledger.find(approval.n)
    if approval.kind != "unknown" or current is None:
        return ""
    proposed = current.calls[approval.i].arguments
    return approval.arguments if approval.arguments != proposed else ""


def _tell(ledger: Ledger, text: str) -> None:
    ledger.change(notes=(*ledger.s.notes, system(text)))
