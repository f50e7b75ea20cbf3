"""ChainOfAbstractionAgentWorker: the model reasons with placeholders, tools fill them in.

The method is chain-of-abstraction reasoning (Gao et al. 2024, arXiv:2401.17464).

A call is written `[FUNC add(3, y1) = y2]`: the tool, its arguments and the name of its result.
Other calls, and the text around them, refer to it by that name. The words of the prompts are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.models.base import ToolSpec
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import is_array, is_object
from holdfast.values.messages import Message, assistant, user
from holdfast.values.steps import TaskStep, TaskStepOutput
from holdfast.workers.base import at_least
from holdfast.workers.compiler.arguments import (
    ArgumentsError,
    bind,
    parameter_names,
    read_arguments,
)
from holdfast.workers.compiler.plan import MOST_CALLS, Call, Plan, PlanError, plan_of
from holdfast.workers.compiler.references import LONGEST_ID, references
from holdfast.workers.compiler.worker import PlanningAgentWorker, call_steps, finished, observation

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext


_BEGIN = re.compile(r"\[\s*FUNC\s+([^\W\d][\w.-]*)\s*(\()", re.IGNORECASE)
_END = re.compile(rf"\s*(?:=|->)\s*\$?[yY]_?([0-9]{{1,{LONGEST_ID}}})\s*\]")
_NAME = re.compile(rf"(?<![\w$])[yY]_?([0-9]{{1,{LONGEST_ID}}})(?!\w)")


class Chain(Value):
    """A chain that can be run.

    Attributes:
        text: What the model wrote, each call replaced by the name of its result: `{y1}`.
        plan: The calls.
    """

    text: str = ""
    plan: Plan = Plan()

    def filled(self, results: Mapping[int, str]) -> str:
        """Return the text with results instead of their names.

        Args:
            results: Number of the name to result.
        """
        return re.sub(
            r"\{y([0-9]+)\}", lambda found: results.get(int(found[1]), found[0]), self.text
        )


def parse_chain(text: str, tools: Sequence[ToolSpec]) -> Chain:
    """Read a chain; a text without calls is one as well.

    Args:
        text: The model's text.
        tools: The tools on offer; arguments without names take theirs from the order of the schema.

    Raises:
        PlanError: A call cannot be read or run; each problem quotes what was written.
    """
    specs = {tool.name: tool for tool in tools}
    found: list[tuple[int, int, str, dict[str, Json], int]] = []  # begin, end, tool, arguments, id
    problems: list[str] = []
    at = 0
    while (head := _BEGIN.search(text, at)) is not None:
        at = head.end()
        try:
            spec = specs.get(head[1])
            given = read_arguments(text, head.start(2), parameter_names(spec))
            tail = _END.match(text, given.end)
            if tail is None:
                raise ArgumentsError("a call ends with the name of its result, as in = y1]")
            arguments = bind(given, spec, specs)
        except ArgumentsError as error:
            problems.append(f"{text[head.start() : head.start() + 80]!r}: {error}")
            continue
        at = tail.end()
        found.append((head.start(), tail.end(), head[1], arguments, int(tail[1])))
    problems += [f"there is no tool {tool!r}" for _, _, tool, _, _ in found if tool not in specs]
    if len(found) > MOST_CALLS:
        problems.append(f"it has more than {MOST_CALLS} calls")
    if problems:
        raise PlanError(problems)
    known = {number for *_, number in found}
    calls = [
        _call(number, tool, _referring(arguments, known)) for _, _, tool, arguments, number in found
    ]
    return Chain(text=_named(text, found, known), plan=plan_of(calls))


def _call(number: int, tool: str, arguments: Json) -> Call:
    needs = sorted({int(each) for each in references(arguments)})
    given = arguments if is_object(arguments) else {}
    return Call(id=number, tool=tool, arguments={**given}, needs=tuple(needs))


def _referring(value: Json, known: set[int]) -> Json:
    """Write names of results as references, `$1`; other dollar signs are escaped."""
    if isinstance(value, str):
        return _NAME.sub(
            lambda found: f"${{{int(found[1])}}}" if int(found[1]) in known else found[0],
            value.replace("$", "$$"),
        )
    if is_array(value):
        return [_referring(each, known) for each in value]
    if is_object(value):
        return {key: _referring(each, known) for key, each in value.items()}
    return value


def _named(
    text: str, found: Sequence[tuple[int, int, str, dict[str, Json], int]], known: set[int]
) -> str:
    """Replace each call, and each name of a result, by `{y1}`."""
    parts: list[str] = []
    at = 0
    for begin, end, _, _, number in found:
        parts += [_braced(text[at:begin], known), f"{{y{number}}}"]
        at = end
    return "".join((*parts, _braced(text[at:], known)))


def _braced(text: str, known: set[int]) -> str:
    return _NAME.sub(
        lambda found: f"{{y{int(found[1])}}}" if int(found[1]) in known else found[0], text
    )


PLAN_PROMPT = """\
Do not answer the last request yet. Write down how to reason towards its answer, in a few
sentences, and put a call in the place of each fact or number that a tool can give:

[FUNC tool(argument, argument) = y1]

Rules:
- The result of a call gets a name of its own: y1, y2, y3 and so on.
- Use that name for the result in the sentences, and in the arguments of other calls, also inside a
  text.
- Arguments stand in the order of the tool's parameters, or as name=value; texts in double quotes.
- Use the tools of the list below only. Where no tool helps, write the reasoning without calls.
- Calls that do not need each other's results are made at the same time.

Example, with tools price(item) and multiply(a, b):
One pear costs [FUNC price("pear") = y1] and four of them cost [FUNC multiply(y1, 4) = y2]."""

ANSWER_PROMPT = """\
Below is the reasoning on the last request, with the results of the tools in it. Answer the request
now, in plain sentences and from these results, without speaking of tools or of the reasoning
itself. Where a result is an error, say what is missing."""

NO_TOOLS = "There are no tools: write no calls."

UNREADABLE = (
    "This cannot be run:\n{problems}\nWrite the whole reasoning again, each call as"
    " [FUNC tool(arguments) = y1]."
)

NOT_READ = "No tool could be used, because the calls could not be read:"


def planning(instructions: str, prompt: str, tools: Sequence[ToolSpec]) -> str:
    """Make the system prompt: the agent's instructions, the rules, the tools."""
    listed = "\n\n".join(map(_described, tools)) or NO_TOOLS
    return "\n\n".join(
        part for part in (instructions.strip(), prompt, f"Tools:\n\n{listed}") if part
    )


def _described(tool: ToolSpec) -> str:
    names = ", ".join(parameter_names(tool))
    schema = json.dumps(tool.parameters.get("properties", {}), ensure_ascii=False)
    about = " ".join(tool.description.split())
    return f"- {tool.name}({names}): {about}\n  Parameters: {schema}"


def answering(instructions: str, prompt: str, reasoning: str) -> str:
    """Make the system prompt: the agent's instructions, the rules, the reasoning."""
    parts = (instructions.strip(), prompt, f"Reasoning:\n\n{reasoning}")
    return "\n\n".join(part for part in parts if part)


class ChainOfAbstractionAgentWorker(PlanningAgentWorker):
    """Two model calls a turn, however many tools are used between them.

    The first step asks for a chain: the reasoning as text, with a call instead of each result.
    Each call is a linked step ("c1.2" is y2 of the chain of step 1), which starts when the results
    that it needs are there. The last step puts the results into the text, and asks for the answer.
    A call that fails has its error as result; calls that need it are not run.

    The transcript gets the user's messages and the answers, nothing else. Tool choice is not used:
    the chain says which tools are called.

    Args:
        max_plan_attempts: How often the model is asked for one chain; it reads what was wrong.
        plan_prompt: How to write a chain; the tools are added to it.
        answer_prompt: How to answer; the chain with its results is added to it.

    Raises:
        InvalidArgumentError: `max_plan_attempts` is below 1, or no whole number.
    """

    def __init__(
        self,
        *,
        max_plan_attempts: int = 2,
        plan_prompt: str = PLAN_PROMPT,
        answer_prompt: str = ANSWER_PROMPT,
    ) -> None:
        """Keep the options."""
        self.max_plan_attempts = at_least(1, "max_plan_attempts", max_plan_attempts)
        self.plan_prompt = plan_prompt
        self.answer_prompt = answer_prompt

    async def plan(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Ask for a chain, and queue its calls and the answer."""
        tools = await ctx.offered_tools()
        rules = planning(ctx.agent.instructions, self.plan_prompt, tools)
        asked: Sequence[Message] = ctx.messages
        chain = Chain()
        for _ in range(self.max_plan_attempts):
            if ctx.limit_reached:
                return finished(step, ctx, (await ctx.call_model()).text)
            answer = await ctx.call_model(asked, tools=(), instructions=rules)
            if answer.refusal:
                return finished(step, ctx, answer.text)
            try:
                chain = parse_chain(answer.text, tools)
                break
            except PlanError as error:
                problems = "\n".join(f"- {problem}" for problem in error.problems)
                chain = Chain(text=f"{NOT_READ}\n{problems}")
                complaint = user(UNREADABLE.format(problems=problems))
                said = (assistant(answer.text),) if answer.text else ()  # some servers refuse empty
                asked = [*asked, *said, complaint]
        return _planned(step, ctx, chain)

    async def end(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Put the results into the chain, and ask for the answer."""
        planned: dict[str, Json] = ctx.inputs[step.step_state["plan"]]
        chain = Chain.model_validate(planned["chain"])
        results = {
            int(id.rpartition(".")[2]): observation(ctx, id)[0] for id in step.prev_steps[1:]
        }
        reasoning = chain.filled(results)
        if ctx.limit_reached:
            ctx.add(user(reasoning))
            return finished(step, ctx, (await ctx.call_model()).text)
        rules = answering(ctx.agent.instructions, self.answer_prompt, reasoning)
        answer = await ctx.call_model(tools=(), instructions=rules)
        return finished(step, ctx, answer.text)


def _planned(step: TaskStep, ctx: StepContext, chain: Chain) -> TaskStepOutput:
    """Queue the calls of a chain, and the step that answers."""
    steps = call_steps(step, f"c{ctx.n}", chain.plan)
    answer = TaskStep(
        task_id=step.task_id,
        step_id=f"c{ctx.n}.answer",
        step_state={"kind": "answer", "plan": step.step_id},
        prev_steps=(step.step_id, *(each.step_id for each in steps)),
    )
    output: dict[str, Json] = {
        "chain": chain.model_dump(mode="json"),
        "calls": [str(call) for call in chain.plan.calls],
    }
    return TaskStepOutput(output=output, task_step=step, next_steps=(*steps, answer))
