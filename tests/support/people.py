"""People as tests play them: they wait until they are asked."""

from holdfast import AgentRunner, Task
from holdfast.task.data.calls import Approval
from tests.support.rig import until


async def asked(runner: AgentRunner, task: Task | str, count: int = 1) -> list[Approval]:
    """Wait until this many approvals of a task are open, and return them."""
    return await until(lambda: runner.pending_approvals(task), lambda found: len(found) == count)


async def ask(runner: AgentRunner, task: Task | str) -> Approval:
    """Wait until one approval of a task is open, and return it."""
    [approval] = await asked(runner, task)
    return approval


async def kinds(runner: AgentRunner, task: Task | str) -> list[str]:
    """List the kinds of a task's events, oldest first."""
    return [event.kind for event in await runner.audit(task)]
