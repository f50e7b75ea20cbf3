"""From the record of a task to the result of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, TypedDict, Unpack, cast

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.handoffs.filters import input_left
from holdfast.agents.items.run_items import (
    InputItem,
    RawItem,
    RunItem,
    ToolApprovalItem,
    Unread,
    raw_of,
    turn_keys,
)
from holdfast.agents.output_type import typed_output
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.guardrail_results import Known, guardrail_results
from holdfast.agents.runs.item_helpers import RunInput, said_by, said_in
from holdfast.agents.runs.item_reading import step_items, step_messages
from holdfast.agents.runs.results import RunData, RunResult, UnreadSteps, responses, unread_steps
from holdfast.agents.runs.teams import Team, has_servers, team_of
from holdfast.archive.segments import uncollected
from holdfast.errors import ArchiveError, NotFoundError, NoWorkerError, QueryFailedError
from holdfast.models.openai.items import made_items, shown_items
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import LONG_STEPS, Recorded, read_before, read_recorded
from holdfast.task.data.calls import Approval
from holdfast.task.data.guard_rules import GUARDRAIL
from holdfast.task.people.decisions import asked_call
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_text
from holdfast.values.code.context_data import KEY, CallersContext
from holdfast.values.messages import Message, user
from holdfast.values.runs.run_context import Origin, RunContextWrapper
from holdfast.values.runs.usage import Usage
from holdfast.values.text.logs import log

ANSWERED = ("answered", "finished")
DECIDABLE = ("tool", "unknown", "question")


class Here(TypedDict, total=False):
    """What this process knows of a run.

    Attributes:
        given: What the run was given.
        context: The caller's context.
        config: The settings that this process has given the run.
    """

    given: RunInput | None
    context: CallersContext | None
    config: RunConfig | None


def run_data(recorded: Recorded, agent: Agent, **known: Unpack[Here]) -> RunData:
    """Say what a run has made so far, and bring its context object up to date.

    Args:
        recorded: The run's task.
        agent: The agent that the run began with, or another one of its team.
        known: What this process knows of it.

    Raises:
        UserError: The recorded context does not fit the class of the object any more.
    """
    return RunData(**_members(recorded, agent, known))


def _members(recorded: Recorded, agent: Agent, known: Here) -> dict[str, Any]:
    """Make the members of a RunData by name; arguments are those of `run_data`."""
    task, config = recorded.task, known.get("config")
    team = team_of(agent, first=task.agent)
    if recorded.began is not None:
        team.learn(recorded.began)
    asked = interruptions(recorded, team)
    last_agent = team.of(recorded.last_step.agent)
    said = _input(recorded, known.get("given"))
    unread = _unread(recorded, team)
    return {
        **({"new_items": unread} if unread else _made(recorded, team, asked, said)),
        **_guards(recorded, agent, last_agent, config, by_tools=unread is None),
        "input": said,
        "last_agent": users_agent(last_agent),
        "last_member": last_agent.name,
        "context_wrapper": RunContextWrapper(
            context=_context(task.extra_state, known.get("context")),
            usage=Usage.of(task.usage, recorded.made.costs()),
            task_id=task.task_id,
            origin=Origin(task.extra_state.get(KEY)),
        ),
        "task_id": task.task_id,
        "interruptions": asked,
        "max_turns": None if task.budget is None else task.budget.max_turns,
        "normalized": _normalized(recorded),
        "normalized_has_input": recorded.view is not None and not recorded.view.ref.input,
        "reasoning_item_id_policy": recorded.head.run.reasoning_ids,
    }


def _unread(recorded: Recorded, team: Team) -> UnreadSteps | None:
    """Return what items and answers are made of when they are read; None if they are made now."""
    if recorded.approvals or recorded.view is not None:
        return None
    steps = recorded.made.whole
    return unread_steps(recorded.data, steps, team, first=recorded.task.agent)


def _made(
    recorded: Recorded,
    team: Team,
    asked: Sequence[ToolApprovalItem],
    said: str | list[dict[str, Json]],
) -> dict[str, Any]:
    """Make the members of a run that are its items and answers."""
    by_step = [step_items(of, team) for of in recorded.steps]
    items: list[RunItem] = [item for made in by_step for item in made]
    return {
        "new_items": [*items, *asked],
        "raw_responses": responses(recorded.steps),
        "moved": _moved(recorded, said, by_step),
        "dropped": _dropped(recorded, by_step),
    }


def _guards(
    recorded: Recorded, agent: Agent, last: Agent, config: RunConfig | None, *, by_tools: bool
) -> dict[str, Any]:
    """Make the members of a run that are results of guardrails.

    Args:
        recorded: The run's task.
        agent: As for `run_data`.
        last: The agent that ran last.
        config: As for `run_data`.
        by_tools: Whether guardrails of tools may have results; else those of the run alone.
    """
    entries = recorded.entries
    if not by_tools and not any(e.event and e.event.kind == GUARDRAIL for e in entries):
        return {}
    guards = guardrail_results(
        recorded.entries,
        recorded.steps if by_tools else (),
        first=recorded.task.agent,
        known=known_guardrails(agent, config),
        output=typed_output(last.made_output, recorded.checked),
    )
    return {
        "input_guardrail_results": guards.input,
        "output_guardrail_results": guards.output,
        "tool_input_guardrail_results": guards.tool_input,
        "tool_output_guardrail_results": guards.tool_output,
    }


def known_guardrails(agent: Agent, config: RunConfig | None) -> Known:
    """Return the guardrails that this process knows of a run."""
    if config is None:
        return Known.of(agent)
    return Known.of(agent, config.input_guardrails, config.output_guardrails)


def run_result(recorded: Recorded, agent: Agent, **known: Unpack[Here]) -> RunResult:
    """Make the result of a run; arguments are those of `run_data`."""
    members = _members(recorded, agent, known)
    last_agent: Agent = members["last_agent"]
    task = recorded.task
    waiting = [approval.line for approval in recorded.approvals]
    if task.paused and not waiting:
        waiting = [f"paused by {task.paused}; resume the task first"]
    elif task.error and not waiting:
        waiting = [task.error]
    output = recorded.output if task.status in ANSWERED else None
    return RunResult(
        **members,
        final_output=typed_output(last_agent.made_output, output),
        waiting_for=() if task.status in ANSWERED else tuple(waiting),
    )


async def run_result_beside(recorded: Recorded, agent: Agent, **known: Unpack[Here]) -> RunResult:
    """Make the result of a run, that of a long one in a thread next to the event loop.

    Arguments are those of `run_data`. The caller's context object changes in its own loop.
    """
    if len(recorded.made.records) <= LONG_STEPS:
        return run_result(recorded, agent, **known)
    there: Here = {**known, "context": None}
    made = await asyncio.to_thread(_uncollected, partial(run_result, recorded, agent, **there))
    made.context_wrapper.context = _context(recorded.task.extra_state, known.get("context"))
    return made


def _uncollected(make: Callable[[], RunResult]) -> RunResult:
    with uncollected():
        return make()


def interruptions(recorded: Recorded, team: Team) -> list[ToolApprovalItem]:
    """List the tool calls that wait for a person."""
    if not recorded.approvals:
        return []
    written = [
        each
        for of in recorded.steps[-1:]
        for answer in of.answers
        for each in made_items(answer.message)
    ]
    ids = {as_text(each.get("call_id")): as_text(each.get("id")) for each in written}
    return [
        ToolApprovalItem(
            team.of(approval.agent),
            _call(approval, ids.get(approval.call_id, "")),
            approval_id=approval.id,
            digest=approval.digest,
        )
        for approval in recorded.approvals
        if approval.kind in DECIDABLE
    ]


def _call(approval: Approval, shown_id: str) -> RawItem | Unread:
    """Write the call that an approval is about as an item of the Responses API."""
    call = asked_call(approval, approval.arguments)
    [written] = made_items(Message(role="assistant", calls=(call,), item_ids=("", shown_id)))
    return raw_of({**written, "name": call.name} if call.kind else written)


def listed(given: RunInput) -> str | list[dict[str, Json]]:
    """Return an input as a text or a list."""
    return given if isinstance(given, str) else cast("list[dict[str, Json]]", list(given))


def _input(recorded: Recorded, given: RunInput | None) -> str | list[dict[str, Json]]:
    """Return what a run was given, in a session together with what the model sees of that.

    After a handoff whose filter has changed it, or that has nested the conversation in it, it is
    what the next agent was given.
    """
    task, view = recorded.task, recorded.view
    left = None if view is None else input_left(view.ref, view.given)
    if left is not None:
        return left
    if recorded.head.has_session:
        asked = [user(task.input, task.images)] if task.input or task.images else []
        return shown_items([*recorded.session, *recorded.before, *asked])
    if given is not None:
        return listed(given)
    if recorded.before:
        return shown_items(recorded.before)
    if not task.images:
        is_none = not task.input and recorded.head.follows is not None
        return [] if is_none else task.input
    return shown_items([user(task.input, task.images)])


def _normalized(recorded: Recorded) -> list[dict[str, Json]] | None:
    """Return what the last agent saw and said after the input, when a handoff has changed that.

    Where the record does not say what is the input, it is all that the agent saw.
    """
    view = recorded.view
    if view is None:
        return None
    transcript = [message for of in recorded.steps for message in step_messages(of)]
    seen = view.made if view.ref.input else view.messages
    own = (item for said in transcript[view.ref.skip :] for item in made_items(said))
    return [*shown_items(seen), *own]


def _moved(
    recorded: Recorded, said: str | list[dict[str, Json]], by_step: Sequence[Sequence[RunItem]]
) -> list[tuple[dict[str, Json], RunItem]]:
    """Pair the items of the input that were moved there from the run's with what they were."""
    view = recorded.view
    if view is None or not view.ref.input or isinstance(said, str):
        return []
    left = [(item, said_by(item)) for made in by_step[: view.steps] for item in made]
    found: list[tuple[dict[str, Json], RunItem]] = []
    for k in reversed(view.moved):
        wanted = said_in(said[k])
        same = (at for at in reversed(range(len(left))) if left[at][1] == wanted)
        at = None if wanted is None else next(same, None)
        if at is not None:
            was, _ = left.pop(at)
            was.mark()  # a program may copy it
            found.append((said[k], was))
    return found


def _dropped(recorded: Recorded, by_step: Sequence[Sequence[RunItem]]) -> list[RunItem]:
    """List the items that filters of handoffs have taken out of the run's."""
    if recorded.view is None:
        return []
    found: list[RunItem] = []
    for k, keys in recorded.view.dropped.items():
        items = by_step[k - 1]
        gone = [item for item, key in zip(items, turn_keys(items), strict=True) if key in keys]
        found += gone
    for item in found:
        item.mark()  # a program may copy it
    return found


def _context(state: dict[str, Json], own: CallersContext | None) -> Any:
    """Return the context: the caller's object as it is now, else the recorded data."""
    data = state.get(KEY)
    if own is None or own.object is None:
        return data
    own.update(data)
    return own.object


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
