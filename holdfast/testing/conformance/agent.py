"""The agent of the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from holdfast.agents.agent import Agent
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool, tool
from holdfast.models.openai.responses import ResponsesModel
from holdfast.workers.base import AgentWorker

AGENT = "conformance"


@dataclass
class Notebook:
    """The record of the tool `note`.

    Attributes:
        kept: The texts that are written down and were not erased.
    """

    kept: list[str] = field(default_factory=list[str])


class Suite(Protocol):
    """The part of a conformance class that the agent needs."""

    uses_tools: ClassVar[bool]

    def make_worker(self) -> AgentWorker:
        """Make the worker under test."""
        ...

    def agent_options(self) -> Mapping[str, Any]:
        """More arguments of Agent."""
        ...


def make_note(book: Notebook, *, asks: bool) -> Tool:
    """Make the tool `note`; with `asks` each call needs approval."""

    def erase(effect: Effect) -> None:
        book.kept.remove(str(effect.arguments["text"]))

    @tool(undo=erase, needs_approval=asks)
    async def note(text: str) -> str:
        """Write a text down.

        Args:
            text: The text.
        """
        book.kept.append(text)
        return f"noted: {text}"

    return note


def make_agent(
    suite: Suite, worker: AgentWorker, *, base_url: str, book: Notebook, asks: bool = False
) -> Agent:
    """Make the agent that the suite runs."""
    given: dict[str, Any] = {
        "name": AGENT,
        "instructions": "Do what is asked. Use the tools that you have.",
        "model": ResponsesModel("gpt-5-mini", base_url=base_url, api_key="sk-of-the-suite-1"),
        "tools": [make_note(book, asks=asks)] if suite.uses_tools else [],
        "worker": worker,
        **suite.agent_options(),
    }
    return Agent(**given)
