"""Who may decide, and what a decision does: the call runs, or the model reads why not."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.models.openai.hosted_items import BARE_REJECTION
from holdfast.task.data.calls import Approval, ApprovalKind, Outcome, Vote, call_digest
from holdfast.task.data.head import policy_of
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people.questions import answer, decline
from holdfast.values.base import Json, same_json
from holdfast.values.checks.gate import filled_in
from holdfast.values.messages import ToolCall, system
from holdfast.values.runs.approval_rules import ROLE, ApprovalRule, are_one, person_key

ROLES = "roles"
"""Argument of a decision: the roles of the deciding person, as the client knows them."""


@dataclass(frozen=True)
class Person:
    """Who may have something to decide.

    Attributes:
        name: The name with which decisions are recorded.
        roles: The person's roles, for the rules of tools.
    """

    name: str
    roles: Collection[str] = ()


def of_rule(rule: ApprovalRule, kind: ApprovalKind, *, asker: str, now: float) -> dict[str, object]:
    """Return what a rule says of an approval, as changes of its fields.

    It holds for every question about a call of the tool. Only for the call itself more than one
    person is needed: what has happened is a fact, and one person can know it.
    """
    after = rule.escalate_after_seconds
    return {
        "who": tuple(rule.by),
        "quorum": rule.quorum if kind == "tool" else 1,
        "not_asker": rule.not_asker,
        "asker": asker if rule.not_asker else "",
        "escalates": now + after if after else 0.0,
        "escalate_to": tuple(rule.escalate_to),
    }


def refused(approval: Approval, by: str, roles: Collection[str]) -> str:
    """Return why a person may not decide an approval, or empty."""
    if approval.not_asker:
        if not approval.asker:
            return (
                f"Who created the task may not decide {approval.id!r}, and the task does not record"
                " who that is. Create it with by=, or fork it with by=."
            )
        if are_one(by, approval.asker):
            return f"{by} created the task and may not decide {approval.id!r}: another person must."
    names = approval.may_decide
    if not names or _is_among(names, by, roles):
        return ""
    can = ", ".join(names)
    own = f" (roles: {', '.join(sorted(roles))})" if roles else " (no roles)"
    later = ""
    if _is_among(approval.escalate_to, by, roles):
        later = " It has not been escalated yet."
    return f"{by}{own} may not decide {approval.id!r}; these may: {can}.{later}"


def cannot_decide(approval: Approval, person: Person) -> str:
    """Return why an approval waits for others than a person; empty when it waits for them."""
    if any(are_one(vote.by, person.name) for vote in approval.votes):
        return f"{person.name} has approved {approval.id!r}: another person must as well."
    return refused(approval, person.name, person.roles)


def voted(approval: Approval, by: str, *, now: float, note: str) -> tuple[Vote, ...]:
    """Return the votes with that of a person; one person's second vote changes nothing."""
    if any(are_one(vote.by, by) for vote in approval.votes):
        return approval.votes
    return (*approval.votes, Vote(by=by, at=now, note=note))


def voters(votes: Sequence[Vote]) -> str:
    """Return the names of the people who have approved."""
    return ", ".join(vote.by for vote in votes)


def _is_among(names: Collection[str], by: str, roles: Collection[str]) -> bool:
    keys = {person_key(role) for role in roles}
    for name in names:
        if name.startswith(ROLE):
            if person_key(name.removeprefix(ROLE)) in keys:
                return True
        elif person_key(name) == person_key(by):
            return True
    return False


REJECTED = BARE_REJECTION


def step_of(ledger: Ledger, approval: Approval) -> dict[str, Json]:
    """Return the id of an approval's step, if it is in progress, as a part of an event's body."""
    current = ledger.find(approval.n) if approval.branch == ledger.s.branch else None
    return {} if current is None else {"step": current.open.step.step_id}


def facts(ledger: Ledger, approval: Approval) -> dict[str, Json]:
    """Return an approval, its tool and its step, as the body of an event."""
    return {"id": approval.id, "tool": approval.tool, **step_of(ledger, approval)}


def asked_call(approval: Approval, arguments: str) -> ToolCall:
    """Return the call that an approval is about, with these arguments."""
    return ToolCall(
        id=approval.call_id,
        name=approval.tool,
        arguments=arguments,
        server=approval.server,
        kind=approval.call_kind,
        namespace=approval.namespace,
    )


def is_whole(approval: Approval) -> bool:
    """Whether the arguments of an approval are whole: lists cut long ones."""
    call = asked_call(approval, approval.as_agreed)
    return not approval.digest or call_digest(call) == (approval.bound or approval.digest)


def with_defaults(ledger: Ledger, approval: Approval) -> Approval:
    """Return an approval with what its tool fills in for the arguments as they are agreed now."""
    call = asked_call(approval, approval.as_agreed)
    described = ledger.s.described
    policy = policy_of(described.rules(approval.agent).policies, call) if described else None
    schema = policy.defaults if policy and call.name else {}
    defaults = filled_in(call.arguments, schema) if schema else {}
    return approval.model_copy(update={"defaults": defaults})


def checked(ledger: Ledger, approval: Approval, refused: str, *, now: float) -> None:
    """Accept edited arguments, or open the approval again and say why."""
    if refused:
        why = f"The edited arguments were refused: they do not fit. {refused}"
        open_again(ledger, approval, why, now=now)
        return
    if approval.quorum > 1:  # earlier votes were for other arguments
        vote = voted(
            approval.model_copy(update={"votes": ()}), approval.by, now=now, note=approval.note
        )
        call = asked_call(approval, approval.effective)
        agreed = {"votes": vote, "agreed": approval.effective, "bound": call_digest(call)}
        again = approval.model_copy(update={**_OPEN_AGAIN, **agreed})
        ledger.asked.put(with_defaults(ledger, again))
        return
    ledger.asked.put(approval.model_copy(update={"status": "approved"}))
    _tell_edit(ledger, approval)


def open_again(ledger: Ledger, approval: Approval, why: str, *, now: float) -> None:
    """Open an approval again whose edited arguments do not fit, or could not be checked.

    Nothing could end the wait else: no one can decide an approval that is being checked.
    """
    body = {**facts(ledger, approval), "arguments": approval.effective}
    ledger.note("refused", now=now, by=approval.by, text=why, body=body)
    again = {**_OPEN_AGAIN, "effective": approval.agreed, "text": why}
    ledger.asked.put(approval.model_copy(update=again))


_OPEN_AGAIN: Mapping[str, object] = {"status": "open", "by": "", "at": 0.0, "note": ""}


def _tell_edit(ledger: Ledger, approval: Approval) -> None:
    _tell(
        ledger,
        f"{approval.by} changed the arguments of {approval.tool} (call {approval.call_id}) from"
        f" {approval.arguments} to {approval.effective} before it ran.",
    )


def approve(ledger: Ledger, approval: Approval, arguments: Json = None) -> str:
    """Approve a call as it is now, or with edited arguments; return why not, or empty.

    Of several people who must approve, the last one decides; until then votes are recorded.
    """
    if approval.asks is not None:
        return answer(ledger, approval, {} if arguments is None else arguments)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if approval.kind == "limit" and approval.arguments:
        return _raise_budget(ledger, approval, approval.arguments if arguments is None else text)
    if arguments is None:
        return _consent(ledger, approval)
    if approval.kind == "limit":
        return "A budget is approved without arguments: it allows one more model call."
    if approval.kind == "undo":
        return "An undo is approved without arguments: it takes the call back as it ran."
    if same_json(text, approval.agreed or approval.arguments):
        return _consent(ledger, approval)
    if approval.server:
        return f"{_run_there(approval)} it cannot be edited. Reject it, and say what is wrong."
    if approval.quorum > 1 and same_json(text, approval.arguments):  # back to what was proposed
        # Bound all the same: who names the approval alone may mean the edited arguments.
        again = {"votes": (), "agreed": "", "bound": approval.digest, "effective": ""}
        return _consent(ledger, with_defaults(ledger, approval.model_copy(update=again)))
    ledger.asked.put(approval.model_copy(update={"status": "checking", "effective": text}))
    return ""


def _raise_budget(ledger: Ledger, approval: Approval, arguments: str) -> str:
    """Raise the budget in money; other steps that wait for it try again."""
    refused = ledger.money.raise_budget(arguments, is_of_day=approval.is_of_day)
    if refused:
        return refused
    effective = "" if same_json(arguments, approval.arguments) else arguments
    ledger.asked.put(approval.model_copy(update={"status": "approved", "effective": effective}))
    for other in ledger.s.approvals:
        is_same = other.kind == "limit" and other.is_of_day == approval.is_of_day
        if other.status == "open" and is_same and other.arguments:
            withdraw(ledger, other, now=approval.at)
    return ""


def withdraw(ledger: Ledger, approval: Approval, *, now: float) -> None:
    """Close an approval without a decision."""
    ledger.note("withdrawn", now=now, body=facts(ledger, approval))
    ledger.asked.put(approval.model_copy(update={"status": "closed", "at": now}))


def _consent(ledger: Ledger, approval: Approval) -> str:
    if approval.quorum > 1:
        votes = voted(approval, approval.by, now=approval.at, note=approval.note)
        approval = approval.model_copy(update={"votes": votes})
        if len(votes) < approval.quorum:
            ledger.asked.put(approval.model_copy(update=_OPEN_AGAIN))
            return ""
        approval = approval.model_copy(update={"by": voters(votes)})
    ledger.asked.put(approval.model_copy(update={"status": "approved"}))
    if approval.agreed:
        _tell_edit(ledger, approval)
    if approval.kind == "limit":
        ledger.at(approval.n).limit = "past" if approval.is_of_day else "allow"
    if approval.kind == "unknown":
        text = f"It did not take effect: so says {approval.by}."
        ledger.calls.failed(approval.n, approval.i, text, now=approval.at)
    return ""


def reject(
    ledger: Ledger, approval: Approval, *, status: Literal["rejected", "expired"] = "rejected"
) -> str:
    """Reject a call, and record what the model reads in place of its result."""
    ledger.asked.put(approval.model_copy(update={"status": status}))
    who = f" by {approval.by}" if approval.by else ""
    why = f": {approval.note}" if approval.note else "."
    match approval.kind:
        case "tool":
            text = f"The call was not run: it was rejected{who}{why}"
            if _is_bare(ledger, approval):
                text = REJECTED
                # A worker process words it, except for the provider's own servers.
                if ledger.head.run.tool_error_formatter and not approval.server:
                    return ""
            text = approval.message or text
            refused = Outcome(content=text, is_error=True, status="failed", attempts=0)
            ledger.calls.outcome(approval.n, approval.i, refused)
        case "unknown":
            text = f"It is not known whether the call took effect; it was given up{who}{why}"
            edited = _edited(ledger, approval)
            given_up = Outcome(content=text, is_error=True, status="unknown", edited=edited)
            ledger.calls.settled(approval.n, approval.i, given_up, now=approval.at)
        case "limit":
            ledger.at(approval.n).limit = "finish"
        case "question":
            decline(ledger, approval, status)
        case "undo" | "unread":
            pass
    return ""


def _run_there(approval: Approval) -> str:
    return f"MCP server {approval.server!r} of the provider runs this call as it stands:"


def _is_bare(ledger: Ledger, approval: Approval) -> bool:
    """Whether a call was rejected without a reason, in a dialect with a fixed text for that."""
    said = approval.note or approval.message
    return not said and ledger.given.head.dialect.tool_error == "fixed"


def rejected(ledger: Ledger, n: int, i: int, text: str) -> None:
    """Record the outcome of a rejected call, with the text of the run's formatter."""
    refused = Outcome(content=text, is_error=True, status="failed", attempts=0)
    ledger.calls.outcome(n, i, refused)


def respond(ledger: Ledger, approval: Approval, result: Json) -> str:
    """Record the result that a person gives; return why not, or empty."""
    if approval.kind == "limit":
        return "There is no result to respond with: approve or reject."
    if result is None:
        return "respond needs a result."
    if approval.server:
        return f"{_run_there(approval)} no result can be given in its place. Reject it."
    if approval.asks is not None:
        return answer(ledger, approval, result)
    if approval.quorum > 1:
        return f"{approval.quorum} people must decide, and a result is one person's: reject it."
    text = result if isinstance(result, str) else json.dumps(result)
    if approval.kind == "undo":  # it is undone already: the text says how that is known
        ledger.asked.put(approval.model_copy(update={"status": "responded", "message": text}))
        return ""
    ledger.asked.put(approval.model_copy(update={"status": "responded"}))
    attempts = 0 if approval.kind == "tool" else 1
    edited = _edited(ledger, approval)
    said = Outcome(content=text, attempts=attempts, edited=edited)
    ledger.calls.settled(approval.n, approval.i, said, now=approval.at)
    return ""


def _edited(ledger: Ledger, approval: Approval) -> str:
    """Return the arguments with which a call may have happened, if a person had changed them."""
    current = ledger.find(approval.n)
    if approval.kind != "unknown" or current is None:
        return ""
    proposed = current.calls[approval.i].arguments
    return approval.arguments if approval.arguments != proposed else ""


def _tell(ledger: Ledger, text: str) -> None:
    ledger.s.notes = (*ledger.s.notes, system(text))
