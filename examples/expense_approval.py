"""A payment that a person approves with other arguments; the model reads the change.

python examples/expense_approval.py

The tool asks for approval above 100 euros. The same works from another terminal, with
`holdfast dev examples.expense_approval:agents`, `holdfast run clerk "..."` and `holdfast inbox`.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from holdfast import Agent, AgentRunner, ToolCall, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel


def is_large(arguments: dict[str, Any]) -> bool:
    """Whether a person must look at a payment."""
    return bool(arguments["euros"] > 100)


@tool(needs_approval=is_large, idempotent=True)
def pay(to: str, euros: int) -> str:
    """Pay an expense."""
    return f"{euros} euros were paid to {to}"


def clerk_model(request: ModelRequest) -> str | ToolCall:
    """Stand in for a model, offline: pay what is asked for, then say what came of it."""
    said = {role: [m.text for m in request.messages if m.role == role] for role in ("user", "tool")}
    notes = [m.text for m in request.messages if m.role == "system"]
    if not said["tool"]:
        to, euros = re.findall(r"pay (\w+) (\d+)", said["user"][-1])[0]
        return ToolCall(id="", name="pay", arguments=json.dumps({"to": to, "euros": int(euros)}))
    return " | ".join([said["tool"][-1], *notes])


clerk = Agent(
    name="clerk",
    instructions="Pay the expenses that you are asked to pay.",
    model=ScriptedModel(clerk_model, name="offline-clerk"),
    tools=[pay],
)
agents = [clerk]


async def main() -> None:
    """Ask for two payments: a small one, and one that somebody corrects."""
    async with AgentRunner.local(clerk, data_dir=None) as runner:
        small = await runner.chat("Please pay Kim 12 euros for lunch.")
        print("Small, so nobody is asked:", small)

        task = await runner.create_task("Please pay Kim 930 euros for the taxi.")
        output = await runner.run_step(task)
        print("Large, so the step is", output.status)

        [approval] = await runner.pending_approvals(task)
        print(f"{approval.id} wants {approval.tool}({approval.arguments})")
        await runner.approve(approval, by="ann", arguments={"to": "Kim", "euros": 93})
        print("ann approves 93 euros instead")

        await runner.run_task(task)
        print("The model was told:", await runner.finalize_response(task))


if __name__ == "__main__":
    asyncio.run(main())
