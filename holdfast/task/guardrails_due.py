"""Guardrails that are due in a step, and the records of their results. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.task.data.failures import Failure
from holdfast.task.data.guard_rules import (
    GUARDRAIL,
    INPUT_TRIPPED,
    OUTPUT_TRIPPED,
    Guarded,
    GuardFound,
    GuardRule,
)
from holdfast.task.data.records import OpenState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import output_of
from holdfast.values.base import Json, canonical, digest


class Due(NamedTuple):
    """A guardrail that has to check an input or an output.

    Attributes:
        rule: The guardrail.
        i: Its position among those of its kind that its agent, or the run, has.
        digest: Digest of the input or output.
    """

    rule: GuardRule
    i: int
    digest: str

    @property
    def key(self) -> str:
        """Key by which it differs from the other guardrails of the same input or output."""
        return f"{'run' if self.rule.ref else 'agent'}.{self.i}.{self.rule.name}"


def inputs_due(ledger: Ledger, n: int) -> tuple[Due, ...]:
    """List the guardrails that have not seen the run's input yet.

    They check it once per task, in its first step, whatever crashes or is tried again. After an
    undo of that step they run again only if the step then gets another input.
    """
    current = ledger.at(n)
    rules = _rules(ledger, current, "input")
    if not rules or not _begins(ledger, current):
        return ()
    return _not_passed(rules, ledger.s.inputs, _input_digest(ledger, current))


def outputs_due(ledger: Ledger, n: int) -> tuple[Due, ...]:
    """List the guardrails that have not seen the final output of a step about to end."""
    current = ledger.at(n)
    result = current.result
    if result is None or not result.last or not current.alone:
        return ()
    rules = _rules(ledger, current, "output")
    if not rules:
        return ()
    output = output_of(current)
    named = [ledger.s.branch, n, output.wire() if output is not None else None]
    return _not_passed(rules, ledger.s.outputs, digest(canonical(named)))


def record_found(
    ledger: Ledger, n: int, due: Due, found: GuardFound, *, now: float
) -> Failure | None:
    """Record the result of a guardrail; return the verdict if it has tripped."""
    rule = due.rule
    agent = ledger.at(n).open.step.agent or ledger.given.head.agent
    facts: dict[str, Json] = {"kind": rule.kind, "name": rule.name, "agent": agent}
    facts |= {"ref": rule.ref} if rule.ref else {}
    facts |= {"info": found.info} if found.info is not None else {}
    facts |= {"info_class": found.info_class} if found.info_class else {}
    facts |= {"stored": found.stored.wire()} if found.stored is not None else {}
    facts |= {"tripped": True} if found.tripped else {}
    body = {**facts, "n": n, "attempts": found.attempts, "worker": found.worker}
    what = "tripped" if found.tripped else "passed"
    text = f"{rule.kind.capitalize()} guardrail {rule.name!r} {what}"
    ledger.note(GUARDRAIL, now=now, text=text, body=body)
    if not found.tripped:
        known = ledger.s.inputs if rule.kind == "input" else ledger.s.outputs
        before = known.passed if known.digest == due.digest else ()
        passed = Guarded(digest=due.digest, passed=(*before, due.key))
        if rule.kind == "input":
            ledger.s.inputs = passed
        else:
            ledger.s.outputs = passed
        return None
    facts |= {"output": found.output} if found.output is not None else {}
    kind = INPUT_TRIPPED if rule.kind == "input" else OUTPUT_TRIPPED
    message = f"{rule.kind.capitalize()} guardrail {rule.name!r} triggered its tripwire."
    return Failure(type=kind, message=message, data=facts)


def _rules(ledger: Ledger, current: OpenState, kind: str) -> list[tuple[int, GuardRule]]:
    """List the guardrails of a kind: the agent's, then the run's, each with its position there."""
    described = ledger.s.described
    if described is None:
        return []
    agent = described.rules(current.open.step.agent)
    return [*_numbered(agent.guards, kind), *_numbered(described.run_guards, kind)]


def _numbered(rules: Iterable[GuardRule], kind: str) -> list[tuple[int, GuardRule]]:
    return list(enumerate(rule for rule in rules if rule.kind == kind))


def _begins(ledger: Ledger, current: OpenState) -> bool:
    """Whether a run begins with this step: a task's first, or a fork's with an input of its own."""
    fork = ledger.s.fork
    if fork is None:
        return current.n == 1
    return current.n == fork.n + 1 and _has_input(current)


def _has_input(current: OpenState) -> bool:
    opened = current.open
    return opened.step.message() is not None or opened.stored is not None


def _input_digest(ledger: Ledger, current: OpenState) -> str:
    opened = current.open
    stored = opened.stored.sha256 if opened.stored is not None else ""
    images = [image.wire() for image in opened.step.images]
    return digest(canonical([opened.step.input, stored, images, ledger.given.head.history]))


def _not_passed(
    rules: Iterable[tuple[int, GuardRule]], known: Guarded, named: str
) -> tuple[Due, ...]:
    passed = known.passed if known.digest == named else ()
    due = [Due(rule, i, named) for i, rule in rules]
    return tuple(each for each in due if each.key not in passed)
