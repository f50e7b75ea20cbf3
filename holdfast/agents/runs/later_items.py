"""Items and answers of a run that are made when they are first asked for.

Most programs read only the final output of a result. What a result says must not depend on when it
is read, so only work is postponed: all texts are loaded, and the agent and its tools are looked up
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.agents.items.run_items import Unread, UnreadList, UnreadMembers
from holdfast.agents.runs.item_reading import step_items
from holdfast.agents.runs.results import ModelResponse
from holdfast.agents.runs.teams import Team
from holdfast.archive.segments import entries_in
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.items import made_items
from holdfast.task.data.records import StepRecord
from holdfast.task.ledger.references import cost_of
from holdfast.task.step_body import StepBody, body_of
from holdfast.task.undo import active_steps
from holdfast.values.code.collection import uncollected
from holdfast.values.messages import ToolCall
from holdfast.values.runs.usage import answered_after

LARGEST_UNREAD = 256_000
"""Bytes of a ledger that are kept at most, and read again when its items are asked for: what else
is in it, such as changes of a large context, must not be kept with a result."""


class UnreadSteps(UnreadMembers):
    """The steps of a run whose items and answers have not been asked for yet."""

    def __init__(self, data: Sequence[bytes], team: Team) -> None:
        """Take the ledger.

        Args:
            data: Bytes of its segments, oldest first, which could be read before: a fraction of
                what is read of them.
            team: The agent that has made the steps as it is now.
        """
        self._data = data
        self._team = team

    def read(self, name: str) -> dict[str, Any]:
        """Return the items and the answers, by the names that they have in a result."""
        del name  # both are made of the same, which need not be kept for one of them
        with uncollected():
            entries = (entry for data in self._data for entry in entries_in(data))
            bodies = [body_of(of) for of in active_steps(entries)]
            items = [item for of in bodies for item in step_items(of, self._team)]
            return {"new_items": items, "raw_responses": responses(bodies)}


def unread_steps(
    data: Sequence[bytes], steps: Sequence[StepRecord], team: Team, *, first: str
) -> UnreadSteps | None:
    """Return what the items and answers of a run are made of later; None if they are made at once.

    They are made later if the run has had a single agent, which has called no handoff and no tool
    that has guardrails.

    Args:
        data: Bytes of the segments of its ledger, oldest first.
        steps: Its steps, which are in that, and have no archived texts; none if it has others.
        team: Its agents.
        first: Name of the agent that it began with.
    """
    names = {at.agent or first for of in steps for at in (of.step, *of.next)}
    if len(names) != 1 or not 0 < sum(map(len, data)) <= LARGEST_UNREAD:
        return None
    if any(outcome.guards for of in steps for _, _, _, outcome in of.made()):
        return None
    called = {call.name for of in steps for call in _calls(of)}
    agent = team.of(*names)
    if not called.isdisjoint(each.tool_name for each in agent.made_handoffs):
        return None
    return UnreadSteps(data, team.alone(agent.name, called))


def responses(steps: Sequence[StepBody]) -> list[ModelResponse]:
    """Return the answers of models in steps in the form of the Agents SDK."""
    return [response(answer) for of in steps for answer in of.answers]


def response(answer: ModelAnswer) -> ModelResponse:
    """Return a model's answer in the form of the Agents SDK."""
    return ModelResponse(
        output=UnreadList(map(Unread, made_items(answer.message))),
        usage=answered_after(cost_of(answer), answer.failed),
        response_id=answer.response_id or None,
    )


def _calls(of: StepRecord) -> Iterator[ToolCall]:
    """Yield all calls that messages or records of a step have, some of them more than once."""
    answers = [entry.answer.message for entry in of.journal if entry.answer is not None]
    for message in (*of.adds, *answers):
        yield from message.calls
    for _, _, call, _ in of.made():
        yield call
