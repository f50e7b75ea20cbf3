"""The checks of a campaign: each sees what it is for, and nothing in a campaign without it."""

from typing import Any

import pytest

from holdfast.reading.audit.audit import AuditEvent, Finding
from tests.soak.checks import Told, violations

CALL: dict[str, Any] = {"task": "t1", "call": "c1", "thing": "a"}
INTENDS = {"event": "intends", "task": "t1", "input": "run soak pay:a", "session": "s"}
CREATED = {"event": "created", "task": "t1"}
PAID = {"event": "effect", "tool": "pay", **CALL}
SIGNED = {"event": "effect", "tool": "sign", "cents": 7, **CALL}
APPROVED = {"event": "decides", "kind": "tool", "verb": "approve", "cents": 7, **CALL}
TOLD = AuditEvent(time=1, kind="tool_call", tool="pay", call_id="c1", status="done")
LOOKED = {"event": "start", "tool": "look", **CALL}
NOT_RUN = TOLD.model_copy(update={"status": "not run"})
FAILED = TOLD.model_copy(update={"status": "failed"})
BACK = AuditEvent(time=1, kind="effect_undone", tool="pay", call_id="c1")
BOOKED_BACK = BACK.model_copy(update={"tool": "book"})
CUT = AuditEvent(time=1, kind="model_call", status="cut off")
SESSIONS = {"s": ["run soak pay:a"]}


def told(*audit: AuditEvent, status: str = "finished", finding: str = "") -> dict[str, Told]:
    """Return what the task says of itself."""
    findings = (Finding(step="s1", branch=0, text=finding),) if finding else ()
    return {"t1": Told(status, audit, findings)}


FINISHED = told(TOLD)


def test_what_happened_as_told_is_no_violation() -> None:
    lines = [INTENDS, CREATED, PAID, APPROVED, SIGNED | {"call": "c2"}, APPROVED | {"call": "c2"}]
    signed = TOLD.model_copy(update={"tool": "sign", "call_id": "c2"})
    assert violations(lines, told(TOLD, signed), SESSIONS) == []


def test_a_read_may_be_lost_with_the_model_call_before_it() -> None:
    assert violations([LOOKED], told(CUT, status="abandoned"), {}) == []


@pytest.mark.parametrize(
    ("lines", "tasks", "sessions", "expected"),
    [
        ([CREATED], {}, {}, "lost"),
        ([CREATED], told(status="running"), {}, "nobody could end it"),
        ([PAID, PAID], FINISHED, {}, "2 times effect"),
        ([PAID], told(), {}, "its audit says []"),
        ([PAID], told(BACK), {}, "its audit says []"),
        ([LOOKED], told(), {}, "its audit has 0 lines"),
        ([LOOKED | {"tool": "book"}], told(CUT), {}, "has 0 lines"),
        ([LOOKED], told(NOT_RUN), {}, "its audit says 'not run'"),
        ([PAID], told(TOLD, TOLD), {}, "its audit says ['done', 'done']"),
        ([PAID], told(FAILED), {}, "its audit says ['failed']"),
        ([SIGNED], FINISHED, {}, "approved were set()"),
        ([APPROVED | {"cents": 0}, SIGNED], FINISHED, {}, "signed 7, approved were {1}"),
        ([APPROVED | {"verb": "reject"}, SIGNED], FINISHED, {}, "approved were set()"),
        ([], told(BOOKED_BACK), {}, "1 effects undone, the world saw 0"),
        ([{"event": "cancel", "tool": "book", **CALL}] * 2, {}, {}, "2 times cancel"),
        ([INTENDS], FINISHED, {}, "has it 0 times"),
        ([INTENDS], FINISHED, {"s": SESSIONS["s"] * 2}, "has it 2 times"),
        ([INTENDS], told(status="abandoned"), SESSIONS, "has it 1 times"),
        ([], told(finding="changed"), {}, "changed"),
        ([INTENDS, CREATED], {}, SESSIONS, "t1 is erased; session s has it 1 times"),
        ([{"event": "violation", "text": "ValueError: boom"}], {}, {}, "boom"),
    ],
)
def test_a_violation_is_seen(
    lines: list[dict[str, Any]],
    tasks: dict[str, Told],
    sessions: dict[str, list[str]],
    expected: str,
) -> None:
    [found] = violations(lines, tasks, sessions, ["t1"] if "erased" in expected else [])
    assert expected in found
