"""LLMCompiler: plan all tool calls at once, run each as soon as it can, join the results.

Source: Kim et al., An LLM Compiler for Parallel Function Calling, arXiv:2312.04511.

The joiner decides by its text. The usual form is `Thought: ...` and `Action: finish(answer)` or
`Action: replan(reason)`. Either case, missing brackets, and answers with several lines or with
brackets of their own are read as well.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import as_object, as_text, is_array
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.workers.base import AgentWorker, at_least
from holdfast.workers.compiler import prompts
from holdfast.workers.compiler.arguments import ArgumentsError, Plain, read_arguments
from holdfast.workers.compiler.plan import Plan, PlanError, parse_plan
from holdfast.workers.compiler.prompts import NO_PLAN, NO_RESULTS, RESULTS
from holdfast.workers.compiler.references import fill

if TYPE_CHECKING:
    from holdfast.models.base import ToolSpec
    from holdfast.workers.context.context import StepContext


_VERB = re.compile(
    r"(?:\baction[\s*`]*[:=][\s*`]*(?P<asked>finish|replan)"
    r"|^[ \t>*`#-]*(?P<bare>finish|replan)(?=[ \t]*\())\b[*`]*[ \t]*(?P<open>\()?",
    re.IGNORECASE | re.MULTILINE,
)
_ACTION = re.compile(r"^[ \t>*`#-]*action[\s*`]*[:=].*", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_THOUGHT = re.compile(r"^[\s>*`#-]*thought[\s*`]*:[\s*]*", re.IGNORECASE)
_END = re.compile(r"(?:<[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>\s*)+\Z", re.IGNORECASE)
_NOTHING = re.compile(r"(?:[\s*`]|<[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>)*", re.IGNORECASE)
_BOLD = re.compile(r"(?<!\w)\*\*|\*\*(?!\w)")  # and not 2**3
_NAMED = re.compile(r"\s*(?:answer|response|result|reason)\s*=\s*(?=[\"'])", re.IGNORECASE)
_AGAIN = re.compile(
    r"\s*[\"'`]?replan\b[\s\"'`]*(?:[-:(,.](?P<reason>.*))?", re.IGNORECASE | re.DOTALL
)


class Decision(Value):
    """The joiner's decision.

    Attributes:
        kind: "finish" with the answer, or "replan".
        text: The answer, or why another plan is needed; the latter may be empty.
        thought: The text before the decision.
    """

    kind: Literal["finish", "replan"]
    text: str = ""
    thought: str = ""


def parse_decision(text: str) -> Decision | None:
    """Read the joiner's decision; None when the text holds none.

    Args:
        text: The model's text.
    """
    found = _VERB.search(text)
    if found is None:
        return None
    verb = (found["asked"] or found["bare"]).lower()
    thought = _THOUGHT.sub("", text[: found.start()]).strip()
    rest = text[found.end() :]
    said = _inside(rest) if found["open"] else _trimmed(rest.strip().removeprefix(":"))
    said = _unquoted(said)
    again = _AGAIN.fullmatch(said) if verb == "finish" else None
    if again is not None:
        return Decision(kind="replan", text=(again["reason"] or "").strip(" )\"'"), thought=thought)
    if verb == "replan":
        return Decision(kind="replan", text=said, thought=thought)
    return Decision(kind="finish", text=said, thought=thought) if said else None


def without_grammar(text: str) -> str:
    """Return the answer in a text when another plan is out of the question.

    Args:
        text: The model's text, with or without the words of the grammar.
    """
    decision = parse_decision(text)
    if decision is not None and decision.kind == "finish":
        return decision.text
    said = _THOUGHT.sub("", _ACTION.sub("", text)).strip() if decision is not None else text
    return said or text


def _inside(rest: str) -> str:
    """Return the text up to the bracket that closes one opened before `rest`.

    Brackets in an answer need not come in pairs. The matching bracket closes the answer, unless
    more closing than opening brackets follow it; then the last bracket does.
    """
    level = 1
    for at, letter in enumerate(rest):
        level += (letter == "(") - (letter == ")")
        if level == 0:
            after = rest[at + 1 :]
            if after.count(")") <= after.count("("):
                return rest[:at]
            break
    end = rest.rfind(")")
    is_closed = end >= 0 and _NOTHING.fullmatch(rest, end + 1) is not None
    return rest[:end] if is_closed else _trimmed(rest)


def _trimmed(text: str) -> str:
    """Remove meaningless marks behind a decision without brackets: fences, bold, end tags.

    A mark whose other half is in the text belongs to the text.
    """
    text, longer = text.strip(), ""
    while text != longer:
        longer = text
        if text.endswith("```") and text.count("```") % 2:
            text = text.removesuffix("```")
        elif text.endswith("**") and len(_BOLD.findall(text)) % 2:
            text = text.removesuffix("**")
        text = _END.sub("", text).rstrip()
    return text


def _unquoted(said: str) -> str:
    """Remove the quotes, and a name such as `answer=`, of an answer that is one quoted text."""
    said = said.strip()
    named = _NAMED.match(said)
    quoted = said[named.end() :] if named else said
    if quoted[:1] not in ("'", '"') or not quoted:
        return said
    try:
        given = read_arguments(f"({quoted})", 0)
    except ArgumentsError:
        return said
    only = given.positional[0] if len(given.positional) == 1 else None
    if isinstance(only, str) and not isinstance(only, Plain) and given.end == len(quoted) + 2:
        return only.strip()
    return said


class CallResult(Value):
    """Result of one call of a plan.

    Attributes:
        call: The call, as a line of the plan.
        content: Its result as text.
        is_error: Whether the result is an error.
    """

    call: str
    content: str = ""
    is_error: bool = False


class Round(Value):
    """One plan and its results.

    Attributes:
        version: Number of the plan in its task, from 1.
        results: The results of its calls, in the order of the plan.
        problems: Why no plan could be read; empty when one could.
        reason: Why another plan was wanted after it.
    """

    version: int
    results: tuple[CallResult, ...] = ()
    problems: tuple[str, ...] = ()
    reason: str = ""


def results_text(rounds: Sequence[Round]) -> str:
    """List the results of all rounds for the model, oldest first."""
    return "\n\n".join((RESULTS, *map(_round_text, rounds)))


def _round_text(each: Round) -> str:
    lines = [f"Plan {each.version}:"]
    for result in each.results:
        lines += [result.call, f"{'error' if result.is_error else 'result'}: {result.content}"]
    if not each.results:
        lines += [NO_PLAN, *each.problems] if each.problems else [NO_RESULTS]
    if each.reason:
        lines.append(f"Why another plan was wanted: {each.reason}")
    return "\n".join(lines)


PLANS = "plans"
"""Key of the task's extra_state for all plans: `[{"version": 1, "nodes": ["1. look(...)"]}]`."""

JOIN_ATTEMPTS = 2
"""Most model calls of one join step; a second one follows when no decision can be read."""

_EMPTY = "(nothing)"  # providers refuse an empty assistant message


class PlanningAgentWorker(AgentWorker):
    """Plans calls, runs each in a step of its own, and ends with a step that has their results."""

    max_parallel: ClassVar[int] = 16
    offers_hosted: ClassVar[bool] = False

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Plan, run one call of a plan, or end."""
        told = step.message()
        if told is not None:
            ctx.add(told)
        match step.step_state.get("kind"):
            case "call":
                return run_call(step, ctx)
            case "answer" | "join":
                return await self.end(step, ctx)
            case _:
                return await self.plan(step, ctx)

    @abstractmethod
    async def plan(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Ask for a plan, and queue its calls and the step that ends it."""

    @abstractmethod
    async def end(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Answer from the results of the calls."""

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep the user messages and the answers."""
        del task
        return [message for message in transcript if message.role in ("user", "assistant")]


class LLMCompilerAgentWorker(PlanningAgentWorker):
    """Plans tool calls as a graph, and runs each call as soon as its inputs are there.

    A round is a plan step, one step per call (`p1.3` is call 3 of plan 1) and a join step
    (`p1.join`), which answers or asks for another round. A failed call is an observation for the
    join; calls that need its result are not run. When no plan can be read, the round has no calls:
    the problems are in the step's output and in the state, and the join step answers. A plan may
    not call a tool that the agent's `tool_retriever` did not choose. If the model refuses, the
    refusal is the answer. New user input, or feedback, in the middle of a round starts another
    round when the calls of the present one are done.

    Only user messages and answers join the transcript. All plans are kept in the task's extra_state
    under "plans". Tool choice is not used: the planner chooses.

    Args:
        max_replans: Most further plans that the joiner may ask for, per request.
        max_plan_attempts: Most model calls for one plan; after an unreadable plan, the planner gets
            its problems.

    Raises:
        InvalidArgumentError: An argument is too small, or not a whole number.
    """

    def __init__(self, *, max_replans: int = 3, max_plan_attempts: int = 2) -> None:
        """Keep the two limits."""
        self.max_replans = at_least(0, "max_replans", max_replans)
        self.max_plan_attempts = at_least(1, "max_plan_attempts", max_plan_attempts)

    # ---- planning

    async def plan(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Make a plan, and queue its calls and its join step."""
        tools = await ctx.offered_tools()
        if not tools:
            return finished(step, ctx, (await ctx.call_model()).text)
        rounds = _rounds(ctx, step.step_state.get("after"))
        problems: tuple[str, ...] = ()
        asked = _with_results(ctx, rounds, prompts.PLAN_ON)
        rules = prompts.planner_instructions(ctx.agent.instructions, tools)
        for _ in range(self.max_plan_attempts):
            if ctx.limit_reached:
                return await _answer(step, ctx, rounds)
            answer = await ctx.call_model(asked, tools=(), instructions=rules)
            if answer.refusal:
                return finished(step, ctx, answer.text)
            try:
                plan = parse_plan(answer.text, tools)
                if answer.finish == "length" and not plan.is_joined:
                    raise PlanError([prompts.CUT_OFF])
                _refuse_hidden(plan, tools, ctx)
            except PlanError as error:
                problems = error.problems
                told = prompts.UNREADABLE_PLAN.format(problems=_listed(problems))
                asked = [*(asked or ctx.messages), assistant(answer.text or _EMPTY), user(told)]
            else:
                return _planned(step, ctx, rounds, plan, ())
        return _planned(step, ctx, rounds, Plan(), problems)

    # ---- joining

    async def end(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Answer, or queue another plan."""
        rounds = [*_rounds(ctx, step.step_state["plan"]), _round(step, ctx)]
        if _turns(ctx) > step.step_state["turns"]:
            return _replanned(step, rounds, prompts.USER_SAID_MORE, replans=0)
        replans: int = step.step_state["replans"]
        is_last = replans >= self.max_replans
        asked: Sequence[Message] = _with_results(ctx, rounds) or ()
        rules = prompts.joiner_instructions(ctx.agent.instructions, is_last=is_last)
        decision: Decision | None = None
        said = ""
        for _ in range(JOIN_ATTEMPTS):
            if ctx.limit_reached:
                return await _answer(step, ctx, rounds)
            answer = await ctx.call_model(asked, tools=(), instructions=rules)
            said = answer.text
            if answer.refusal:
                return finished(step, ctx, said)
            decision = parse_decision(said)
            if decision is not None and (decision.kind == "finish" or not is_last):
                break
            told = prompts.MUST_FINISH if is_last else prompts.UNREADABLE_DECISION
            asked = [*asked, assistant(said or _EMPTY), user(told)]
        if decision is not None and decision.kind == "replan" and not is_last:
            reason = decision.text or decision.thought
            return _replanned(step, rounds, reason, replans=replans + 1)
        return finished(step, ctx, without_grammar(said))


def _refuse_hidden(plan: Plan, tools: Sequence[ToolSpec], ctx: StepContext) -> None:
    """Refuse a plan that calls a tool which the agent has, but which is not on offer.

    It must be refused here: each call is a step of its own, which does not know the planner's
    offer.

    Raises:
        PlanError: The plan calls such a tool.
    """
    offered = [spec.name for spec in tools]
    hidden = {spec.name for spec in ctx.agent.tools}.difference(offered)
    wrong = [call for call in plan.calls if call.tool in hidden]
    if wrong:
        names = ", ".join(offered)
        raise PlanError([prompts.NOT_OFFERED.format(call=call, names=names) for call in wrong])


def run_call(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Run the call of a step, unless a result that it needs is missing.

    The state of the step has `tool` and `arguments`; the id of a step whose result they refer to by
    `$3` ends with `.3`.
    """
    texts = {id.rpartition(".")[2]: observation(ctx, id) for id in step.prev_steps}
    failed = [f"${id}" for id, (_, is_error) in texts.items() if is_error]
    if failed:
        return _failed(step, prompts.NOT_RUN.format(ids=", ".join(failed)))
    tool: str = step.step_state["tool"]
    specs = {spec.name: spec.parameters for spec in ctx.agent.tools}
    schema = specs.get(tool, {})
    results = {id: text for id, (text, _) in texts.items()}
    arguments = fill(step.step_state["arguments"], results, schema, schema)
    written = json.dumps(arguments, ensure_ascii=False)
    call = ToolCall(id=f"call_{step.step_id}", name=tool, arguments=written)
    return TaskStepOutput(task_step=step, calls=(call,), quiet=True)


def _failed(step: TaskStep, text: str) -> TaskStepOutput:
    return TaskStepOutput(output={"content": text, "is_error": True}, task_step=step)


def observation(ctx: StepContext, step_id: str) -> tuple[str, bool]:
    """Return the output of a call's step as text, and whether it is an error."""
    output: Json = ctx.inputs.get(step_id)
    if isinstance(output, str):
        return output, False
    return as_text(as_object(output).get("content")) or prompts.DROPPED, True


def _planned(
    step: TaskStep, ctx: StepContext, rounds: Sequence[Round], plan: Plan, problems: Sequence[str]
) -> TaskStepOutput:
    """Record a plan, and queue its calls and its join step."""
    output = dict(_record(ctx, plan, problems))
    version = output["version"]
    steps = call_steps(step, f"p{version}", plan)
    state: dict[str, Json] = {
        "kind": "join",
        "plan": step.step_id,
        "turns": _turns(ctx),
        "replans": step.step_state.get("replans", 0),
    }
    join = TaskStep(
        task_id=step.task_id,
        step_id=f"p{version}.join",
        step_state=state,
        prev_steps=(step.step_id, *(each.step_id for each in steps)),
    )
    if rounds:
        output["rounds"] = [each.wire() for each in rounds]
    return TaskStepOutput(output=output, task_step=step, next_steps=(*steps, join))


def call_steps(step: TaskStep, prefix: str, plan: Plan) -> list[TaskStep]:
    """Return a step for each call of a plan, after those of the calls that it needs."""
    return [
        TaskStep(
            task_id=step.task_id,
            step_id=f"{prefix}.{call.id}",
            step_state={"kind": "call", "tool": call.tool, "arguments": call.arguments},
            prev_steps=tuple(f"{prefix}.{id}" for id in call.needs),
        )
        for call in plan.calls
    ]


def _record(ctx: StepContext, plan: Plan, problems: Sequence[str]) -> dict[str, Json]:
    """Append a plan to the task's state, with its version; return what was appended.

    Raises:
        InvalidArgumentError: Something other than a list is under the key.
    """
    kept: Json = ctx.state.setdefault(PLANS, [])
    if not is_array(kept):
        raise InvalidArgumentError(
            f"extra_state[{PLANS!r}] holds {type(kept).__name__}, but LLMCompilerAgentWorker keeps"
            " its plans there. Use another name for your own state."
        )
    nodes: list[Json] = [str(call) for call in plan.calls]
    record: dict[str, Json] = {"version": len(kept) + 1, "nodes": nodes}
    if problems:
        record["problems"] = list(problems)
    kept.append(record)
    return record


def _rounds(ctx: StepContext, step_id: str | None) -> list[Round]:
    """Read the earlier rounds of the request from a step's output, where `_replanned` put them."""
    handed = as_object(ctx.inputs.get(step_id or ""))
    return [Round.model_validate(each) for each in handed.get("rounds", ())]


def _round(step: TaskStep, ctx: StepContext) -> Round:
    """Collect the results of the plan that a step joins."""
    planned: dict[str, Json] = ctx.inputs[step.step_state["plan"]]
    results: list[CallResult] = []
    for line, step_id in zip(planned["nodes"], step.prev_steps[1:], strict=True):
        content, is_error = observation(ctx, step_id)
        results.append(CallResult(call=line, content=content, is_error=is_error))
    problems = tuple(planned.get("problems", ()))
    return Round(version=planned["version"], results=tuple(results), problems=problems)


def _replanned(
    step: TaskStep, rounds: Sequence[Round], reason: str, *, replans: int
) -> TaskStepOutput:
    """Queue the next plan; it reads the rounds from this step's output."""
    newest = rounds[-1].model_copy(update={"reason": reason})
    following = TaskStep(
        task_id=step.task_id,
        step_id=f"p{newest.version + 1}",
        step_state={"kind": "plan", "after": step.step_id, "replans": replans},
        prev_steps=(step.step_id,),
    )
    output: dict[str, Json] = {
        "action": "replan",
        "reason": reason,
        "rounds": [each.wire() for each in (*rounds[:-1], newest)],
    }
    return TaskStepOutput(output=output, task_step=step, next_steps=(following,))


async def _answer(step: TaskStep, ctx: StepContext, rounds: Sequence[Round]) -> TaskStepOutput:
    """Make the last model call of the budget, and end the task with its answer."""
    answer = await ctx.call_model(_with_results(ctx, rounds), tools=())
    return finished(step, ctx, without_grammar(answer.text))


def finished(step: TaskStep, ctx: StepContext, text: str) -> TaskStepOutput:
    """End the task with a text as its answer."""
    ctx.add(assistant(text))
    return TaskStepOutput(output=text, task_step=step, is_last=True)


def _with_results(
    ctx: StepContext, rounds: Sequence[Round], *more: str
) -> Sequence[Message] | None:
    """Return the conversation with the rounds' results behind it; None when there are no rounds."""
    if not rounds:
        return None
    return [*ctx.messages, user("\n\n".join((results_text(rounds), *more)))]


def _turns(ctx: StepContext) -> int:
    """Count the user messages; more than at the time of the plan call for another plan."""
    return sum(message.role == "user" for message in ctx.messages)


def _listed(problems: Sequence[str]) -> str:
    return "\n".join(f"- {problem}" for problem in problems)
