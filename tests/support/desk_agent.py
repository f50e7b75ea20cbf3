"""One desk for all browser tests of a module: its agent calls the tools that tasks ask for."""

from collections.abc import AsyncGenerator
from typing import Literal

import pytest
from openai import AsyncOpenAI

from holdfast import Agent, AgentRunner, ApprovalRule, tool
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, reply
from tests.support.desk import Served, serve_desk
from tests.support.rig import Engine, Rig, run_a_task, until

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> [x](javascript:alert(3)) {{7*7}}"
HUGE = "x" * 100_000


@tool(needs_approval=True)
async def pay(to: str, euros: int, method: Literal["wire", "card"] = "wire") -> str:
    """Pay an expense.

    Args:
        to: Who gets the money.
        euros: How much.
        method: How.
    """
    return f"{euros} euros were paid to {len(to)} characters"


@tool(needs_approval=ApprovalRule(quorum=2))
async def share(to: str, euros: int) -> str:
    """Pay what two must approve."""
    return f"{euros} euros were paid to {to}"


@tool(needs_approval=True, effect="read")
async def peek(to: str, euros: int) -> str:
    """Look somebody up."""
    return f"found {to} with {euros}"


@tool(effect="read")
async def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing}: {EVIL}"


def answer(request: FakeRequest) -> Reply:
    """Call what is asked for, `pay NAME EUROS`; look first when the task says so."""
    said = request.last_user.split()
    if any(message.role == "tool" for message in request.messages):
        return reply(f"Done. {EVIL}")
    if said[0] == "look":
        return calls([("look", {"thing": EVIL})], text=EVIL)
    if said[0] in ("pay", "share", "peek"):
        to = HUGE if said[1] == "huge" else said[1]
        call = (said[0], {"to": to, "euros": int(said[2])})
        return calls([call], text=f"I {said[0]} {said[1]} now.")
    return reply(f"Done. {EVIL}")


@pytest.fixture(scope="module")
async def rig_of_desk(engine: Engine, openai_client: AsyncOpenAI) -> AsyncGenerator[Rig]:
    """Serve the agent; at the end replay all tasks."""
    rig = Rig(engine)
    with FakeOpenAI(answer) as fake:
        client = openai_client.with_options(base_url=fake.base_url)
        model = ResponsesModel("gpt-5-mini", client=client)
        await rig.serve(Agent(name="agent", model=model, tools=[pay, share, peek, look]))
        yield rig
        await rig.stop()
    await rig.assert_replays()


@pytest.fixture(scope="module")
def runner(rig_of_desk: Rig) -> AgentRunner:
    """Reach its tasks."""
    return rig_of_desk.runner()


@pytest.fixture(scope="module")
async def desk(runner: AgentRunner) -> AsyncGenerator[Served]:
    """Serve the desk."""
    async with serve_desk(runner) as served:
        yield served


async def waiting(runner: AgentRunner, wish: str, **options: str) -> str:
    """Create a task that waits for a decision, and wait until that is listed."""
    task = await run_a_task(runner, wish, session=options.get("session"))

    async def listed() -> bool:
        return any(each.id == f"{task.task_id}:1" for each in await runner.pending_approvals())

    await until(listed)
    return task.task_id
