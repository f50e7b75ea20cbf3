"""RunState: a run that waits, as a small object to store, to take decisions on, and to resume."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, cast

from pydantic import Field, ValidationError

from holdfast.agents.agent import Agent
from holdfast.agents.items import ToolApprovalItem
from holdfast.agents.raw_items import RawItem
from holdfast.agents.runs.item_reading import team_of
from holdfast.errors import InvalidArgumentError, UserError
from holdfast.values.base import Json, Value
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.checks.ids import MADE
from holdfast.values.checks.json_shapes import is_object
from holdfast.values.text.shown import shown


class Decision(Value):
    """A reviewer's decision on a tool call.

    Attributes:
        approval: Id of the approval.
        verb: The decision.
        always: Whether it also holds for later calls of the tool in this task.
        message: The model's text for a rejection; None for the default text.
        digest: Digest of the call that the reviewer saw; the decision holds for no other call.
        tool: Name of the tool.
    """

    approval: str
    verb: Literal["approve", "reject"]
    always: bool = False
    message: str | None = None
    digest: str = ""
    tool: str = ""


class _Asked(Value):
    """An interruption in the JSON form of a RunState."""

    agent: str
    approval: str
    digest: str = ""
    item: dict[str, Json]


class _Saved(Value):
    """The JSON form of a RunState."""

    version: Literal[1] = 1
    id: str
    task_id: str
    decisions: tuple[Decision, ...] = ()
    input: tuple[str, ...] = ()
    interruptions: tuple[_Asked, ...] = Field(default=())


class RunState:
    """A run that waits for a decision, or has stopped, with the decisions taken on it so far.

    The run itself is its task, which any process reaches by its id. A decision takes effect once
    `Runner.run(agent, state)` has sent it; until then it is in this object and in the text made
    from it. A decision on one call takes precedence over those for all calls of a tool, in
    whatever order they were taken here. Decisions taken elsewhere (on the command line, by
    `AgentRunner.approve`) count, too; one taken here that contradicts them is refused.

    Attributes:
        task_id: The run's task.
    """

    def __init__(
        self, task_id: str, interruptions: Sequence[ToolApprovalItem] = (), *, id: str = ""
    ) -> None:
        """Make a state. Usually made by `RunResult.to_state()` or `RunState.of(...)`.

        Args:
            task_id: The run's task.
            interruptions: The tool calls that wait for a decision.
            id: Id of this state among those of the task, by which input is sent once; random by
                default.

        Raises:
            InvalidArgumentError: An argument has a wrong type.
        """
        check_arguments(RunState.__init__, id=id)
        given = cast("object", interruptions)
        items = list(cast("Iterable[object]", given)) if isinstance(given, Iterable) else None
        wrong = items is None or not all(isinstance(each, ToolApprovalItem) for each in items)
        if not isinstance(cast("object", task_id), str) or wrong:
            msg = (
                "A RunState is made of a task's id and of interruptions (ToolApprovalItems); it was"
                f" given {shown(task_id)} and {shown(interruptions)}."
            )
            raise InvalidArgumentError(msg)
        self.task_id = task_id
        self._id = id or uuid.uuid4().hex[:12]
        self._interruptions = list(interruptions)
        self._decisions: dict[str, Decision] = {}
        self._input: list[str] = []

    @classmethod
    def of(cls, task_id: str) -> Self:
        """Make the state of a task's run from the task's id alone, in any process.

        Its interruptions are not known yet: `Runner.run(agent, state)` returns them, and calls no
        model while they are undecided.
        """
        return cls(task_id)

    def get_interruptions(self) -> list[ToolApprovalItem]:
        """Return the tool calls that waited for a decision when this state was made."""
        return list(self._interruptions)

    def approve(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Approve a call.

        Args:
            approval_item: One of the interruptions.
            always_approve: Whether to approve all later calls of the tool in this task, too, and
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
            always_reject: Whether to reject all later calls of the tool in this task, too, and the
                waiting calls without a decision of their own here.
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
            UserError: It is something else, or empty.
        """
        texts = [input] if isinstance(input, str) else [_text_of(item) for item in input]
        if not texts or not all(text.strip() for text in texts):
            msg = "The input to add is empty; give a text, or user messages."
            raise UserError(msg)
        self._input += texts

    @property
    def pending_input(self) -> list[dict[str, Json]]:
        """The input that was added here, as user messages, whether sent already or not."""
        return [{"role": "user", "content": text} for text in self._input]

    def clear_pending_input(self) -> None:
        """Drop the added input. Input that `Runner.run` has sent already stays sent."""
        self._id = uuid.uuid4().hex[:12]
        self._input = []

    @property
    def decisions(self) -> list[Decision]:
        """The decisions taken here, oldest first."""
        return list(self._decisions.values())

    @property
    def added_input(self) -> list[tuple[str, str]]:
        """The added input, each text with an id, so that it is sent once."""
        return [(f"{self._id}-{k}", text) for k, text in enumerate(self._input)]

    def to_json(self) -> dict[str, Json]:
        """Return the state as JSON data."""
        asked = (
            _Asked(
                agent=item.agent.name,
                approval=item.approval_id,
                digest=item.digest,
                item=dict(item.raw_item),
            )
            for item in self._interruptions
        )
        saved = _Saved(
            id=self._id,
            task_id=self.task_id,
            decisions=tuple(self.decisions),
            input=tuple(self._input),
            interruptions=tuple(asked),
        )
        return saved.model_dump(mode="json")

    def to_string(self) -> str:
        """Return the state as JSON text, to store anywhere."""
        return json.dumps(self.to_json())

    @classmethod
    async def from_json(cls, initial_agent: Agent, state_json: dict[str, Json]) -> Self:
        """Make a state from the data of `to_json`.

        Args:
            initial_agent: The agent with which the run began: the items name agents of its team.
            state_json: The state as JSON data.

        Raises:
            UserError: It is not such data.
        """
        try:
            saved = _Saved.model_validate(state_json)
        except ValidationError as cause:
            msg = f"This is no state of a run as RunState.to_json gives it: {cause}"
            raise UserError(msg) from cause
        team = team_of(initial_agent)
        items = [
            ToolApprovalItem(
                team.of(a.agent), RawItem(a.item), approval_id=a.approval, digest=a.digest
            )
            for a in saved.interruptions
        ]
        state = cls(saved.task_id, items, id=saved.id)
        state._decisions = {decision.approval: decision for decision in saved.decisions}
        state._input = list(saved.input)
        return state

    @classmethod
    async def from_string(cls, initial_agent: Agent, state_string: str) -> Self:
        """Make a state from the text of `to_string`.

        Args:
            initial_agent: As for from_json.
            state_string: The text.

        Raises:
            UserError: It is not such a text.
        """
        try:
            data = json.loads(state_string)
        except (ValueError, TypeError, RecursionError) as cause:
            msg = f"This is no state of a run as RunState.to_string gives it: {cause}"
            raise UserError(msg) from cause
        return await cls.from_json(initial_agent, data)

    def _decide(
        self,
        item: Any,
        verb: Literal["approve", "reject"],
        *,
        always: bool,
        message: str | None = None,
    ) -> None:
        if not isinstance(item, ToolApprovalItem):
            msg = f"{verb} takes an item of get_interruptions(); it was given {shown(item)}."
            raise UserError(msg)
        if not item.approval_id.startswith((f"{self.task_id}:", f"{self.task_id}{MADE}")):
            msg = f"{item.approval_id!r} belongs to another run than {self.task_id!r}."
            raise UserError(msg)
        self._decisions.pop(item.approval_id, None)  # so that a new decision comes last in the dict
        self._decisions[item.approval_id] = Decision(
            approval=item.approval_id,
            verb=verb,
            always=always,
            message=message,
            digest=item.digest,
            tool=item.tool_name or "",
        )


def _text_of(item: object) -> str:
    if is_object(item) and item.get("role") == "user" and isinstance(item.get("content"), str):
        return str(item["content"])
    msg = f"Only user messages of text can be added to a run; this is {shown(item, 120)}."
    raise UserError(msg)
