"""Reads the items of a run from the records of its steps."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import is_named_for
from holdfast.agents.items.run_items import (
    OF_PROVIDER,
    HandoffCallItem,
    HandoffOutputItem,
    InputItem,
    MessageOutputItem,
    RawItem,
    ReasoningItem,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOrigin,
    ToolOriginType,
    raw_of,
)
from holdfast.agents.runs.teams import Team, ToldTool, team_of
from holdfast.models.openai.items import made_items
from holdfast.models.openai.local_items import LOCAL_RESULTS, shell_text
from holdfast.task.ledger.recording import last_round
from holdfast.task.step_body import StepBody, StepCall
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_text, is_object
from holdfast.values.messages import Message, ToolCall


def step_items(of: StepBody, team: Team) -> list[RunItem]:
    """Return the items of a step, completed or open, without the input of the run.

    A handoff's output comes last, after the results of the tools that were called next to it.

    Archived texts must have been loaded into the step, see `resolved`.

    Args:
        of: The step.
        team: The agents.
    """
    agent = team.of(of.step.agent)
    items = _items(_said(of), agent, handoff_names(of, agent), team)
    return sorted(items, key=lambda item: isinstance(item, HandoffOutputItem))


def step_messages(of: StepBody) -> list[Message]:
    """Return the messages that a step adds to the transcript; of an open step, those known yet."""
    adds = _adds(of)
    asked, answers = last_round(adds, [each.call for each in of.calls])
    known = [_own_message(each) for each in of.calls if each.call.id in asked]
    return [*adds, *(said for said in known if said is not None and said.call_id not in answers)]


def result_item(
    of: StepBody, call: StepCall, team: Team, handoffs: Collection[str]
) -> ToolCallOutputItem | HandoffOutputItem | None:
    """Return the result of a step's call; None before it has one, and for a handoff not taken.

    Args:
        of: The step, with archived texts loaded.
        call: The call.
        team: The agents.
        handoffs: Names of calls by which the step's agent hands the task over.
    """
    if call.message is None:
        return None
    agent = team.of(of.step.agent)
    is_handoff = call.call.name in handoffs
    handed = {call.message.call_id} if is_handoff else ()
    called = {call.message.call_id: call.call.name}
    [item] = _items([call.message], agent, (), team, handed, called=called)
    if isinstance(item, HandoffOutputItem):
        return item
    return item if isinstance(item, ToolCallOutputItem) and not is_handoff else None


def message_items(
    messages: Iterable[Message],
    agent: Agent,
    team: Team,
    handoffs: Collection[str] = (),
    *,
    called: Mapping[str, str] | None = None,
) -> list[RunItem]:
    """Convert messages to items, in their order.

    Args:
        messages: The messages, with archived texts loaded.
        agent: The agent that they belong to.
        team: The agents.
        handoffs: Ids of calls that hand the task over, besides calls of the agent's own handoffs.
        called: Ids of earlier calls to names of their tools.
    """
    names = {each.tool_name for each in agent.made_handoffs}
    return _items(messages, agent, names, team, handoffs, called=called)


def conversation_items(
    messages: Iterable[Message], first: Agent, *, known: Mapping[int, str] | None = None
) -> list[RunItem]:
    """Convert messages to items, each with the agent that was active at the time.

    Args:
        messages: The messages, with archived texts loaded. They do not name their agent; it is
            found by following the handoffs.
        first: The agent that the task began with.
        known: Names of agents by the position of a message that each is known to have made, also
            where the handoff to it is not among the messages.
    """
    said = list(messages)
    team, agent = team_of(first), first
    names = {each.tool_name for known in (first, *first.team()) for each in known.made_handoffs}
    ids: set[str] = set()
    called: dict[str, str] = {}
    found: list[RunItem] = []
    for at, message in enumerate(said):
        agent = team.of(known[at]) if known and at in known else agent
        called |= {call.id: call.name for call in message.calls}
        ids -= {call.id for call in message.calls}  # providers may use ids again
        ids |= {call.id for call in message.calls if call.name in names}
        items = message_items([message], agent, team, ids, called=called)
        found.extend(items)
        handed = [_target(i.raw_item) for i in items if isinstance(i, HandoffOutputItem)]
        agent = team.target(agent, called.get(message.call_id, ""), handed[0]) if handed else agent
    return found


def _items(
    messages: Iterable[Message],
    agent: Agent,
    names: Collection[str],
    team: Team,
    handoffs: Collection[str] = (),
    *,
    called: Mapping[str, str] | None = None,
) -> list[RunItem]:
    """Convert messages to items.

    Ids of calls may repeat, so whether an id is that of a handoff is decided again at each call.

    Args:
        messages: The messages, with archived texts loaded.
        agent: The agent that they belong to.
        names: Names of calls that hand the task over.
        team: The agents.
        handoffs: Ids of calls that hand the task over, whatever their names.
        called: Ids of earlier calls to names of their tools.
    """
    ids, found = set(handoffs), list[RunItem]()
    tools = dict(called or {})
    for message in messages:
        tools |= {call.id: call.name for call in message.calls}
        ids -= {call.id for call in message.calls}.difference(handoffs)
        ids |= {call.id for call in message.calls if call.name in names}
        for raw in made_items(message):
            item = _item(raw, agent, ids, team, tools)
            if isinstance(item, ToolCallItem | ToolCallOutputItem):
                told = team.told(agent, tools.get(item.call_id or "", ""))
                _tell_tool(item, told, raw)
            found.append(item)
    return found


def _item(
    raw: dict[str, Json], agent: Agent, handoffs: set[str], team: Team, called: Mapping[str, str]
) -> RunItem:
    match raw.get("type", "message"):
        case "message" if raw.get("role") == "assistant":
            return MessageOutputItem(agent, raw_of(raw))
        case "message":
            return InputItem(agent, RawItem(raw))
        case "function_call_output":
            call_id = str(raw.get("call_id"))
            named = _target(raw) if call_id in handoffs else ""
            if named:
                target = team.target(agent, called.get(call_id, ""), named)
                return HandoffOutputItem(agent, RawItem(raw), agent, target)
            return ToolCallOutputItem(agent, RawItem(raw), raw.get("output"))
        case "function_call" if raw.get("call_id") in handoffs:
            return HandoffCallItem(agent, raw_of(raw))
        case "reasoning":
            return ReasoningItem(agent, raw_of(raw))
        case "shell_call_output":
            return ToolCallOutputItem(agent, RawItem(raw), shell_text(raw))
        case kind if kind in LOCAL_RESULTS:
            return ToolCallOutputItem(agent, RawItem(raw), raw.get("output", ""))
        case kind if kind in OF_PROVIDER:
            return cast("RunItem", OF_PROVIDER[kind](agent, raw_of(raw)))
        case _:
            return ToolCallItem(agent, raw_of(raw))


def _tell_tool(
    item: ToolCallItem | ToolCallOutputItem, told: ToldTool | None, raw: dict[str, Json]
) -> None:
    """Add to an item what this process knows of its tool."""
    if raw.get("type") == "mcp_call":  # of a server that the provider asks
        server = as_text(raw.get("server_label"))
        item.tool_origin = ToolOrigin(ToolOriginType.MCP, mcp_server_name=server)
    if told is None:
        return
    if isinstance(item, ToolCallItem):
        item.description, item.title = told.description, told.title
    item.tool_origin = told.origin


def _known_by(call: ToolCall) -> tuple[str, str, str]:
    """Return the key of a call within its step; the id alone is not unique."""
    return call.id, call.name, call.arguments


def _said(of: StepBody) -> Iterator[Message]:
    """Yield a step's messages: those of the transcript, and calls and results that it lacks.

    A worker with a text format of its own (ReAct) keeps calls and results out of the transcript,
    and adds user messages instead, which are marked by a call id and left out here.
    """
    adds = _adds(of)
    claimed = {each.outcome.at for each in of.all_calls() if each.outcome is not None}
    own = {m.call_id for at, m in enumerate(adds) if m.role == "tool" and at not in claimed}
    asked = {_known_by(call) for message in adds for call in message.calls}
    rest = [m for m in adds if m.role != "user" or m.call_id in ("", "turn")]
    if of.n == 1 and of.input is not None:
        _drop_input(rest)
    for part in of.journal:
        if part.answer is not None:
            said = _up_to(part.answer.message, rest, is_there=part.at is not None)
            yield from said
            del rest[: len(said)]
        yield from _inside(part.calls, asked)
        yield from (m for m in map(_message_outside, part.calls) if m and m.call_id not in own)
    yield from rest
    yield from _inside(of.calls, asked)
    yield from (m for m in map(_own_message, of.calls) if m and m.call_id not in own)


def _adds(of: StepBody) -> Sequence[Message]:
    """Return a step's messages for the transcript; before its result, those known so far."""
    if of.has_result:
        return of.adds
    given = () if of.input is None else (of.input,)
    return (*given, *(answer.message for answer in of.answers))


def _inside(calls: Sequence[StepCall], asked: Collection[tuple[str, str, str]]) -> list[Message]:
    """Return an assistant message with the calls that no message of the transcript has, if any."""
    found = tuple(each.call for each in calls if _known_by(each.call) not in asked)
    return [Message(role="assistant", calls=found)] if found else []


def _message_outside(call: StepCall) -> Message | None:
    """Return the result of a call, unless the transcript has it."""
    is_outside = call.outcome is not None and call.outcome.at is None
    return call.message if is_outside else None


def _own_message(call: StepCall) -> Message | None:
    """Return the result of a call of the step's end, unless the transcript has it or never will."""
    is_stopped = call.outcome is not None and call.outcome.is_stopped
    return None if is_stopped else _message_outside(call)


def _up_to(answer: Message, rest: Sequence[Message], *, is_there: bool) -> list[Message]:
    """Return the messages up to and including the answer; none if the transcript lacks it."""
    for k, message in enumerate(rest):
        if message.role == "assistant":
            has_it = is_there or answer.text.strip().startswith(message.text)
            return list(rest[: k + 1]) if has_it else []
    return []


def _drop_input(messages: list[Message]) -> None:
    """Remove the input of the run: the last user message before the first answer."""
    start = list(takewhile(lambda message: message.role not in ("assistant", "tool"), messages))
    for k in reversed(range(len(start))):
        if start[k].role == "user":
            del messages[k]
            return


def handoff_names(of: StepBody, agent: Agent) -> set[str]:
    """Return the names of calls by which a step's agent hands the task over."""
    names = {each.tool_name for each in agent.made_handoffs}
    made = [each.call for each in of.all_calls()]
    apart = [part.answer for part in of.journal if part.at is None and part.answer is not None]
    calls = [*made, *(call for answer in apart for call in answer.message.calls)]
    return names.union(call.name for call in calls if _hands_over(of, call))


def _hands_over(of: StepBody, call: ToolCall) -> bool:
    """Whether a call handed the task over, according to the agent of the next step.

    The agent's own handoffs cannot decide it, because this process may not have the agent.
    """
    if not of.next or not of.next[0].agent or of.next[0].agent == of.step.agent:
        return False
    asked, answers = last_round(of.adds, (call,))
    is_newest = not asked or call in asked.values()
    named, following = _assistant_in(answers.get(call.id, "")), of.next[0].agent
    return is_newest and bool(named) and is_named_for(following, named)


def _target(raw: Mapping[str, Json]) -> str:
    """Return the name of the agent in a handoff's output, or empty."""
    return _assistant_in(raw.get("output"))


def _assistant_in(output: Json) -> str:
    try:
        said: Any = json.loads(output) if isinstance(output, str) else None
    except (ValueError, RecursionError):
        return ""
    name = said.get("assistant") if is_object(said) else None
    return name if isinstance(name, str) else ""
