"""Steps side by side: rounds, links, joins, and what a failing branch does to the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from holdfast import Budget, TaskStep, TaskStepOutput, ToolContext, errors, tool
from holdfast.testing import FakeOpenAI
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall, assistant, user
from holdfast.workers import AgentWorker, StepContext
from tests.support.rig import MakeAgent, MakeRunner, Rig, event_types, histories, until, until_steps

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Graph(AgentWorker):
    """Runs a plan: step id to the ids that it waits for. `do` says what a step does.

    The step `last`, if it is in the plan, gives the answer; a step in `lasts` ends the task too.
    """

    max_parallel: ClassVar[int] = 8

    def __init__(
        self,
        plan: Mapping[str, Sequence[str]],
        do: Callable[[TaskStep, StepContext], Any] | None = None,
        lasts: Sequence[str] = ("last",),
    ) -> None:
        self.plan = plan
        self.do = do
        self.lasts = lasts

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_id == "s1":
            ctx.add(user(step.input or ""))
            following = tuple(
                step.get_next_step(step_id=id, step_state={}).model_copy(
                    update={"prev_steps": tuple(before)}
                )
                for id, before in self.plan.items()
            )
            return TaskStepOutput(output="planned", task_step=step, next_steps=following)
        did = self.do(step, ctx) if self.do is not None else step.step_id
        if asyncio.iscoroutine(did):
            did = await did
        is_last = step.step_id in self.lasts
        if is_last:
            ctx.add(assistant(f"answer of {step.step_id}"))
        return TaskStepOutput(output=did, task_step=step, is_last=is_last)


class Joining(Graph):
    """Joins last outputs into a list."""

    def join(self, outputs: Mapping[str, Json]) -> Json:
        return [f"{id}={output}" for id, output in outputs.items()]


class Doors:
    """Lets a test see which steps are inside, and let them out one by one."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.entered: list[str] = []
        self._doors: dict[str, asyncio.Event] = {}

    async def __call__(self, step: TaskStep, ctx: StepContext) -> str:
        self.inside.add(step.step_id)
        self.entered.append(step.step_id)
        await self._door(step.step_id).wait()
        self.inside.discard(step.step_id)
        return f"{step.step_id} of {sorted(ctx.inputs)}"

    def _door(self, step_id: str) -> asyncio.Event:
        return self._doors.setdefault(step_id, asyncio.Event())

    def open(self, *step_ids: str) -> None:
        for step_id in step_ids:
            self._door(step_id).set()

    async def are_inside(self, *step_ids: str) -> None:
        async def condition() -> bool:
            return self.inside == set(step_ids)

        await until(condition)


DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "last": ("b", "c")}


async def test_a_round_runs_at_once_and_answers_in_queue_order(make_runner: MakeRunner) -> None:
    doors = Doors()
    runner = await make_runner(worker=Graph({"x": (), "y": (), "z": ()}, doors))
    task = await runner.create_task("q")
    await runner.run_step(task)
    running = [
        asyncio.create_task(runner.run_steps_in_queue(task, request_id="r")) for _ in range(2)
    ]
    await doors.are_inside("x", "y", "z")
    doors.open("z")
    await doors.are_inside("x", "y")
    doors.open("x", "y")
    outputs, again = await asyncio.gather(*running)
    assert outputs == again  # two requests of one id are one
    assert sorted(doors.entered) == ["x", "y", "z"]
    assert [o.task_step.step_id for o in outputs] == ["x", "y", "z"]
    completed = [o.task_step.step_id for o in await runner.get_completed_steps(task)]
    assert (completed[:2], set(completed[2:])) == (["s1", "z"], {"x", "y"})


async def test_linked_steps_become_ready_by_themselves(make_runner: MakeRunner) -> None:
    doors = Doors()
    runner = await make_runner(worker=Graph(DIAMOND, doors))
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await doors.are_inside("a")
    doors.open("a")
    await doors.are_inside("b", "c")
    doors.open("b")
    await doors.are_inside("c")
    doors.open("c", "last")
    output = await running
    assert (output.is_last, output.output) == (True, "last of ['b', 'c']")
    assert doors.entered.count("a") == 1


# ---- failing branches


def failing(*broken: str, error: Callable[[], Exception] = lambda: ValueError("broken")) -> Any:
    """Make a `do` that fails for these steps until they are taken out of the list."""
    left = list(broken)
    ran: list[str] = []

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        ran.append(step.step_id)
        if step.step_id in left:
            raise errors.InvalidArgumentError(str(error()))
        return step.step_id

    do.left, do.ran = left, ran  # type: ignore[attr-defined]
    return do


async def test_a_round_tries_all_that_failed_again(make_runner: MakeRunner) -> None:
    do = failing("x", "z")
    runner = await make_runner(worker=Graph({"x": (), "y": (), "z": (), "w": ("x",)}, do))
    task = await runner.create_task("q")
    await runner.run_step(task)
    with pytest.raises(errors.StepFailedError):
        await runner.run_steps_in_queue(task)
    do.left.remove("x")
    with pytest.raises(errors.StepFailedError):
        await runner.run_steps_in_queue(task)
    do.left.clear()
    outputs = await runner.run_steps_in_queue(task)
    assert [o.output for o in outputs] == ["z", "w"]
    assert sorted(do.ran) == ["w", "x", "x", "y", "z", "z", "z"]


async def test_one_of_two_failed_steps_is_tried_again_and_the_other_is_not(
    make_runner: MakeRunner,
) -> None:
    do = failing("x", "z")
    runner = await make_runner(worker=Graph({"x": (), "y": (), "z": ()}, do))
    task = await runner.create_task("q")
    await runner.run_step(task)
    with pytest.raises(errors.StepFailedError, match="broken") as failed:
        await runner.run_steps_in_queue(task)
    assert failed.value.step_id in ("x", "z")
    done = {o.task_step.step_id for o in await runner.get_completed_steps(task)}
    assert (done, (await runner.get_task(task)).status) == ({"s1", "y"}, "needs_attention")
    do.left.clear()
    assert (await runner.run_step(task, step="z")).output == "z"
    assert sorted(do.ran) == ["x", "y", "z", "z"]
    with pytest.raises(errors.InvalidArgumentError, match="has failed and stays first"):
        await runner.run_step(task, step="y")
    assert (await runner.run_step(task)).output == "x"


# ---- links


async def plan_of(make_runner: MakeRunner, *steps: TaskStep) -> Any:
    class Planning(AgentWorker):
        async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            return TaskStepOutput(
                output=step.step_id,
                task_step=step,
                next_steps=steps if step.step_id == "s1" else (),
            )

    runner = await make_runner(worker=Planning())
    return runner, await runner.create_task("q")


async def test_a_step_that_waits_is_not_run_when_asked_for(make_runner: MakeRunner) -> None:
    runner, task = await plan_of(
        make_runner,
        TaskStep(step_id="a", prev_steps=("b",)),
        TaskStep(step_id="b"),
        TaskStep(step_id="c", is_ready=False),
    )
    await runner.run_step(task)
    with pytest.raises(errors.InvalidArgumentError, match="Step a is not ready: it waits for 'b'"):
        await runner.run_step(task, step="a")
    with pytest.raises(errors.InvalidArgumentError, match="Step c is not ready"):
        await runner.run_step(task, step="c")
    assert (await runner.run_step(task)).output == "b"
    assert (await runner.run_step(task)).output == "a"
    with pytest.raises(errors.StalledTaskError, match="'c'"):
        await runner.run_step(task)
    with pytest.raises(errors.StalledTaskError, match="'c'"):
        await runner.run_steps_in_queue(task)
    await runner.drop_step(task, "c", by="ann")
    with pytest.raises(errors.NoUpcomingStepsError):
        await runner.run_steps_in_queue(task)


# ---- several last outputs


async def test_several_last_outputs_need_a_rule(make_runner: MakeRunner, rig: Rig) -> None:
    runner = await make_runner(worker=Graph({"x": (), "y": ()}, lasts=("x", "y")))
    task = await runner.create_task("q")
    await runner.run_step(task)
    outputs = await runner.run_steps_in_queue(task)
    assert [o.is_last for o in outputs] == [True, True]
    with pytest.raises(errors.StepFailedError, match="More than one step output"):
        await runner.run_task(task)
    with pytest.raises(errors.InvalidArgumentError):
        await runner.finalize_response(task)


async def test_a_join_makes_one_answer_in_queue_order(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Joining({"x": (), "y": (), "z": ()}, lasts=("x", "z")))
    response = await runner.chat("q", session="s")
    assert response.output == ["x=x", "z=z"]
    history = await runner.session("s").chat_history()
    assert json.loads(history[-1].text) == ["x=x", "z=z"]


# ---- people


@tool(effect="reversible", undo=lambda effect: None, needs_approval=True)
def pay(to: str) -> str:
    """Pay somebody.

    Args:
        to: Who.
    """
    return f"paid {to}"


async def paying(step: TaskStep, ctx: StepContext) -> Json:
    if step.step_id not in ("x", "y"):
        return step.step_id
    call = ToolCall(id=f"call_{step.step_id}", name="pay", arguments=f'{{"to": "{step.step_id}"}}')
    [result] = await ctx.call_tools([call])
    return result.content


async def test_a_branch_that_waits_for_a_person_holds_up_no_other(make_runner: MakeRunner) -> None:
    plan = {"x": (), "y": (), "z": (), "after": ("z",), "last": ("x", "y", "after")}
    runner = await make_runner(pay, worker=Graph(plan, paying))
    task = await runner.create_task("q")
    output = await runner.run_task(task)
    assert output.status == "waiting"
    done = {o.task_step.step_id for o in await runner.get_completed_steps(task)}
    assert done == {"s1", "z", "after"}
    for approval in await runner.pending_approvals(task):
        await runner.approve(approval, by="ann")
    output = await runner.run_task(task)
    assert (output.output, output.is_last) == ("last", True)
    response = await runner.finalize_response(task)
    assert sorted(map(str, response.sources)) == ["paid x", "paid y"]


async def test_a_round_answers_with_what_waits_and_later_with_the_rest(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(pay, worker=Graph({"x": (), "y": (), "z": ()}, paying))
    task = await runner.create_task("q")
    await runner.run_step(task)
    outputs = await runner.run_steps_in_queue(task)
    found = [(o.task_step.step_id, o.status) for o in outputs]
    assert found == [("x", "waiting"), ("y", "waiting"), ("z", "done")]
    assert "pay" in outputs[0].waiting_for[0]
    asked = await runner.pending_approvals(task)
    [first, second] = sorted(asked, key=lambda approval: approval.arguments)
    assert (await runner.run_step(task, request_id="r")).task_step.step_id == "x"
    await runner.reject(second, by="ann", reason="no money")
    await until_steps(runner, task, 3)
    await runner.approve(first, by="ann")
    await until_steps(runner, task, 4)
    assert (await runner.run_step(task, request_id="r")).task_step.step_id == "x"  # its own
    outputs = await runner.run_steps_in_queue(task)
    assert [o.output for o in outputs] == [
        "The call was not run: it was rejected by ann: no money",
        "paid x",
    ]


async def test_an_undo_in_the_middle_leaves_all_steps_in_progress(make_runner: MakeRunner) -> None:
    doors = Doors()
    runner = await make_runner(worker=Graph({"x": (), "y": (), "z": ()}, doors))
    task = await runner.create_task("q")
    await runner.run_step(task)
    running = asyncio.create_task(runner.run_steps_in_queue(task))
    await doors.are_inside("x", "y", "z")
    doors.open("y")
    await until_steps(runner, task, 2)
    receipt = await runner.undo_step(task, by="ann")
    assert set(receipt.steps) == {"x", "z"}
    with pytest.raises(errors.CommandRefusedError, match="was undone"):
        await running
    assert [s.step_id for s in await runner.get_upcoming_steps(task)] == ["x", "z"]
    doors.open("x", "z")
    outputs = await runner.run_steps_in_queue(task)
    assert [o.task_step.step_id for o in outputs] == ["x", "z"]
    assert doors.entered.count("y") == 1


# ---- state and limits


async def test_changes_of_the_state_are_merged_and_conflicts_recorded(
    make_runner: MakeRunner,
) -> None:
    doors = Doors()

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        await doors(step, ctx)
        ctx.state["last"] = step.step_id
        ctx.state["log"] = [*ctx.state["log"], step.step_id]
        return None

    runner = await make_runner(worker=Graph({"x": (), "y": ()}, do))
    task = await runner.create_task("q", extra_state={"log": []})
    await runner.run_step(task)
    running = asyncio.create_task(runner.run_steps_in_queue(task))
    await doors.are_inside("x", "y")
    doors.open("x")
    await until_steps(runner, task, 2)
    doors.open("y")
    await running
    assert (await runner.get_task(task)).extra_state == {"last": "y", "log": ["x", "y"]}
    steps = [entry.step for entry in await runner.ledger(task) if entry.step is not None]
    assert [list(step.conflicts) for step in steps] == [[], [], ["last"]]


async def test_max_parallel_bounds_the_steps_in_progress(make_runner: MakeRunner) -> None:
    class Two(Graph):
        max_parallel: ClassVar[int] = 2

    doors = Doors()
    runner = await make_runner(
        worker=Two({"x": (), "y": (), "z": (), "last": ("x", "y", "z")}, doors)
    )
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await doors.are_inside("x", "y")
    doors.open("x")
    await doors.are_inside("y", "z")
    doors.open("y", "z", "last")
    await running


async def test_a_round_goes_on_over_rollovers(make_runner: MakeRunner) -> None:
    names = [f"n{k}" for k in range(12)]
    plan: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        for k in range(3):
            await ctx.memo(f"memo {k}", lambda: 1)
        return step.step_id

    runner = await make_runner(worker=Graph(plan, do), roll_events=50)
    task = await runner.create_task("q")
    await runner.run_step(task)
    outputs = await runner.run_steps_in_queue(task)
    assert [o.output for o in outputs] == names
    assert len(await runner.get_completed_steps(task)) == 13
    assert len(await histories(runner.client, task.task_id)) > 1


async def test_the_input_of_a_task_and_tool_choice_reach_every_step_of_a_round(
    make_runner: MakeRunner,
) -> None:
    seen: dict[str, str] = {}

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        seen[step.step_id] = ctx.tool_choice
        return (await ctx.task()).input

    runner = await make_runner(worker=Graph({"x": (), "y": ()}, do))
    task = await runner.create_task("the question")
    await runner.run_step(task)
    outputs = await runner.run_steps_in_queue(task, tool_choice="required")
    assert [o.output for o in outputs] == ["the question"] * 2
    assert seen == {"x": "required", "y": "required"}


# ---- corners


async def test_a_round_asked_for_while_another_request_runs_a_step_waits_for_its_turn(
    make_runner: MakeRunner,
) -> None:
    doors = Doors()
    runner = await make_runner(worker=Graph({"x": (), "after": ("x",)}, doors))
    task = await runner.create_task("q")
    await runner.run_step(task)
    one = asyncio.create_task(runner.run_step(task))
    await doors.are_inside("x")
    following = asyncio.create_task(runner.run_steps_in_queue(task))
    await until_requests(runner, task, 3)
    doors.open("x", "after")
    assert (await one).task_step.step_id == "x"
    assert [o.task_step.step_id for o in await following] == ["after"]


async def until_requests(runner: Any, task: Any, count: int) -> None:
    """Wait until the server has accepted this many requests to run."""

    async def condition() -> bool:
        kinds = await event_types(runner.client, task.task_id)
        return kinds.count("WORKFLOW_EXECUTION_UPDATE_ACCEPTED") >= count

    await until(condition)


async def test_a_budget_is_not_waited_for_when_its_sibling_made_no_call(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    doors = Doors()

    async def do(step: TaskStep, ctx: StepContext) -> Json:
        await doors(step, ctx)
        return (await ctx.call_model([user("ask")])).text if step.step_id == "y" else "x"

    model.reply("said")
    runner = await make_runner(worker=Graph({"x": (), "y": ()}, do))
    task = await runner.create_task("q", budget=Budget(max_turns=1))
    await runner.run_step(task)
    running = asyncio.create_task(runner.run_steps_in_queue(task))
    await doors.are_inside("x", "y")
    doors.open("x")
    await until_steps(runner, task, 2)
    doors.open("y")
    assert [o.output for o in await running] == ["x", "said"]


async def test_a_join_that_comes_between_ends_a_round(make_runner: MakeRunner) -> None:
    do = failing("y")
    runner = await make_runner(
        worker=Joining({"x": (), "y": (), "c": ("x",)}, do, lasts=("x",)),
    )
    task = await runner.create_task("q")
    await runner.run_step(task)
    with pytest.raises(errors.StepFailedError, match="Step 'y'"):
        await runner.run_steps_in_queue(task)
    do.left.clear()
    assert [o.output for o in await runner.run_steps_in_queue(task)] == ["y"]
    assert (await runner.run_task(task)).output == ["x=x"]


async def test_last_outputs_are_joined_after_a_sibling_was_undone(make_runner: MakeRunner) -> None:
    doors = Doors()
    runner = await make_runner(worker=Joining({"x": (), "y": ()}, doors, lasts=("x", "y")))
    task = await runner.create_task("q")
    await runner.run_step(task)
    running = asyncio.create_task(runner.run_steps_in_queue(task))
    await doors.are_inside("x", "y")
    doors.open("x")
    await until_steps(runner, task, 2)
    fork = await runner.fork(task, at="x")
    await runner.undo_step(task)
    await asyncio.gather(running, return_exceptions=True)
    doors.open("y")
    joined = ["x=x of []", "y=y of []"]
    assert (await runner.run_task(task)).output == joined
    assert (await runner.run_task(fork)).output == joined


async def test_a_budget_ends_some_steps_and_another_one_is_done_last(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    async def do(step: TaskStep, ctx: StepContext) -> Json:
        if step.step_id == "x":
            return await paying(step, ctx)
        return (await ctx.call_model([user(f"about {step.step_id}")])).text

    for name in ("y", "z"):
        model.reply(f"said of {name}", match=f"about {name}")
    plan = {"x": (), "y": (), "z": (), "last": ("x", "y", "z")}
    runner = await make_runner(pay, worker=Graph(plan, do), roll_events=60)
    budget = Budget(max_turns=0, on_exceeded="finish")
    task = await runner.create_task("q", budget=budget)
    assert (await runner.run_task(task)).status == "waiting"
    await until_steps(runner, task, 3)
    [asked] = await runner.pending_approvals(task)
    await runner.approve(asked, by="ann")
    output = await runner.run_task(task)
    assert output.output == {"y": "said of y", "z": "said of z"}
    completed = [o.task_step.step_id for o in await runner.get_completed_steps(task)]
    assert (completed[0], set(completed[1:3]), completed[3]) == ("s1", {"y", "z"}, "x")
    assert str(await runner.finalize_response(task)) == '{"y":"said of y","z":"said of z"}'
    assert await runner.verify(task) == []


async def test_ids_are_used_once(make_runner: MakeRunner) -> None:
    class Again(AgentWorker):
        async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            return TaskStepOutput(output="x", task_step=step, next_steps=(step,))

    runner = await make_runner(worker=Again())
    task = await runner.create_task("q")
    with pytest.raises(errors.StepFailedError, match="'s1' was used before"):
        await runner.run_task(task)
    assert [s.step_id for s in await runner.get_upcoming_steps(task)] == ["s1"]


async def test_results_of_quiet_calls_are_the_output_and_no_messages(
    make_runner: MakeRunner,
) -> None:
    @tool(effect="read")
    def look(ctx: ToolContext, text: str) -> str:
        """Look.

        Args:
            text: What.
        """
        assert text in plan[ctx.step_id]  # the id, which is not the number of the step
        if text == "bad":
            raise ValueError(text)
        return text * 20_000 if text == "big" else f"saw {text}"

    plan = {"one": ["x"], "two": ["x", "bad"], "large": ["big"], "failed": ["bad"]}

    class Quiet(AgentWorker):
        max_parallel: ClassVar[int] = 8

        async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            if step.step_id == "s1":
                steps = [TaskStep(step_id=name) for name in plan]
                last = TaskStep(step_id="last", prev_steps=tuple(plan))
                return TaskStepOutput(task_step=step, next_steps=(*steps, last))
            if step.step_id == "last":
                given = {name: str(output)[:60] for name, output in ctx.inputs.items()}
                return TaskStepOutput(output=given, task_step=step, is_last=True)
            calls = tuple(
                ToolCall(id=f"{step.step_id}{i}", name="look", arguments=json.dumps({"text": text}))
                for i, text in enumerate(plan[step.step_id])
            )
            return TaskStepOutput(task_step=step, calls=calls, quiet=True)

    runner = await make_runner(look, worker=Quiet())
    task = await runner.create_task("q")
    output = await runner.run_task(task)
    broken = {"content": "Encountered error: ValueError: bad", "is_error": True}
    assert output.output == {
        "one": "saw x",
        "two": str(["saw x", broken])[:60],
        "large": ("big" * 20)[:60],
        "failed": str(broken)[:60],
    }
    assert await runner.transcript(task) == []
    large = await runner.get_completed_step(task, "large")
    assert large.output == "big" * 20_000
    assert [source.content for source in large.sources] == ["big" * 20_000]
    events = [e async for e in runner.step_events(task, until="answered")]
    assert len([e for e in events if type(e).__name__ == "ToolDone"]) == 5
    assert await runner.verify(task) == []


@tool(undo=lambda effect: None, undo_needs_approval=True)
def book(to: str) -> str:
    """Book a seat.

    Args:
        to: For whom.
    """
    return f"booked {to}"


class Seats(AgentWorker):
    """Three steps side by side; `y` is another agent's, and the last one is done at once."""

    max_parallel: ClassVar[int] = 8

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_id == "s1":
            steps = [step.get_next_step(step_id=name, step_state={}) for name in "xyz"]
            steps[1] = steps[1].model_copy(update={"agent": "other"})
            return TaskStepOutput(output="planned", task_step=step, next_steps=tuple(steps))
        if step.step_id != "z":
            for name in ("book", "pay"):
                arguments = json.dumps({"to": step.step_id})
                await ctx.call_tools([ToolCall(id=name, name=name, arguments=arguments)])
        return TaskStepOutput(output="done", task_step=step)


async def test_the_undo_of_open_steps_asks_in_the_name_of_each_step_s_own_agent(
    rig: Rig, make_agent: MakeAgent
) -> None:
    other = make_agent(book, pay, name="other", worker=Seats())
    await rig.serve(make_agent(book, pay, worker=Seats(), handoffs=[other]), other)
    runner = rig.runner()
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.run_steps_in_queue(task)
    assert (await runner.get_task(task)).steps == 2  # z is the second, though opened as the fourth
    asking: dict[str, str] = {}
    assert (await runner.undo_step(task, request_id="u")).status == "waiting"
    while (await runner.undo_step(task, request_id="u")).status == "waiting":
        for asked in await runner.pending_approvals(task):  # none while an approved undo runs
            if asked.kind == "undo" and asked.arguments not in asking:
                asking[asked.arguments] = asked.agent
                await runner.approve(asked, by="ann")
    assert asking == {'{"to": "x"}': "agent", '{"to": "y"}': "other"}
