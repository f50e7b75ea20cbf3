"""Runs that a run goes on from: their part of its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.handoffs.filters import input_left
from holdfast.agents.items.run_items import InputItem, RawItem, RunItem
from holdfast.agents.runs.results import RunData
from holdfast.agents.runs.teams import has_servers, team_of
from holdfast.errors import ArchiveError, NotFoundError, NoWorkerError, QueryFailedError
from holdfast.models.openai.items import shown_items
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import LONG_STEPS, Recorded, read_before, read_recorded
from holdfast.reading.runs.run_results import run_data
from holdfast.values.base import Json
from holdfast.values.text.logs import log

_UNREADABLE = (ArchiveError, NoWorkerError, NotFoundError, QueryFailedError)


async def add_followed(made: RunData, recorded: Recorded, reader: Reader, agent: Agent) -> None:
    """Add the results of the runs that a run goes on from to its own.

    In the Agents SDK, the state of a run with its answer goes on as the same run. Here each has a
    task of its own, so the whole is put together when it is read.

    Args:
        made: The result of the run alone.
        recorded: Its task.
        reader: Reads the tasks of the others. From one that cannot be read now, the rest is left
            out, with a warning in the log: the input then has the conversation up to there.
        agent: An agent whose team has the agents of all.
    """
    runs = await _with_followed(recorded, reader, agent)
    if len(runs) == 1:
        return
    agents = _first_agents(runs, agent)
    results: list[RunData] = [made]
    items: list[Sequence[RunItem]] = [made.new_items]
    for (run, own), (earlier, first) in pairwise(zip(runs, agents, strict=True)):
        read = partial(run_data, earlier, first)
        is_long = len(earlier.steps) > LONG_STEPS
        before = await asyncio.to_thread(read) if is_long else read()
        results.append(before)
        items += [_added(run, own), before.new_items]
    _keep_normalized(runs, results)
    at = next((k for k, run in enumerate(runs) if _is_input_anew(run)), len(runs) - 1)
    made.input, made.moved = results[at].input, results[at].moved
    for name in _LISTS:
        setattr(made, name, [each for part in reversed(results) for each in getattr(part, name)])
    inside = _joined(items[2 * at + 1 :])  # of these the input was made
    for item in inside:
        item.mark()  # a program may copy it
    made.dropped += inside
    made.new_items = _joined(items)
    made.earlier = sum(len(part.raw_responses) for part in results[1:])
    usages = [part.usage for part in reversed(results)]
    made.context_wrapper.usage = sum(usages[1:], usages[0])


def _joined(parts: Sequence[Sequence[RunItem]]) -> list[RunItem]:
    """Return the items of parts that are given newest first."""
    return [item for part in reversed(parts) for item in part]


async def _with_followed(recorded: Recorded, reader: Reader, agent: Agent) -> list[Recorded]:
    """Return the records of a run and of the runs that it goes on from, the newest first."""
    runs, servers = [recorded], has_servers(agent)
    while (follows := runs[-1].head.follows) is not None:
        last, trouble = runs[-1], "there is a later task of this id: it was deleted and begun again"
        whole = not _is_sent(last)  # else the input of the last one has that of this one
        try:
            found = await read_recorded(reader, follows.task_id, servers=servers, whole=whole)
        except _UNREADABLE as error:
            trouble = str(error)
        else:
            if found.task.created < last.task.created:
                runs.append(found)
                continue
        text = "The result of run %r lacks that of run %r, which cannot be read now: %s"
        log.warning(text, recorded.task.task_id, follows.task_id, trouble)
        runs[-1] = replace(last, before=await read_before(reader, last.head))
        break
    return runs


def _first_agents(runs: Sequence[Recorded], agent: Agent) -> list[Agent]:
    """Return the agents that runs began with: each task has names of its own for its team.

    Args:
        runs: The runs, each behind the one that goes on from it.
        agent: The agent that the last of them began with, or another one of its team.
    """
    agents = [agent]
    for run in reversed(runs[:-1]):
        team, follows = team_of(agents[-1]), run.head.follows
        name = "" if follows is None else follows.agent
        agents.append(users_agent(team.of(name)) if team.has(name) else agents[-1])
    return agents[::-1]


_LISTS = (
    "dropped",
    "raw_responses",
    "input_guardrail_results",
    "output_guardrail_results",
    "tool_input_guardrail_results",
    "tool_output_guardrail_results",
)


def _added(recorded: Recorded, agent: Agent) -> list[InputItem]:
    """Return the texts that were added to the state that a run was begun with, as items of it."""
    first, follows = team_of(agent).of(recorded.task.agent), recorded.head.follows
    count = 0 if follows is None else follows.added
    given = shown_items(recorded.before)
    return [InputItem(first, RawItem(item)) for item in given[len(given) - count :]]


def _keep_normalized(runs: Sequence[Recorded], results: Sequence[RunData]) -> None:
    """Keep what the last agent has seen, if a handoff has changed that.

    Args:
        runs: The runs, the newest first.
        results: The result of each alone, with the input that its task has.
    """
    if all(result.normalized is None for result in results):
        return
    seen: list[dict[str, Json]] = []
    for run, result in zip(runs, results, strict=True):
        seen = [*result.to_input_list(mode="normalized"), *seen]
        if _is_sent(run):
            break
    results[0].normalized, results[0].normalized_has_input = seen, True


def _is_sent(recorded: Recorded) -> bool:
    """Whether the input of a run has what the run before has left; else the provider has it."""
    kept = recorded.head.run.kept
    return kept is None or not (kept.conversation_id or kept.previous_response_id)


def _is_input_anew(recorded: Recorded) -> bool:
    """Whether a handoff of a run has changed its input."""
    view = recorded.view
    return view is not None and input_left(view.ref, view.given) is not None
