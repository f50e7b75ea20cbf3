"""An agent's handoffs as its worker process knows them, for one step of a task."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.agents.handoffs.filters import (
    HandoffInputData,
    conversation,
    nest_handoff_history,
    nested,
    next_input,
)
from holdfast.agents.handoffs.handoff import Handoff, check_callable
from holdfast.agents.items.run_items import RunItem, member_of, turn_keys
from holdfast.agents.runs.item_reading import conversation_items, message_items
from holdfast.agents.runs.teams import team_of
from holdfast.errors import InvalidArgumentError, NotFoundError, UserError, message_of, remedy_of
from holdfast.models.openai.items import from_response_items, shown_items, to_response_items
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import RunRules
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import Message, ToolCall
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.steps import AFTER, HistoryRef
from holdfast.workers.context.offer import StepHandoffs, StepView

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent


class HandoffMissingError(NotFoundError):
    """The agent of this process has lost a handoff that a model calls."""


@dataclass(eq=False, repr=False, kw_only=True)
class AgentHandoffs(StepHandoffs):
    """The handoffs of the agent whose turn a step is, and of the run.

    Attributes:
        agent: The agent, as it is now.
        first: The agent that the task began with, likewise.
        rules: What the run brought along.
        code: Finds code that the run brought along by reference.
        context: Makes the run's context of the task's state.
        store: Keeps messages in the archive and returns their digest.
        record: Records what a block does as a handoff to the agent of a name.
        given: Number of messages that came before the task's own, by the view if it says so.
        seen: Number of messages that came before the task's own, or that the view has.
        past: What the agent sees in place of the whole conversation, or None.
        is_text: Whether the run was given a text, and no session.
        handoffs: The agent's handoffs, by the names of their tools.
    """

    agent: Agent
    first: Agent
    rules: RunRules
    code: Callable[[str], Any]
    context: Callable[[dict[str, Json]], Awaitable[RunContextWrapper[Any]]]
    store: Callable[[Sequence[Message]], Awaitable[str]]
    record: Callable[[str], AbstractContextManager[object]]
    given: int
    seen: int
    past: HistoryRef | None
    is_text: bool
    handoffs: dict[str, Handoff]
    _told: dict[ToolCall, Outcome] = field(default_factory=dict[ToolCall, Outcome])

    def recorded(self, target: str) -> AbstractContextManager[object]:
        """Record the block as a handoff to an agent, in the trace."""
        return self.record(target)

    def tell(self, call: ToolCall, outcome: Outcome) -> None:
        """Set the outcome of a call that is not run."""
        self._told[call] = outcome

    def messages(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Return the result messages of calls that are not run."""
        return [self._told[call].message(call) for call in calls]

    def told(self, calls: Sequence[ToolCall]) -> dict[int, Outcome]:
        """Return the outcomes of those calls that are not run, by position."""
        return {i: self._told[call] for i, call in enumerate(calls) if call in self._told}

    def changes_view(self, name: str) -> bool:
        """Whether the next agent sees something else than the whole conversation."""
        return self._filter_of(name) is not None or self._nests(name)

    async def view(
        self, ctx: StepView, chosen: ToolCall, answer: Message, told: Sequence[Message]
    ) -> HistoryRef:
        """Make what the next agent sees, and keep it in the archive.

        Args:
            ctx: The step's context.
            chosen: The call of the handoff.
            answer: The model's answer, from which on the messages are this turn's.
            told: Results of calls that join the transcript after this step.

        Raises:
            UserError: The filter or mapper cannot be called, or gave no usable input.
            Exception: An error of its own.
        """
        data = await self._data(ctx, answer, told)
        was = copy.deepcopy(data.input_history)  # a filter may change its items in place
        turn = [(item.mark(), item.to_input_item()) for item in data.new_items]
        keys = turn_keys(data.new_items)
        given = self._filter_of(chosen.name)
        if given is not None:
            use = self.code(given) if isinstance(given, str) else given
            check_callable(use, f"The input filter of handoff {chosen.name!r}")
            made = await invoke(use, data)
        else:
            made = await self._nest(data)
        before, after = next_input(made)
        try:
            first, rest = from_response_items(before), from_response_items(after)
        except InvalidArgumentError as cause:
            msg = (
                f"What handoff {chosen.name!r} leaves for the next agent is not an input:"
                f" {message_of(cause)}"
            )
            raise UserError(msg, remedy=remedy_of(cause)) from cause
        ref = HistoryRef(
            sha256=await self.store([*first, *rest]),
            skip=AFTER,
            given=len(first) if rest else None,
            since=_maker_of(made),
            to=self._known(chosen.name).agent.name,
            moved=made.moved_from(data) if len(to_response_items(first)) == len(before) else (),
            dropped=_dropped(turn, keys, made.new_items),
        )
        if made.input_history == was:
            kept = "same" if self.past is None else self.past.input
            return ref.model_copy(update={"input": kept, "kept": True})
        is_text = isinstance(made.input_history, str)
        return ref.model_copy(update={"input": "text" if is_text else "items"})

    async def _nest(self, data: HandoffInputData) -> HandoffInputData:
        if not self.rules.history_mapper:
            return nest_handoff_history(data)
        mapper = self.code(self.rules.history_mapper)
        check_callable(mapper, "handoff_history_mapper")
        return nested(data, await invoke(mapper, conversation(data)))

    async def _data(
        self, ctx: StepView, answer: Message, told: Sequence[Message]
    ) -> HandoffInputData:
        """Split the conversation into what was given, what came since, and this turn."""
        messages = ctx.messages
        turn = len(messages) - len(ctx.adds) + ctx.adds.index(answer)
        given = self.given
        if given < turn and not ctx.has_view and messages[given].role == "user":
            given += 1
        before = messages[:given]
        is_text = len(before) == 1 and before[0].role == "user" and not before[0].items
        is_text = is_text and isinstance(before[0].content, str) and self.is_text
        now = [*messages[turn:], *told]
        team = team_of(self.first)
        return HandoffInputData(
            input_history=before[0].text if is_text else tuple(shown_items(before)),
            pre_handoff_items=tuple(
                conversation_items(messages[given:turn], self.first, known=self._makers(given))
            ),
            new_items=tuple(message_items(now, team.of(ctx.agent.name), team)),
            run_context=await self.context(ctx.state),
        )

    def _makers(self, given: int) -> dict[int, str]:
        """Return the agents that made the messages after the input, by their first positions."""
        view = self.past
        return {} if view is None else {0: view.since, self.seen - given: view.to}

    def _filter_of(self, name: str) -> Any:
        """Return the filter of a handoff, the reference to the run's, or None."""
        own = self._known(name).input_filter  # an object that may count as false
        return (self.rules.handoff_filter or None) if own is None else own

    def _nests(self, name: str) -> bool:
        if self.rules.kept is not None:
            return False
        own = self._known(name).nest_handoff_history
        return self.rules.nests_history if own is None else own

    def _known(self, name: str) -> Handoff:
        found = self.handoffs.get(name)
        if found is None:
            msg = (
                f"Tool {name} not found in agent {self.agent.name} of this worker process, which"
                f" has lost this handoff; it has: {', '.join(self.handoffs) or 'none'}. The task"
                " waits, nothing is lost."
            )
            remedy = "Give it back, restart the worker process, and run the step again."
            raise HandoffMissingError(msg, remedy=remedy)
        return found


def _dropped(
    turn: Sequence[tuple[str, dict[str, Json]]], keys: Sequence[str], kept: Sequence[RunItem]
) -> tuple[str, ...]:
    """Return the keys of the items of a turn that a filter has taken out of them.

    Args:
        turn: The items, each with its mark.
        keys: Their keys.
        kept: What the filter has left. An equal item of the filter's own stands for one of them.
    """
    own = [item for item in kept if not any(item.has_mark(mark) for mark, _ in turn)]
    new = [item.to_input_item() for item in own]
    found: list[str] = []
    for (mark, said), key in zip(turn, keys, strict=True):
        if any(item.has_mark(mark) for item in kept):
            continue
        if said in new:
            new.remove(said)
        else:
            found.append(key)
    return tuple(found)


def _maker_of(data: HandoffInputData) -> str:
    """Return the name of the agent that made the first item that follows the input, or empty."""
    new = data.new_items if data.input_items is None else data.input_items
    return next((member_of(item) for item in (*data.pre_handoff_items, *new)), "")
