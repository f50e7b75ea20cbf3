"""Plan and solve on a real server: parts side by side, refined, undone, approved, retried."""

import json

from holdfast import AgentRunner, Task, tool
from holdfast.agents.tools.context import Effect
from holdfast.testing import FakeOpenAI, call, reply
from holdfast.workers import PlanAndSolveAgentWorker, ReActAgentWorker
from tests.support.rig import Rig, World
from tests.support.workers import said

PLANNING = "plan how to"


def written(**dependencies: str) -> str:
    """Write a plan as a model would; each value names dependencies, separated by spaces."""
    parts = [
        {
            "name": name,
            "input": f"work on {name}",
            "expected_output": "",
            "dependencies": needs.split(),
        }
        for name, needs in dependencies.items()
    ]
    return json.dumps({"sub_tasks": parts})


DIAMOND = written(a="", b="a", c="a", d="b c")


def part(name: str) -> str:
    """Return a text that only requests of this sub-task hold."""
    return f"Sub-task '{name}':"


def solves(model: FakeOpenAI, **results: str) -> None:
    """Script the answer of each sub-task."""
    for name, text in results.items():
        model.reply(text, match=part(name))


def asked(model: FakeOpenAI) -> dict[str, int]:
    """Count the requests of each sub-task."""
    return {name: sum(r.holds(part(name)) for r in model.requests) for name in "abcd"}


async def steps_of(runner: AgentRunner, task: Task) -> list[str]:
    return [output.task_step.step_id for output in await runner.get_completed_steps(task)]


async def test_a_sub_task_is_undone_alone_and_done_again(rig: Rig) -> None:
    world = World()

    def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['what']}")
        return "cancelled"

    @tool(undo=cancel)
    async def book(what: str) -> str:
        """Book."""
        world.done.append(f"book {what}")
        return f"booked {what}"

    runner = await rig.make(book, worker=PlanAndSolveAgentWorker(refine=False))
    rig.model.reply(DIAMOND, match=PLANNING)
    solves(rig.model, a="res a", c="res c", d="res d")
    rig.model.add(
        call("book", {"what": "plane"}, match=part("b")), reply("by plane", match=part("b"))
    )
    rig.model.add(
        call("book", {"what": "train"}, match=part("b")), reply("by train", match=part("b"))
    )
    task = await runner.create_task("the request")
    for _ in range(2):
        await runner.run_step(task)
    before = await runner.get_upcoming_steps(task)
    assert str(await runner.run_step(task)) == "by plane"
    receipt = await runner.undo_step(task, by="ann", reason="too loud")
    assert receipt.steps == ("p1:b",)
    assert await runner.get_upcoming_steps(task) == before
    assert str(await runner.run_step(task)) == "by train"
    assert world.done == ["book plane", "cancel plane", "book train"]
    again = [r for r in rig.model.requests if r.holds(part("b"))][2]
    assert again.holds("too loud")  # the sub-task's model is told, on its own messages
    assert str(await runner.run_task(task)) == "res d"
    assert rig.model.requests[-1].holds("by train")
    assert not rig.model.requests[-1].holds("by plane")
    assert asked(rig.model) == {"a": 1, "b": 4, "c": 1, "d": 1}
    response = await runner.finalize_response(task)
    assert [source.content for source in response.sources] == ["booked train"]


# ---- sub-tasks done by another AgentWorker


async def test_sub_tasks_are_done_by_the_steps_of_another_worker(rig: Rig) -> None:
    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"found {what}"

    worker = PlanAndSolveAgentWorker(refine=False, worker=ReActAgentWorker())
    runner = await rig.make(look, worker=worker)
    rig.model.reply(written(a="", b="a"), match=PLANNING)
    rig.model.reply('Thought: I look.\nAction: look\nAction Input: {"what": "x"}', match=part("a"))
    rig.model.reply("Thought: I can answer.\nAnswer: res a", match="found x")
    rig.model.reply("Thought: I can answer.\nAnswer: res b", match=part("b"))
    task = await runner.create_task("the request")
    assert str(await runner.run_task(task)) == "res b"
    assert await steps_of(runner, task) == ["s1", "p1:a", "p1:b"]
    observed = rig.model.requests[2]
    assert observed.holds("Observation: found x")
    assert observed.holds("Thought: I look.")
    assert rig.model.requests[3].holds("res a")
    assert not rig.model.requests[3].holds("found x")
    assert said(await runner.transcript(task)) == [("user", "the request"), ("assistant", "res b")]
    assert await runner.verify(task) == []
