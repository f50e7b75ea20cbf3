"""Plans as data: read, checked, put in order, merged; and the steps made of them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidArgumentError
from holdfast.workers.plan_and_solve.plan import (
    Plan,
    SubTask,
    check,
    merge,
    read_plan,
    ready,
    step_ids,
)
from holdfast.workers.plan_and_solve.worker import PLANS_KEY, Progress, current, following, record

ONE: dict[str, Any] = {"name": "a", "input": "do a", "expected_output": "x", "dependencies": []}
WRITTEN = json.dumps({"sub_tasks": [ONE]})


def plan(**dependencies: str) -> Plan:
    """Make a plan of names; each value names dependencies, separated by spaces."""
    return Plan(
        sub_tasks=tuple(
            SubTask(name=name, input=f"do {name}", dependencies=tuple(needs.split()))
            for name, needs in dependencies.items()
        )
    )


DIAMOND = plan(a="", b="a", c="a", d="b c")


@st.composite
def dags(draw: st.DrawFn) -> Plan:
    """Draw a plan without cycles, its sub-tasks in any order."""
    size = draw(st.integers(1, 8))
    made = [
        SubTask(
            name=f"t{k}",
            input=f"do t{k}",
            dependencies=tuple(f"t{j}" for j in range(k) if draw(st.booleans())),
        )
        for k in range(size)
    ]
    return Plan(sub_tasks=tuple(draw(st.permutations(made))))


# ---- reading


@pytest.mark.parametrize(
    "text",
    [
        WRITTEN,
        f"Sure! Here it is:\n```json\n{WRITTEN}\n```\nTell me if [x] is fine.",
        f"```\n{WRITTEN}\n```",
        f"{{not json}} {WRITTEN}",
        json.dumps([ONE]),
        json.dumps({"plan": {"sub_tasks": [ONE]}}),
        json.dumps({"plan": [ONE]}),
        f'A draft: {{"sub_tasks": []}}. Better: {WRITTEN}',
        f'{{"tools": ["search"]}} {WRITTEN} {{"note": 1}}',
    ],
)
def test_a_plan_is_read_wherever_it_stands(text: str) -> None:
    assert read_plan(text).sub_tasks == (SubTask(**ONE),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON object"),
        ("I would first search, then book.", "no JSON object"),
        ('{"tasks": []}', "no JSON object"),
        (WRITTEN[:-4], "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ("{" * 5_000, "no JSON object"),
        ('{"sub_tasks": "a, b"}', "no JSON object"),
        ('{"sub_tasks": ["a"]}', r"sub_tasks\.0"),
        ('{"sub_tasks": [{"name": "a"}]}', r"sub_tasks\.0\.input: Field required"),
        ('{"sub_tasks": [{"name": {"n": 3}, "input": "x"}]}', r"sub_tasks\.0\.name"),
        ('{"sub_tasks": [{"name": true, "input": "x"}]}', r"sub_tasks\.0\.name"),
        ('{"sub_tasks": [{"name": "a", "input": null}]}', r"sub_tasks\.0\.input: Field required"),
        ("{a: " * 30_000, "no JSON object"),
        (f"<think>{WRITTEN}</think> I cannot.", "no JSON object"),
        ('The dependencies of "a" are [] and so on.', "no JSON object"),
        ('{"sub_tasks": [{"name": " ", "input": "x"}]}', "must not be empty"),
        ('{"sub_tasks": [{"name": "a", "input": ""}]}', "must not be empty"),
        ('{"sub_tasks": [{"name": "a", "input": "x", "dependencies": {"b": 1}}]}', "dependencies"),
    ],
)
def test_what_is_no_plan_is_refused_in_words_for_the_model(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        read_plan(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{WRITTEN[:-3]}}},]}}",
        WRITTEN.replace('"', "'"),
        WRITTEN.replace("[]", "null"),
        WRITTEN.replace("[]", '""'),
        WRITTEN.replace(', "dependencies": []', ""),
        f"<think>First {{a}}, or\n{WRITTEN.replace('do a', 'do b')}?</think>\n{WRITTEN}",
        f"{WRITTEN} // and that is all of it",
    ],
)
def test_small_faults_do_not_lose_a_plan(text: str) -> None:
    assert text != WRITTEN
    assert read_plan(text).sub_tasks == (SubTask(**ONE),)


# ---- checking


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (Plan(), "no sub-tasks"),
        (plan(a="x"), "'a' depends on 'x', but no sub-task"),
        (plan(a="", b="a x", c="y"), "'b' depends on 'x'.*'c' depends on 'y'"),
        (Plan(sub_tasks=DIAMOND.sub_tasks * 2), "'a' is used more than once"),
        (plan(a="a"), "wait for each other: 'a' -> 'a'"),
        (plan(z="a", a="b", b="c", c="a"), "wait for each other: 'a' -> 'b' -> 'c' -> 'a'"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(made: Plan, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        check(made)


# ---- order


@given(dags())
def test_waves_hold_everything_once_and_as_early_as_possible(made: Plan) -> None:
    rounds: list[tuple[str, ...]] = []
    while now := tuple(each.name for each in ready(made, {n for names in rounds for n in names})):
        rounds.append(now)
    assert sorted(name for wave in rounds for name in wave) == sorted(made.names)
    at = {name: k for k, wave in enumerate(rounds) for name in wave}
    for each in made.sub_tasks:
        assert at[each.name] == max((at[name] + 1 for name in each.dependencies), default=0)


# ---- merging


def test_a_refinement_replaces_the_rest_and_keeps_what_is_done() -> None:
    changed = Plan(
        sub_tasks=(
            SubTask(name="a", input="another a"),
            SubTask(name="c", input="another c", dependencies=("a",)),
            SubTask(name="e", input="new", dependencies=("c",)),
        )
    )
    merged = merge(DIAMOND, {"a"}, changed)
    assert merged.names == ("a", "c", "e")
    assert [each.input for each in merged.sub_tasks] == ["do a", "another c", "new"]


# ---- steps


def test_step_ids_are_readable_and_never_the_same() -> None:
    ids = step_ids(
        "p1", ["Find a hotel!", "find-a-hotel", "日本", "!?", "x" * 99], {"a": "p1:日本"}
    )
    assert ids == {
        "a": "p1:日本",
        "Find a hotel!": "p1:find-a-hotel",
        "find-a-hotel": "p1:find-a-hotel-2",
        "日本": "p1:日本-2",
        "!?": "p1:sub-task",
        "x" * 99: "p1:" + "x" * 40,
    }


def progress(**done: str) -> Progress:
    return Progress(kind="refine", plan="p1", request=0, done=done)


def test_with_refinement_a_wave_and_a_refinement_after_it_are_queued() -> None:
    steps = following(DIAMOND, progress(a="p1:a"), refine=True, synthesize=False)
    assert [(step.step_id, step.prev_steps) for step in steps] == [
        ("p1:b", ("p1:a",)),
        ("p1:c", ("p1:a",)),
        ("p1-refine-1", ("p1:a", "p1:b", "p1:c")),
    ]
    last = following(DIAMOND, progress(a="p1:a", b="p1:b", c="p1:c"), refine=True, synthesize=False)
    assert [step.step_id for step in last] == ["p1:d"]  # and no refinement after the last wave


# ---- what is kept


def test_versions_are_numbered_for_each_plan_and_the_newest_counts() -> None:
    state: dict[str, Any] = {"mine": 1}
    record(state, "p1", DIAMOND, "made")
    said = record(state, "p1", plan(a=""), "refined")
    record(state, "p2", plan(z=""), "made")
    assert said == {"plan": "p1", "version": 2, "reason": "refined", "sub_tasks": ["a"]}
    assert [(e["plan"], e["version"], e["reason"]) for e in state[PLANS_KEY]] == [
        ("p1", 1, "made"),
        ("p1", 2, "refined"),
        ("p2", 1, "made"),
    ]
    assert current(state, "p1") == plan(a="")
    assert json.loads(json.dumps(state)) == state
