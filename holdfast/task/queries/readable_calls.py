"""Calls of tools as plain JSON, as the answers to queries show them."""

from __future__ import annotations

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import HostedCall
from holdfast.task.data.agent_snapshot import policy_of
from holdfast.task.data.calls import Decided, Outcome
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.step_body import StepBody, StepCall
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.messages import shown
from holdfast.values.text.shown import time_shown

TEXT_CHARACTERS = 1000


def cut(text: str, longest: int = TEXT_CHARACTERS) -> str:
    """Return a text, or its beginning and its length."""
    return text if len(text) <= longest else f"{text[:longest]}… [{len(text)} characters]"


def plain_call(body: StepBody, call: StepCall, ledger: Ledger) -> dict[str, Json]:
    """Describe a call: what was asked, how it went, and what people decided."""
    outcome = call.outcome
    edited = outcome.edited if outcome is not None else call.called.edited if call.called else ""
    decided = outcome.decided if outcome is not None else call.called.decided if call.called else ()
    return {
        "tool": call.call.name,
        "arguments": plain_arguments(edited or call.call.arguments),
        "status": status_of(call),
        **given(
            proposed=plain_arguments(call.call.arguments) if edited else None,
            result=_result(call, outcome),
            effect=effect_of(body, call, ledger),
            attempts=outcome.attempts if outcome is not None and outcome.attempts > 1 else None,
            decided=[_decision(each) for each in decided],
            seconds=outcome.took if outcome is not None else None,
            task=child_of(call),
        ),
    }


def status_of(call: StepCall) -> str:
    """Return in a word how far a call has come."""
    if call.outcome is not None:
        return "failed" if call.outcome.is_error else call.outcome.status
    if call.called is None:
        return "asked"
    return "failed" if call.called.error else "running"


def hosted_call(call: HostedCall) -> dict[str, Json]:
    """Describe what a tool of the provider did."""
    status = "failed" if call.is_error else "done"
    more = given(arguments=cut(call.arguments), result=cut(call.result))
    return {"tool": call.tool, "status": status, **more}


def _result(call: StepCall, outcome: Outcome | None) -> str:
    if outcome is not None:
        return cut(shown(outcome.content))
    return cut(call.called.error) if call.called is not None else ""


def effect_of(body: StepBody, call: StepCall, ledger: Ledger) -> str:
    """Return the side effect of a call: as recorded with it, else by its tool's policy."""
    recorded = call.outcome.effect if call.outcome else call.called.effect if call.called else ""
    described = ledger.s.described
    if recorded or described is None:
        return recorded
    policy = policy_of(described.rules(body.step.agent).policies, call.call)
    return policy.effect if policy is not None else ""


def child_of(call: StepCall) -> str:
    """Return the id of the child task of a call of an agent as a tool, else an empty text."""
    if call.outcome is not None:
        return call.outcome.child
    return call.called.child if call.called is not None else ""


def _decision(decided: Decided) -> dict[str, Json]:
    return {
        "status": decided.status,
        "by": decided.by or "the clock",
        "at": time_shown(decided.at),
        **given(note=decided.note),
    }


def plain_arguments(text: str) -> Json:
    """Return the arguments of a call as data, or as text when they are long or not JSON."""
    if len(text) > TEXT_CHARACTERS:
        return cut(text)
    try:
        return gate.read(text)
    except InvalidArgumentError:
        return text


def given(**fields: Json) -> dict[str, Json]:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}, ())}
