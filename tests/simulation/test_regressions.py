"""Schedules that have failed once, as the simulator has shrunk and printed them."""

from __future__ import annotations

from tests.simulation.play import Schedule, play


def assert_holds(schedule: Schedule) -> None:
    """Play a schedule; what must hold does."""
    played = play(schedule)
    assert not played.violation, "\n".join([*played.trace, played.violation])


def test_an_approval_whose_edited_arguments_cannot_be_checked_can_still_be_decided() -> None:
    assert_holds(
        Schedule(
            plan=[[["pay", {"amount": 1}]], "done"],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("deploy", ["pay"]),
                ("say", 0, "approve", {"approval": 1, "by": "ann", "arguments": {"amount": 2}}),
                ("settle",),
                ("home",),
            ],
        )
    )
