"""Plans as data: read, checked, put in order, merged; and the steps made of them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Task, TaskStep, ToolCall
from holdfast.errors import InvalidArgumentError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.values.base import Json
from holdfast.values.messages import assistant, system, user
from holdfast.workers import PlanAndSolveAgentWorker
from holdfast.workers.context.journal import LAST_CALL
from holdfast.workers.plan_and_solve.plan import (
    Plan,
    SubTask,
    check,
    merge,
    read_plan,
    ready,
    step_ids,
)
from holdfast.workers.plan_and_solve.prompts import OUT_OF_TURNS
from holdfast.workers.plan_and_solve.worker import PLANS_KEY, Progress, current, following, record
from tests.support.played import Played
from tests.support.runs import look
from tests.support.workers import said

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


# ---- planAndSolveAgentWorker against contexts made by hand: a task in memory, without a server


def look_at(where: str) -> ToolCall:
    return ToolCall(id="", name="look", arguments=json.dumps({"where": where}))


def written(**dependencies: str) -> str:
    """Write a plan as a model would; each value names dependencies, separated by spaces."""
    return json.dumps(
        {
            "sub_tasks": [
                {
                    "name": name,
                    "input": f"work on {name}",
                    "expected_output": f"the {name} of it",
                    "dependencies": needs.split(),
                }
                for name, needs in dependencies.items()
            ]
        }
    )


WRITTEN_DIAMOND = written(a="", b="a", c="a", d="b c")


class Play(Played):
    """A task of a PlanAndSolveAgentWorker."""

    @property
    def committed(self) -> list[tuple[str, str]]:
        return said(self.worker.finalize_task(Task(task_id="t"), self.transcript))

    @property
    def reasons(self) -> list[str]:
        return [entry["reason"] for entry in self.state[PLANS_KEY]]


def play(*script: Any, tools: Sequence[Any] = (), **options: Any) -> Play:
    return Play(PlanAndSolveAgentWorker(**options), script, *tools)


def prompt(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


# ---- planning


async def test_the_plan_is_asked_for_with_its_structure_the_tools_and_the_conversation() -> None:
    work = play(WRITTEN_DIAMOND, tools=[look], refine=False)
    work.history = [user("before"), assistant("then")]
    output = await work.step()
    [asked] = work.model.requests
    assert asked.output is not None
    assert (asked.output.name, asked.output.strict) == ("plan", True)
    assert asked.tools == ()
    assert asked.instructions.startswith("Be good.\n")
    assert "- look: Look somewhere." in asked.instructions
    assert [m.text for m in asked.messages] == ["before", "then", "the request"]
    assert output == {
        "plan": "p1",
        "version": 1,
        "reason": "made",
        "sub_tasks": ["a", "b", "c", "d"],
    }
    assert said(work.transcript) == [("user", "the request")]
    assert [step.step_id for step in work.queue] == ["p1:a", "p1:b", "p1:c", "p1:d"]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [("I will just do it.", "no JSON object"), (written(a="b", b="a"), "wait for each other")],
)
async def test_an_invalid_plan_is_told_to_the_model_once(bad: str, problem: str) -> None:
    work = play(bad, WRITTEN_DIAMOND)
    await work.step()
    again = work.model.requests[1]
    assert [m.role for m in again.messages] == ["user", "assistant", "user"]
    assert again.messages[1].text == bad
    assert problem in again.messages[2].text
    assert work.reasons == ["made"]
    assert said(work.transcript) == [("user", "the request")]


async def test_without_a_valid_plan_one_sub_task_does_the_whole_request_and_it_shows() -> None:
    work = play("no", written(a="nowhere"), "the answer")
    output = await work.step()
    assert output["reason"].startswith("fallback: Sub-task 'a' depends on 'nowhere'")
    assert work.reasons == [output["reason"]]
    [step] = work.queue
    assert step.step_id == "p1:default"
    assert step.step_state["sub_task"]["input"] == "the request"
    assert await work.run() == "the answer"
    assert work.committed == [("user", "the request"), ("assistant", "the answer")]


# ---- sub-tasks


async def test_a_sub_task_sees_the_request_its_part_and_what_it_builds_on_alone() -> None:
    work = play(WRITTEN_DIAMOND, "res a", "res b", "res c", "res d", tools=[look], refine=False)
    work.history = [user("before")]
    assert await work.run() == "res d"
    texts = [prompt(request) for request in work.model.requests[1:]]
    assert [len(request.messages) for request in work.model.requests[1:]] == [1] * 4
    for text, name in zip(texts, "abcd", strict=True):
        assert "the request" in text
        assert f"Sub-task '{name}':\nwork on {name}" in text
        assert f"the {name} of it" in text
        assert "before" not in text
    seen = [[n for n in "abcd" if f"Result of '{n}':\nres {n}" in text] for text in texts]
    assert seen == [[], ["a"], ["a"], ["b", "c"]]
    assert all(request.instructions == "Be good." for request in work.model.requests[1:])
    assert all(len(request.tools) == 1 for request in work.model.requests[1:])


async def test_the_last_turn_of_a_sub_task_is_made_without_tools() -> None:
    insatiable = ModelAnswer(message=assistant("so far", calls=(ToolCall(id="9", name="look"),)))
    work = play(written(a=""), look_at("x"), look_at("y"), insatiable, tools=[look], max_turns=3)
    assert await work.run() == "so far"
    choices = [request.tool_choice for request in work.model.requests[1:]]
    assert choices == ["auto", "auto", "none"]
    assert work.model.requests[-1].messages[-1] == system(OUT_OF_TURNS)
    assert work.transcript[-1] == assistant("so far")


@pytest.mark.parametrize("refine", [True, False])
async def test_a_tool_choice_reaches_the_first_call_of_the_first_sub_tasks(refine: bool) -> None:
    script = [written(a="", b="a"), look_at("x"), "res a", *(["unchanged"] * refine), "res b"]
    work = play(*script, tools=[look], refine=refine)
    work.tool_choice = "required"
    assert await work.run() == "res b"
    choices = [request.tool_choice for request in work.model.requests if request.tools]
    assert choices == ["required", "auto", "auto"]


async def test_what_people_say_reaches_all_sub_tasks_that_come_after() -> None:
    chain = written(a="", b="a", c="b")
    work = play(chain, look_at("x"), "res a", "res b", "res c", tools=[look], refine=False)
    work.history = [user("before"), assistant("then")]
    await work.step()
    await work.step(notes=[user("be brief"), system("step s2 was undone")])
    await work.step()
    await work.step(notes=[user("in French")])
    said_to = [[m.text for m in r.messages[1:]] for r in work.model.requests[1:]]
    assert said_to[0] == ["be brief", "step s2 was undone"]
    assert said_to[1][:2] == said_to[0]
    assert said_to[2:] == [["be brief"], ["be brief", "in French"]]


# ---- refining


async def test_a_refinement_follows_each_wave_but_the_last() -> None:
    unchanged = [written(b="a", c="a", d="b c"), written(d="b c")]
    work = play(WRITTEN_DIAMOND, "res a", unchanged[0], "res b", "res c", unchanged[1], "res d")
    assert await work.run() == "res d"
    assert list(work.outputs) == [
        "s1",
        "p1:a",
        "p1-refine-1",
        "p1:b",
        "p1:c",
        "p1-refine-2",
        "p1:d",
    ]
    assert work.model.left == 0
    assert work.reasons == ["made"]
    assert work.outputs["p1-refine-2"]["reason"] == "unchanged"


@pytest.mark.parametrize("bad", ["nothing to change", written(d="b"), written(b="c", c="b")])
async def test_an_invalid_refinement_keeps_the_plan_and_says_so(bad: str) -> None:
    work = play(WRITTEN_DIAMOND, "res a", bad, "res b", "res c", bad, "res d")
    while "p1-refine-1" not in work.outputs:
        await work.step()
    assert work.outputs["p1-refine-1"]["reason"].startswith("kept: ")
    assert work.outputs["p1-refine-1"]["sub_tasks"] == ["a", "b", "c", "d"]
    assert [step.step_id for step in work.queue] == ["p1:b", "p1:c", "p1-refine-2"]


# ---- answers


async def test_a_follow_up_makes_a_new_plan_and_each_turn_is_kept() -> None:
    work = play(written(a=""), "one", written(a="", b="a"), "two", "x", "three")
    await work.run()
    work.queue = [TaskStep(step_id="s9", input="and now?")]
    assert await work.run() == "three"
    asked = work.model.requests[2]
    assert [m.text for m in asked.messages] == ["the request", "one", "and now?"]
    assert "The request:\nand now?" in prompt(work.model.requests[3])
    assert [id for id in work.outputs if ":" in id] == ["p1:a", "p3:a", "p3:b"]
    assert [(e["plan"], e["version"]) for e in work.state[PLANS_KEY]] == [
        ("p1", 1),
        ("p3", 1),
        ("p3", 2),
    ]
    assert work.committed == [
        ("user", "the request"),
        ("assistant", "one"),
        ("user", "and now?"),
        ("assistant", "three"),
    ]


# ---- the end of the budget


@pytest.mark.parametrize(
    ("script", "steps", "calls", "expected"),
    [
        (["at once"], 0, 0, "at once"),
        (["no plan", "instead"], 0, 1, "instead"),
        ([WRITTEN_DIAMOND, "part"], 1, 0, "part"),
        ([WRITTEN_DIAMOND, look_at("x"), "seen x"], 1, 1, "seen x"),
        ([WRITTEN_DIAMOND, "res a", "from a"], 2, 0, "from a"),
        ([written(a="", b=""), "res a", "res b", "both"], 3, 0, "both"),
    ],
)
async def test_the_answer_at_the_end_of_the_budget_is_the_last(
    script: list[Any], steps: int, calls: int, expected: str
) -> None:
    work = play(*script, tools=[look])
    for _ in range(steps):
        await work.step()
    work.finish_at = work.model.calls + calls
    assert await work.step() == expected
    assert work.last
    last = work.model.requests[-1]
    assert LAST_CALL in last.messages
    assert (last.output, last.tool_choice) == (None, "none")
    assert work.committed == [("user", "the request"), ("assistant", expected)]


# ---- any plan


@settings(max_examples=60, deadline=None)
@given(dags(), st.booleans(), st.booleans(), st.data())
async def test_any_plan_in_any_order_runs_each_sub_task_once_with_all_it_needs(
    plan: Plan, refine: bool, synthesize: bool, data: st.DataObject
) -> None:
    made = {each.name: " ".join(each.dependencies) for each in plan.sub_tasks}

    def answer(request: ModelRequest) -> str:
        text = prompt(request)
        if request.output is not None and "Remaining sub-tasks" not in text:
            return written(**made)
        if request.output is not None:
            return "keep it"
        doing = [name for name in made if f"Sub-task '{name}':" in text]
        seen = sorted(name for name in made if f"Result of '{name}':\nres {name}" in text)
        if not doing:
            return f"all of {' '.join(seen)}"
        assert seen == sorted(made[doing[0]].split())
        return f"res {doing[0]}"

    worker = PlanAndSolveAgentWorker(refine=refine, synthesize=synthesize)
    work = Play(worker, answer)
    output: Json = None
    while work.queue:
        waiting = [s for s in work.queue if all(id in work.outputs for id in s.prev_steps)]
        output = await work.step(data.draw(st.integers(0, len(waiting) - 1)))
    assert work.last
    assert {id for id in work.outputs if ":" in id} == {f"p1:{name}" for name in made}
    ends = sorted(set(made) - {name for needs in made.values() for name in needs.split()})
    alone = len(ends) == 1 and not synthesize
    assert output == (f"res {ends[0]}" if alone else f"all of {' '.join(ends)}")
    assert len(work.committed) == 2
