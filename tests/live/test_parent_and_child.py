"""What a parent says to its child at bad moments: while that undoes, closes or rolls over."""

from holdfast import AgentRunner
from holdfast.task.data.children import REPORTS, SAYS, ChildReport, ParentSays
from tests.support.people import ask
from tests.support.rig import Rig, until
from tests.support.runs import pay


async def refusals(runner: AgentRunner, task: str, count: int) -> list[str]:
    """Wait until a task has recorded so many refusals, and return their reasons."""
    found: list[str] = []

    async def condition() -> bool:
        events = await runner.audit(task)
        found[:] = [event.reason for event in events if event.kind == "refused"]
        return len(found) >= count

    await until(condition)
    return found


async def test_signals_in_the_name_of_parent_and_child_are_refused_and_change_nothing(
    rig: Rig,
) -> None:
    helper = rig.agent(pay, name="helper")
    runner = await rig.serving(rig.agent(helper.as_tool(tool_description="Helps."), name="agent"))
    rig.model.call("helper", {"input": "how?"})
    rig.model.call("pay", {})
    rig.model.reply("like this")
    rig.model.reply("all done")
    task = await runner.create_task("please")
    await runner.run_task(task)
    asked = await ask(runner, task)
    child = asked.id.rpartition(":")[0]
    for number, said in enumerate(
        (
            ParentSays(number=99, end="abandon", by="mallory"),
            ParentSays(number=99, undo="do", secret="guessed"),
            ParentSays(number=99, paused="mallory", secret=child),
        ),
        1,
    ):
        await runner.client.get_workflow_handle(child).signal(SAYS, said)
        await refusals(runner, child, number)
    parent = runner.client.get_workflow_handle(task.task_id)
    for number, secret in enumerate(("", "guessed"), 1):
        report = ChildReport(id=child, secret=secret, status="failed", closed=True, heard=99)
        await parent.signal(REPORTS, report)
        await refusals(runner, task.task_id, number)
    await parent.signal(SAYS, ParentSays(number=1, end="abandon", secret=""))
    [first, _, last] = await refusals(runner, task.task_id, 3)
    assert "did not come from that task" in first
    assert "did not come from a task that this one works for" in last
    await runner.approve(asked, "ann")
    assert str(await runner.run_task(task)) == "all done"
