"""What waits for a person, as a form of MCP's elicitation and as a text, and the user's answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp.types import ElicitRequestFormParams, ElicitResult

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.task.data.calls import Approval
from holdfast.task.people.decisions import Person
from holdfast.values.base import Json
from holdfast.values.text.decided import for_decision

_ABOUT: dict[str, tuple[str, str, str]] = {
    "tool": ("Run it?", "run it", "do not run it"),
    "unknown": (
        "It may have happened already.",
        "it did not happen: run it",
        "give it up",
    ),
    "limit": ("The budget is used up. Go on?", "go on", "finish now"),
    "undo": ("Undo it?", "undo it", "leave it"),
}
"""Kind of an approval to its question, and what approve and reject do."""


def question_form(approval: Approval) -> ElicitRequestFormParams:
    """Return an approval as a form for the client's user."""
    asks = approval.asks
    if asks is not None and len(asks.questions) == 1 and asks.questions[0].fields:
        fields = asks.questions[0].fields
        return ElicitRequestFormParams(message=for_decision(approval.text), requested_schema=fields)
    question, approve, reject = _ABOUT.get(approval.kind, ("Go on?", "go on", "do not"))
    call = f"{approval.tool} {approval.as_agreed}".strip()
    filled_in = "\n".join(approval.filled_in)
    parts = (call, filled_in, approval.text, question, f"approve: {approve}; reject: {reject}")
    decision: dict[str, Json] = {"type": "string", "enum": ["approve", "reject"]}
    reason: dict[str, Json] = {"type": "string", "description": "Why; the model reads it."}
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"decision": decision, "reason": reason},
        "required": ["decision"],
    }
    message = for_decision("\n".join(part for part in parts if part))
    return ElicitRequestFormParams(message=message, requested_schema=schema)


async def decided(
    runner: AgentRunner, approval: Approval, answered: ElicitResult, person: Person
) -> None:
    """Decide an approval as the client's user has answered.

    Raises:
        CommandRefusedError: The decision is refused.
    """
    content: dict[str, Any] = answered.content or {}
    reason = str(content.get("reason") or "")
    by = person.name
    roles = [*person.roles, *runner.roles_of(by)]
    if answered.action == "decline":
        await runner.reject(approval, by=by, reason="declined", roles=roles)
    elif "decision" not in content and approval.asks is not None:
        await runner.respond(approval, by=by, result=content, roles=roles)
    elif content.get("decision") == "approve":
        await runner.approve(approval, by=by, note=reason or None, roles=roles)
    else:
        await runner.reject(approval, by=by, reason=reason, roles=roles)


def waiting_text(task_id: str, approvals: Sequence[Approval], *, where: str) -> str:
    """Return what a client reads of a task that waits for a person whom it cannot ask."""
    lines = [f"Task {task_id!r} waits for a person. Nothing is lost."]
    for each in approvals:
        call = f" {each.tool} {each.as_agreed}" if each.tool else ""
        lines.append(f"- {each.id}: {each.kind}{call}")
        lines += [f"  {line}" for line in each.filled_in]
        if each.text:
            lines.append(f"  {each.text}")
        verbs = ("respond", "reject") if each.asks is not None else ("approve", "reject")
        lines += [f"  holdfast {verb} {each.id}{where}" for verb in verbs]
    lines.append(f"Then call this tool again with task_id={task_id!r}: it goes on with the task.")
    return for_decision("\n".join(lines))
