"""Recorded cases, run again with the agent's own model and judged by functions of the user's.

Tools answer from the case as far as it has the call. What it does not have runs only if the tool
reads, or is named.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from holdfast.agents.agent import Agent
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.tool import Tool
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import HoldfastError, InvalidArgumentError, message_of
from holdfast.reading.runs.recorded import read_recorded
from holdfast.testing.cases import Case, StandIns
from holdfast.values.base import Json, sense
from holdfast.values.checks.gate import check_arguments
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Message, Usage
from holdfast.values.settings import Budget
from holdfast.values.text.shown import named, shown

AT_ONCE = 4
"""Cases that are run at the same time."""

MAX_TURNS = 30
"""Model calls of one case."""

NOT_MADE = "This call is not in the recorded case, so it was not made."
"""What the model reads of a call that would have had an effect."""


@dataclass(frozen=True)
class EvalResult:
    """A case as the agent has run it now.

    Attributes:
        output: The final output, JSON data.
        messages: The conversation.
        usage: What its model calls cost.
    """

    output: Json = None
    messages: Sequence[Message] = ()
    usage: Usage = field(default_factory=Usage)


Score = bool | float
Judge = Callable[[Case, EvalResult], Score | Awaitable[Score]]


@dataclass(frozen=True)
class Judged:
    """A case with its result, and what each judge says; nothing where the run has failed.

    Attributes:
        name: Name of the case.
        result: The result.
        scores: Name of each judge to its score.
        error: Why the run did not end, or why a judge's assertion or code failed; else empty.
        least: The score with which a judge passes it.
    """

    name: str
    result: EvalResult
    scores: Mapping[str, Score] = field(default_factory=dict[str, Score])
    error: str = ""
    least: float = 0.5

    @property
    def passed(self) -> bool:
        """Whether the run has ended, and each judge gave enough."""
        return not self.error and all(each >= self.least for each in self.scores.values())


async def eval_cases(
    cases: Mapping[str, Case],
    *,
    agent: Agent[Any],
    judges: Sequence[Judge],
    runs: Sequence[str] = (),
    least: float = 0.5,
    max_turns: int = MAX_TURNS,
) -> list[Judged]:
    """Run an agent on recorded cases with its own model, and judge each.

    What people said in the case, they say again, each time when the agent has answered. Tools
    answer from the case; no approval is needed. A call that the case does not have runs if the tool
    only reads; otherwise the model reads that it was not made.

    Args:
        cases: The cases, by their names.
        agent: The agent as it is now.
        judges: Functions of a case and its result. Each returns True, False or a number from 0 to
            1, or fails an assertion.
        runs: Names of tools whose code runs, whatever the case has.
        least: The score with which a judge passes a case. True is 1, False 0.
        max_turns: Most model calls of a case.

    Raises:
        InvalidArgumentError: An argument cannot be used, two judges have one name, or runs= names a
            tool that no agent has.
    """
    check_arguments(eval_cases, cases=cases, judges=judges, runs=runs, max_turns=max_turns)
    if not isinstance(cast("object", agent), Agent):
        raise InvalidArgumentError(f"agent= takes an Agent; it was {shown(agent)}.")
    names = list(map(_name, judges))
    if twice := sorted({each for each in names if names.count(each) > 1}):
        msg = f"Each judge has a name of its own; these have several: {named(twice)}."
        raise InvalidArgumentError(msg)
    trial = _Trial(cases, frozenset(runs))
    own = trial.stand_in(agent)

    async def judged(name: str) -> Judged:
        try:
            result, error = await trial.run(runner, name, max_turns)
        except Exception as failed:  # noqa: BLE001  the other cases keep their results
            result, error = EvalResult(), f"{type(failed).__name__}: {failed}"
        scores: dict[str, Score] = {}
        for each in () if error else judges:
            scores[_name(each)], why = await _judge(each, cases[name], result)
            error = error or why
        return Judged(name, result, scores, error, least)

    async with AgentRunner.local(own, data_dir=None) as runner:
        return await some_at_once(judged, [*cases], AT_ONCE)


def _name(judge: Judge) -> str:
    return getattr(judge, "__name__", type(judge).__name__)


async def _judge(judge: Judge, case: Case, result: EvalResult) -> tuple[Score, str]:
    """Return a judge's score, and why it gave none: one that fails costs no other its result."""
    try:
        said: Any = await asyncio.to_thread(judge, case, result)
        if inspect.isawaitable(said):
            said = await said
    except AssertionError as error:
        return False, f"{_name(judge)}: {error}" if str(error) else ""
    except Exception as error:  # noqa: BLE001  the user's code may raise anything
        return False, f"{_name(judge)} raised {type(error).__name__}: {error}"
    if not isinstance(said, bool | int | float) or not 0 <= said <= 1:
        msg = f"A judge returns True, False or a number from 0 to 1; {_name(judge)} returned"
        return False, f"{msg} {shown(said)}."
    return said, ""


class _Trial(StandIns):
    """The agent with its own model, and with tools that answer from the case of their task."""

    def __init__(self, cases: Mapping[str, Case], runs: frozenset[str]) -> None:
        super().__init__(cases.values(), runs)
        self._cases = cases
        self._results: dict[str, Mapping[tuple[str, str], deque[str]]] = {}

    def _answer(self, of: Tool[..., Any] | None) -> Any:
        async def answer(ctx: ToolContext[Any, Any], arguments: str) -> Any:
            if known := self._results[ctx.task_id].get((ctx.tool_name, sense(arguments))):
                return known.popleft() if len(known) > 1 else known[0]
            if of is not None and of.effect == "read":
                return await of.on_invoke_tool(ctx, arguments)
            return NOT_MADE

        return answer

    async def run(self, runner: AgentRunner, name: str, max_turns: int) -> tuple[EvalResult, str]:
        """Run a case to its end; return its result, and why it has not ended."""
        case, session = self._cases[name], None
        more = [each.text for each in case.messages if each.role == "user"]
        if not more:
            return EvalResult(), "Nobody says anything in this case."
        if case.history:
            session = runner.session(uuid4().hex)
            await session.append(case.history)
        budget = Budget(max_turns=max_turns, on_exceeded="fail")
        task = await runner.create_task(more.pop(0), session=session, budget=budget)
        self._results[task.task_id] = _results(case)
        asked, error = None, ""
        try:
            while not (step := await runner.run_step(task, asked)).is_last or more:
                if step.status == "waiting":
                    error = "The run waits for a person."
                    break
                asked = more.pop(0) if step.is_last else None
        except HoldfastError as failed:
            error = message_of(failed)
        messages = await runner.transcript(task)
        found = await read_recorded(runner.reader, task.task_id)
        return EvalResult(found.output, messages, found.task.usage), error


def _results(case: Case) -> Mapping[tuple[str, str], deque[str]]:
    """Return the results of the calls of a case, by tool and arguments."""
    found: dict[tuple[str, str], deque[str]] = defaultdict(deque)
    calls: dict[str, tuple[str, str]] = {}
    for said in case.messages:
        for each in said.calls:  # a later answer's call may have the same id
            calls[each.id] = each.bare_name, sense(each.arguments)
        if said.role == "tool" and said.call_id in calls:
            found[calls[said.call_id]].append(said.text)
    return found
