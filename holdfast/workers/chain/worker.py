"""ChainOfAbstractionAgentWorker: the model reasons with placeholders, tools fill them in.

The method is chain-of-abstraction reasoning (Gao et al. 2024, arXiv:2401.17464).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.values.base import Json
from holdfast.values.messages import Message, assistant, user
from holdfast.values.steps import TaskStep, TaskStepOutput
from holdfast.workers.base import at_least
from holdfast.workers.chain import prompts
from holdfast.workers.chain.chain import Chain, parse_chain
from holdfast.workers.compiler.plan import PlanError
from holdfast.workers.compiler.worker import PlanningAgentWorker, observation

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext


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
        plan_prompt: str = prompts.PLAN_PROMPT,
        answer_prompt: str = prompts.ANSWER_PROMPT,
    ) -> None:
        """Keep the options."""
        self.max_plan_attempts = at_least(1, "max_plan_attempts", max_plan_attempts)
        self.plan_prompt = plan_prompt
        self.answer_prompt = answer_prompt

    async def plan(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Ask for a chain, and queue its calls and the answer."""
        tools = await ctx.offered_tools()
        rules = prompts.planning(ctx.agent.instructions, self.plan_prompt, tools)
        asked: Sequence[Message] = ctx.messages
        chain = Chain()
        for _ in range(self.max_plan_attempts):
            if ctx.limit_reached:
                return _finished(step, ctx, (await ctx.call_model()).text)
            answer = await ctx.call_model(asked, tools=(), instructions=rules)
            if answer.refusal:
                return _finished(step, ctx, answer.text)
            try:
                chain = parse_chain(answer.text, tools)
                break
            except PlanError as error:
                problems = "\n".join(f"- {problem}" for problem in error.problems)
                chain = Chain(text=f"{prompts.NOT_READ}\n{problems}")
                complaint = user(prompts.UNREADABLE.format(problems=problems))
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
            return _finished(step, ctx, (await ctx.call_model()).text)
        rules = prompts.answering(ctx.agent.instructions, self.answer_prompt, reasoning)
        answer = await ctx.call_model(tools=(), instructions=rules)
        return _finished(step, ctx, answer.text)


def _planned(step: TaskStep, ctx: StepContext, chain: Chain) -> TaskStepOutput:
    """Queue the calls of a chain, and the step that answers."""
    names = {call.id: f"c{ctx.n}.{call.id}" for call in chain.plan.calls}
    steps = [
        TaskStep(
            task_id=step.task_id,
            step_id=names[call.id],
            step_state={"kind": "call", "tool": call.tool, "arguments": call.arguments},
            prev_steps=tuple(names[id] for id in call.needs),
        )
        for call in chain.plan.calls
    ]
    answer = TaskStep(
        task_id=step.task_id,
        step_id=f"c{ctx.n}.answer",
        step_state={"kind": "answer", "plan": step.step_id},
        prev_steps=(step.step_id, *names.values()),
    )
    output: dict[str, Json] = {
        "chain": chain.model_dump(mode="json"),
        "calls": [str(call) for call in chain.plan.calls],
    }
    return TaskStepOutput(output=output, task_step=step, next_steps=(*steps, answer))


def _finished(step: TaskStep, ctx: StepContext, text: str) -> TaskStepOutput:
    ctx.add(assistant(text))
    return TaskStepOutput(output=text, task_step=step, is_last=True)
