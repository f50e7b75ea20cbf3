"""Events that a waiting query brings before their workflow task begins do not change its order."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from holdfast import AgentRunner, tool
from holdfast.testing import calls
from tests.support.rig import Rig, run_a_task

QUERIES = 6


@tool(needs_approval=True)
async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


async def ask(runner: AgentRunner, task_id: str) -> None:
    """Query a task, and wait until a worker process answers; as a page of another program does."""
    handle = runner.client.get_workflow_handle(task_id)
    with suppress(WorkflowQueryFailedError, RPCError):
        await handle.query("task_value", rpc_timeout=timedelta(seconds=20))


async def arrived(handle: WorkflowHandle[Any, Any]) -> None:
    """Let requests that were sent before reach the server, which shows neither kind."""
    for _ in range(100):
        await handle.describe()


async def test_a_decision_and_a_run_that_waited_beside_queries_replay(rig: Rig) -> None:
    rig.model.add(calls([("pay", {"euros": 3})]), "done")
    runner = await rig.serving(rig.agent(pay))
    task = await run_a_task(runner, "pay 3")
    await rig.stop()
    asking = [asyncio.create_task(ask(runner, task.task_id)) for _ in range(QUERIES)]
    handle = runner.client.get_workflow_handle(task.task_id)
    await arrived(handle)
    await runner.reject(f"{task.task_id}:1", "ann", "no")
    running = asyncio.create_task(runner.run_task(task))
    await arrived(handle)
    await rig.serve(rig.agent(pay))
    assert (await running).output == "done"
    await asyncio.gather(*asking)
