"""Reading the items of a run out of the records of its steps."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.agents.items import (
    HandoffCallItem,
    HandoffOutputItem,
    InputItem,
    MessageOutputItem,
    RawItem,
    ReasoningItem,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
)
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.items import to_response_items
from holdfast.task.data.records import JournalEntry, OpenState, Outcome, StepRecord
from holdfast.task.ledger.references import (
    SAID_IN_ADDS,
    input_message,
    last_round,
    resolve_adds,
    told,
    without_adds,
)
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_object
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import TaskStep


class Team:
    """The agents of a run by name."""

    def __init__(self, first: str, agents: Sequence[Agent] = ()) -> None:
        """Know some agents.

        Args:
            first: Name of the agent that the task began with.
            agents: The agents that this process has.
        """
        self._first = first
        self._agents: dict[str, Agent] = {agent.name: agent for agent in reversed(agents)}
        self._own = frozenset(self._agents)

    def has(self, name: str) -> bool:
        """Whether this process has an agent, and not its name alone."""
        return name in self._own

    def of(self, name: str) -> Agent:
        """Return an agent; without a name, the first one."""
        name = name or self._first
        if name not in self._agents:
            self._agents[name] = Agent(name=name)
        return self._agents[name]


def team_of(agent: Agent, *, first: str = "") -> Team:
    """Return an agent's team, for a task that began with the agent or with another of the team.

    Those that they call as tools are known, too: their calls may wait for a person.
    """
    known = {each.name: each for each in (agent, *agent.team())}
    agents = list(known.values())
    for each in agents:  # grows while it is walked
        for child in each.nested():
            new = [a for a in (child, *child.team()) if a.name not in known]
            known |= {a.name: a for a in new}
            agents += new
    return Team(first or agent.name, agents)


def step_items(of: StepRecord | OpenState, team: Team) -> list[RunItem]:
    """Return what happened in a step, completed or open, without the input of the run.

    A handoff's output comes last, after the results of the tools that were called beside it.

    Archived texts must be put in before, see `resolved`.

    Args:
        of: The step.
        team: The agents.
    """
    agent = team.of(_step(of).agent)
    items = _items(_said(of), agent, handoff_names(of, agent), team)
    return sorted(items, key=lambda item: isinstance(item, HandoffOutputItem))


def step_messages(of: StepRecord | OpenState) -> list[Message]:
    """Return what a step adds to the transcript, or will add as far as is known."""
    adds, _, outcomes = _parts(of)
    asked, answers = last_round(adds, of.calls)
    known = {i: o for i, o in outcomes.items() if o.at is None and not o.is_stopped}
    done = [(call, known[i]) for i, call in enumerate(of.calls) if i in known]
    said = [o.message(call) for call, o in done if call.id in asked and call.id not in answers]
    return [*adds, *said]


def result_item(
    of: StepRecord | OpenState, call: ToolCall, outcome: Outcome, team: Team
) -> ToolCallOutputItem | HandoffOutputItem | None:
    """Return what a call of a step gave, by its place; None for a handoff that was not taken.

    Args:
        of: The step, archived texts put in.
        call: The call.
        outcome: What became of it.
        team: The agents.
    """
    agent = team.of(_step(of).agent)
    said = told(of.adds if isinstance(of, StepRecord) else (), call, outcome)
    is_handoff = call.name in handoff_names(of, agent)
    [item] = _items([said], agent, (), team, {said.call_id} if is_handoff else ())
    if isinstance(item, HandoffOutputItem):
        return item
    return item if isinstance(item, ToolCallOutputItem) and not is_handoff else None


def step_answers(of: StepRecord | OpenState) -> list[ModelAnswer]:
    """Return the answers that models gave in a step, oldest first."""
    adds, journal, _ = _parts(of)
    rest, found = list(adds), list[ModelAnswer]()
    for entry in journal:
        if entry.answer is None:
            continue
        said = _up_to(entry.answer.message, rest)
        del rest[: len(said)]
        is_there = entry.answer.message == SAID_IN_ADDS and bool(said)
        message = said[-1] if is_there else entry.answer.message
        found.append(entry.answer.model_copy(update={"message": message}))
    return found


def message_items(
    messages: Iterable[Message], agent: Agent, team: Team, handoffs: Collection[str] = ()
) -> list[RunItem]:
    """Return messages as items, each by itself and in their order.

    Args:
        messages: The messages, archived texts put in.
        agent: The agent that they happened to.
        team: The agents.
        handoffs: Ids of calls that hand the task over, beside those that the agent has a handoff
            for.
    """
    names = {each.tool_name for each in agent.made_handoffs}
    return _items(messages, agent, names, team, handoffs)


def conversation_items(messages: Iterable[Message], first: Agent) -> list[RunItem]:
    """Return messages as items, each of the agent that the task was with.

    Args:
        messages: The messages, archived texts put in; they do not say whose they are, but handoffs
            do.
        first: The agent that the task began with.
    """
    said = list(messages)
    team, agent = team_of(first), first
    names = {each.tool_name for known in (first, *first.team()) for each in known.made_handoffs}
    ids: set[str] = set()
    found: list[RunItem] = []
    for message in said:
        ids -= {call.id for call in message.calls}  # providers may use ids again
        ids |= {call.id for call in message.calls if call.name in names}
        items = message_items([message], agent, team, ids)
        found.extend(items)
        handed = [i.target_agent.name for i in items if isinstance(i, HandoffOutputItem)]
        agent = team.of(handed[0]) if handed else agent
    return found


def _items(
    messages: Iterable[Message],
    agent: Agent,
    names: Collection[str],
    team: Team,
    handoffs: Collection[str] = (),
) -> list[RunItem]:
    """Return messages as items. A call of one id may be a handoff, and an earlier one none.

    Args:
        messages: The messages, archived texts put in.
        agent: The agent that they happened to.
        names: Names of calls that hand the task over.
        team: The agents.
        handoffs: Ids of calls that do, whatever their names.
    """
    ids, found = set(handoffs), list[RunItem]()
    for message in messages:
        ids -= {call.id for call in message.calls}.difference(handoffs)
        ids |= {call.id for call in message.calls if call.name in names}
        found += [_item(raw, agent, ids, team) for raw in to_response_items([message])]
    return found


def _item(raw: dict[str, Json], agent: Agent, handoffs: set[str], team: Team) -> RunItem:
    match raw.get("type", "message"):
        case "message" if raw.get("role") == "assistant":
            return MessageOutputItem(agent, _full_message(raw))
        case "message":
            return InputItem(agent, RawItem(raw))
        case "function_call_output":
            target = _target(raw) if raw.get("call_id") in handoffs else ""
            if target:
                return HandoffOutputItem(agent, RawItem(raw), agent, team.of(target))
            return ToolCallOutputItem(agent, RawItem(raw), raw.get("output"))
        case "function_call" if raw.get("call_id") in handoffs:
            return HandoffCallItem(agent, RawItem(raw))
        case "reasoning":
            return ReasoningItem(agent, RawItem(raw))
        case _:
            return ToolCallItem(agent, RawItem(raw))


def _full_message(raw: dict[str, Json]) -> RawItem:
    """Write a message of the model as the API does: its content as parts."""
    content = raw["content"]
    if isinstance(content, str):
        content = [{"type": "output_text", "text": content}]
    return RawItem({"type": "message", **raw, "content": content})


def _step(of: StepRecord | OpenState) -> TaskStep:
    return of.step if isinstance(of, StepRecord) else of.open.step


def _known_by(call: ToolCall) -> tuple[str, str, str]:
    """Return what tells a call from others of its step; ids may be given twice."""
    return call.id, call.name, call.arguments


def _said(of: StepRecord | OpenState) -> Iterator[Message]:
    """Say what a step said: what the transcript has of it, and calls that it made inside.

    A worker that speaks with the model in its own way (as ReAct) keeps calls and results out of the
    transcript, and puts its own words there as user messages that are marked by a call id.
    """
    adds, journal, outcomes = _parts(of)
    made = [*outcomes.values(), *(outcome for entry in journal for outcome in entry.outcomes)]
    claimed = {outcome.at for outcome in made}
    own = {m.call_id for at, m in enumerate(adds) if m.role == "tool" and at not in claimed}
    asked = {_known_by(call) for message in adds for call in message.calls}
    rest = [m for m in adds if m.role != "user" or m.call_id in ("", "turn")]
    if of.n == 1 and _step(of).message() is not None:
        _drop_input(rest)
    for entry in journal:
        if entry.answer is not None:
            said = _up_to(entry.answer.message, rest)
            yield from said
            del rest[: len(said)]
        inside = [call for call in entry.calls if _known_by(call) not in asked]
        if inside:
            yield Message(role="assistant", calls=tuple(inside))
        results = zip(entry.calls, entry.outcomes, strict=True)
        yield from (
            outcome.message(call)
            for call, outcome in results
            if outcome.at is None and call.id not in own
        )
    yield from rest
    inside = [call for call in of.calls if _known_by(call) not in asked]
    if inside:
        yield Message(role="assistant", calls=tuple(inside))
    for i, call in enumerate(of.calls):
        outcome = outcomes.get(i)
        if outcome is None or outcome.is_stopped or outcome.at is not None or call.id in own:
            continue
        yield outcome.message(call)


def _parts(
    of: StepRecord | OpenState,
) -> tuple[Sequence[Message], Sequence[JournalEntry], Mapping[int, Outcome]]:
    """Return a step's messages for the transcript, its journal, and outcomes of its last calls."""
    if isinstance(of, StepRecord):
        return of.adds, of.journal, dict(enumerate(of.outcomes))
    if of.result is not None:
        return resolve_adds(of.result, of), without_adds(of.result, of), of.outcomes
    opened = of.open
    has_input = opened.stored is not None or opened.step.message() is not None
    said = [entry.answer.message for entry in of.journal if entry.answer is not None]
    return (*((input_message(opened),) if has_input else ()), *said), of.journal, of.outcomes


def _up_to(answer: Message, rest: Sequence[Message]) -> list[Message]:
    """Return the messages up to the one by which the transcript has an answer; none without it."""
    for k, message in enumerate(rest):
        if message.role == "assistant":
            has_it = answer == SAID_IN_ADDS or answer.text.strip().startswith(message.text)
            return list(rest[: k + 1]) if has_it else []
    return []


def _drop_input(messages: list[Message]) -> None:
    """Leave out the input of the run: the last that a user said before the first answer."""
    start = list(takewhile(lambda message: message.role not in ("assistant", "tool"), messages))
    for k in reversed(range(len(start))):
        if start[k].role == "user":
            del messages[k]
            return


def handoff_names(of: StepRecord | OpenState, agent: Agent) -> set[str]:
    """Name the calls of a step by which its agent hands the task over."""
    names = {each.tool_name for each in agent.made_handoffs}
    asked = [entry.answer.message for entry in of.journal if entry.answer is not None]
    made = [*of.calls, *(call for entry in of.journal for call in entry.calls)]
    calls = [*made, *(call for message in asked for call in message.calls)]
    return names.union(call.name for call in calls if _hands_over(of, call))


def _hands_over(of: StepRecord | OpenState, call: ToolCall) -> bool:
    """Whether a call handed the task over, told by the step that follows: agents may be unknown."""
    if not isinstance(of, StepRecord) or not of.next or not of.next[0].agent:
        return False
    if of.next[0].agent == of.step.agent:
        return False
    asked, answers = last_round(of.adds, (call,))
    is_newest = not asked or call in asked.values()
    return is_newest and _assistant_in(answers.get(call.id, "")) == of.next[0].agent


def _target(raw: dict[str, Json]) -> str:
    """Return the name of the agent that a handoff's output tells of, or empty."""
    return _assistant_in(raw.get("output"))


def _assistant_in(output: Json) -> str:
    try:
        said: Any = json.loads(output) if isinstance(output, str) else None
    except (ValueError, RecursionError):
        return ""
    name = said.get("assistant") if is_object(said) else None
    return name if isinstance(name, str) else ""
