"""What waits for a time, or for something outside, over rollovers, evictions, undos and ends."""

from typing import Any

import pytest

from holdfast.task.data.calls import LONG_CALL
from holdfast.task.data.children import secret_of_child
from holdfast.task.waits import token_of
from holdfast.values.messages import ToolCall
from tests.simulation.clock import EPOCH
from tests.simulation.play import HOME, LOOK, MARKS, RUN, SETTLE, Choice, held, nested, say, undo

ENDS: list[list[Choice]] = [[say("abandon")], [("cancel", 0)], [undo(to=0), SETTLE]]


@pytest.mark.parametrize(
    "between",
    [
        *([], [("evict", 0)], [("lose", 0)], [say("feedback", text="sooner")]),
        *([say("pause", until=EPOCH + 500)], [say("resume")]),
    ],
    ids=str,
)
def test_a_task_that_starts_later_begins_at_its_time(between: list[Choice]) -> None:
    later: dict[str, Any] = {"automatic": True, "start_at": EPOCH + 1000, "paused": "starts later"}
    before = [SETTLE, ("wait", 100), *between, SETTLE]
    begun = 2 if say("resume") in between else 0
    assert len(held([[LOOK], "done"], *before, **later).steps) == begun
    assert len(held([[LOOK], "done"], *before, ("wait", 1000), SETTLE, **later).steps) == 2


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_what_ends_a_task_ends_one_that_is_paused_until_a_time(end: list[Choice]) -> None:
    paused = [("run", 0, "r1", {}), SETTLE, say("pause", until=EPOCH + 1000), SETTLE]
    held([[LOOK], [LOOK], "done"], *paused, *end, ("wait", 2000), SETTLE, HOME)


def test_a_pause_ends_at_its_time_in_a_later_run_of_the_task_and_in_nested_tasks() -> None:
    plan = [*MARKS, [nested([["pay", {"amount": 2}]], "done")], "done"]
    paused = [RUN, SETTLE, say("pause", until=EPOCH + 1000), SETTLE, ("wait", 2000), SETTLE]
    played = held(plan, *paused, HOME, roll_events=50)
    assert any("Its time has come" in entry for entry in played.ledger)


NAP = ["sleep_until", {"when": "1000 s", "note": "look again"}]
ORDER = ["order", {"thing": "tea"}]
STEPS = 3
"""Steps of a plan of two turns."""


def token(n: int = 1, i: int = 0, branch: int = 0) -> str:
    """Return the token of a call of the simulated task: one that it made in its n-th turn."""
    call = ToolCall(id=f"c{n - 1}.{i}", name="order", arguments="{}")
    secret = secret_of_child("of the simulation", LONG_CALL)
    return token_of(secret, "t", (branch, n, 0, i), call)


def completed(**body: Any) -> Choice:
    return ("say", 0, "complete", body)


DELIVERED = completed(token=token(), result="delivered")
BREAKS: dict[str, list[Choice]] = {
    "nothing": [],
    "eviction": [("evict", 0)],
    "lost task": [("lose", 0)],
    "process error": [("throw", 0, 1)],
    "pause and resume": [say("pause"), say("resume")],
    "feedback": [say("feedback", text="hurry")],
    "another request": [("run", 0, "r2", {"all": True})],
}


@pytest.mark.parametrize("between", BREAKS.values(), ids=BREAKS)
def test_a_sleep_ends_at_its_time_whatever_happens_meanwhile(between: list[Choice]) -> None:
    plan, before = [[NAP, LOOK], [LOOK], "done"], [RUN, SETTLE, *between, ("wait", 900)]
    assert held(plan, *before).steps == []
    assert len(held(plan, *before, SETTLE, ("wait", 200), SETTLE).steps) == STEPS


@pytest.mark.parametrize("between", [*BREAKS.values()][:3] + [*BREAKS.values()][4:])
def test_an_outcome_from_outside_is_the_result_of_its_call(between: list[Choice]) -> None:
    twice = [DELIVERED, DELIVERED]
    plan = [[ORDER, LOOK], [LOOK], "done"]
    played = held(plan, RUN, SETTLE, *between, SETTLE, *twice, SETTLE)
    assert len(played.steps) == STEPS
    assert any('"delivered"' in entry for entry in played.ledger)
    assert sum("has its outcome already" in e or "is over" in e for e in played.ledger) == 1


@pytest.mark.parametrize("call", [NAP, ORDER], ids=["sleep", "order"])
@pytest.mark.parametrize(
    "end",
    [
        *(*ENDS, [undo(to=1), SETTLE], [("run", 0, "r3", {"restart": True}), SETTLE]),
        [("deploy", ["order", "sleep_until"]), SETTLE],
    ],
    ids=str,
)
def test_a_task_whose_call_waits_can_be_ended_and_taken_back(
    call: list[object], end: list[Choice]
) -> None:
    late = completed(token=token(2), result="late")
    plan = [[["book", {"thing": "1"}]], [call, ["book", {"thing": "2"}]], "done"]
    after: list[Choice] = [late, SETTLE, ("wait", 6000), SETTLE, ("deploy", []), HOME]
    held(plan, RUN, SETTLE, *end, *after)


def test_calls_wait_over_many_runs_of_their_task() -> None:
    said: list[Choice] = []
    for k in range(30):
        said += [say("feedback", text=f"word {k}"), SETTLE, ("wait", 1)]
    sold_out = completed(token=token(5, 1), error="sold out")
    plan = [*MARKS, [NAP, ORDER, LOOK], "done"]
    ends = [("wait", 1000), SETTLE, sold_out, SETTLE]
    played = held(plan, RUN, SETTLE, *said, *ends, roll_events=50)
    assert sum("archive of t" in line for line in played.trace) > 1, played.trace
    [last] = [entry for entry in played.steps if '"id": "c4.0"' in entry]
    assert "look again" in last
    assert "sold out" in last


EARLY: list[Choice] = [("fate", "tool", "late"), RUN, *[("go", 0)] * 5, DELIVERED, ("go", 0)]


@pytest.mark.parametrize("fate", ["late", "held", "lost", "dead", "twice", "stalled"])
def test_an_outcome_that_comes_before_its_tool_has_ended_is_kept(fate: str) -> None:
    after: list[Choice] = [SETTLE, ("release",), ("wait", 100), SETTLE]
    played = held([[ORDER], "done"], ("fate", "tool", fate), *EARLY, *after)
    assert any('"content": "delivered"' in entry for entry in played.steps), played.trace


@pytest.mark.parametrize("trouble", ["raises", "unknown"])
def test_an_outcome_from_outside_counts_though_its_tool_has_failed_since(trouble: str) -> None:
    plan, fails = [[ORDER], [LOOK], "done"], ("trouble", "order", trouble)
    played = held(plan, fails, *EARLY, SETTLE, ("release",), SETTLE)
    assert any('"content": "delivered"' in entry for entry in played.steps), played.trace
    assert len(played.steps) == STEPS


@pytest.mark.parametrize("fate", ["lost", "dead"])
def test_an_outcome_settles_a_call_whose_worker_was_lost_before_it_could_wait(fate: str) -> None:
    asked: list[Choice] = [("fate", "tool", fate), RUN, SETTLE, ("wait", 100), SETTLE]
    assert any('"unknown"' in entry for entry in held([[ORDER], "done"], *asked).ledger)
    played = held([[ORDER], "done"], *asked, DELIVERED, SETTLE)
    assert any('"content": "delivered"' in entry for entry in played.steps), played.trace


def test_people_wake_a_call_and_change_its_time() -> None:
    put_off = [RUN, SETTLE, say("wake", until=EPOCH + 5000), ("wait", 2000), SETTLE]
    assert held([[NAP], "done"], *put_off).steps == []
    for end in (say("wake"), ("wait", 4000)):
        assert len(held([[NAP], "done"], *put_off, end, SETTLE).steps) == STEPS - 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"result": "x"}, "no token"),
        ({"token": "t:0.1.0.0:guessed", "result": "x"}, "no call of this task"),
        ({"token": "t:0.9.0.0:guessed", "result": "x"}, "step is over"),
        ({"token": "t:0.1.0:x", "result": "x"}, "no token"),
        ({"token": "t:²..1.:x", "result": "x"}, "no token"),
        ({"token": f"t:{'9' * 5000}.1.0.0:x", "result": "x"}, "no token"),
        ({"token": 7, "result": "x"}, "no token"),
        ({"token": token()}, "Give one of"),
        ({"token": token(), "result": "x", "error": "y"}, "Give one of"),
        ({"token": token(), "until": 1}, "over already"),
        ({"token": token(), "until": "soon"}, "must be a time"),
        ({"token": token(), "result": "x" * 70000}, "65536 characters"),
    ],
    ids=lambda given: str(given)[:60],
)
def test_what_completes_no_call_is_refused_in_words(body: dict[str, object], said: str) -> None:
    played = held([[ORDER], "done"], RUN, SETTLE, completed(**body), SETTLE)
    assert played.steps == []
    assert any(said in entry for entry in played.ledger if '"refused"' in entry), played.ledger
    assert not any(token() in entry for entry in played.ledger)  # it is in no audit
