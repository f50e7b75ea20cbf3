"""Results of a run's guardrails, in the form of the Agents SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Never, TypeVar

from holdfast.agents.agent_base import users_agent
from holdfast.agents.guardrails import (
    Check,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
)
from holdfast.agents.output_type import typed_output
from holdfast.agents.tools.guardrails import (
    GuardrailBehavior,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailResult,
)
from holdfast.task.data.failures import Failure
from holdfast.task.data.guard_rules import (
    GUARDRAIL,
    INPUT_TRIPPED,
    OUTPUT_TRIPPED,
    TOOL_INPUT_TRIPPED,
    TOOL_OUTPUT_TRIPPED,
    ToolGuarded,
)
from holdfast.task.data.records import Entry
from holdfast.task.happenings import StepsUndone, noted_of
from holdfast.task.step_body import StepBody
from holdfast.values.base import Json
from holdfast.values.code.typed_data import remade

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.agents.tools.decorator import Tool


Result = (
    InputGuardrailResult
    | OutputGuardrailResult
    | ToolInputGuardrailResult
    | ToolOutputGuardrailResult
)


GuardrailT = TypeVar("GuardrailT", bound=Check)


@dataclass(frozen=True)
class GuardrailResults:
    """Results of all guardrails of a run, each kind in the order in which they were recorded.

    Of the input and of the output, one that tripped is last: the others had ended before it.
    """

    input: list[InputGuardrailResult] = field(default_factory=list[InputGuardrailResult])
    output: list[OutputGuardrailResult] = field(default_factory=list[OutputGuardrailResult])
    tool_input: list[ToolInputGuardrailResult] = field(
        default_factory=list[ToolInputGuardrailResult]
    )
    tool_output: list[ToolOutputGuardrailResult] = field(
        default_factory=list[ToolOutputGuardrailResult]
    )


@dataclass(frozen=True)
class Known:
    """The agents and guardrails that this process has, by name.

    A result of any other guardrail gets one that has its name and cannot be run.

    Attributes:
        agents: Name to agent.
        input: The run's own input guardrails.
        output: The run's own output guardrails.
    """

    agents: Mapping[str, Agent] = field(default_factory=dict[str, "Agent"])
    input: Sequence[InputGuardrail] = ()
    output: Sequence[OutputGuardrail] = ()

    @classmethod
    def of(
        cls,
        agent: Agent,
        input_guardrails: Sequence[InputGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
    ) -> Known:
        """Make it from an agent with its team, and the guardrails of a run's settings."""
        agents = {each.name: each for each in (agent, *agent.team())}
        return cls(agents, input_guardrails, output_guardrails)

    def tools(self) -> Iterator[Tool]:
        """Yield the tools of the agents."""
        for agent in self.agents.values():
            yield from agent.made_tools

    def input_guardrail(self, name: str, agent: str) -> InputGuardrail:
        """Return the input guardrail of this name."""
        own = self.agents[agent].input_guardrails if agent in self.agents else ()
        return _of_name(InputGuardrail(_elsewhere, name), (*own, *self.input))

    def output_guardrail(self, name: str, agent: str) -> OutputGuardrail:
        """Return the output guardrail of this name."""
        own = self.agents[agent].output_guardrails if agent in self.agents else ()
        return _of_name(OutputGuardrail(_elsewhere, name), (*own, *self.output))

    def tool_guardrail(
        self, found: ToolGuarded, tool: str, agent: str
    ) -> ToolInputGuardrail | ToolOutputGuardrail:
        """Return the guardrail of a tool."""
        known = self.agents[agent].tool(tool) if agent in self.agents else None
        if found.kind == "input":
            checks = () if known is None else known.tool_input_guardrails
            return _of_name(ToolInputGuardrail(_elsewhere, found.name), checks)
        results = () if known is None else known.tool_output_guardrails
        return _of_name(ToolOutputGuardrail(_elsewhere, found.name), results)


def guardrail_results(
    entries: Iterable[Entry],
    steps: Iterable[StepBody] = (),
    *,
    first: str,
    known: Known | None = None,
    output: Any = None,
) -> GuardrailResults:
    """Read the results of a run's guardrails from its ledger.

    Results in undone steps are left out, except for those of the input, which is checked once.

    Args:
        entries: The ledger.
        steps: The completed steps of its present branch, then the open ones, or the ones that were
            open when a failed run ended.
        first: Name of the agent that the run began with.
        known: The agents of this process.
        output: The final output that output guardrails have checked.
    """
    known = known or Known()
    results = GuardrailResults()
    for event in (entry.event for entry in entries if entry.event is not None):
        if event.kind == GUARDRAIL:
            found = _run_result(event.body, known, output)
            if isinstance(found, InputGuardrailResult):
                results.input.append(found)
            else:
                results.output.append(found)
        elif isinstance(noted_of(event), StepsUndone):
            results.output.clear()
    results.input.sort(key=_tripped)
    results.output.sort(key=_tripped)
    calls = [each for step in steps for each in _calls_of(step)]
    for agent, tool, guards in calls:
        for result in (_tool_result(each, tool, agent or first, known) for each in guards):
            if isinstance(result, ToolInputGuardrailResult):
                results.tool_input.append(result)
            else:
                results.tool_output.append(result)
    return results


def _tripped(result: InputGuardrailResult | OutputGuardrailResult) -> bool:
    return result.output.tripwire_triggered


def tripped_result(failure: Failure) -> Result | None:
    """Make the result of the guardrail that ended a run, from the data in the run's failure.

    Its guardrail and agent have only their names: see `with_known`.
    """
    known = Known()
    if failure.type in (INPUT_TRIPPED, OUTPUT_TRIPPED) and failure.data:
        return _run_result(failure.data, known, failure.data.get("output"))
    if failure.type in (TOOL_INPUT_TRIPPED, TOOL_OUTPUT_TRIPPED) and failure.data:
        found = ToolGuarded.model_validate(failure.data.get("found"))
        tool, agent = str(failure.data.get("tool", "")), str(failure.data.get("agent", ""))
        return _tool_result(found, tool, agent, known)
    return None


def with_known(
    result: Result | None, known: Known, recorded: Sequence[OutputGuardrailResult] = ()
) -> Result | None:
    """Replace what a failure says of a result by what this process has.

    Guardrail and agent, which have only a name there, and the output, which is JSON data there.

    Args:
        result: The result.
        known: The agents of this process.
        recorded: Results of the output guardrails as they were read from the run's ledger.
    """
    match result:
        case InputGuardrailResult(guardrail=guardrail):
            own = (each for agent in known.agents.values() for each in agent.input_guardrails)
            return replace(result, guardrail=_of_name(guardrail, (*own, *known.input)))
        case OutputGuardrailResult(guardrail=guardrail, agent=agent):
            name = getattr(agent, "name", agent)
            own_output = known.output_guardrail(guardrail.get_name(), name)
            mine, output = known.agents.get(name), result.agent_output
            if isinstance(agent, str):  # a failure has only its name, and no large output
                output = typed_output(None if mine is None else mine.made_output, output)
                output = recorded[-1].agent_output if output is None and recorded else output
            shown = agent if mine is None else users_agent(mine)
            return replace(result, guardrail=own_output, agent=shown, agent_output=output)
        case ToolInputGuardrailResult(guardrail=guardrail):
            checks = (each for tool in known.tools() for each in tool.tool_input_guardrails)
            return replace(result, guardrail=_of_name(guardrail, checks))
        case ToolOutputGuardrailResult(guardrail=guardrail):
            results = (each for tool in known.tools() for each in tool.tool_output_guardrails)
            return replace(result, guardrail=_of_name(guardrail, results))
        case None:
            return None


def _of_name(guardrail: GuardrailT, among: Iterable[GuardrailT]) -> GuardrailT:
    """Return the first guardrail of the same name, or the guardrail itself."""
    name = guardrail.get_name()
    return next((each for each in among if each.get_name() == name), guardrail)


def _run_result(
    facts: Mapping[str, Json], known: Known, output: Any
) -> InputGuardrailResult | OutputGuardrailResult:
    name, agent = str(facts.get("name", "")), str(facts.get("agent", ""))
    info = remade(facts.get("info"), str(facts.get("info_class", "")))
    said = facts.get("stored", info)
    found = GuardrailFunctionOutput(said, bool(facts.get("tripped")))
    if facts.get("kind") == "input":
        return InputGuardrailResult(known.input_guardrail(name, agent), found)
    guardrail = known.output_guardrail(name, agent)
    mine = known.agents.get(agent)
    return OutputGuardrailResult(
        guardrail, output, agent if mine is None else users_agent(mine), found
    )


def _calls_of(of: StepBody) -> Iterator[tuple[str, str, tuple[ToolGuarded, ...]]]:
    """List (agent, tool, findings of its guardrails) of a step's calls, in their order."""
    for each in of.all_calls():
        found = each.outcome or each.begun
        if found is not None:
            yield of.step.agent, each.call.name, found.guards


def _tool_result(
    found: ToolGuarded, tool: str, agent: str, known: Known
) -> ToolInputGuardrailResult | ToolOutputGuardrailResult:
    behavior: GuardrailBehavior = {"type": found.behavior}
    if found.behavior == "reject_content":
        behavior["message"] = found.message
    info = remade(found.info, found.info_class)
    said = info if found.stored is None else found.stored.wire()
    output = ToolGuardrailFunctionOutput(said, behavior)
    guardrail = known.tool_guardrail(found, tool, agent)
    if isinstance(guardrail, ToolInputGuardrail):
        return ToolInputGuardrailResult(guardrail, output)
    return ToolOutputGuardrailResult(guardrail, output)


def _elsewhere(*_given: Any) -> Never:
    """Take the place of a guardrail's function that this process does not have.

    Raises:
        RuntimeError: Always.
    """
    msg = "This guardrail was run by a worker process; its function is not known here."
    raise RuntimeError(msg)
