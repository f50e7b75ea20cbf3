"""The OpenAI Agents SDK by itself: nothing is stored. The least that its client costs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agents import Agent, RunConfig, Runner, function_tool

from benchmarks.peers.openai_agents_model import FreeModel, http_model
from benchmarks.shared import ANSWER, INSTRUCTIONS, Source, Stack, looked_up, main, prompt


@function_tool
def lookup(query: str) -> str:
    """Look something up.

    Args:
        query: What to look up.
    """
    return looked_up(query)


class OpenAIAgents(Stack):
    packages = ("openai-agents", "openai")

    def __init__(self, url: str) -> None:
        models = {"free": FreeModel(), "http": http_model(url)}
        self._agents = {
            source: Agent(name="bench", instructions=INSTRUCTIONS, model=model, tools=[lookup])
            for source, model in models.items()
        }

    async def run(self, source: Source, turns: int, task_id: str) -> None:
        del task_id
        found = await Runner.run(
            self._agents[source],
            prompt(turns),
            max_turns=turns + 2,
            run_config=RunConfig(tracing_disabled=True),
        )
        assert found.final_output == ANSWER


@asynccontextmanager
async def opened(given: Namespace) -> AsyncGenerator[Stack]:
    yield OpenAIAgents(given.url or "http://127.0.0.1")


if __name__ == "__main__":
    main(__doc__, opened)
