"""Approvals: opened once, decided once, and valid on the branch on which they were opened.

There are five kinds: a tool call that needs approval, a call that may have happened, a used up
budget, an undo that needs approval or may have happened, and a question of a call. The same verbs
decide all of them; a question is answered by `respond`, or by `approve` where consent is enough,
and declined by `reject`.

| verb    | approval of a call    | unknown effect             | budget        | undo           |
| ------- | --------------------- | -------------------------- | ------------- | -------------- |
| approve | run it, edited or not | it did not happen: run it  | one more call | undo it        |
|         |                       |                            | or more money |                |
| reject  | tell the model why    | give it up, tell the model | finish now    | it ends here   |
| respond | use this as result    | it happened, with this     |               | it was undone  |

A call of an MCP server of the provider can only be approved as it is, or rejected: the provider
runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import TypeAdapter, ValidationError

from holdfast.task.data.calls import Approval, ApprovalKind, Asks, call_digest
from holdfast.task.data.commands import NOT_OPEN, Command
from holdfast.task.data.head import policy_of
from holdfast.task.data.records import Entry, EventRecord
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import decisions
from holdfast.task.people.decisions import (
    approve,
    facts,
    reject,
    respond,
    step_of,
    with_defaults,
    withdraw,
)
from holdfast.values.base import Json, canonical
from holdfast.values.messages import Content, ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule, Until
from holdfast.values.runs.verbs import DECIDED
from holdfast.values.text.shown import named, time_shown

CARD_TEXT = 500
_UNTIL = TypeAdapter(Until)
NOT_IN_TIME = "no one decided in time"


def latest(ledger: Ledger, n: int, i: int, kind: ApprovalKind | None = None) -> Approval | None:
    """Return the newest approval of an open call of a step, or None.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call.
        kind: Kind of the approval; None for every kind but "undo", whose step and position are
            those of the undone call, and may equal those of a call of the open step.
    """
    for each in ledger.asked.at(ledger.s.branch, n, i):
        if each.kind == kind if kind else each.kind != "undo":
            return each
    return None


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
    asks: Asks | None = None,
    after: Content = "",
    rule: ApprovalRule | None = None,
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
        asks: The questions of a call.
        after: What the call came to without answers.
        rule: Who decides, when the tool's predicate has said so; else the tool's own rule holds.
    """
    current = ledger.find(n)
    if call is None and current is not None and 0 <= i < len(current.calls):
        call = current.calls[i]
    if not agent and current is not None:
        agent = current.open.step.agent
    described = ledger.s.described
    policy = policy_of(described.rules(agent).policies, call) if call and described else None
    serial = ledger.s.approval_serial + 1
    approval = Approval(
        id=f"{ledger.task_id}:{serial}",
        kind=kind,
        agent=agent or ledger.given.head.agent,
        tool=call.name if call else "",
        namespace=call.namespace if call else "",
        server=call.server if call else "",
        call_kind=call.kind if call else "",
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
        asks=asks,
        after=after,
        rule=rule,
    )
    rule = rule or (policy.approval if policy else None)
    if rule is not None and kind != "limit":
        asker = ledger.given.head.asker
        said = decisions.of_rule(rule, kind, asker=asker, now=now)
        approval = approval.model_copy(update=said)
    if policy is not None and policy.defaults:
        approval = with_defaults(ledger, approval)
    ledger.asked.put(approval)
    ledger.s.approval_serial = serial
    ledger.note("asked", now=now, text=text, body=_asked_of(ledger, approval))
    return approval


def _asked_of(ledger: Ledger, approval: Approval) -> dict[str, Json]:
    """Return the body of the event of an approval."""
    body: dict[str, Json] = {"id": approval.id, "kind": approval.kind, "tool": approval.tool}
    body |= {"arguments": approval.arguments, "call_id": approval.call_id}
    if approval.expires:
        body["expires"] = approval.expires
    if approval.who:
        body["who"] = list(approval.may_decide)
    if approval.quorum > 1:
        body["quorum"] = approval.quorum
    body |= step_of(ledger, approval)
    return body


def pending(ledger: Ledger) -> list[Approval]:
    """List the open approvals of the task, oldest first."""
    return [approval for approval in ledger.s.approvals if approval.status == "open"]


def messages(ledger: Ledger) -> dict[str, Approval]:
    """Return the approvals to notify people of now, by the id of the message."""
    awake = (each for each in pending(ledger) if not each.snoozed_until)
    return {f"{e.id}:{e.stage}{f'{e.returned:.0f}' * bool(e.returned)}": e for e in awake}


def asked_everywhere(ledger: Ledger) -> list[Approval]:
    """List the open approvals of the task and its child tasks."""
    found = pending(ledger)
    for child in ledger.s.children.values():
        found += child.approvals
    return found


def shown(ledger: Ledger) -> list[Approval]:
    """List the approvals of a task and its child tasks that are open or were just decided."""
    found = list(ledger.s.approvals)
    for child in ledger.s.children.values():
        found += child.approvals
    return found


def waits(ledger: Ledger, n: int) -> bool:
    """Whether a step waits for a person, as a whole or with one of its calls."""
    asked = ledger.s.approvals
    return any(a.n == n and a.status == "open" and a.kind != "undo" for a in asked)


def undo_waits(ledger: Ledger) -> bool:
    """Whether the undo in progress waits for a person; other open approvals do not delay it."""
    s = ledger.s
    return bool(s.approvals or s.children) and any(
        approval.kind == "undo" for approval in asked_everywhere(ledger)
    )


def drop_undo(ledger: Ledger) -> None:
    """Drop the decisions on an undo that has ended: the next undo needs new ones."""
    ledger.asked.keep(approval for approval in ledger.s.approvals if approval.kind != "undo")


def settle(ledger: Ledger, n: int, i: int, *, now: float) -> None:
    """Withdraw the approval of a call whose outcome has become known without a decision."""
    approval = latest(ledger, n, i, "unknown")
    if approval is not None and approval.status == "open":
        withdraw(ledger, approval, now=now)


def decide(ledger: Ledger, command: Command, *, now: float) -> str:
    """Apply a verb about an approval; return why it is refused, or empty."""
    wanted = str(command.body.get("approval", ""))
    found = ledger.asked.find(wanted)
    if found is None:
        known = decided_by(ledger.log.entries, wanted)
        why = f"it was decided already: {known}" if known else "its step may be over or undone"
        still = named(each.id for each in ledger.s.approvals if each.status == "open")
        return f"{NOT_OPEN} {wanted!r}; {why}. Open are: {still}."
    if found.status != "open":
        who, when = found.by or "the clock", time_shown(found.at)
        return f"Approval {wanted!r} was {found.status} by {who} already, at {when}."
    if found.branch != ledger.s.branch:
        return f"Approval {wanted!r} belongs to a branch that was undone."
    if found.expires and now >= found.expires:
        expire(ledger, now=now)
        return f"Approval {wanted!r} has expired: {NOT_IN_TIME}."
    if found.escalates and now >= found.escalates and not found.escalated:
        found = _escalate(ledger, found, now=now)
    if not command.by:
        return "A decision needs the name of who decides (by)."
    misdirected = _misdirected(found, command)
    if misdirected:
        return misdirected
    is_bound = found.who or found.not_asker
    barred = decisions.refused(found, command.by, roles_of(command)) if is_bound else ""
    if barred:
        return barred
    return _take(ledger, found, command, now=now)


def _take(ledger: Ledger, found: Approval, command: Command, *, now: float) -> str:
    """Apply a verb of a person who may decide; return why it is refused, or empty."""
    note = str(command.body.get("note", "") or command.reason)
    message = str(command.body.get("message", ""))
    changes = {"by": command.by, "at": now, "note": note, "message": message, **_AWAKE}
    decided = found.model_copy(update=changes)
    match command.verb:
        case "approve":
            return approve(ledger, decided, command.body.get("arguments"))
        case "reject":
            return reject(ledger, decided)
        case "respond":
            return respond(ledger, decided, command.body.get("result"))
        case "snooze":
            return _snooze(ledger, found, command, now=now)
        case "uncover":  # who may decide may see it all, and the record says who was shown it
            return ""
        case verb:
            return f"{verb!r} does not decide an approval."


_AWAKE: Mapping[str, object] = {"snoozed_until": 0.0, "snoozed_by": ""}


def time_to_come(given: Json, *, now: float) -> tuple[float, str]:
    """Return the time that a command names, and why it is refused, or empty."""
    try:
        until = cast("float", _UNTIL.validate_python(given))
    except ValidationError:
        text = f"it was {given!r:.80}."
        return 0.0, f"until must be a time, as 2027-01-31T14:00:00Z or in seconds; {text}"
    if until <= now:
        return until, f"{time_shown(until)} is over already: say a time that is to come."
    return until, ""


def _snooze(ledger: Ledger, found: Approval, command: Command, *, now: float) -> str:
    """Leave an approval out of lists until a time; return why not, or empty."""
    until, refused = time_to_come(command.body.get("until"), now=now)
    if refused:
        return refused
    if found.expires and until >= found.expires:
        return (
            f"Approval {found.id!r} expires at {time_shown(found.expires)}, also while it is"
            " snoozed: say a time before that."
        )
    snoozed = {"snoozed_until": until, "snoozed_by": command.by}
    ledger.asked.put(found.model_copy(update=snoozed))
    return ""


def _misdirected(found: Approval, command: Command) -> str:
    """Return why a decision is not for the call as it would run now, or empty.

    Votes for different arguments must not add up: where people have edited a call that needs
    several of them, an approval has to say what it is for.
    """
    bound = command.body.get("digest")
    if bound is not None and bound != (found.bound or found.digest):
        return f"Approval {found.id!r} has other arguments than the ones that were decided on."
    is_named = bound is not None or command.body.get("arguments") is not None
    if command.verb == "approve" and found.bound and not is_named:
        return (
            f"{decisions.voters(found.votes)} has edited the arguments of {found.id!r}, or taken an"
            " edit back: say that you"
            f" approve these, by arguments={found.as_agreed:.500} or digest={found.bound!r}."
        )
    return ""


def roles_of(command: Command) -> tuple[str, ...]:
    """Return the roles of the deciding person, as the client gave them; never raises."""
    given: object = command.body.get(decisions.ROLES)
    if not isinstance(given, list):
        return ()
    return tuple(name for name in cast("list[object]", given) if isinstance(name, str))


def is_vote(ledger: Ledger, approval_id: str) -> bool:
    """Whether an approval needs more people after the decision that was just made on it."""
    found = ledger.asked.find(approval_id)
    return found is not None and found.quorum > 1 and found.status in ("open", "checking")


def progress(ledger: Ledger, approval_id: str) -> str:
    """Return how many have approved: "1 of 2: anna"; that of an edit which is being checked."""
    found = ledger.asked.find(approval_id)
    if found is None:
        return ""
    return f"1 of {found.quorum}: {found.by}" if found.status == "checking" else found.progress


def is_decided(ledger: Ledger, approval_id: str) -> bool:
    """Whether this run of the task knows the decision on an approval: a refusal names it then."""
    found = ledger.asked.find(approval_id)
    if found is None:
        return bool(decided_by(ledger.log.entries, approval_id))
    return found.status != "open"


def decided_by(entries: Sequence[Entry], approval_id: str) -> str:
    """Return the decision on an approval: its verb, who made it and when; empty for none."""
    for entry in reversed(entries):
        event = entry.event
        if event is None:
            continue
        if _is_open_again(event, approval_id):
            return ""
        if event.kind == "command":
            given: Json = event.body.get("arguments") or {}
            if given.get("approval") == approval_id and event.body.get("verb") in DECIDED:
                return f"{event.body.get('verb')} by {event.by} at {time_shown(event.at)}"
    return ""


def _is_open_again(event: EventRecord, approval_id: str) -> bool:
    """Whether the edit of a decision did not fit its tool: the decision does not count then.

    The event of a refused command names its verb, and by `id` the command.
    """
    is_edit = event.kind == "refused" and "verb" not in event.body
    return is_edit and event.body.get("id") == approval_id


def overdue(ledger: Ledger, *, now: float) -> list[Approval]:
    """List the open approvals whose deadline has passed."""
    return [each for each in pending(ledger) if each.expires and now >= each.expires]


def expire(ledger: Ledger, *, now: float) -> None:
    """Reject approvals that have passed their deadline without a decision.

    A tenant's day that has ended needs no decision any more: its step tries again.
    """
    for approval in overdue(ledger, now=now):
        if approval.id in ledger.questioned:
            continue
        if approval.is_of_day:
            withdraw(ledger, approval, now=now)
        else:
            late = approval.model_copy(update={"at": now, "note": NOT_IN_TIME})
            ledger.note("expired", now=now, body=facts(ledger, approval))
            reject(ledger, late, status="expired")


def escalate(ledger: Ledger, *, now: float) -> None:
    """Let more people decide approvals that have waited long enough; let the snoozed come back."""
    for approval in pending(ledger):
        if approval.snoozed_until and now >= approval.snoozed_until:
            ledger.asked.put(approval.model_copy(update={**_AWAKE, "returned": now}))
    for approval in pending(ledger):
        if approval.escalates and now >= approval.escalates and not approval.escalated:
            _escalate(ledger, approval, now=now)


def _escalate(ledger: Ledger, approval: Approval, *, now: float) -> Approval:
    wider = approval.model_copy(update={"escalated": now, **_AWAKE})
    body = {**_asked_of(ledger, wider), "escalate_to": list(approval.escalate_to)}
    text = f"Escalated to {', '.join(approval.escalate_to)}: no one has decided yet."
    ledger.note("escalated", now=now, text=text, body=body)
    ledger.asked.put(wider)
    return wider


def deadline(ledger: Ledger) -> float:
    """Return when the next approval expires, escalates or comes back, 0 for never."""
    times: list[float] = []
    for each in ledger.s.approvals:
        if each.status != "open":
            continue
        if each.expires and each.id not in ledger.questioned:
            times.append(each.expires)
        if each.escalates and not each.escalated:
            times.append(each.escalates)
        if each.snoozed_until:
            times.append(each.snoozed_until)
    return min(times, default=0)


def card_state(approval: Approval) -> str:
    """Return what identifies a card: the id, and what people have done to it, if they have."""
    if not approval.votes and not approval.escalated and not approval.snoozed_until:
        return approval.id
    votes = ",".join(vote.by for vote in approval.votes)
    until = f" {approval.snoozed_until:.0f}" if approval.snoozed_until else ""
    return f"{approval.id} {approval.bound} {approval.escalated:g} {votes}{until}"


def card(approval: Approval) -> dict[str, Json]:
    """Return what a list shows of an open approval; long texts are cut.

    With them goes the digest's match, which says that the call is not shown in whole.
    """
    is_short = len(canonical(approval.defaults)) <= CARD_TEXT
    most = CARD_TEXT if is_short else min(CARD_TEXT, len(approval.as_agreed) - 1)
    shown = approval.model_copy(
        update={
            "arguments": approval.arguments[:most],
            "text": approval.text[:CARD_TEXT],
            "effective": approval.effective[:CARD_TEXT],
            "agreed": approval.agreed[:most],
            "defaults": approval.defaults if is_short else {},
        }
    )
    return shown.wire()


def effective_call(approval: Approval, call: ToolCall) -> ToolCall:
    """Return the call as it was approved; a second approval of it keeps an earlier edit."""
    return call.model_copy(update={"arguments": approval.effective or approval.arguments})


def close_open(ledger: Ledger, *, now: float) -> None:
    """Close the open approvals, because the task ends or its branch is left."""
    for approval in pending(ledger):
        withdraw(ledger, approval, now=now)
