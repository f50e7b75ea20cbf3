"""The audit of steps that came to no end: each call that was begun has one line, and a true one."""

import asyncio

import pytest

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import StepFailedError
from holdfast.reading.audit.audit import AuditEvent
from holdfast.testing import FakeOpenAI, call, hang
from holdfast.values.messages import ToolCall
from holdfast.workers import StepContext
from tests.support.people import asked
from tests.support.rig import Rig, World, forget, step_a_task, until
from tests.support.runs import serve_nested
from tests.support.workers import Doing

PLACES: list[tuple[str, dict[str, str]]] = [
    ("book", {"city": "rome"}),
    ("send", {"text": "hi"}),
    ("wait", {}),
    ("sign", {}),
]


@pytest.fixture
def tools(world: World, send: Tool) -> list[Tool]:
    """Tools whose calls can be taken back, cannot, hang, and need a person."""

    @tool(undo=lambda effect: "cancelled", needs_approval=True)
    def book(city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        return f"booked {city}"

    @tool
    async def wait() -> str:
        """Wait."""
        world.done.append("wait")
        await asyncio.Event().wait()
        return "waited"

    @tool(needs_approval=True)
    def sign() -> str:
        """Sign."""
        return "signed"

    return [book, send, wait, sign]


async def busy(runner: AgentRunner, model: FakeOpenAI) -> tuple[Task, asyncio.Task[object]]:
    """Bring a task into the midst of a step: two calls done, one running, one waiting."""
    model.calls(PLACES)
    task = await runner.create_task("q")
    running: asyncio.Task[object] = asyncio.create_task(runner.run_step(task))
    first = next(a for a in await asked(runner, task, 2) if a.tool == "book")
    await runner.approve(first, "ann", {"city": "oslo"})

    async def all_begun() -> bool:
        found = {e.tool: e.status for e in await runner.audit(task) if e.kind == "tool_call"}
        return found == {"book": "done", "send": "done", "wait": "running", "sign": "asked"}

    await until(all_begun)
    return task, running


def calls_of(events: list[AuditEvent]) -> dict[str, AuditEvent]:
    """Return the lines of the calls by tool; each must have one."""
    found = [e for e in events if e.kind == "tool_call"]
    assert len({e.tool for e in found}) == len(found)
    return {e.tool: e for e in found}


async def test_an_undone_step_in_progress_tells_each_of_its_calls_once(
    rig: Rig, tools: list[Tool]
) -> None:
    runner = await rig.make(*tools)
    task, running = await busy(runner, rig.model)
    await runner.undo_step(task, residue="keep", by="ben", reason="wrong")
    running.cancel()
    events = await runner.audit(task)
    called = calls_of(events)
    assert {name: (e.status, e.undo, e.undone_by) for name, e in called.items()} == {
        "book": ("done", "undone", "ben"),
        "send": ("done", "remains", ""),
        "wait": ("unknown", "remains", ""),
        "sign": ("not run", "", ""),
    }
    book, wait = called["book"], called["wait"]
    assert (book.arguments, book.proposed) == ('{"city": "oslo"}', '{"city": "rome"}')
    assert (book.approver, book.result) == ("ann", "booked oslo")
    assert all(0 < e.started <= e.time for e in called.values() if e.status != "not run")
    assert (wait.effect, wait.branch, wait.step) == ("irreversible", 0, "s1")
    [left] = [e for e in events if e.kind == "step"]
    [asked_model] = [e for e in events if e.kind == "model_call"]
    assert (left.status, left.tokens) == ("undone", asked_model.tokens)
    assert asked_model.tokens > 0
    assert asked_model.started > 0
    rig.model.reply("done")
    await runner.run_task(task)
    await runner.finalize_response(task)
    assert (await runner.audit(task))[: len(events)] == events
    await forget(runner, task)
    assert (await runner.audit(task))[: len(events)] == events
    assert await runner.verify(task) == []


async def test_a_step_that_is_run_anew_tells_the_calls_of_both(rig: Rig) -> None:
    @tool(undo=lambda effect: "cancelled")
    def book(city: str) -> str:
        """Book."""
        return f"booked {city}"

    cities = ["rome", "oslo"]

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        city = cities[0]
        await ctx.call_tools([ToolCall(id="c1", name="book", arguments=f'{{"city": "{city}"}}')])
        if city == "rome":
            raise ValueError("not rome")
        return TaskStepOutput(output=city, task_step=step, is_last=True)

    runner = await rig.make(book, worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="not rome"):
        await runner.run_step(task)
    cities.pop(0)
    await runner.run_step(task, restart="step")
    await runner.undo_step(task, by="ben")
    events = await runner.audit(task)
    told = [(e.arguments, e.status, e.undo) for e in events if e.kind == "tool_call"]
    assert told == [('{"city": "rome"}', "done", "remains"), ('{"city": "oslo"}', "done", "undone")]
    assert [e.status for e in events if e.kind == "step"] == ["restarted", "last"]
    rome, oslo = await runner.client.get_workflow_handle(task.task_id).query("effects")
    assert (rome["arguments"], rome["remains"]) == ({"city": "rome"}, True)
    assert "undone" in oslo
    assert await runner.verify(task) == []


async def test_what_an_undo_did_of_tasks_of_calls_is_told_with_the_calls(rig: Rig) -> None:
    runner = await serve_nested(rig)
    rig.model.add(call("helper", {"input": "a"}), "helped")
    task = await step_a_task(runner)
    rig.model.add(call("helper", {"input": "b"}), hang(call("nothing", {})))
    running = asyncio.create_task(runner.run_step(task))
    await asyncio.to_thread(rig.model.wait_held)
    for _ in range(2):
        await runner.undo_step(task, by="ben")
    running.cancel()
    events = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert [(e.status, e.answered_by, e.undo, e.undone_by) for e in events] == [
        ("done", f"{task.task_id}~0.1.0.0", "undone", "ben"),
        ("cut off", f"{task.task_id}~0.2.0.0", "undone", "ben"),
    ]
    assert all(e.started > 0 for e in events)
