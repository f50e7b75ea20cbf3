"""Runs become tests: a recorded task is a case, and its agent is run again against it.

In a replay the model and the tools answer from the case. What is compared is what the code makes of
these answers: definitions of the agents, each prompt, the arguments that a tool takes, the output.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import Field, ValidationError

from holdfast.agents.agent import Agent
from holdfast.agents.handoffs.handoff import Handoff
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.tool import Tool
from holdfast.client.agent_runner.base import TaskLike, id_of
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    ModelBehaviorError,
    ModelRequestError,
    StepFailedError,
)
from holdfast.models.base import ModelAnswer, ModelRequest, OutputSpec, Tell, ToolSpec
from holdfast.models.draft import deltas_of
from holdfast.reading.runs.recorded import Recorded, read_recorded
from holdfast.task.data.head import AgentSnapshot
from holdfast.task.data.records import StepRecord
from holdfast.task.undo import without_undo_notes
from holdfast.values.base import Json, Strict, Value
from holdfast.values.checks.gate import check_arguments
from holdfast.values.messages import Message, Usage
from holdfast.values.text.redact import in_texts, redact, without
from holdfast.values.text.shown import named, shown

UPDATE = "HOLDFAST_UPDATE"
"""Environment variable: what it names as 1 has every replay write its case again."""

WORKER = "holdfast.workers.function_calling.FunctionCallingAgentWorker"
"""The worker whose transcript has each model call as one message of the assistant."""

Part = Literal["instructions", "tools", "output"]


class CaseDiffersError(HoldfastError, AssertionError):
    """A replay differs from its case; the text has the first difference as a diff."""


class Definition(Value):
    """What a model reads of an agent.

    Attributes:
        agent: Name of the agent.
        instructions: System prompt; None where a function makes it for each turn.
        tools: Its tools, without those of MCP servers, which no replay asks.
        served: Tools of its MCP servers.
        handoffs: Its handoffs, as tools.
        output: Structure of the final output; None for text.
    """

    agent: str
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    served: tuple[ToolSpec, ...] = ()
    handoffs: tuple[ToolSpec, ...] = ()
    output: OutputSpec | None = None


class Turn(Value):
    """What a model call was sent, as far as the case's messages do not say it.

    Attributes:
        instructions: What a function made of them; None if unknown, then they are not compared.
        messages: The conversation, where a filter or a handoff had changed it; else None.
    """

    instructions: str | None = None
    messages: tuple[Message, ...] | None = None


class Case(Strict):
    """A recorded run. Made by `record_run`; a JSON file.

    Attributes:
        format: Version of this form.
        task: Id of the task.
        agents: The agents that took part in it, first the one that began.
        history: Messages that its session had before, oldest first.
        messages: The conversation of the task, as it stood in the end: what was undone is left out.
        output: The final output, JSON data.
        usage: What its model calls cost.
        turns: What each model call was sent besides; empty until a replay has written the case.
        is_viewed: Whether a filter or a handoff chose what models saw.
    """

    format: Literal[1] = 1
    task: str
    agents: tuple[Definition, ...] = Field(min_length=1)
    history: tuple[Message, ...] = ()
    messages: tuple[Message, ...]
    output: Json = None
    usage: Usage = Usage()
    turns: tuple[Turn, ...] = ()
    is_viewed: bool = False

    def save(self, file: str | Path) -> None:
        """Write the case to a file."""
        Path(file).write_text(self.to_json(), "utf-8")

    def to_json(self) -> str:
        """Return the case as it is in a file."""
        data = {"format": self.format, **self.wire()}
        return json.dumps(data, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def load(cls, file: str | Path) -> Case:
        """Read a case from a file.

        Raises:
            InvalidArgumentError: There is no such file, or it does not hold a case.
        """
        try:
            return cls.model_validate_json(Path(file).read_bytes())
        except (OSError, ValidationError) as error:
            msg = f"{shown(str(file))} cannot be read as a recorded case: {error}"
            remedy = "Make one: holdfast record TASK > case.json"
            raise InvalidArgumentError(msg, remedy=remedy) from error


class Replayed(NamedTuple):
    """A replay.

    Attributes:
        task: Id of the task that was run for it.
        turns: Number of its model calls.
        differences: What differs from the case, each with a diff; only where the case was updated,
            because the first one is raised else.
    """

    task: str
    turns: int
    differences: tuple[str, ...]


async def record_run(runner: AgentRunner, task: TaskLike, *, secrets: Sequence[str] = ()) -> Case:
    """Make a case of a task, which no worker process need serve once it is closed.

    Secrets of this process's environment and texts of the shape of a credential are left out.

    Args:
        runner: Reads the task.
        task: The task, or its id.
        secrets: Further texts to be replaced wherever they occur.

    Raises:
        InvalidArgumentError: The task cannot be replayed; the text says why.
        TaskNotFoundError: No task has this id.
    """
    check_arguments(record_run, runner=runner, task=task, secrets=secrets)
    task_id = id_of(task)
    found = await read_recorded(runner.reader, task_id, servers=True)
    messages = await runner.transcript(task_id)
    if found.began is None or not any(said.role == "assistant" for said in messages):
        msg = f"Task {task_id!r} has no answer of a model yet."
        raise InvalidArgumentError(msg, remedy="Record it once it has made a step.")
    _check_recordable(task_id, found.began, messages)
    case = Case(
        task=task_id,
        agents=tuple(map(_definition, (found.began, *found.began.team))),
        history=tuple(without_undo_notes([*found.before, *found.session])),
        messages=tuple(without_undo_notes(messages)),
        output=found.output,
        usage=found.task.usage,
        is_viewed=_is_viewed(found),
    )
    return _without(case, secrets)


def _without(case: Case, secrets: Sequence[str]) -> Case:
    given = without(secrets)
    hidden = in_texts(case.wire(), lambda text: redact(given(text)), by_name=True)
    return Case.model_validate(hidden)


def _check_recordable(task: str, began: AgentSnapshot, messages: Sequence[Message]) -> None:
    agents = (began, *began.team)
    other = next((each for each in agents if each.worker != WORKER), None)
    kinds = {call.kind for said in messages for call in said.calls if call.kind}
    why = ""
    if other is not None:
        kind = other.worker.rpartition(".")[2]
        why = f"agent {other.name!r} has a {kind}, which makes model calls that are no messages"
    elif any(said.images or said.files for said in messages):
        why = "its messages have images or files"
    elif kinds:
        why = f"its model called tools of this machine ({named(sorted(kinds))})"
    if why:
        raise InvalidArgumentError(f"Task {task!r} cannot become a case: {why}.")


def _definition(of: AgentSnapshot) -> Definition:
    return Definition(
        agent=of.name,
        instructions=None if of.is_dynamic else of.instructions,
        tools=tuple(spec for spec in of.tools if spec.name not in of.served),
        served=tuple(spec for spec in of.tools if spec.name in of.served),
        handoffs=of.handoffs,
        output=of.output,
    )


def _is_viewed(found: Recorded) -> bool:
    steps = (of for of in found.made.records if isinstance(of, StepRecord))
    return any(of.step.history is not None for of in steps)


async def replay_run(
    case: Case | str | Path,
    *,
    agent: Agent[Any],
    extra_state: Mapping[str, Json] | None = None,
    runs: Sequence[str] = (),
    may_differ: Sequence[Part] = (),
    ignore: Sequence[str] = (),
    update: bool | None = None,
    secrets: Sequence[str] = (),
) -> Replayed:
    r"""Run an agent against a recorded case, and raise the first difference.

    The real workflow code runs, on an embedded engine of its own. The model answers from the case.
    So do the tools: their code does not run, and no approval is needed. Guardrails,
    functions that make instructions, and checks of arguments and outputs are the agent's own.

    Args:
        case: The case, or its file.
        agent: The agent as it is now.
        extra_state: Shared state of the task at its beginning.
        runs: Names of tools whose code does run: their results are compared as well.
        may_differ: What is not compared.
        ignore: Regular expressions of texts that may differ, such as r"\d{4}-\d\d-\d\d" for dates.
        update: Whether to write the case's file again, with what is sent now; None for what
            `HOLDFAST_UPDATE=1` says.
        secrets: Texts that an update replaces wherever they occur, next to credentials.

    Raises:
        CaseDiffersError: The run differs from the case.
        InvalidArgumentError: The case cannot be read, or an argument cannot be used.
        StepFailedError: A step failed for another reason.
    """
    check_arguments(
        replay_run,
        case=case,
        extra_state=extra_state,
        runs=runs,
        may_differ=may_differ,
        ignore=ignore,
        update=update,
        secrets=secrets,
    )
    if not isinstance(cast("object", agent), Agent):
        raise InvalidArgumentError(f"agent= takes an Agent; it was {shown(agent)}.")
    known = case if isinstance(case, Case) else Case.load(case)
    updates = os.environ.get(UPDATE) == "1" if update is None else update
    if updates and isinstance(case, Case):
        msg = "Only a case in a file can be updated; this one is an object."
        raise InvalidArgumentError(msg, remedy="Give the path of the file.")
    name = known.task if isinstance(case, Case) else str(case)
    compared = _Compared(
        name, tuple(map(re.compile, ignore)), frozenset(may_differ), updates=updates
    )
    replay = _Replay(known, compared, frozenset(runs))
    agents = replay.stand_in(agent)
    compared.definitions(known.agents, replay.definitions)
    async with AgentRunner.local(agents, data_dir=None) as runner:
        output = await replay.run(runner, agents, extra_state)
        replay.check_end(output)
        if updates:
            now = _updated(known, await record_run(runner, known.task), replay.turns)
            _without(now, secrets).save(cast("str | Path", case))
    return Replayed(known.task, len(replay.turns), tuple(compared.found))


def _updated(known: Case, now: Case, turns: Sequence[Turn]) -> Case:
    """Return a case as its replay has it, with what only the recorded run knows."""
    is_same = _conversation(now.messages) == _conversation(known.messages)
    kept = {
        "history": known.history,
        "messages": known.messages if is_same else now.messages,  # these know what failed
        "usage": known.usage,
        "turns": tuple(turns),
    }
    return now.model_copy(update=kept)


class _Compared:
    """Compares texts, and keeps or raises what differs."""

    def __init__(
        self,
        case: str,
        ignore: tuple[re.Pattern[str], ...],
        may_differ: frozenset[Part],
        *,
        updates: bool,
    ) -> None:
        self._case, self._ignore, self._updates = case, ignore, updates
        self._may_differ = may_differ
        self.found: list[str] = []

    def definitions(self, then: Sequence[Definition], now: Sequence[Definition]) -> None:
        """Compare what the agents are."""
        self.texts("The agents are others", _names(then), _names(now))
        for was, given in zip(then, now, strict=False):
            who = f"of agent {was.agent!r}"
            said = (was.instructions, given.instructions)
            first, second = ("(a function makes them)" if s is None else s for s in said)
            self.texts(f"The instructions {who} differ", first, second, "instructions")
            first, second = (_specs(each.tools + each.handoffs) for each in (was, given))
            self.texts(f"The tools and handoffs {who} differ", first, second, "tools")
            first, second = (_json(each.output and each.output.wire()) for each in (was, given))
            self.texts(f"The structure of the output {who} differs", first, second, "output")

    def texts(self, what: str, then: str, now: str, part: Part | None = None) -> None:
        """Compare two texts, unless their part may differ.

        Raises:
            CaseDiffersError: They differ, and the case is not being updated.
        """
        first, second = self._plain(then), self._plain(now)
        if first != second and part not in self._may_differ:
            lines = difflib.unified_diff(
                first.splitlines(), second.splitlines(), "in the case", "now", lineterm=""
            )
            self.differs(what, "\n".join(lines))

    def differs(self, what: str, more: str, *, ends: bool = False) -> None:
        """Keep a difference.

        Args:
            what: What differs, in words.
            more: The diff.
            ends: Whether the replay cannot go on with it, so that no update helps.

        Raises:
            CaseDiffersError: It ends the replay, or the case is not being updated.
        """
        text = f"{what} ({self._case}).\n{more}\n"
        self.found.append(text)
        if ends:
            raise CaseDiffersError(text, remedy="Record a run of today's agent instead.")
        if not self._updates:
            remedy = f"If it is as you want it, write the case again: {UPDATE}=1"
            raise CaseDiffersError(text, remedy=remedy)

    def _plain(self, text: str) -> str:
        text = redact(text)
        for pattern in self._ignore:
            text = pattern.sub("…", text)
        return text


class StandIns:
    """Agents of the same definitions as the user's, whose tools answer from cases."""

    def __init__(self, cases: Iterable[Case], runs: frozenset[str]) -> None:
        """Take the cases.

        Args:
            cases: They say also what MCP servers had, which are not asked.
            runs: Names of tools whose code does run.
        """
        self._runs = runs
        self._served: dict[str, dict[str, ToolSpec]] = defaultdict(dict)
        for each in (each for case in cases for each in case.agents):
            self._served[each.agent] |= {spec.name: spec for spec in each.served}
        self._made: dict[int, Agent[Any]] = {}
        self._names: set[str] = set()

    def stand_in(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the stand-in of an agent.

        Raises:
            InvalidArgumentError: No agent has one of the tools whose code runs.
        """
        made = self._of(agent)
        if odd := sorted(self._runs - self._names):
            there = named(sorted(self._names))
            msg = f"runs= names tools that no agent has: {named(odd)}. There are {there}."
            raise InvalidArgumentError(msg)
        return made

    def _of(self, agent: Agent[Any]) -> Agent[Any]:
        if id(agent) in self._made:
            return self._made[id(agent)]
        made = self._made[id(agent)] = self._clone(agent)
        own = [self._tool(t) if isinstance(t, Tool) else t for t in agent.all_tools]
        served = self._served[agent.name].values()
        made.tools = [*own, *(_tool(spec, self._answer(None)) for spec in served)]
        made.handoffs = [_handing_to(each, self._of(each.agent)) for each in agent.made_handoffs]
        return made

    def _clone(self, agent: Agent[Any]) -> Agent[Any]:
        return agent.clone(mcp_servers=[])

    def _tool(self, of: Tool[..., Any]) -> Tool[..., Any]:
        self._names.add(of.name)
        if of.name in self._runs:
            return of
        made = _tool(of.spec(), self._answer(of))
        made.is_enabled, made.return_direct = of.is_enabled, of.return_direct
        return made

    def _answer(self, of: Tool[..., Any] | None) -> Any:
        """Return a function that gives a call its result.

        Args:
            of: The tool; None for one of an MCP server.
        """
        raise NotImplementedError


class _Replay(StandIns):
    """One replay: the stand-ins of the agents, and what was sent so far."""

    def __init__(self, case: Case, compared: _Compared, runs: frozenset[str]) -> None:
        super().__init__([case], runs)
        self._case, self._compared = case, compared
        self._spoken = [k for k, said in enumerate(case.messages) if said.role == "assistant"]
        self._results: dict[str, deque[Message]] = {}
        self.difference: CaseDiffersError | None = None
        self.definitions: list[Definition] = []
        self.turns: list[Turn] = []

    name = "recorded"
    serves_hosted = True

    def _clone(self, agent: Agent[Any]) -> Agent[Any]:
        made = agent.clone(model=self, mcp_servers=[])
        self.definitions.append(_definition(made.snapshot(self.name)))
        return made

    def _answer(self, of: Tool[..., Any] | None) -> Any:

        async def answer(ctx: ToolContext[Any, Any], arguments: str) -> str:
            waiting = self._results.get(ctx.call_id)
            result = waiting.popleft() if waiting else None
            if of is not None and result is not None and not result.is_error:
                try:
                    of.parse(arguments)
                except ModelBehaviorError as error:
                    what = f"Tool {of.name!r} refuses arguments that it took in the case"
                    self._keep(what, f"{arguments}\n{error}")
            return "" if result is None else result.text

        return answer

    def _keep(self, what: str, more: str, *, ends: bool = False) -> None:
        try:
            self._compared.differs(what, more, ends=ends)
        except CaseDiffersError as error:
            self.difference = self.difference or error

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Compare a request with the case, and return the answer that the case has to it.

        Raises:
            ModelRequestError: The request differs, or the case has no further answer.
        """
        at = len(self.turns)
        try:
            self.turns.append(self._compare(request, at))
        except CaseDiffersError as error:
            self.difference = self.difference or error
        if self.difference is not None:
            raise ModelRequestError("The run differs from its case.")
        said = self._case.messages[self._spoken[at]]
        self._results = defaultdict(deque)  # of this answer's calls: others may have equal ids
        for each in self._between(at + 1):
            if each.role == "tool":
                self._results[each.call_id].append(each)
        finish = "tool_calls" if said.calls else "stop"
        usage = Usage(requests=1)
        return ModelAnswer(message=said, usage=usage, model=self.name, finish=finish)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Do as `respond`, and send the answer in one piece."""
        answer = await self.respond(request)
        for delta in deltas_of(answer, size=10_000):
            tell(delta)
        return answer

    def _compare(self, request: ModelRequest, at: int) -> Turn:
        """Compare a request with the case; return what the case should say of it.

        Raises:
            CaseDiffersError: They differ.
        """
        case, sent = self._case, without_undo_notes(request.messages)
        then = case.turns[at] if at < len(case.turns) else Turn()
        if then.instructions is not None:
            what = f"The instructions of model call {at + 1} differ"
            self._compared.texts(what, then.instructions, request.instructions, "instructions")
        is_more = at >= len(self._spoken)
        told = [*case.history, *case.messages[: None if is_more else self._spoken[at]]]
        is_known = at < len(case.turns) or not case.is_viewed
        seen = told if then.messages is None else then.messages
        if is_known:
            what = f"The conversation that model call {at + 1} is sent differs"
            self._compared.texts(what, _conversation(seen), _conversation(sent))
        if is_more:
            what = f"The run asks for model call {at + 1}; the case has {len(self._spoken)}"
            self._compared.differs(what, _conversation(sent), ends=True)
        is_told = _conversation(told) == _conversation(sent)
        return Turn(instructions=request.instructions, messages=None if is_told else tuple(sent))

    async def run(
        self, runner: AgentRunner, agent: Agent[Any], state: Mapping[str, Json] | None
    ) -> Json:
        """Run the task of the case to its end; return its output."""
        case = self._case
        session = None
        if case.history:
            session = runner.session("case")
            await session.append(case.history)
        first = self._said(0)
        task = await runner.create_task(
            "\n".join(first),
            agent=agent.name,
            task_id=case.task,
            session=session,
            extra_state=state,
        )
        asked: str | None = None
        while True:
            try:
                step = await runner.run_step(task, asked)
            except StepFailedError:
                if self.difference is not None:
                    raise self.difference from None
                raise
            if self.difference is not None:
                raise self.difference
            if step.status == "waiting":
                msg = f"Step {len(self.turns)} of the replay waits for a person."
                raise InvalidArgumentError(msg)
            following = self._said(len(self.turns))
            asked = None
            if step.is_last:
                if not following:
                    break
                asked = "\n".join(following)
            else:
                for text in following:
                    await runner.give_feedback(task, text)
        return (await read_recorded(runner.reader, task.task_id)).output

    def _said(self, turns: int) -> list[str]:
        """Return what people said before a model call, after the one before it."""
        return [said.text for said in self._between(turns) if said.role == "user"]

    def _between(self, turns: int) -> Sequence[Message]:
        """Return the messages between an answer of the model and the next one."""
        start = self._spoken[turns - 1] + 1 if turns else 0
        end = self._spoken[turns] if turns < len(self._spoken) else None
        return self._case.messages[start:end]

    def check_end(self, output: Json) -> None:
        """Compare how the run has ended.

        Raises:
            CaseDiffersError: It has ended in another way.
        """
        made, wanted = len(self.turns), len(self._spoken)
        if made < wanted:
            left = _conversation(self._case.messages[self._spoken[made] :])
            what = f"The run ends after {made} model calls; the case has {wanted}"
            self._compared.differs(what, left)
        first, second = _json(self._case.output), _json(output)
        self._compared.texts("The output differs", first, second, "output")


def _handing_to(of: Handoff[Any, Any], target: Agent[Any]) -> Handoff[Any, Any]:
    """Return a handoff without its user's code, which has run in the recorded task."""

    async def hand_over(*_: object) -> Agent[Any]:
        return target

    return replace(of, on_invoke_handoff=hand_over, target=target)


def _tool(spec: ToolSpec, answer: Any) -> Tool[..., Any]:
    return Tool(
        name=spec.bare_name,
        description=spec.description,
        params_json_schema=spec.parameters,
        on_invoke_tool=answer,
        strict_json_schema=False,
        effect="read",
        namespace=spec.namespace,
        namespace_description=spec.namespace_description,
        defer_loading=spec.deferred,
    )


def _names(of: Iterable[Definition]) -> str:
    return "\n".join(each.agent for each in of)


def _specs(of: Iterable[ToolSpec]) -> str:
    told = (f"{spec.name}: {spec.description}\n{_json(spec.parameters)}" for spec in of)
    return "\n".join(told)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)


def _conversation(messages: Iterable[Message]) -> str:
    return "\n".join(line for said in messages for line in _lines(said))


def _lines(said: Message) -> Iterator[str]:
    if said.text or not said.calls:
        yield f"{said.role}: {said.text}"
    for call in said.calls:
        yield f"{said.role} calls {call.name} {call.arguments}"
