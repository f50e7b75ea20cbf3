"""Two tasks or branches side by side, step by step, with the first difference marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from holdfast.task.data.head import AgentSnapshot
from holdfast.task.step_body import StepBody
from holdfast.values.checks.gate import data_of
from holdfast.values.messages import Message, Usage, shown, summed
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import pretty

ASPECTS = ("input", "answers", "calls", "results")
"""What is compared of a step, in the order in which it comes to be."""


PROMPT = ("agent", "model", "instructions", "tools")
"""What is compared of the agents that the tasks began with."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The agent that one side began with: what models got next to the messages.

    Attributes:
        agent: Its name, and its class of AgentWorker.
        model: Its model, and the settings.
        instructions: Its instructions.
        tools: Its tools, as models got them.
    """

    agent: str
    model: str
    instructions: str
    tools: str

    def text(self, aspect: str) -> str:
        """Return what is compared under a name of `PROMPT`."""
        return str(getattr(self, aspect))


def prompt_of(agent: AgentSnapshot) -> Prompt:
    """Return the agent of a task as one side of a comparison."""
    instructions = "made for each turn by a function" if agent.is_dynamic else agent.instructions
    settings = agent.settings.wire()
    tools = [
        f"{tool.name} {pretty(dict(tool.parameters))}\n{tool.description}".rstrip()
        for tool in (*agent.tools, *agent.handoffs)
    ]
    return Prompt(
        agent=f"{agent.name} ({agent.worker})" if agent.worker else agent.name,
        model=redact(f"{agent.model} {pretty(settings)}" if settings else agent.model),
        instructions=redact(instructions),
        tools=redact("\n".join(tools)),
    )


@dataclass(frozen=True, kw_only=True)
class Side:
    """A step of one side; its texts are whole, so that what differs is found wherever it is.

    Attributes:
        n: Number of the step.
        branch: Its branch.
        input: What it was asked.
        answers: What the model said.
        calls: The tool calls, as they ran.
        results: What they gave.
        usage: What its model calls cost.
        seconds: How long it took.
    """

    n: int
    branch: int
    input: str = ""
    answers: str = ""
    calls: str = ""
    results: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    def text(self, aspect: str) -> str:
        """Return what is compared under a name of `ASPECTS`."""
        return str(getattr(self, aspect))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The steps of one position, one of them maybe missing.

    Attributes:
        left: The step of the left side.
        right: The step of the right side.
        differs: The aspects in which they differ.
        is_first: Whether this is the first difference.
    """

    left: Side | None
    right: Side | None
    differs: tuple[str, ...] = ()
    is_first: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether both sides did the same."""
        return not self.differs


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two paths side by side.

    Attributes:
        pairs: Their steps by position.
        first: Position of the first difference; None when they are equal.
        usages: What the model calls of each side cost.
        seconds: Time in the steps of each side.
    """

    pairs: tuple[Pair, ...]
    first: int | None
    usages: tuple[Usage, Usage]
    seconds: tuple[float, float]


def compare(left: Sequence[StepBody], right: Sequence[StepBody]) -> Comparison:
    """Compare two paths of completed steps."""
    lefts, rights = [side_of(body) for body in left], [side_of(body) for body in right]
    pairs: list[Pair] = []
    first: int | None = None
    for k, (one, other) in enumerate(zip_longest(lefts, rights)):
        differs = _differs(one, other)
        is_first = bool(differs) and first is None
        first = k if is_first else first
        pairs.append(Pair(left=one, right=other, differs=differs, is_first=is_first))
    return Comparison(
        pairs=tuple(pairs),
        first=first,
        usages=(_sum(lefts), _sum(rights)),
        seconds=(sum(each.seconds for each in lefts), sum(each.seconds for each in rights)),
    )


def side_of(body: StepBody) -> Side:
    """Return a completed step as one side of a comparison."""
    calls, results = list[str](), list[str]()
    for call in body.all_calls():
        calls.append(f"{call.call.name} {pretty(data_of(call.arguments))}")
        if call.message is not None:
            results.append(f"{call.call.name}: {_text(call.message)}")
    for ran in body.hosted:
        calls.append(f"{ran.tool} {ran.arguments} (provider)")
        if ran.result:
            results.append(f"{ran.tool}: {ran.result}")
    asked = [_text(message) for message in body.adds if message.role in ("user", "system")]
    return Side(
        n=body.n,
        branch=body.branch,
        input=_clean(asked),
        answers=_clean([answer.text for answer in body.answers if answer.text]),
        calls=_clean(calls),
        results=_clean(results),
        usage=body.usage,
        seconds=max(body.ended - body.started, 0.0),
    )


def _sum(sides: Sequence[Side]) -> Usage:
    return summed(each.usage for each in sides)


def prompts_differ(left: Prompt, right: Prompt) -> tuple[str, ...]:
    """Return in which of `PROMPT` two agents differ."""
    return tuple(each for each in PROMPT if left.text(each) != right.text(each))


def _differs(left: Side | None, right: Side | None) -> tuple[str, ...]:
    if left is None or right is None:
        return ASPECTS
    return tuple(each for each in ASPECTS if left.text(each) != right.text(each))


def _text(message: Message) -> str:
    return message.text if isinstance(message.content, str) else shown(message.content)


def _clean(texts: Sequence[str]) -> str:
    return redact("\n".join(texts))
