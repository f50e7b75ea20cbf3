"""A user who does not wait: a second message comes while the answer to the first is being made.

python examples/second_message.py

By default the second run waits for its turn and sees the first. `merge` gives the running task the
message instead. The model here is a function, so that this runs offline.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from holdfast import Agent, AgentRunner, Runner, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall

searching = asyncio.Event()
found = asyncio.Event()


@tool(effect="read")
async def search() -> str:
    """Search for hotels, which takes its time."""
    searching.set()
    await found.wait()
    return "12 hotels"


def answer(request: ModelRequest) -> ToolCall | str:
    """Answer in place of a model: search once, then answer with all that was asked."""
    if not any(each.role == "tool" for each in request.messages):
        return ToolCall(id="", name="search", arguments="{}")
    return "; ".join(each.text for each in request.messages if each.role == "user")


async def main() -> None:
    """Send two messages, one right after the other, in each of two ways."""
    agent = Agent(name="guide", model=ScriptedModel(answer), tools=[search])
    async with AgentRunner.local(agent, data_dir=None) as runner:
        modes: tuple[Literal["queue", "merge"], ...] = ("queue", "merge")
        for mode in modes:
            searching.clear()
            found.clear()
            first = asyncio.ensure_future(
                Runner.run(agent, "A hotel in Rome.", session=mode, runner=runner, task_id=mode)
            )
            await searching.wait()
            second = asyncio.ensure_future(
                Runner.run(
                    agent, "With a pool.", session=mode, runner=runner, on_busy=mode, by="kim"
                )
            )
            await is_known(runner, mode)
            found.set()
            for run in (first, second):
                print(f"{mode}: {(await run).final_output}")


async def is_known(runner: AgentRunner, mode: str) -> None:
    """Wait until the second message is in line, or with the running task."""
    while True:
        events = await runner.audit(mode)
        line = (await runner.reader.session(runner.session(mode).id)).line
        if len(line) > 1 or any(each.kind == "command" for each in events):
            return
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
