"""A worker process is killed around an approval that the provider asks for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, HostedMCPTool
from holdfast.testing import FakeRequest, ask_approval, hang, hosted, reply
from tests.crash.lab import Lab
from tests.crash.programs import AGENT, Job

SERVER: Any = {"type": "mcp", "server_label": "crm", "server_url": "https://crm.example/mcp"}


def make_agent(job: Job) -> Agent:
    """Make the agent."""
    del job
    return Agent(name=AGENT, model="fake-model", tools=[HostedMCPTool(SERVER)])


ASK = ask_approval("crm", "pay", {"to": "Kim"}, id="mcpr_1")
PAID = hosted("mcp_call", id="mcp_1", server_label="crm", name="pay", arguments="{}", output="paid")


def answered(request: FakeRequest) -> list[bool]:
    """Return the decisions that a request carries."""
    items = request.body["input"]
    return [each["approve"] for each in items if each.get("type") == "mcp_approval_response"]


@pytest.mark.exhaustive
async def test_killed_after_the_request_and_after_the_decision_one_decision_reaches_the_provider(
    lab: Lab,
) -> None:
    lab.api.when(
        lambda request: lab.is_mine(request) and not answered(request), reply("", items=[ASK])
    )
    lab.api.when(
        lambda request: lab.is_mine(request) and bool(answered(request)),
        hang(reply("It is paid.", items=[PAID])),
        times=1,
    )
    worker = lab.start(make=make_agent)
    task = await lab.create("pay")
    waiting = await lab.runner.run_task(task)
    assert waiting.status == "waiting"
    [approval] = await lab.runner.pending_approvals(task)
    await lab.kill(worker)
    assert (approval.tool, approval.arguments) == ("crm.pay", '{"to": "Kim"}')
    await lab.runner.approve(approval, "ann")  # no worker is up
    worker = lab.start(make=make_agent)
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)  # in the call with the decision: it is repeated, as any model call
    await lab.api.until_held(0)
    lab.api.when(
        lambda request: lab.is_mine(request) and bool(answered(request)),
        reply("It is paid.", items=[PAID]),
    )
    lab.start(make=make_agent)
    assert (await running).output == "It is paid."
    assert [answered(request) for request in lab.requests] == [[], [True], [True]]
    audit = await lab.runner.audit(task)
    [asked] = [each for each in audit if each.kind == "tool_call"]
    assert (asked.approver, asked.decision) == ("ann", "approved")
    assert sum(each.kind == "hosted_call" for each in audit) == 1
    assert sum(each.kind == "asked" for each in audit) == 1
    assert await lab.runner.verify(task) == []
