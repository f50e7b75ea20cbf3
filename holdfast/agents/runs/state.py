"""RunState: a run that waits, as a small object to store, to take decisions on, and to resume."""

from __future__ import annotations

import dataclasses
import json
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, Self, cast

from pydantic import BaseModel
from typing_extensions import TypeVar

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.items.run_items import ToolApprovalItem, dumped, member_of, raw_of
from holdfast.agents.runs.item_helpers import ItemHelpers
from holdfast.agents.runs.state_form import (
    VERSION,
    AskedForm,
    Decision,
    ItemForm,
    StateForm,
    check_goes_on,
    decidable,
    parsed,
    read_form,
    text_of,
)
from holdfast.agents.runs.teams import team_of
from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_arguments, is_object
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

Serializer = Callable[[Any], Any]
"""Makes a dict of a context object."""

Deserializer = Callable[[Mapping[str, Any]], Any]


def written(
    context: Any, *, serializer: Serializer | None = None, strict: bool = False
) -> dict[str, Json]:
    """Return the member `context` of a state's JSON form: the data, and how they were made.

    Args:
        context: The context object.
        serializer: Makes a mapping of an object that is not one.
        strict: Whether an object that is not a mapping needs a serializer.

    Raises:
        UserError: There is no serializer where one is needed, or it did not return a mapping.
    """
    if context is None:
        return _entry(None, "none", "none")
    if isinstance(context, Mapping):
        return _entry(dict(cast("Mapping[str, Json]", context)), "mapping", "mapping")
    if serializer is not None:
        data: Any = serializer(context)
        if not is_object(data):
            raise UserError(f"context_serializer must return a dict; it returned {shown(data)}.")
        made = dict(data)
        return _entry(made, _kind(context), "context_serializer", lost=True)
    if strict:
        raise UserError(
            f"The context is {_named(context)}, which is not a mapping, and strict_context is set:"
            " pass context_serializer, a function that makes a mapping of it."
        )
    return _by_itself(context)


def _by_itself(context: Any) -> dict[str, Json]:
    kind = _kind(context)
    if kind == "custom":
        log.warning(
            "The context, %s, is not serializable and left out of the state. Pass"
            " context_serializer, or context= where the state is run.",
            _named(context),
        )
        return _entry({}, kind, "omitted", omitted=True)
    label = "Pydantic model" if kind == "pydantic" else "dataclass"
    log.warning(
        "The context is the %s %s; the state has its data only. Pass context_deserializer to"
        " RunState.from_json, or context= where the state is run.",
        label,
        _named(context),
    )
    if isinstance(context, BaseModel):
        return _entry(context.model_dump(mode="json"), kind, "model_dump", lost=True)
    return _entry(dataclasses.asdict(context), kind, "asdict", lost=True)


def read(entry: Any, *, deserializer: Deserializer | None = None, strict: bool = False) -> Any:
    """Return the context object of the member `context` of a state's JSON form.

    Args:
        entry: The member.
        deserializer: Makes the object of the data.
        strict: Whether an object whose class was lost needs a deserializer.

    Raises:
        UserError: There is no deserializer where one is needed.
    """
    meta: dict[str, Any] = entry.get("context_meta") or {}
    data = entry.get("context")
    if deserializer is not None and data is not None:
        return deserializer(data)
    if meta.get("requires_deserializer") or meta.get("omitted"):
        msg = (
            f"The state was made with a context that was {meta.get('class_path') or 'an object'}:"
            " pass context_deserializer or context_override, else the context is plain data."
        )
        if strict:
            raise UserError(msg)
        log.warning(msg)
    return data


def as_wrapper(context: Any) -> RunContextWrapper[Any] | None:
    """Return a context as a RunContextWrapper; None for None."""
    if context is None:
        return None
    if isinstance(context, RunContextWrapper):
        return context  # pyright: ignore[reportUnknownVariableType]  cast is redundant for mypy
    return RunContextWrapper(context)


def _entry(
    data: Json, kind: str, via: str, *, lost: bool = False, omitted: bool = False
) -> dict[str, Json]:
    meta = {
        "original_type": kind,
        "serialized_via": via,
        "requires_deserializer": lost,
        "omitted": omitted,
    }
    return {"context": data, "context_meta": meta}


def _kind(context: Any) -> str:
    if isinstance(context, BaseModel):
        return "pydantic"
    return "dataclass" if dataclasses.is_dataclass(context) else "custom"


def _named(context: Any) -> str:
    kind: type[Any] = type(context)  # pyright: ignore[reportUnknownVariableType]  anything is named
    return f"{kind.__module__}.{kind.__qualname__}"


AgentT = TypeVar("AgentT", bound=Agent[Any], default=Agent[Any])


DEFAULT_MAX_TURNS = 10
"""The `max_turns` of a run that is given none."""


class RunState(Generic[ContextT, AgentT]):
    """A run that waits for a decision, or has stopped, with the decisions taken on it so far.

    The run itself is its task, which any process reaches by its id. A decision takes effect once
    `Runner.run(agent, state)` has sent it; until then it is in this object and in the text made
    from it. A decision on one call takes precedence over those for all calls of a tool, in
    whatever order they were taken here. Decisions taken elsewhere (on the command line, by
    `AgentRunner.approve`) count as well; one taken here that contradicts them is refused.

    `RunState(context, original_input, starting_agent, max_turns)` is a run that has not begun:
    `Runner.run(agent, state)` begins its task. It does so once: run again, also from its JSON form
    in another process, it is the same run.

    Attributes:
        task_id: The run's task; empty in a run that has not begun.
        context: The context with which the run is begun or resumed, or None: unless
            `Runner.run(context=...)` is given another one.
        original_input: Input of a run that has not begun; None of another.
        deserializer: Makes the context object of a resumed run of the data that the task has, where
            no context is given; None leaves them data.
        max_turns: Limit of turns of a run that has not begun, and of the run after one that has its
            answer: what that has left. None for no limit.
        after: Conversation of a run that has its answer, for the run after it; None of another.
        kept: `conversation_id` and the like of a run that has not begun.
        generated_items: The items that the run had made when its result made this state; they are
            part of its JSON, and running it does not change them.
    """

    task_id: str
    context: RunContextWrapper[ContextT] | None
    deserializer: Deserializer | None
    original_input: str | list[Any] | None
    max_turns: int | None
    after: list[dict[str, Json]] | None
    kept: dict[str, Any]
    generated_items: tuple[ItemForm, ...]

    def __init__(
        self,
        context: RunContextWrapper[ContextT] | None,
        original_input: str | list[Any],
        starting_agent: AgentT,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        *,
        conversation_id: str | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
    ) -> None:
        """Make the state of a run that has not begun. `RunResult.to_state()` makes those of others.

        Args:
            context: The run's context.
            original_input: The run's input: a text, or items of the Responses API.
            starting_agent: The agent with which the run begins.
            max_turns: Limit of turns; None for no limit.
            conversation_id: As for `Runner.run`.
            previous_response_id: As for `Runner.run`.
            auto_previous_response_id: As for `Runner.run`.

        Raises:
            UserError: An argument has a wrong type.
        """
        if not isinstance(cast("object", starting_agent), Agent):
            raise UserError(f"starting_agent must be an Agent; it was {shown(starting_agent)}.")
        if context is not None and not isinstance(cast("object", context), RunContextWrapper):
            raise UserError(f"context must be a RunContextWrapper; it was {shown(context)}.")
        self._hold("", ())
        self.context = context
        self.original_input = (
            original_input if isinstance(original_input, str) else dumped(original_input)
        )
        self.max_turns = max_turns
        self.kept = {
            "conversation_id": conversation_id,
            "previous_response_id": previous_response_id,
            "auto_previous_response_id": auto_previous_response_id,
        }
        self._agent = starting_agent.name

    @classmethod
    def of(
        cls, task_id: str, interruptions: Sequence[ToolApprovalItem] = (), *, id: str = ""
    ) -> Self:
        """Make the state of a task's run from the task's id alone, in any process.

        Args:
            task_id: The run's task.
            interruptions: The tool calls that wait for a decision, if known: else
                `Runner.run(agent, state)` returns them, and calls no model while they are
                undecided.
            id: Id of this state among those of the task, by which input is sent once; random by
                default.

        Raises:
            InvalidArgumentError: An argument has a wrong type.
        """
        check_arguments(RunState.of, id=id)
        given = cast("object", interruptions)
        items = list(cast("Iterable[object]", given)) if isinstance(given, Iterable) else None
        wrong = items is None or not all(isinstance(each, ToolApprovalItem) for each in items)
        if not isinstance(cast("object", task_id), str) or wrong:
            raise InvalidArgumentError(
                "A RunState is made of a task's id and of interruptions (ToolApprovalItems); it was"
                f" given {shown(task_id)} and {shown(interruptions)}."
            )
        made = cls.__new__(cls)
        made._hold(task_id, interruptions, id=id)  # noqa: SLF001  of this class
        return made

    def _hold(
        self, task_id: str, interruptions: Sequence[ToolApprovalItem], *, id: str = ""
    ) -> None:
        self.task_id = task_id
        self.id = id or uuid.uuid4().hex[:12]
        self.context = None
        self.deserializer = None
        self.original_input = None
        self.max_turns = None
        self.kept = {}
        self.after = None
        self.generated_items = ()
        self._agent = ""
        self._interruptions = list(interruptions)
        self._outer: Callable[[], Agent[Any] | None] = lambda: None
        self._runs = ""
        self._decisions: dict[str, Decision] = {}
        self._input: list[str] = []

    def _restore(self, saved: StateForm) -> None:
        self.original_input, self.max_turns = saved.original_input, saved.max_turns
        self.kept = saved.kept
        self.after = saved.after
        self.generated_items = saved.generated_items
        self._agent = str((saved.current_agent or {}).get("name", ""))
        self._runs = saved.runs
        self._decisions = {decision.approval: decision for decision in saved.decisions}
        self._input = list(saved.input)

    def run_by(self, agent: Agent[Any] | None, name: str = "") -> None:
        """Note the agent that runs, for as long as something else has it; None when nothing has it.

        Args:
            agent: The agent.
            name: The name by which the task knows it; its own by default.
        """
        if agent is not None:
            self._outer, self._runs = weakref.ref(agent), name or agent.name

    @property
    def is_new(self) -> bool:
        """Whether its run has not begun."""
        return self.original_input is not None

    def follow(self, items: list[dict[str, Json]], agent: str, *, turns: int | None = None) -> None:
        """Make this the state of a run that has its answer: what is run is a run after it.

        Args:
            items: Its conversation.
            agent: Name of the agent that has answered.
            turns: How many turns it had left; None for no limit.
        """
        self.after, self._agent, self.max_turns = items, agent, turns

    @property
    def agent_name(self) -> str:
        """Name of the agent with which a run begins that has not begun; empty for another."""
        return self._agent

    @property
    def whole_input(self) -> str | list[dict[str, Json]]:
        """The input of a run that has not begun, with what was added to it."""
        given = self.original_input or ""
        if not self._input:
            return given
        return [*ItemHelpers.input_to_new_input_list(given), *self.pending_input]

    def get_interruptions(self) -> list[ToolApprovalItem]:
        """Return the tool calls that waited for a decision when this state was made."""
        return list(self._interruptions)

    def approve(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Approve a call.

        Args:
            approval_item: One of the interruptions.
            always_approve: Whether to approve all later calls of the tool in this task as well, and
                the waiting calls without a decision of their own here.

        Raises:
            UserError: It belongs to another run, or is not such an item.
        """
        self._decide(approval_item, "approve", always=always_approve)

    def reject(
        self,
        approval_item: ToolApprovalItem,
        always_reject: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
        *,
        rejection_message: str | None = None,
    ) -> None:
        """Reject a call: it is not run.

        Args:
            approval_item: One of the interruptions.
            always_reject: Whether to reject also all later calls of the tool in this task, and its
                waiting calls that have no decision of their own here.
            rejection_message: The model's text for the rejection.

        Raises:
            UserError: It belongs to another run, or is not such an item.
        """
        self._decide(approval_item, "reject", always=always_reject, message=rejection_message)

    def add_input(self, input: str | Sequence[dict[str, Json]]) -> None:
        """Add input for the model; it is sent once, before the next model call.

        Args:
            input: A text, or user messages in the form of the Responses API whose content is text.

        Raises:
            UserError: It is something else, or empty, or the result of a waiting call may end the
                run, so that no model call would follow.
        """
        check_goes_on(self._interruptions, self.task_id, self._outer())
        texts = [input] if isinstance(input, str) else [text_of(item) for item in input]
        if not texts or not all(text.strip() for text in texts):
            raise UserError("The input to add is empty; give a text, or user messages.")
        self._input += texts

    @property
    def pending_input(self) -> list[dict[str, Json]]:
        """The input that was added here, as user messages, whether sent already or not."""
        return [{"role": "user", "content": text} for text in self._input]

    def clear_pending_input(self) -> None:
        """Drop the added input. Input that `Runner.run` has sent already stays sent."""
        self.id = uuid.uuid4().hex[:12]
        self._input = []

    @property
    def decisions(self) -> list[Decision]:
        """The decisions taken here, oldest first."""
        return list(self._decisions.values())

    @property
    def added_input(self) -> list[tuple[str, str]]:
        """The added input, each text with an id, so that it is sent once."""
        return [(f"{self.id}-{k}", text) for k, text in enumerate(self._input)]

    def to_json(
        self, *, context_serializer: Serializer | None = None, strict_context: bool = False
    ) -> dict[str, Json]:
        """Return the state as JSON data.

        The context is part of it if a run is begun with the state, or with a serializer: else the
        task has it.

        Args:
            context_serializer: Makes a mapping of a context that is not one.
            strict_context: Whether a context that is not a mapping needs a serializer.

        Raises:
            UserError: There is no serializer where one is needed.
        """
        asked = (
            AskedForm(
                agent=member_of(item),
                approval=item.approval_id,
                digest=item.digest,
                item=item.shown_item(),
            )
            for item in self._interruptions
        )
        data = None
        begins = self.is_new or self.after is not None
        if self.context is not None and (begins or context_serializer is not None):
            given = self.context.context
            data = written(given, serializer=context_serializer, strict=strict_context)
        saved = StateForm(
            id=self.id,
            task_id=self.task_id,
            decisions=tuple(self.decisions),
            input=tuple(self._input),
            interruptions=tuple(asked),
            context=data,
            original_input=self.original_input,
            max_turns=self.max_turns,
            current_agent={"name": self._agent} if self._agent else None,
            after=self.after,
            kept=self.kept,
            generated_items=self.generated_items,
            runs=self._runs,
        )
        form = saved.model_dump(mode="json")
        form["generated_items"] = [each.wire() for each in self.generated_items]
        # In the Agents SDK, filters of handoffs may shorten the one and never the other.
        return {VERSION: str(saved.version), **form, "session_items": form["generated_items"]}

    def to_string(
        self, *, context_serializer: Serializer | None = None, strict_context: bool = False
    ) -> str:
        """Return the state as JSON text, to store anywhere.

        Args:
            context_serializer: As for to_json.
            strict_context: As for to_json.

        Raises:
            UserError: As for to_json.
        """
        data = self.to_json(context_serializer=context_serializer, strict_context=strict_context)
        return json.dumps(data)

    @classmethod
    async def from_json(
        cls,
        initial_agent: Agent,
        state_json: dict[str, Json],
        *,
        context_override: Any = None,
        context_deserializer: Deserializer | None = None,
        strict_context: bool = False,
    ) -> Self:
        """Make a state from the data of `to_json`.

        Args:
            initial_agent: The agent with which the run began: the items name agents of its team.
            state_json: The state as JSON data.
            context_override: The context, or a RunContextWrapper, in place of that of the data.
            context_deserializer: Makes the context of its data. Where only the task has these,
                `Runner.run` calls it when it goes on with the state, and again for its result if
                they have changed by then.
            strict_context: Whether a context whose class was lost needs a deserializer.

        Raises:
            UserError: It is not such data, or names an agent that is unknown.
        """
        saved = read_form(state_json)
        team = team_of(initial_agent)
        items = [
            ToolApprovalItem(
                team.of(a.agent), raw_of(a.item), approval_id=a.approval, digest=a.digest
            )
            for a in saved.interruptions
        ]
        state = cls.of(saved.task_id, items, id=saved.id)
        state._restore(saved)  # noqa: SLF001  of this class
        runs = users_agent(team.of(saved.runs)) if team.has(saved.runs) else initial_agent
        state._outer = lambda: runs  # noqa: SLF001  nobody else may have it
        begins = str((saved.current_agent or {}).get("name", ""))
        if begins and not team.has(begins):
            raise UserError(
                f"Run state agent not found in agent map: it is {begins!r}, which"
                f" {initial_agent.name!r} and its team do not know. Pass the agent with which the"
                " run begins."
            )
        context: Any = context_override
        if context is None and saved.context is not None:
            context = read(saved.context, deserializer=context_deserializer, strict=strict_context)
            context = RunContextWrapper(context)
        state.context = as_wrapper(context)
        state.deserializer = context_deserializer
        return state

    @classmethod
    async def from_string(
        cls,
        initial_agent: Agent,
        state_string: str,
        *,
        context_override: Any = None,
        context_deserializer: Deserializer | None = None,
        strict_context: bool = False,
    ) -> Self:
        """Make a state from the text of `to_string`.

        Args:
            initial_agent: As for from_json.
            state_string: The text.
            context_override: As for from_json.
            context_deserializer: As for from_json.
            strict_context: As for from_json.

        Raises:
            UserError: It is not such a text.
        """
        return await cls.from_json(
            initial_agent,
            parsed(state_string),
            context_override=context_override,
            context_deserializer=context_deserializer,
            strict_context=strict_context,
        )

    def _decide(
        self,
        item: Any,
        verb: Literal["approve", "reject"],
        *,
        always: bool,
        message: str | None = None,
    ) -> None:
        known = decidable(item, verb, self.task_id, self._interruptions)
        self._decisions.pop(known.approval_id, None)  # so that a new decision comes last
        self._decisions[known.approval_id] = Decision(
            approval=known.approval_id,
            verb=verb,
            always=always,
            message=message,
            digest=known.digest,
            tool=known.qualified_name or "",
        )
