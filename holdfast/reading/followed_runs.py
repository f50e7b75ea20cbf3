"""Runs that a run goes on from: their part of its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.handoffs.filters import input_left
from holdfast.agents.items.raw_items import RawItem
from holdfast.agents.items.run_items import InputItem
from holdfast.agents.runs.results import RunData
from holdfast.agents.runs.teams import has_servers, team_of
from holdfast.errors import NotFoundError, NoWorkerError, QueryFailedError
from holdfast.models.openai.items import to_response_items
from holdfast.reading.reader import Reader
from holdfast.reading.recorded import Recorded, read_recorded
from holdfast.reading.run_results import LONG_STEPS, run_data
from holdfast.values.text.logs import log


async def add_followed(made: RunData, recorded: Recorded, reader: Reader, agent: Agent) -> None:
    """Add to the result of a run those of the runs that it goes on from.

    In the Agents SDK, the state of a run with its answer goes on as the same run. Here each has a
    task of its own, so the whole is put together when it is read.

    Args:
        made: What the run has made by itself.
        recorded: Its task.
        reader: Reads the tasks of the others. From one that cannot be read now, the rest is left
            out, with a warning in the log: the input then has the conversation up to there.
        agent: An agent whose team has the agents of all.
    """
    runs = [recorded]
    while (follows := runs[-1].head.follows) is not None:
        try:
            runs.append(await read_recorded(reader, follows.task_id, servers=has_servers(agent)))
        except (NoWorkerError, NotFoundError, QueryFailedError) as trouble:
            text = "The result of run %r lacks that of run %r, which cannot be read now: %s"
            log.warning(text, made.task_id, follows.task_id, trouble)
            break
    is_anew = False
    agents = _first_agents(runs, agent)
    for (run, own), (earlier, first) in pairwise(zip(runs, agents, strict=True)):
        read = partial(run_data, earlier, first)
        is_long = len(earlier.steps) > LONG_STEPS
        before = await asyncio.to_thread(read) if is_long else read()
        _keep_normalized(before, made, is_sent=run.head.run.kept is None)
        made.new_items = [*_added(run, own), *made.new_items]
        is_anew = is_anew or _is_input_anew(run)
        if not is_anew:
            made.input, made.moved = before.input, before.moved
        for name in _LISTS:
            setattr(made, name, [*getattr(before, name), *getattr(made, name)])
        made.context_wrapper.usage = before.usage + made.usage


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
    "new_items",
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
    given = to_response_items(recorded.before)
    return [InputItem(first, RawItem(item)) for item in given[len(given) - count :]]


def _keep_normalized(before: RunData, made: RunData, *, is_sent: bool) -> None:
    """Keep what the last agent has seen, if a handoff has changed that.

    Args:
        before: The result of the run before.
        made: That of the run, with the input that its task has.
        is_sent: Whether this input has what the run before has left.
    """
    if before.normalized is None and made.normalized is None:
        return
    seen = [] if is_sent else before.to_input_list(mode="normalized")
    made.normalized = [*seen, *made.to_input_list(mode="normalized")]
    made.normalized_has_input = True


def _is_input_anew(recorded: Recorded) -> bool:
    """Whether a handoff of a run has made another input of that which it was given."""
    view = recorded.view
    return view is not None and input_left(view.ref, view.given) is not None
