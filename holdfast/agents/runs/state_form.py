"""The JSON form of a RunState."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal, cast

from pydantic import Field, ValidationError

from holdfast.agents.agent import Agent
from holdfast.agents.items.run_items import (
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
    dumped,
    plain,
)
from holdfast.errors import UserError
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import is_object
from holdfast.values.checks.ids import MADE, task_of
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


class AskedForm(Value):
    """An interruption in the JSON form of a RunState."""

    agent: str
    approval: str
    digest: str = ""
    item: dict[str, Json]


class ItemForm(Value):
    """An item of the run in the JSON form of a RunState.

    Attributes:
        type: Its type, as "tool_call_item".
        agent: The agent that it belongs to: {"name": ...}.
        raw_item: The item, as the Responses API has it.
        tool_origin: Where the tool comes from, of a call and its result.
    """

    type: str
    agent: dict[str, Json]
    raw_item: dict[str, Json]
    tool_origin: dict[str, Json] | None = None


class StateForm(Value):
    """The JSON form of a RunState.

    `original_input` and what follows are of a run not begun, but for the last two: the items that
    the run had made, for people and programs that read the JSON (the task has them anyway), and the
    name of the agent that runs.
    """

    version: Literal[1] = 1
    id: str
    task_id: str = ""
    decisions: tuple[Decision, ...] = ()
    input: tuple[str, ...] = ()
    interruptions: tuple[AskedForm, ...] = Field(default=())
    context: dict[str, Json] | None = None
    original_input: Json = None
    max_turns: int | None = None
    current_agent: dict[str, Json] | None = None
    after: list[dict[str, Json]] | None = None
    kept: dict[str, Json] = Field(default_factory=dict[str, Json])
    generated_items: tuple[ItemForm, ...] = ()
    runs: str = ""


VERSION = "$schemaVersion"
"""Member of a state's JSON form that says by which rules it was written."""


def item_form(item: RunItem) -> ItemForm:
    """Return an item of a run as a RunState's JSON has it."""
    of_tool = item if isinstance(item, ToolCallItem | ToolCallOutputItem) else None
    origin = of_tool.tool_origin if of_tool is not None else None
    return ItemForm(
        type=item.type,
        agent={"name": item.agent.name},
        raw_item=plain(dumped(item.shown_item())),
        tool_origin=None if origin is None else {**origin.to_json_dict()},
    )


_NO_STATE = "This is not a state of a run as RunState.to_json gives it"


def read_form(data: object) -> StateForm:
    """Validate the JSON form of a state.

    Raises:
        UserError: It is not one, or one of other rules.
    """
    if not is_object(data):
        raise UserError(f"{_NO_STATE}: its JSON must be an object.")
    version: object = data.get(VERSION)
    if version is None:
        raise UserError(f"Run state is missing schema version. {_NO_STATE}: it has no {VERSION}.")
    if not isinstance(version, str):
        raise UserError(f"Run state schema version has an invalid type: {VERSION} must be a text.")
    if version != "1":
        raise UserError(
            f"Run state schema version is not supported: this version of Holdfast reads {VERSION}"
            " '1'. The state was written by another version, or by the Agents SDK, which has no"
            " task."
        )
    try:
        return StateForm.model_validate(data)
    except ValidationError as cause:  # what it holds is not shown: it may be secret
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in cause.errors(include_input=False)
        )
        raise UserError(f"{_NO_STATE}: {wrong}.") from None


def parsed(text: str) -> Json:
    """Parse the text of a state.

    Raises:
        UserError: It is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as cause:
        raise UserError(
            "Failed to parse run state JSON: this is not a run's state as RunState.to_string gives"
            f" it: {cause}"
        ) from cause


def decidable(
    given: object, verb: str, task_id: str, among: Iterable[ToolApprovalItem]
) -> ToolApprovalItem:
    """Return the interruption that a decision is on.

    Args:
        given: One of the interruptions, or an item with the same call that was made by hand.
        verb: The decision.
        task_id: The run's task.
        among: The interruptions.

    Raises:
        UserError: It belongs to another run, is not such an item, or its call does not wait.
    """
    if not isinstance(given, ToolApprovalItem):
        msg = f"{verb} takes an item of get_interruptions(); it was given {shown(given)}."
        raise UserError(msg)
    item = given if given.approval_id else _waiting(given, among)
    if not item.approval_id.startswith((f"{task_id}:", f"{task_id}{MADE}")):
        raise UserError(f"{item.approval_id!r} belongs to another run than {task_id!r}.")
    return item


def _waiting(asked: ToolApprovalItem, among: Iterable[ToolApprovalItem]) -> ToolApprovalItem:
    for item in among:
        if (item.call_id, item.tool_key) == (asked.call_id, asked.tool_key):
            return item
    raise UserError(
        f"Call {asked.call_id!r} of tool {asked.qualified_name!r} does not wait for a decision"
        " here. Decide on an item of get_interruptions()."
    )


def text_of(item: object) -> str:
    """Return the text of a user message.

    Raises:
        UserError: It is something else.
    """
    if is_object(item) and item.get("role") == "user" and isinstance(item.get("content"), str):
        return str(item["content"])
    msg = f"Only user messages of text can be added to a run; this is {shown(item, 120)}."
    raise UserError(msg)


def check_goes_on(waiting: Iterable[ToolApprovalItem], task_id: str, outer: Agent | None) -> None:
    """Refuse input for a run that may end with the result of a call that waits.

    A call of an agent as a tool ends, with what that agent does after it, only the call of the run
    itself: its own agent decides what follows the result of that.

    Args:
        waiting: The calls that wait.
        task_id: The run's task.
        outer: The agent that runs, if it is known.

    Raises:
        UserError: It may.
    """
    for item in waiting:
        is_own = task_of(item.approval_id) == task_id
        agent = item.agent if is_own else outer
        names = [item.qualified_name] if is_own else _agents_as_tools(outer)
        behavior = getattr(agent, "tool_use_behavior", None)
        name = next((name for name in names if name and may_end(behavior, name)), "")
        if name and agent is not None:
            msg = (
                "Cannot add input: the tool result may end the run. By its tool_use_behavior, agent"
                f" {agent.name!r} may answer with the result of {name!r}, and then no model call"
                " follows that could read the input."
            )
            remedy = "Decide on the call, run the state, and give the input to the run after it."
            raise UserError(msg, remedy=remedy)


def _agents_as_tools(agent: Agent | None) -> list[str]:
    """List the names of the tools of an agent that are agents themselves."""
    tools = () if agent is None else agent.tools
    made = (each for each in tools if isinstance(getattr(each, "agent", None), Agent))
    return [each.qualified_name for each in made]


def may_end(behavior: object, tool: str) -> bool:
    """Whether a `tool_use_behavior` may make the result of a tool the answer of its run."""
    if is_object(behavior):
        names = cast("Iterable[str]", behavior.get("stop_at_tool_names", ()))
        return bool({tool, tool.rpartition(".")[2]}.intersection(names))
    return behavior not in (None, "run_llm_again")
