"""Schedules that have failed once, as the simulator has shrunk and printed them."""

import pytest

from tests.simulation.play import HOME, LOOK, MARKS, RUN, SETTLE, Choice, held, nested, say, undo


def test_an_approval_whose_edited_arguments_cannot_be_checked_can_still_be_decided() -> None:
    edited = say("approve", approval=1, arguments={"amount": 2})
    plan = [[["pay", {"amount": 1}]], "done"]
    held(plan, RUN, SETTLE, ("deploy", ["pay"]), edited, SETTLE, HOME)


def test_an_undo_that_says_that_it_may_have_happened_is_not_called_again_unasked() -> None:
    first, second = (undo(id, to=0, residue="keep") for id in ("u1", "u2"))
    unclear = [RUN, SETTLE, ("trouble", "undo book", "unknown"), first, SETTLE]
    again = [say("reject", approval="open"), second, SETTLE, HOME]
    held([[["book", {"thing": "5"}]], "done"], *unclear, *again)


def test_a_request_is_answered_while_its_task_and_a_nested_one_that_begins_are_paused() -> None:
    plan = [[nested([["move", {"thing": "1"}]], "done")]]
    held(plan, ("run", 0, "r2", {}), ("go", 1, 0, 0), say("pause"), SETTLE, HOME)


def test_nested_tasks_can_see_that_their_task_is_abandoned_before_they_have_ended() -> None:
    plan = [[nested([["pay", {"amount": 2}]], "done")], "done"]
    held(plan, RUN, SETTLE, say("abandon"), HOME)


def test_a_nested_task_that_was_terminated_after_a_rollover_is_not_waited_for() -> None:
    plan = [*MARKS, [nested([["pay", {"amount": 2}]], "done")], "done"]
    rolled = [RUN, SETTLE, say("pause"), SETTLE, say("resume"), SETTLE]
    held(plan, *rolled, ("terminate", 1), SETTLE, HOME, roll_events=50)


def test_a_request_that_waits_is_answered_once_an_undo_asks_a_person() -> None:
    plan = [[["move", {"thing": "1"}]], [["look", {"what": "2"}]], "done"]
    first: Choice = ("run", 0, "r1", {})
    waits = [first, SETTLE, ("fate", "step", "held"), ("run", 0, "r2", {}), SETTLE]
    held(plan, *waits, undo(to=0, residue="keep"), SETTLE, ("release",), SETTLE, HOME)


@pytest.mark.parametrize("first", ["lost", "dead"])
def test_a_step_goes_on_once_a_suspended_worker_has_used_up_its_attempts(first: str) -> None:
    fates = [("fate", "step", fate) for fate in (first, *["dead"] * 9)]
    goes_on = [RUN, *[SETTLE, ("wait", 60)] * 11]
    assert len(held([[LOOK], "done"], *fates, ("deploy", []), *goes_on, real=True).steps) == 2


def test_a_call_that_may_be_repeated_is_asked_about_once_it_has_lost_five_workers() -> None:
    goes_on: list[Choice] = [RUN, *[SETTLE, ("wait", 60)] * 6]
    for lost, asked in ((4, False), (5, True)):
        fates = [("fate", "tool", "dead")] * lost
        played = held([[["mark", {"text": "1"}]], "done"], *fates, *goes_on)
        assert any("run 5 times, and each" in entry for entry in played.ledger) == asked


def test_hundreds_of_questions_of_one_answer_take_several_workflow_tasks() -> None:
    played = held([[["pay", {"amount": k}] for k in range(650)], "done"], RUN, SETTLE)
    assert sum("workflow task of t" in line for line in played.trace) >= 5


def test_a_cancellation_of_a_closed_task_that_still_tells_its_children_changes_no_end() -> None:
    child = nested([["move", {"thing": "1"}], ["move", {"thing": "2"}]], "done")
    closed = [RUN, SETTLE, say("reject", approval="open"), ("go", 0, 0, 2)]
    held([[child], [child]], *closed, ("cancel", 0), SETTLE, max_turns=2, finalize=True)


def test_the_next_undo_is_answered_though_the_release_after_the_refused_one_comes_later() -> None:
    plan = [[nested([["send", {"text": "1"}]], "done")], "done"]
    refused = [RUN, SETTLE, undo(to=0), ("go", *[0] * 10)]
    overtaking = ("go", 1, 1)  # the signals to the child
    held(plan, *refused, undo("u2", to=0, residue="keep"), overtaking, SETTLE, HOME)
