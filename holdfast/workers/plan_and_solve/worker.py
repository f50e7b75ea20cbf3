"""PlanAndSolveAgentWorker: the model makes a plan, and each sub-task of it is a step of its own.

The method is plan-and-solve prompting (Wang et al. 2023, arXiv:2305.04091); the plan of sub-tasks
with dependencies, refined on the way, is that of LlamaIndex's StructuredPlannerAgent.

A sub-task may be done by another AgentWorker: its steps run one after the other within one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value, as_text
from holdfast.values.checks.gate import is_array, is_object
from holdfast.values.code.user_calls import calling, invoke_here
from holdfast.values.messages import Message, assistant, system
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker, RunsSteps, as_worker, at_least
from holdfast.workers.plan_and_solve import prompts
from holdfast.workers.plan_and_solve.plan import (
    PLAN_OUTPUT,
    Plan,
    SubTask,
    check,
    default_plan,
    merge,
    read_plan,
    ready,
    step_ids,
    terminal,
)
from holdfast.workers.plan_and_solve.prompts import OUT_OF_TURNS

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context.context import StepContext


PLANS_KEY = "plans"
"""Key of `ctx.state` for every version of every plan of the task, oldest first.

Each version is `{"plan", "version", "sub_tasks", "reason"}`: the prefix of its steps' ids ("p1"), a
number from 1, the whole plan with the sub-tasks that are done, and the reason of this version:
"made", "refined", "kept: ..." when a refinement could not be used, or "fallback: ..." when no plan
could be read and one sub-task stands for the whole request.
"""


Kind = Literal["sub_task", "refine", "answer"]


class Progress(Value):
    """The `step_state` of every step of a plan but the first, which makes the plan.

    Attributes:
        kind: What the step does.
        plan: Prefix of the ids of the plan's steps.
        request: Position in the conversation of the message that the plan was made for.
        done: Name to step id: of all sub-tasks that are done, for a refinement; of the sub-tasks
            that it depends on, for another step.
        rounds: Refinements queued so far.
        sub_task: The sub-task that the step does.
        answers: Whether the sub-task's result is the task's answer.
        tool_choice: For the first model call of a sub-task that the plan begins with.
    """

    kind: Kind
    plan: str
    request: int
    done: dict[str, str] = Field(default_factory=dict[str, str])
    rounds: int = 0
    sub_task: SubTask | None = None
    answers: bool = False
    tool_choice: str = "auto"


def following(
    plan: Plan, progress: Progress, *, refine: bool, synthesize: bool
) -> tuple[TaskStep, ...]:
    """Make the next steps of a plan; none when the result that is the answer is there already.

    Args:
        plan: The whole plan.
        progress: State of the plan; its `done` has all sub-tasks that are done.
        refine: Queue the sub-tasks that can run now, and a refinement after them; else queue all.
        synthesize: Let a last step write the answer even if there is only one last result.
    """
    left = [each for each in plan.sub_tasks if each.name not in progress.done]
    now = ready(plan, progress.done) if refine else left
    ids = step_ids(progress.plan, [each.name for each in now], progress.done)
    ends = terminal(plan)
    is_over = len(now) == len(left)
    answers = is_over and len(ends) == 1 and not synthesize
    last = ends[0] if answers else ""
    steps = [_step_of(each, ids, progress, last=last) for each in now]
    if answers:
        return tuple(steps)
    if is_over:
        waits = {name: ids[name] for name in ends}
        progress = progress.model_copy(update={"tool_choice": "auto"})
        return (*steps, _step(progress, "answer", waits, f"{progress.plan}-answer"))
    rounds = progress.rounds + 1
    going_on = progress.model_copy(update={"rounds": rounds, "tool_choice": "auto"})
    return (*steps, _step(going_on, "refine", ids, f"{progress.plan}-refine-{rounds}"))


def _step_of(
    sub_task: SubTask, ids: Mapping[str, str], progress: Progress, *, last: str
) -> TaskStep:
    needs = {name: ids[name] for name in sub_task.dependencies}
    mine: dict[str, object] = {"sub_task": sub_task, "answers": sub_task.name == last, "rounds": 0}
    if needs:
        mine["tool_choice"] = "auto"
    return _step(progress.model_copy(update=mine), "sub_task", needs, ids[sub_task.name])


def _step(progress: Progress, kind: Kind, waits: Mapping[str, str], step_id: str) -> TaskStep:
    """Make a step that waits for these sub-tasks, name to step id."""
    state = progress.model_copy(update={"kind": kind, "done": dict(waits)})
    return TaskStep(step_id=step_id, step_state=state.wire(), prev_steps=tuple(waits.values()))


def results(progress: Progress, inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return name to output, for the sub-tasks that a step waited for.

    Raises:
        InvalidArgumentError: An output is missing; a result made without it would look complete.
    """
    missing = [name for name, step in progress.done.items() if step not in inputs]
    if missing:
        raise InvalidArgumentError(
            f"There is no result of {', '.join(map(repr, missing))}, which this step builds on."
            " Undo back to the plan to have it made again, or drop this step."
        )
    return {name: inputs[step] for name, step in progress.done.items()}


def current(state: Mapping[str, Json], plan: str) -> Plan:
    """Return the newest version of a plan.

    Raises:
        InvalidArgumentError: The state no longer holds the plan.
    """
    for entry in reversed(_versions(state)):
        if entry.get("plan") == plan:
            return Plan(sub_tasks=tuple(map(SubTask.model_validate, entry["sub_tasks"])))
    msg = f"ctx.state[{PLANS_KEY!r}] no longer has plan {plan!r}: no tool may change it."
    raise InvalidArgumentError(msg)


def _versions(state: Mapping[str, Json]) -> list[dict[str, Json]]:
    versions: Json = state.get(PLANS_KEY, [])
    if not is_array(versions) or not all(map(is_object, versions)):
        msg = f"ctx.state[{PLANS_KEY!r}] must be left to the plans; it holds {shown(versions)}."
        raise InvalidArgumentError(msg)
    return versions


def record(state: dict[str, Json], plan: str, now: Plan, reason: str) -> dict[str, Json]:
    """Add a version of a plan to the state; return the step's output that describes it.

    A refinement that changes nothing is in the output only, so that the state grows with changes
    alone.
    """
    before = _versions(state)
    number = sum(entry.get("plan") == plan for entry in before)
    if reason != "unchanged":
        number += 1
        entry = {"plan": plan, "version": number, "reason": reason}
        whole = [each.model_dump(mode="json") for each in now.sub_tasks]
        state[PLANS_KEY] = [*before, {**entry, "sub_tasks": whole}]
    return {"plan": plan, "version": number, "reason": reason, "sub_tasks": list(now.names)}


class SubTaskRun:
    """Runs the steps of an AgentWorker on a conversation next to the transcript.

    The steps are not steps of the task: all of their model and tool calls are in the journal of the
    one step that does the sub-task, which answers them when that step is run again.
    """

    def __init__(
        self, worker: AgentWorker, ctx: StepContext, before: Sequence[Message], *, max_steps: int
    ) -> None:
        """Begin.

        Args:
            worker: The step logic.
            ctx: The step that does the sub-task.
            before: Messages that the conversation begins with.
            max_steps: Most steps; after them, one model call without tools gives the result.
        """
        self._worker = worker
        self._ctx = ctx
        self._conversation = list(before)
        self._max_steps = max_steps
        self._queue: dict[str, TaskStep] = {}
        self._outputs: dict[str, Json] = {}

    async def result(self, prompt: Message, first_choice: str) -> tuple[str, bool]:
        """Run steps until the sub-task has its result.

        Args:
            prompt: The sub-task.
            first_choice: Tool choice of the first step.

        Returns:
            The result, and whether the budget made it the task's last.

        Raises:
            InvalidArgumentError: The worker did something that only steps of a task can do.
        """
        self._enqueue(await self._first(prompt), "1")
        lasts: dict[str, Json] = {}
        while self._queue:
            done = len(self._outputs)
            if done == self._max_steps:
                return await self._out_of_turns()
            output = await self._run(self._next(), first_choice if done == 0 else "auto")
            id = output.task_step.step_id
            self._outputs[id] = output.output
            if self._ctx.finished:
                return as_text(output.output), True
            if output.is_last:
                lasts[id] = output.output
            for at, step in enumerate(output.next_steps):
                self._enqueue(step, f"{done + 2}.{at}")
        if len(lasts) != 1:
            return as_text(await invoke_here(self._worker.join, lasts)), False
        return as_text(next(iter(lasts.values()))), False

    async def _first(self, prompt: Message) -> TaskStep:
        task = Task(
            task_id=self._ctx.task_id,
            agent=self._ctx.agent.name,
            input=prompt.text,
            images=prompt.images,
        )

        async def make() -> Json:
            step: TaskStep = await invoke_here(self._worker.initialize_step, task)
            return step.wire()

        made = await self._ctx.memo("first step of the sub-task", make, costly=False)
        return TaskStep.model_validate(made)

    def _enqueue(self, step: TaskStep, id: str) -> None:
        named = step if step.step_id else step.model_copy(update={"step_id": id})
        self._queue[named.step_id] = named

    def _next(self) -> TaskStep:
        """Take the oldest step whose inputs are there.

        Raises:
            InvalidArgumentError: All steps wait for others.
        """
        for id, step in self._queue.items():
            waits = not step.is_ready and not step.prev_steps
            if not waits and all(each in self._outputs for each in step.prev_steps):
                return self._queue.pop(id)
        raise InvalidArgumentError(
            f"{type(self._worker).__name__} left steps that nothing makes ready:"
            f" {', '.join(map(repr, self._queue))}."
        )

    async def _run(self, step: TaskStep, choice: str) -> TaskStepOutput:
        beside = self._ctx.aside(self._conversation)
        beside.tool_choice = choice
        beside.inputs = {id: self._outputs[id] for id in step.prev_steps}
        name = type(self._worker).__name__
        with calling(f"{name}.run_step"):
            made: Any = await self._worker.run_step(step, beside)
        if not isinstance(made, TaskStepOutput):
            msg = f"{name}.run_step must return a TaskStepOutput; it returned {shown(made)}."
            raise InvalidArgumentError(msg)
        self._conversation += beside.adds
        if made.calls:
            results = await self._ctx.call_tools(made.calls)
            self._conversation += [result.message for result in results]
        return made.model_copy(update={"task_step": step})

    async def _out_of_turns(self) -> tuple[str, bool]:
        beside = self._ctx.aside([*self._conversation, system(OUT_OF_TURNS)])
        answer = await beside.call_model(tools=())
        return answer.text, self._ctx.finished


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
    each plan: see `holdfast.workers.plan_and_solve.worker.PLANS_KEY`.

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
    ) -> None:
        """Keep the options."""
        self.refine = refine
        self.synthesize = synthesize
        self.max_turns = at_least(1, "max_turns", max_turns)
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
        instructions = prompts.planning(ctx.agent.instructions, prompts.PLAN_PROMPT, tools)
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
            instructions=prompts.planning(ctx.agent.instructions, prompts.REFINE_PROMPT, tools),
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
