"""What waits for a time, or for something outside, over rollovers, evictions, undos and ends."""

import pytest

from holdfast.task.data.calls import LONG_CALL
from holdfast.task.data.children import secret_of_child
from holdfast.task.waits import token_of
from holdfast.values.messages import ToolCall
from tests.simulation.clock import EPOCH
from tests.simulation.play import Choice, Played, Schedule, play

LOOK = ["look", {"what": "1"}]


def held(schedule: Schedule) -> Played:
    """Play a schedule; what must hold does."""
    played = play(schedule)
    assert not played.violation, "\n".join([*played.trace, played.violation])
    return played


def recorded(played: Played) -> list[str]:
    """List the completed steps."""
    return [entry for entry in played.ledger if entry.startswith('{"step"')]


def steps(played: Played) -> int:
    """Count them."""
    return len(recorded(played))


@pytest.mark.parametrize(
    "between",
    [
        [],
        [("evict", 0)],
        [("lose", 0)],
        [("say", 0, "feedback", {"text": "sooner", "by": "ann"})],
        [("say", 0, "pause", {"by": "ann", "until": EPOCH + 500})],
        [("say", 0, "resume", {"by": "ann"})],
    ],
    ids=["nothing", "eviction", "lost task", "feedback", "a pause of its own", "resume"],
)
def test_a_task_that_starts_later_begins_at_its_time(between: list[Choice]) -> None:
    before = Schedule(
        plan=[[LOOK], "done"],
        choices=[("settle",), ("wait", 100), *between, ("settle",)],
        options={"automatic": True, "start_at": EPOCH + 1000, "paused": "starts later"},
    )
    is_sooner = ("say", 0, "resume", {"by": "ann"}) in between
    assert steps(held(before)) == (2 if is_sooner else 0)
    before.choices += [("wait", 1000), ("settle",)]
    assert steps(held(before)) == 2


@pytest.mark.parametrize(
    "end",
    [
        [("say", 0, "abandon", {"by": "ann"})],
        [("cancel", 0)],
        [("undo", 0, "u1", {"by": "bob", "to": 0}), ("settle",)],
    ],
    ids=["abandon", "cancel", "undo"],
)
def test_what_ends_a_task_ends_one_that_is_paused_until_a_time(end: list[Choice]) -> None:
    until = {"by": "ann", "until": EPOCH + 1000}
    held(
        Schedule(
            plan=[[LOOK], [LOOK], "done"],
            choices=[
                ("run", 0, "r1", {}),
                ("settle",),
                ("say", 0, "pause", until),
                ("settle",),
                *end,
                ("wait", 2000),
                ("settle",),
                ("home",),
            ],
        )
    )


def test_a_pause_ends_at_its_time_in_a_later_run_of_the_task_and_in_nested_tasks() -> None:
    looks = [[LOOK, ["mark", {"text": str(k)}]] for k in range(4)]
    helper = ["helper", {"input": '[[["pay", {"amount": 2}]], "done"]'}]
    until = {"by": "ann", "until": EPOCH + 1000}
    played = held(
        Schedule(
            plan=[*looks, [helper], "done"],
            choices=[
                ("run", 0, "r1", {"all": True}),
                ("settle",),
                ("say", 0, "pause", until),
                ("settle",),
                ("wait", 2000),
                ("settle",),
                ("home",),
            ],
            options={"roll_events": 50},
        )
    )
    assert any("Its time has come" in entry for entry in played.ledger)


NAP = ["sleep_until", {"when": "1000 s", "note": "look again"}]
ORDER = ["order", {"thing": "tea"}]
RUN: Choice = ("run", 0, "r1", {"all": True})
STEPS = 3
"""Steps of a plan of two turns."""


def token(n: int = 1, i: int = 0, branch: int = 0) -> str:
    """Return the token of a call of the simulated task: one that it made in its n-th turn."""
    call = ToolCall(id=f"c{n - 1}.{i}", name="order", arguments="{}")
    secret = secret_of_child("of the simulation", LONG_CALL)
    return token_of(secret, "t", (branch, n, 0, i), call)


DELIVERED: Choice = ("say", 0, "complete", {"token": token(), "result": "delivered"})
BREAKS: dict[str, list[Choice]] = {
    "nothing": [],
    "eviction": [("evict", 0)],
    "lost task": [("lose", 0)],
    "process error": [("throw", 0, 1)],
    "pause and resume": [("say", 0, "pause", {"by": "ann"}), ("say", 0, "resume", {"by": "ann"})],
    "feedback": [("say", 0, "feedback", {"text": "hurry", "by": "ann"})],
    "another request": [("run", 0, "r2", {"all": True})],
}


@pytest.mark.parametrize("between", BREAKS.values(), ids=BREAKS)
def test_a_sleep_ends_at_its_time_whatever_happens_meanwhile(between: list[Choice]) -> None:
    sleeping = Schedule(
        plan=[[NAP, LOOK], [LOOK], "done"], choices=[RUN, ("settle",), *between, ("wait", 900)]
    )
    assert steps(held(sleeping)) == 0
    sleeping.choices += [("settle",), ("wait", 200), ("settle",)]
    assert steps(held(sleeping)) == STEPS


@pytest.mark.parametrize("between", [*BREAKS.values()][:3] + [*BREAKS.values()][4:])
def test_an_outcome_from_outside_is_the_result_of_its_call(between: list[Choice]) -> None:
    played = held(
        Schedule(
            plan=[[ORDER, LOOK], [LOOK], "done"],
            choices=[RUN, ("settle",), *between, ("settle",), DELIVERED, DELIVERED, ("settle",)],
        )
    )
    assert steps(played) == STEPS
    assert any('"delivered"' in entry for entry in played.ledger)
    assert sum("has its outcome already" in e or "is over" in e for e in played.ledger) == 1


@pytest.mark.parametrize("call", [NAP, ORDER], ids=["sleep", "order"])
@pytest.mark.parametrize(
    "end",
    [
        [("say", 0, "abandon", {"by": "ann"})],
        [("cancel", 0)],
        [("undo", 0, "u1", {"by": "bob", "to": 0}), ("settle",)],
        [("undo", 0, "u1", {"by": "bob", "to": 1}), ("settle",)],
        [("run", 0, "r3", {"restart": True}), ("settle",)],
        [("deploy", ["order", "sleep_until"]), ("settle",)],
    ],
    ids=["abandon", "cancel", "undo of all", "undo", "restart", "deploy"],
)
def test_a_task_whose_call_waits_can_be_ended_and_taken_back(
    call: list[object], end: list[Choice]
) -> None:
    held(
        Schedule(
            plan=[[["book", {"thing": "1"}]], [call, ["book", {"thing": "2"}]], "done"],
            choices=[
                RUN,
                ("settle",),
                *end,
                ("say", 0, "complete", {"token": token(2), "result": "late"}),
                ("settle",),
                ("wait", 6000),
                ("settle",),
                ("deploy", []),
                ("home",),
            ],
        )
    )


def test_calls_wait_over_many_runs_of_their_task() -> None:
    marks = [[LOOK, ["mark", {"text": str(k)}]] for k in range(4)]
    said: list[Choice] = []
    for k in range(30):
        words = {"text": f"word {k}", "by": "ann"}
        said += [("say", 0, "feedback", words), ("settle",), ("wait", 1)]
    completed = {"token": token(5, 1), "error": "sold out"}
    played = held(
        Schedule(
            plan=[*marks, [NAP, ORDER, LOOK], "done"],
            choices=[
                RUN,
                ("settle",),
                *said,
                ("wait", 1000),
                ("settle",),
                ("say", 0, "complete", completed),
                ("settle",),
            ],
            options={"roll_events": 50},
        )
    )
    assert sum("archive of t" in line for line in played.trace) > 1, played.trace
    [last] = [entry for entry in recorded(played) if '"id": "c4.0"' in entry]
    assert "look again" in last
    assert "sold out" in last


@pytest.mark.parametrize("fate", ["late", "held", "lost", "dead", "twice", "stalled"])
def test_an_outcome_that_comes_before_its_tool_has_ended_is_kept(fate: str) -> None:
    before: list[Choice] = [("fate", "tool", fate), ("fate", "tool", "late")]
    early: list[Choice] = [RUN, *[("go", 0)] * 5, DELIVERED, ("go", 0)]
    after: list[Choice] = [("settle",), ("release",), ("wait", 100), ("settle",)]
    played = held(Schedule(plan=[[ORDER], "done"], choices=[*before, *early, *after]))
    assert any('"content": "delivered"' in entry for entry in recorded(played)), played.trace


@pytest.mark.parametrize("trouble", ["raises", "unknown"])
def test_an_outcome_from_outside_counts_though_its_tool_has_failed_since(trouble: str) -> None:
    before: list[Choice] = [("trouble", "order", trouble), ("fate", "tool", "late")]
    early: list[Choice] = [RUN, *[("go", 0)] * 5, DELIVERED, ("go", 0)]
    after: list[Choice] = [("settle",), ("release",), ("settle",)]
    played = held(Schedule(plan=[[ORDER], [LOOK], "done"], choices=[*before, *early, *after]))
    assert any('"content": "delivered"' in entry for entry in recorded(played)), played.trace
    assert steps(played) == STEPS


@pytest.mark.parametrize("fate", ["lost", "dead"])
def test_an_outcome_settles_a_call_whose_worker_was_lost_before_it_could_wait(fate: str) -> None:
    asked: list[Choice] = [("fate", "tool", fate), RUN, ("settle",), ("wait", 100), ("settle",)]
    unknown = held(Schedule(plan=[[ORDER], "done"], choices=asked))
    assert any('"unknown"' in entry for entry in unknown.ledger)
    played = held(Schedule(plan=[[ORDER], "done"], choices=[*asked, DELIVERED, ("settle",)]))
    assert any('"content": "delivered"' in entry for entry in recorded(played)), played.trace


def test_people_wake_a_call_and_change_its_time() -> None:
    later = {"until": EPOCH + 5000, "by": "ann"}
    plan = [[NAP], "done"]
    put_off = [RUN, ("settle",), ("say", 0, "wake", later), ("wait", 2000), ("settle",)]
    assert steps(held(Schedule(plan=plan, choices=[*put_off]))) == 0
    woken: list[Choice] = [*put_off, ("say", 0, "wake", {"by": "ann"}), ("settle",)]
    assert steps(held(Schedule(plan=plan, choices=woken))) == STEPS - 1
    passed: list[Choice] = [*put_off, ("wait", 4000), ("settle",)]
    assert steps(held(Schedule(plan=plan, choices=passed))) == STEPS - 1


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
    ids=[
        "none",
        "guessed",
        "of no step",
        "cut",
        "digits",
        "huge",
        "number",
        "nothing",
        "both",
        "past",
        "no time",
        "long",
    ],
)
def test_what_completes_no_call_is_refused_in_words(body: dict[str, object], said: str) -> None:
    played = held(
        Schedule(
            plan=[[ORDER], "done"],
            choices=[RUN, ("settle",), ("say", 0, "complete", body), ("settle",)],
        )
    )
    assert steps(played) == 0
    assert any(said in entry for entry in played.ledger if '"refused"' in entry), played.ledger
    assert not any(token() in entry for entry in played.ledger)  # it is in no audit
