"""A front desk that hands a customer over to the people for refunds, and is given the task back.

python examples/handoffs.py

A handoff is a step like any other: it is listed, and undone. The models here are functions, so that
this runs offline.
"""

from __future__ import annotations

import asyncio
import json

from pydantic import BaseModel

from holdfast import Agent, AgentRunner, Runner, ToolCall, ToolContext, handoff, tool
from holdfast.agents_sdk import remove_all_tools
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel


class Case(BaseModel):
    """What the front desk says of a customer."""

    order: int
    is_angry: bool


@tool(effect="read")
def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: a lamp, 40 euros, paid"


@tool(idempotent=True)
def refund(order: int) -> str:
    """Pay an order back."""
    return f"40 euros for order {order} are on their way"


def note_case(ctx: ToolContext, case: Case) -> None:
    """Tell whoever keeps the books that a customer was handed over."""
    mood = "angry" if case.is_angry else "calm"
    print(f"  [books] {ctx.agent_name} handed over order {case.order}, {mood}")


def desk_model(request: ModelRequest) -> str | ToolCall:
    """Stand in for the front desk's model: look the order up, then hand over."""
    if not any(message.role == "tool" for message in request.messages):
        return ToolCall(id="", name="find_order", arguments='{"number": 7}')
    case = json.dumps({"order": 7, "is_angry": True})
    return ToolCall(id="", name="transfer_to_refunds", arguments=case)


def refunds_model(request: ModelRequest) -> str | ToolCall:
    """Stand in for the model of the people for refunds: pay, then say so."""
    results = [message.text for message in request.messages if message.role == "tool"]
    if not results:
        return ToolCall(id="", name="refund", arguments='{"order": 7}')
    return f"I am sorry. {results[-1]}."


refunds = Agent(
    name="refunds",
    instructions="Pay back what must be paid back.",
    model=ScriptedModel(refunds_model, name="offline-refunds"),
    tools=[refund],
    handoff_description="Pays orders back.",
)
desk = Agent(
    name="desk",
    instructions="Find out what the customer wants, and hand over to who can do it.",
    model=ScriptedModel(desk_model, name="offline-desk"),
    tools=[find_order],
    handoffs=[
        handoff(refunds, on_handoff=note_case, input_type=Case, input_filter=remove_all_tools)
    ],
)
agents = [desk]


async def main() -> None:
    """Run it to its end; then step by step, and back across the handoff."""
    async with AgentRunner.local(desk, data_dir=None) as runner:
        result = await Runner.run(desk, "My lamp of order 7 is broken!", runner=runner)
        print("Answer:", result.final_output)

        task = await runner.create_task("My lamp of order 7 is broken!")
        for _ in range(2):
            await runner.run_step(task)
        print("Next:", (await runner.get_upcoming_steps(task))[0].agent)
        await runner.undo_step(task, residue="keep")
        print("After the undo:", (await runner.get_upcoming_steps(task))[0].agent or "desk")
        print("Answer:", await runner.run_task(task))
        for step in await runner.get_completed_steps(task):
            called = ", ".join(source.tool_name for source in step.sources) or "answer"
            print(f"  {step.task_step.agent or 'desk'}: {called}")


if __name__ == "__main__":
    asyncio.run(main())
