"""A worker process whose agents are exchanged under a run that waits for a person."""

from typing import Any

import pytest

from holdfast import Agent, Runner, RunResult, RunState, tool
from holdfast.agents.tools.decorator import Tool
from tests.support.rig import Rig

Kind = type[Exception] | tuple[type[Exception], ...]


class Site:
    """A worker process whose agents are exchanged under a run that waits for a person."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.runner = rig.runner()
        self.asked: list[str] = []

    def ask(self) -> Tool:
        """Make a tool that waits for a person."""

        @tool(name="ask", needs_approval=True)
        def ask() -> str:
            """Ask."""
            self.asked.append("ask")
            return "asked"

        return ask

    async def waiting(self, agent: Agent, **options: Any) -> RunState:
        """Begin a run and return its state, all that waits for a person approved."""
        await self.rig.serve(agent)
        stopped = await Runner.run(agent, "q", runner=self.runner, **options)
        assert stopped.interruptions
        state = stopped.to_state()
        for each in stopped.interruptions:
            state.approve(each)
        return state

    async def parks(self, agent: Agent, state: RunState, kind: Kind, text: str) -> None:
        """Check that the run waits with an error while this agent is served, however often."""
        await self.rig.serve(agent)
        for again in (state, RunState.of(state.task_id)):
            with pytest.raises(kind, match=text):
                await Runner.run(agent, again, runner=self.runner)
            found = await self.runner.get_task(state.task_id)
            assert found.status == "needs_attention"

    async def goes_on(self, agent: Agent, state: RunState) -> RunResult:
        """Serve this agent again and run the run to its end."""
        await self.rig.serve(agent)
        return await Runner.run(agent, RunState.of(state.task_id), runner=self.runner)
