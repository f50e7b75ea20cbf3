"""PlanAndSolveAgentWorker: the model makes a plan, and each sub-task of it is a step of its own.

The method is plan-and-solve prompting (Wang et al. 2023, arXiv:2305.04091); the plan of sub-tasks
with dependencies, refined on the way, is that of LlamaIndex's StructuredPlannerAgent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.messages import Message, assistant, system
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.workers.base import AgentWorker, RunsSteps, as_worker, at_least
from holdfast.workers.plan_and_solve import prompts
from holdfast.workers.plan_and_solve.plan import (
    PLAN_OUTPUT,
    Plan,
    check,
    default_plan,
    merge,
    read_plan,
    terminal,
)
from holdfast.workers.plan_and_solve.steps import Progress, current, following, record, results
from holdfast.workers.plan_and_solve.sub_task import SubTaskRun

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context.context import StepContext


class PlanAndSolveAgentWorker(AgentWorker):
    """Plan, do the sub-tasks side by side where the plan allows it, refine, answer.

    The first step makes the plan. Each sub-task is a linked step ("p1:<name>") that can be seen,
    edited and undone; it runs a function-calling loop, or another worker's steps, on messages of
    its own and returns a text.
    With `refine`, a step after each wave of sub-tasks may change the rest of the plan; without it,
    all sub-tasks are queued at once and start when their inputs are there. A tool choice applies to
    the first model call of each sub-task without dependencies. Input and feedback given meanwhile
    reach all sub-tasks that start after it. If there is one sub-task that no other depends on, its
    result is the answer; if there are several, a last step writes the answer. A follow-up makes a
    new plan.

    Only a `Budget` bounds the number of sub-tasks. `ctx.state["plans"]` has each version of
    each plan: see `holdfast.workers.plan_and_solve.steps.PLANS_KEY`.

    Args:
        refine: Whether to revise the rest of the plan after each wave.
        synthesize: Whether a last model call writes the answer even if there is only one last
            result.
        max_turns: Most model calls of one sub-task, the last of them without tools; with `worker`,
            its most steps, after which one model call without tools gives the result.
        worker: The step logic of sub-tasks, such as ReActAgentWorker(); None for function calling.
            Its steps are run one after the other within the step of the sub-task.
        structured: Whether to ask the provider to enforce the plan's structure. Say False for a
            server that refuses such requests; plans are read out of text as well.
        plan_prompt: Prompt for planning; the list of tools and the form of a plan are added to it.
        refine_prompt: Prompt for refining; the same is added to it.

    Raises:
        InvalidArgumentError: `max_turns` is below 1, or not a whole number.
        UserError: `worker` cannot do steps.
    """

    max_parallel: ClassVar[int] = 8

    def __init__(
        self,
        *,
        refine: bool = True,
        synthesize: bool = False,
        max_turns: int = 10,
        structured: bool = True,
        worker: RunsSteps | None = None,
        plan_prompt: str = prompts.PLAN_PROMPT,
        refine_prompt: str = prompts.REFINE_PROMPT,
    ) -> None:
        """Keep the options."""
        self.refine = refine
        self.synthesize = synthesize
        self.max_turns = at_least(1, "max_turns", max_turns)
        self.plan_prompt = plan_prompt
        self.refine_prompt = refine_prompt
        self.worker = None if worker is None else as_worker(worker)
        self._output = PLAN_OUTPUT if structured else None

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Plan, do one sub-task, refine the plan, or write the answer."""
        if "kind" not in step.step_state:
            return await self._plan(step, ctx)
        progress = Progress.model_validate(step.step_state)
        match progress.kind:
            case "sub_task":
                return await self._solve(step, ctx, progress)
            case "refine":
                return await self._refine(step, ctx, progress)
            case "answer":
                return await self._answer(step, ctx, progress)

    def join(self, outputs: Mapping[str, Json]) -> Json:
        """Join the results of sub-tasks that ran side by side when the budget ended."""
        return "\n\n".join(f"{step}:\n{prompts.as_text(out)}" for step, out in outputs.items())

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep the user messages and one answer to each turn, as plain messages."""
        del task
        kept: list[Message] = []
        for message in transcript:
            if message.role not in ("user", "assistant"):
                continue
            if kept and kept[-1].role == message.role == "assistant":
                kept.pop()  # a partial result; the answer that `join` made of them follows
            kept.append(Message(role=message.role, content=message.content))
        return kept

    # ---- the four kinds of step

    async def _plan(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        told = step.message()
        if told is not None:
            ctx.add(told)
        tools = await ctx.offered_tools()
        instructions = prompts.planning(ctx.agent.instructions, self.plan_prompt, tools)
        request = _request(ctx, told)
        conversation, problem = ctx.messages, ""
        for _ in range(2):
            if ctx.limit_reached:
                return _last(step, ctx, await ctx.call_model())
            answer = await ctx.call_model(
                conversation, tools=(), output_type=self._output, instructions=instructions
            )
            try:
                plan = read_plan(answer.text)
                check(plan)
            except InvalidArgumentError as error:
                problem = str(error)
                said = (_words(answer),) if answer.text else ()  # some servers refuse empty ones
                conversation = (*conversation, *said, prompts.complaint(problem))
            else:
                return self._begin(step, ctx, plan, request, "made")
        plan = default_plan(ctx.messages[request].text)
        return self._begin(step, ctx, plan, request, f"fallback: {problem}")

    def _begin(
        self, step: TaskStep, ctx: StepContext, plan: Plan, request: int, reason: str
    ) -> TaskStepOutput:
        progress = Progress(
            kind="refine", plan=f"p{ctx.n}", request=request, tool_choice=ctx.tool_choice
        )
        output = record(ctx.state, progress.plan, plan, reason)
        return TaskStepOutput(
            output=output, task_step=step, next_steps=self._following(plan, progress)
        )

    async def _solve(self, step: TaskStep, ctx: StepContext, progress: Progress) -> TaskStepOutput:
        if progress.sub_task is None:
            raise InvalidArgumentError(f"Step {step.step_id!r} has no sub-task in its step_state.")
        outputs = results(progress, ctx.inputs)
        prompt = prompts.solving(ctx.messages[progress.request], progress.sub_task, outputs)
        own = [prompt, *_said_since(ctx, progress.request), *_steering(step)]
        choice = progress.tool_choice if ctx.tool_choice == "auto" else ctx.tool_choice
        if self.worker is None:
            text, is_last = await self._work(ctx, own, choice)
        else:
            run = SubTaskRun(self.worker, ctx, own[1:], max_steps=self.max_turns)
            text, is_last = await run.result(prompt, choice)
        if is_last or progress.answers:
            ctx.add(assistant(text))
        return TaskStepOutput(output=text, task_step=step, is_last=is_last or progress.answers)

    async def _work(
        self, ctx: StepContext, own: list[Message], first_choice: str
    ) -> tuple[str, bool]:
        """Call the model and its tools until it answers.

        Returns:
            The answer, and whether the budget made it the task's last.
        """
        turn = 0
        while True:
            turn += 1
            is_last, choice = ctx.limit_reached, first_choice if turn == 1 else "auto"
            if turn == self.max_turns:
                own.append(system(prompts.OUT_OF_TURNS))
                choice = "none"
            answer = await ctx.call_model(own, tool_choice=choice)
            calls = answer.message.calls
            if not calls or is_last or choice == "none":
                return answer.text, is_last
            got = await ctx.call_tools(calls)
            if len(got) == 1 and not got[0].is_error and _is_direct(ctx, calls[0].name):
                return got[0].content, False
            own += (answer.message, *(result.message for result in got))

    async def _refine(self, step: TaskStep, ctx: StepContext, progress: Progress) -> TaskStepOutput:
        outputs = results(progress, ctx.inputs)
        if ctx.limit_reached:
            return _last(step, ctx, await _conclude(step, ctx, outputs))
        plan, tools = current(ctx.state, progress.plan), await ctx.offered_tools()
        answer = await ctx.call_model(
            (*ctx.messages, prompts.refining(plan, outputs), *_steering(step)),
            tools=(),
            output_type=self._output,
            instructions=prompts.planning(ctx.agent.instructions, self.refine_prompt, tools),
        )
        try:
            refined = merge(plan, progress.done, read_plan(answer.text))
            reason = "unchanged" if _same(refined, plan) else "refined"
        except InvalidArgumentError as error:
            refined, reason = plan, f"kept: {error}"
        output = record(ctx.state, progress.plan, refined, reason)
        steps = self._following(refined, progress)
        if steps:
            return TaskStepOutput(output=output, task_step=step, next_steps=steps)
        [name] = terminal(refined)
        text = prompts.as_text(outputs[name])
        ctx.add(assistant(text))
        return TaskStepOutput(output=text, task_step=step, is_last=True)

    async def _answer(self, step: TaskStep, ctx: StepContext, progress: Progress) -> TaskStepOutput:
        return _last(step, ctx, await _conclude(step, ctx, results(progress, ctx.inputs)))

    def _following(self, plan: Plan, progress: Progress) -> tuple[TaskStep, ...]:
        return following(plan, progress, refine=self.refine, synthesize=self.synthesize)


def _request(ctx: StepContext, told: Message | None) -> int:
    """Return the position of the step's input, or of the newest user message before the step.

    Raises:
        InvalidArgumentError: There is no user message.
    """
    messages = ctx.messages
    begins = len(messages) - len(ctx.adds)
    if told is not None:
        return messages.index(told, begins)
    places = [at for at, message in enumerate(messages) if message.role == "user"]
    if not places:
        msg = "There is nothing to plan for: the task has no input and the conversation no request."
        raise InvalidArgumentError(msg)
    return next((at for at in reversed(places) if at < begins), places[-1])


def _said_since(ctx: StepContext, request: int) -> tuple[Message, ...]:
    """Return the user messages since the request, and this step's own notes, such as feedback.

    Feedback is a note of the first step after it only; later steps find it in the transcript.
    """
    before = ctx.messages[request + 1 : len(ctx.messages) - len(ctx.adds)]
    return (*(message for message in before if message.role == "user"), *ctx.adds)


async def _conclude(step: TaskStep, ctx: StepContext, outputs: Mapping[str, Json]) -> ModelAnswer:
    """Call the model for the answer to the whole request, from the results."""
    messages = (*ctx.messages, prompts.answering(outputs), *_steering(step))
    return await ctx.call_model(messages, tools=())


def _last(step: TaskStep, ctx: StepContext, answer: ModelAnswer) -> TaskStepOutput:
    """End the task with an answer."""
    ctx.add(_words(answer))
    return TaskStepOutput(output=answer.text, task_step=step, is_last=True)


def _words(answer: ModelAnswer) -> Message:
    """Return an answer's message without its calls, because they will not be run."""
    return assistant(answer.text) if answer.message.calls else answer.message


def _same(left: Plan, right: Plan) -> bool:
    return {each.name: each for each in left.sub_tasks} == {e.name: e for e in right.sub_tasks}


def _steering(step: TaskStep) -> tuple[Message, ...]:
    """Return the input that was given to a queued step, if any."""
    told = step.message()
    return () if told is None else (told,)


def _is_direct(ctx: StepContext, tool: str) -> bool:
    policy = ctx.agent.policies.get(tool)
    return policy is not None and policy.return_direct
