"""RunResult, the result of a run, in the form of the OpenAI Agents SDK.

`print` shows a few lines of it, whatever the run has made.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from holdfast.agents.agent import Agent
from holdfast.agents.guardrails import InputGuardrailResult, OutputGuardrailResult
from holdfast.agents.items.run_items import (
    RunItem,
    ToolApprovalItem,
    Unread,
    UnreadList,
    UnreadMembers,
    left_unread,
    read_once,
    replayable,
)
from holdfast.agents.nesting.agent_tool import AgentToolInvocation, invocation_of
from holdfast.agents.runs.item_helpers import ItemHelpers, is_said_by
from holdfast.agents.runs.item_reading import step_items
from holdfast.agents.runs.model_input import without_reasoning_id
from holdfast.agents.runs.state import RunState
from holdfast.agents.runs.state_form import item_form
from holdfast.agents.runs.teams import Team
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult
from holdfast.archive.segments import entries_in, uncollected
from holdfast.errors import AgentsException
from holdfast.models.base import ModelAnswer
from holdfast.models.openai.items import made_items
from holdfast.task.data.records import StepRecord
from holdfast.task.ledger.recording import cost_of
from holdfast.task.step_body import StepBody, body_of
from holdfast.task.undo import active_steps
from holdfast.values.base import Json
from holdfast.values.messages import ToolCall
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.runs.usage import Usage, answered_after
from holdfast.values.text.html import table
from holdfast.values.text.terminal import printable

LONGEST_OUTPUT = 500
"""Characters of a final output that are shown."""

LONGEST_WAIT = 200
MOST_WAITS = 5
"""Descriptions of what the run waits for that are shown."""


def summary(data: Any, title: str) -> str:
    """Return a short description of a run, of one line for each fact.

    Args:
        data: The run: a RunResult, or the RunData of an error, which have no final output.
        title: What it is.
    """
    output: Any = getattr(data, "final_output", None)
    asked = [f"{each.qualified_name} {each.arguments or ''}" for each in data.interruptions]
    waits: Sequence[str] = getattr(data, "waiting_for", ()) or asked
    lines = [
        f"{title}:",
        f"task: {data.task_id or 'none'}",
        f"last agent: {_last_agent(data)}",
        f"final output{_type(output)}: {_beginning(output, LONGEST_OUTPUT)}",
        f"new items: {len(data.new_items)}",
        f"raw responses: {len(data.raw_responses)}",
        f"guardrail results: {_guardrails(data)}",
    ]
    if data.interruptions:
        lines.append(f"interruptions: {len(data.interruptions)}")
    lines += [f"waits for: {_beginning(each, LONGEST_WAIT)}" for each in waits[:MOST_WAITS]]
    if len(waits) > MOST_WAITS:
        lines.append(f"waits for: {len(waits) - MOST_WAITS} more")
    return "\n  ".join(lines)


def _last_agent(data: Any) -> str:
    try:
        return str(data.last_agent.name)
    except AgentsException:
        return "released"
    except AttributeError:  # a result made by hand may have none
        return "none"


def _type(output: Any) -> str:
    return "" if output is None else f" ({type(output).__name__})"


def _beginning(value: Any, longest: int) -> str:
    """Return the beginning of a value's text on one line, as a terminal can show it."""
    try:
        text = "none" if value is None else str(value)
    except Exception:  # noqa: BLE001  the __str__ of a user's class may raise anything
        return "it cannot be shown"
    line = " ".join(text[: 2 * longest].split())
    if len(line) > longest or len(text) > 2 * longest:
        line = f"{line[:longest]}… [{len(text)} characters]"
    return printable(line)


def _guardrails(data: Any) -> str:
    counts: dict[str, list[Any]] = {
        "input": data.input_guardrail_results,
        "output": data.output_guardrail_results,
        "tool input": data.tool_input_guardrail_results,
        "tool output": data.tool_output_guardrail_results,
    }
    return ", ".join(f"{len(each)} {kind}" for kind, each in counts.items() if each) or "none"


T = TypeVar("T")

LATER = ("new_items", "raw_responses")
"""Members of a run that may be made when one of both is first read."""


@dataclass
class ModelResponse:
    """One answer of a model.

    Attributes:
        output: Its items, as objects of `openai.types.responses`; dicts, where that does not know
            their type.
        usage: Its cost.
        response_id: The provider's id of the answer, or None.
        request_id: The provider's id of the request, where a Model of the program's has said it.
        raw_usage: What the provider said of usage, likewise.
    """

    output: list[Any]
    usage: Usage
    response_id: str | None
    request_id: str | None = None
    raw_usage: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Leave the items unread, if they are, until they are asked for."""
        if isinstance(self.output, UnreadList):
            self.__dict__["_unread"] = self.__dict__.pop("output")

    def to_input_items(self) -> list[dict[str, Json]]:
        """Return the items as input for another run."""
        unread: UnreadList | None = left_unread(self, "output")
        known = self.output if unread is None else [each.item for each in unread]
        return [replayable(item) for item in known]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the items, which are made when they are read."""
            if name == "output":
                return read_once(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass
class RunData:
    """The data of a run, whether it has finished, waits, or was ended by an error.

    Attributes:
        input: The run's input; in a session, the part of the history that the model sees, then the
            run's input. After a handoff whose filter has changed it, or that has nested the
            conversation in it, what the next agent was given.
        new_items: The items that the run made, oldest first.
        raw_responses: The answers of models, oldest first.
        last_agent: The agent that ran last.
        context_wrapper: The run's context and cost.
        task_id: The run's task; its ledger stays readable.
        interruptions: Tool calls that wait for a reviewer's decision.
        input_guardrail_results: Results of the input guardrails.
        output_guardrail_results: Results of the output guardrails.
        tool_input_guardrail_results: Results of tool guardrails that checked calls.
        tool_output_guardrail_results: Results of tool guardrails that checked results.
        max_turns: Most model calls of the run; None for no limit.
        normalized: What the last agent saw after the input, with its own items, if a handoff had
            changed the conversation.
        normalized_has_input: Whether that begins with the input: the handoff was recorded by an
            earlier release, which did not record what of it is the input.
        moved: Items of the input that a handoff has moved there, each with the one of `new_items`
            that it was.
        dropped: Those of `new_items` that filters of handoffs have taken out of theirs.
        reasoning_item_id_policy: Whether `to_input_list` keeps the ids of reasoning items.
        last_member: The name by which the run's task knows `last_agent`.
        earlier: Number of `raw_responses` of runs before it, which `max_turns` does not count.
    """

    input: str | list[dict[str, Json]]
    new_items: list[RunItem] = field(default_factory=list[RunItem])
    raw_responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    # No plain defaults: they would be found on the class once an agent is released.
    last_agent: Agent = field(default_factory=lambda: cast("Any", None), repr=False)
    context_wrapper: RunContextWrapper[Any] = field(default_factory=lambda: cast("Any", None))
    input_guardrail_results: list[InputGuardrailResult] = field(
        default_factory=list[InputGuardrailResult]
    )
    output_guardrail_results: list[OutputGuardrailResult] = field(
        default_factory=list[OutputGuardrailResult]
    )
    tool_input_guardrail_results: list[ToolInputGuardrailResult] = field(
        default_factory=list[ToolInputGuardrailResult]
    )
    tool_output_guardrail_results: list[ToolOutputGuardrailResult] = field(
        default_factory=list[ToolOutputGuardrailResult]
    )
    task_id: str = ""
    interruptions: list[ToolApprovalItem] = field(default_factory=list[ToolApprovalItem])
    max_turns: int | None = field(default=None, repr=False)
    normalized: list[dict[str, Json]] | None = field(default=None, repr=False)
    normalized_has_input: bool = field(default=False, repr=False)
    moved: list[tuple[dict[str, Json], RunItem]] = field(
        default_factory=list[tuple[dict[str, Json], RunItem]], repr=False
    )
    dropped: list[RunItem] = field(default_factory=list[RunItem], repr=False)
    reasoning_item_id_policy: Literal["preserve", "omit"] = field(default="preserve", repr=False)
    last_member: str = field(default="", repr=False)
    earlier: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        """Leave the items and the answers unread, if they are, until one of both is asked for."""
        given: object = self.new_items
        if isinstance(given, UnreadMembers):
            self.__dict__["_unread"] = given
            for name in LATER:
                del self.__dict__[name]

    @property
    def usage(self) -> Usage:
        """Cost of the run."""
        return self.context_wrapper.usage

    @property
    def last_response_id(self) -> str | None:
        """The provider's id of the last answer of a model, or None."""
        return self.raw_responses[-1].response_id if self.raw_responses else None

    def to_input_list(
        self, *, mode: Literal["preserve_all", "normalized"] = "preserve_all"
    ) -> list[Any]:
        """Return input and new items as the input of a following run.

        Args:
            mode: "preserve_all": the input and all new items, except for items that a handoff has
                moved to the input, or its filter has taken out of its `new_items`. "normalized":
                the conversation as the last agent saw it, which is shorter if the filter of a
                handoff left items out.
        """
        start = ItemHelpers.input_to_new_input_list(self.input)
        if mode == "normalized" and self.normalized is not None:
            before = [] if self.normalized_has_input else start
            items = [*before, *map(dict, self.normalized)]
        else:
            there = self._in_input()
            gone = [item.mark() for item in self.dropped]
            made = [
                item.to_input_item()
                for item in self.new_items
                if not isinstance(item, ToolApprovalItem)
                and id(item) not in there
                and not any(map(item.has_mark, gone))
            ]
            items = [*start, *made]
        omits = self.reasoning_item_id_policy == "omit"
        return list(map(without_reasoning_id, items)) if omits else items

    def _in_input(self) -> set[int]:
        """Return the ids of the objects of `new_items` that are still in the input, unchanged.

        The list and its items may be copies of the run's own.
        """
        if not self.moved or isinstance(self.input, str):
            return set()
        there = {id(item) for item in self.input}
        found: set[int] = set()
        for item, was in self.moved:
            same = (m for m in self.new_items if m.has_mark(was.mark()) and id(m) not in found)
            now = next(same, None) if id(item) in there else None
            if now is not None and is_said_by(item, now):
                found.add(id(now))
        return found

    def to_state(self) -> RunState:
        """Return a RunState, to take decisions and resume the run: `Runner.run(agent, state)`.

        It has the decisions that were taken on `context_wrapper`.

        Raises:
            UserError: One of these is on a call that does not wait.
        """
        state: RunState = RunState.of(self.task_id, self.interruptions)
        state.run_by(self.__dict__.get("last_agent"), self.last_member)
        state.context = self.context_wrapper
        if self.context_wrapper.origin is not None:
            state.deserializer = self.context_wrapper.origin.deserializer
        state.generated_items = tuple(map(item_form, self.new_items))
        for item, verdict in self.context_wrapper.decisions.taken:
            if verdict.approved:
                state.approve(item, verdict.always)
            else:
                state.reject(item, verdict.always, rejection_message=verdict.message)
        return state

    def release_agents(self, release_new_items: bool = True) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Keep the run's agents only as long as something else has them.

        Args:
            release_new_items: Whether the items let go of their agents as well.
        """
        if release_new_items:
            for item in self.new_items:
                item.release_agent()
        agent = self.__dict__.pop("last_agent", None)
        if agent is not None:
            self.__dict__["_released"] = weakref.ref(agent)

    def __getstate__(self) -> dict[str, Any]:
        """Return all members, for copies and others: what is not made yet is made."""
        for name in LATER:  # one of them may have been set by hand
            getattr(self, name, None)
        self.__dict__.pop("_unread", None)
        return self.__dict__

    def __dir__(self) -> list[str]:
        """List the members, also the ones that are not made yet."""
        return sorted({*super().__dir__(), *LATER})

    def __str__(self) -> str:
        """Return a short summary; `repr` has everything."""
        return summary(self, type(self).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return what is made when it is read, or the last agent after `release_agents`.

            Raises:
                AgentsException: Nothing else has the last agent any more.
            """
            if name in LATER:
                return read_once(self, name)
            if name != "last_agent" or "_released" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            agent = self.__dict__["_released"]()
            if agent is None:
                msg = "The last agent was released, and nothing else has it any more."
                raise AgentsException(msg)
            return agent


RunErrorDetails = RunData
"""What an exception knows of its run, by its name in the Agents SDK."""


@dataclass(init=False)
class RunResult(RunData):
    """A run that has its answer, or waits for a decision.

    Attributes:
        final_output: The answer, of the last agent's `output_type`; None while the run waits.
        waiting_for: Descriptions of what the run waits for; empty when it is finished.
        agent_tool_invocation: The call of an agent as a tool that the run belongs to, or None.
    """

    final_output: Any = None
    waiting_for: tuple[str, ...] = ()
    agent_tool_invocation: AgentToolInvocation | None = None

    def __init__(  # noqa: PLR0917  the Agents SDK's signature
        self,
        input: str | list[dict[str, Json]],
        new_items: list[RunItem] | None = None,
        raw_responses: list[ModelResponse] | None = None,
        final_output: Any = None,
        input_guardrail_results: list[InputGuardrailResult] | None = None,
        output_guardrail_results: list[OutputGuardrailResult] | None = None,
        tool_input_guardrail_results: list[ToolInputGuardrailResult] | None = None,
        tool_output_guardrail_results: list[ToolOutputGuardrailResult] | None = None,
        context_wrapper: RunContextWrapper[Any] | None = None,
        last_agent: Agent | None = None,
        *,
        _last_agent: Agent | None = None,
        agent_tool_invocation: AgentToolInvocation | None = None,
        waiting_for: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        """Make a result, as a test of a program does that reads results.

        Args:
            input: And those after it: see the attributes; what is not given is empty.
            new_items: See above.
            raw_responses: See above.
            final_output: See above.
            input_guardrail_results: See above.
            output_guardrail_results: See above.
            tool_input_guardrail_results: See above.
            tool_output_guardrail_results: See above.
            context_wrapper: See above; that of a tool's call says what agent_tool_invocation is.
            last_agent: See above.
            _last_agent: The same, by its name in the Agents SDK.
            agent_tool_invocation: See above.
            waiting_for: See above.
            more: The other attributes.
        """
        context: Any = RunContextWrapper(None) if context_wrapper is None else context_wrapper
        super().__init__(
            input,
            [] if new_items is None else new_items,
            [] if raw_responses is None else raw_responses,
            input_guardrail_results=input_guardrail_results or [],
            output_guardrail_results=output_guardrail_results or [],
            tool_input_guardrail_results=tool_input_guardrail_results or [],
            tool_output_guardrail_results=tool_output_guardrail_results or [],
            context_wrapper=context,
            last_agent=cast("Any", last_agent or _last_agent),
            **more,
        )
        call: Any = context
        if agent_tool_invocation is None and isinstance(context, ToolContext):
            agent_tool_invocation = invocation_of(call)
        self.final_output = final_output
        self.waiting_for = waiting_for
        self.agent_tool_invocation = agent_tool_invocation

    def to_state(self) -> RunState:
        """Return a RunState: see RunData. That of a run with its answer goes on from there.

        `Runner.run(agent, state)` then begins a run of its own with this one's conversation, and
        with the input that was added to the state; run again, it is the same run.

        Raises:
            UserError: As for RunData.
        """
        state = super().to_state()
        if self.task_id and not self.waiting_for and not self.interruptions:
            name = self.last_member or self.last_agent.name
            limit, made = self.max_turns, len(self.raw_responses) - self.earlier
            left = None if limit is None else max(0, limit - made)
            state.follow(self.to_input_list(mode="normalized"), name, turns=left)
        return state

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = {
            "answer": "" if self.final_output is None else self.final_output,
            "agent": self.last_agent.name,
            "waits for": "\n".join(self.waiting_for),
            "items": len(self.new_items),
            "tokens": self.usage.total_tokens,
        }
        return table(f"Run {self.task_id}", rows)

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Return the answer, typed.

        Args:
            cls: The type that the answer should have.
            raise_if_incorrect_type: Whether to check it.

        Raises:
            TypeError: The answer is checked and has another type.
        """
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            raise TypeError(f"Final output is not of type {cls.__name__}")
        output: T = self.final_output
        return output


# Items and answers of a run that are made when they are first asked for.
#
# Most programs read only the final output of a result. What a result says must not depend on when
# it is read, so only work is postponed: all texts are loaded, and the agent and its tools are
# looked up before.

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
