"""The line that is printed for each event of a task."""

from typing import Any

import pytest

from holdfast.reading.step_events import (
    ApprovalDecided,
    Attempt,
    CommandGiven,
    StepEvent,
    StepFailed,
    Thought,
    Waiting,
    event_text,
)

PAY = {"approval": "t:1", "tool": "pay"}


def made(kind: Any, **facts: Any) -> StepEvent:
    event: StepEvent = kind(number=1, task_id="t", **facts)
    return event


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (made(Thought, step_id="s1", text="I\nlook first."), "  s1 says I look first."),
        (
            made(Waiting, step_id="s1", arguments='{"euros": 5}', text="dear", **PAY),
            '  s1 waits for approval of pay (t:1): {"euros": 5}: dear',
        ),
        (
            made(Waiting, approval="t:2", approval_kind="limit", text="used up", expires=60.0),
            "  waits until 1970-01-01 00:01:00 UTC for a decision on its budget (t:2): used up",
        ),
        (
            made(ApprovalDecided, step_id="s1", status="rejected", by="ann", note="no", **PAY),
            "  s1 pay rejected by ann: no",
        ),
        (made(ApprovalDecided, approval="t:2", status="expired"), "  approval expired"),
        (
            made(CommandGiven, verb="feedback", by="ann", text="be brief"),
            "> feedback by ann: be brief",
        ),
        (
            made(CommandGiven, verb="drop_step", is_refused=True, reason="not queued"),
            "> drop step was refused: not queued",
        ),
        (made(StepFailed, step_id="s1", error="E: why"), "> Step s1 failed: E: why"),
        (made(StepFailed, error="E: why"), "> Task failed: E: why"),
        (
            made(Attempt, step_id="s1", name="look", attempt=2, why="worker lost", seconds=19.6),
            "  s1 look: worker lost; attempt 2 in 20 s",
        ),
        (made(Attempt, name="model", attempt=3, why="busy"), "  model: busy; attempt 3"),
    ],
)
def test_an_event_beside_the_steps_is_one_line(event: StepEvent, text: str) -> None:
    assert event_text(event) == text
