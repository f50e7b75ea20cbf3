"""One library as a script sees it: its names, and runs that are observed."""

import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tests.differential.observed import Run, observe, observe_error, observe_event

MODEL = "gpt-4.1-mini"
"""The Agents SDK sends settings of its own to some newer models; to this one it sends none."""


class Lib(ABC):
    """A library's names, the same for both; what only one of them has, a script cannot use.

    Attributes:
        is_streamed: Whether `run` streams.
        runs: What was observed of each run.
        notes: What the script itself wrote down, in order.
    """

    modules: Sequence[str]

    def __init__(self, *, is_streamed: bool) -> None:
        self.is_streamed = is_streamed
        self.runs: list[Run] = []
        self.notes: list[Any] = []
        self._tools: list[tuple[str]] = []

    def __getattr__(self, name: str) -> Any:
        for module in self.modules:
            try:
                return getattr(importlib.import_module(module), name)
            except (AttributeError, ImportError):
                continue
        msg = f"{self.modules[0]} has no {name}"
        raise AttributeError(msg)

    def agent(self, name: str = "first", **options: Any) -> Any:
        """Make an agent; its model is the fake one."""
        return self.Agent(name=name, **{"model": MODEL, **options})

    def tool(
        self, text: str = "seen", *, name: str = "look", is_noted: bool = True, **options: Any
    ) -> Any:
        """Make a tool that takes a place, writes it down and answers with a text."""

        def act(where: str = "here") -> str:
            """Look somewhere."""
            if is_noted:
                self.notes.append((name, where))
            return f"{text} {where}"

        self._tools.append((name,))
        return self.function_tool(act, name_override=name, **options)

    def note(self, *facts: Any) -> None:
        """Write down what is to be compared."""
        self.notes.append(facts)

    def noted(self) -> list[Any]:
        """Return the notes; in which order calls of one answer run is nobody's promise."""
        groups = itertools.groupby(self.notes, key=lambda note: note[:1] in self._tools)
        return [
            note
            for is_tool, notes in groups
            for note in (sorted(notes, key=repr) if is_tool else notes)
        ]

    async def run(self, agent: Any, given: Any, **options: Any) -> Any:
        """Run an agent, and observe what comes out of it."""
        events: list[tuple[str, ...]] = []
        try:
            result = await self._run(agent, given, events, options)
        except Exception as error:
            self.runs.append(observe_error(error, events))
            raise
        self.runs.append(observe(result, events))
        return result

    async def result(self, agent: Any, given: Any) -> Any:
        """Run an agent whose items differ as is known: only what the script notes is observed."""
        return await self._run(agent, given, [], {})

    async def follow(self, result: Any, events: list[tuple[str, ...]]) -> Any:
        """Read a stream to its end."""
        async for event in result.stream_events():
            seen = observe_event(event)
            # Into how many deltas a text is cut is nobody's promise.
            if not (seen[1].endswith(".delta") and events[-1:] == [seen]):
                events.append(seen)
        return result

    @abstractmethod
    async def _run(
        self, agent: Any, given: Any, events: list[tuple[str, ...]], options: dict[str, Any]
    ) -> Any:
        """Run, or stream, with the library's own Runner."""

    @abstractmethod
    def session(self, name: str) -> Any:
        """Make a session of this name that is empty."""

    @abstractmethod
    def chat_model(self) -> Any:
        """Make the fake model, asked by Chat Completions."""
