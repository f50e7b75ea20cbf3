"""Schedules that have failed once, as the simulator has shrunk and printed them."""

import json

import pytest

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


def test_an_undo_that_says_that_it_may_have_happened_is_not_called_again_unasked() -> None:
    plan = [[["book", {"thing": "5"}]], "done"]
    assert_holds(
        Schedule(
            plan=plan,
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("trouble", "undo book", "unknown"),
                ("undo", 0, "u1", {"by": "bob", "to": 0, "residue": "keep"}),
                ("settle",),
                ("say", 0, "reject", {"approval": "open", "by": "ann"}),
                ("undo", 0, "u2", {"by": "bob", "to": 0, "residue": "keep"}),
                ("settle",),
                ("home",),
            ],
        )
    )


def test_a_request_is_answered_while_its_task_and_a_nested_one_that_begins_are_paused() -> None:
    assert_holds(
        Schedule(
            plan=[[["helper", {"input": '[[["move", {"thing": "1"}]], "done"]'}]]],
            choices=[
                ("run", 0, "r2", {}),
                ("go", 1, 0, 0),
                ("say", 0, "pause", {"by": "ann"}),
                ("settle",),
                ("home",),
            ],
        )
    )


def test_nested_tasks_can_see_that_their_task_is_abandoned_before_they_have_ended() -> None:
    assert_holds(
        Schedule(
            plan=[[["helper", {"input": '[[["pay", {"amount": 2}]], "done"]'}]], "done"],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("say", 0, "abandon", {"by": "ann"}),
                ("home",),
            ],
        )
    )


def test_a_nested_task_that_was_terminated_after_a_rollover_is_not_waited_for() -> None:
    look = ["look", {"what": "1"}]
    helper = ["helper", {"input": '[[["pay", {"amount": 2}]], "done"]'}]
    assert_holds(
        Schedule(
            plan=[*[[look, ["mark", {"text": str(k)}]] for k in range(4)], [helper], "done"],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("say", 0, "pause", {"by": "ann"}),
                ("settle",),
                ("say", 0, "resume", {"by": "ann"}),
                ("settle",),
                ("terminate", 1),
                ("settle",),
                ("home",),
            ],
            options={"roll_events": 50},
        )
    )


def test_a_request_that_waits_is_answered_once_an_undo_asks_a_person() -> None:
    assert_holds(
        Schedule(
            plan=[[["move", {"thing": "1"}]], [["look", {"what": "2"}]], "done"],
            choices=[
                ("run", 0, "r1", {}),
                ("settle",),
                ("fate", "step", "held"),
                ("run", 0, "r2", {}),
                ("settle",),
                ("undo", 0, "u1", {"by": "bob", "to": 0, "residue": "keep"}),
                ("settle",),
                ("release",),
                ("settle",),
                ("home",),
            ],
        )
    )


@pytest.mark.parametrize("first", ["lost", "dead"])
def test_a_step_goes_on_once_a_suspended_worker_has_used_up_its_attempts(first: str) -> None:
    fates = [("fate", "step", fate) for fate in (first, *["dead"] * 9)]
    goes_on = [("run", 0, "r1", {"all": True}), *[("settle",), ("wait", 60)] * 11]
    plan = [[["look", {"what": "1"}]], "done"]
    played = play(Schedule(plan=plan, real=True, choices=[*fates, ("deploy", []), *goes_on]))
    assert not played.violation, "\n".join([*played.trace, played.violation])
    assert sum(entry.startswith('{"step"') for entry in played.ledger) == 2


def test_a_call_that_may_be_repeated_is_asked_about_once_it_has_lost_five_workers() -> None:
    goes_on = [("run", 0, "r1", {"all": True}), *[("settle",), ("wait", 60)] * 6]
    for lost, asked in ((4, False), (5, True)):
        fates = [("fate", "tool", "dead")] * lost
        plan = [[["mark", {"text": "1"}]], "done"]
        played = play(Schedule(plan=plan, choices=[*fates, *goes_on]))
        assert not played.violation, "\n".join([*played.trace, played.violation])
        assert any("run 5 times, and each" in entry for entry in played.ledger) == asked


def test_hundreds_of_questions_of_one_answer_take_several_workflow_tasks() -> None:
    plan = [[["pay", {"amount": k}] for k in range(650)], "done"]
    played = play(Schedule(plan=plan, choices=[("run", 0, "r1", {"all": True}), ("settle",)]))
    assert not played.violation, "\n".join([*played.trace, played.violation])
    assert sum("workflow task of t" in line for line in played.trace) >= 5


def test_a_cancellation_of_a_closed_task_that_still_tells_its_children_changes_no_end() -> None:
    moves = [["move", {"thing": "1"}], ["move", {"thing": "2"}]]
    child = ["helper", {"input": json.dumps([moves, "done"])}]
    assert_holds(
        Schedule(
            plan=[[child], [child]],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("say", 0, "reject", {"approval": "open", "by": "ann"}),
                ("go", 0, 0, 2),
                ("cancel", 0),
                ("settle",),
            ],
            options={"max_turns": 2, "finalize": True},
        )
    )


def test_the_next_undo_is_answered_though_the_release_after_the_refused_one_comes_later() -> None:
    child = ["helper", {"input": '[[["send", {"text": "1"}]], "done"]'}]
    assert_holds(
        Schedule(
            plan=[[child], "done"],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("undo", 0, "u1", {"by": "bob", "to": 0}),
                ("go", *[0] * 10),
                ("undo", 0, "u2", {"by": "bob", "to": 0, "residue": "keep"}),
                ("go", 1, 1),  # the signals to the child overtake each other
                ("settle",),
                ("home",),
            ],
        )
    )
