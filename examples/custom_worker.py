"""A custom AgentWorker: one method, from state to state.

python examples/custom_worker.py

The headline writer asks for a headline, looks whether it is short enough, and asks again with what
was wrong. Each round is a step, which a person can look at, steer with an input, and undo.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Agent, AgentRunner
from holdfast.models import user
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.workers import CustomAgentWorker, StepContext

LONGEST = 30


class HeadlineWorker(CustomAgentWorker):
    """Tries until a headline is short enough, three times at most."""

    initial_state = {"tries": [], "wishes": []}  # noqa: RUF012  each task gets a copy

    async def next_state(
        self, state: dict[str, Any], ctx: StepContext
    ) -> tuple[dict[str, Any], bool]:
        if state["input"]:  # the news in the first step, what a person says in later ones
            state["wishes"].append(state["input"])
        wanted = "; ".join(state["wishes"])
        known = f" Not: {', '.join(state['tries'])}." if state["tries"] else ""
        answer = await ctx.call_model([user(f"A headline for: {wanted}.{known}")])
        state["tries"].append(answer.text)
        state["output"] = answer.text
        return state, len(answer.text) <= LONGEST or len(state["tries"]) == 3


def editor_model(request: ModelRequest) -> str:
    """Stand in for a model, offline: be shorter each time, and mention Rome when asked to."""
    asked = request.messages[-1].text
    where = "Rome" if "Rome" in asked else "Italy"
    if "Not:" in asked:
        return f"New bridge in {where} opens"
    return f"After ten long years the new bridge in {where} opens"


headlines = Agent(
    name="headlines",
    instructions="Write headlines.",
    model=ScriptedModel(editor_model, name="offline-editor"),
    worker=HeadlineWorker(),
)
agents = [headlines]


async def main() -> None:
    """Write a headline in two steps; then undo the second one, and steer it."""
    async with AgentRunner.local(headlines, data_dir=None) as runner:
        task = await runner.create_task("A bridge opens, ten years late")
        print("First try:", await runner.run_step(task))
        print("Second try:", await runner.run_step(task))
        await runner.undo_step(task, by="ann", reason="where in Italy?")
        [step] = await runner.get_upcoming_steps(task)
        print("Undone; the state is:", step.step_state["state"]["tries"])
        print("With a wish:", await runner.run_step(task, input="say Rome"))
        print("Answer:", await runner.finalize_response(task))


if __name__ == "__main__":
    asyncio.run(main())
