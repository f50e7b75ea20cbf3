"""PipelineAgentWorker: each step runs a graph of functions, prompts, model calls and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker
from holdfast.workers.pipeline.components import Component
from holdfast.workers.pipeline.graph import Graph, Link
from holdfast.workers.pipeline.run import Run
from holdfast.workers.turns import add_answer, add_question, as_json, one_turn

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

Done = Callable[[Any, dict[str, Json]], bool]
"""Whether the task has its answer, from the run's output and the state."""


class PipelineAgentWorker(AgentWorker):
    """Runs a graph of components once per step.

        PipelineAgentWorker(
            [
                ToolComponent("search"),
                PromptComponent("ask", "Answer {question} from this: {found}"),
                ModelComponent("answer"),
            ],
            [
                link("input", "search", to="query"),
                link("input", "ask", to="question"),
                link("search", "ask", to="found"),
                link("ask", "answer"),
            ],
            output="answer",
        )

    Links may begin at "input", the step's new user input or, in a step without input, that of the
    turn's first step; and at "previous", the output of the step before (None in the first step).
    Traversal decides which components run. They run one after the other in the graph's order, tools
    last, so that all tools that do not depend on each other are called at the same time.

    The task is over after one run, unless the output component is a function that returns
    `(answer, is_last)`, or `done` is given: then further steps follow until that is True. The state
    lasts from step to step; functions with a parameter `state` can read and change it. It is
    recorded whole with each step, so keep it small.
    """

    def __init__(
        self,
        components: Sequence[Component],
        links: Sequence[Link] = (),
        *,
        output: str,
        done: Done | None = None,
        initial_state: Mapping[str, Json] | None = None,
    ) -> None:
        """Check the pipeline. Only whether the agent has its tools is checked when it runs.

        Args:
            components: The components. Of several that could run next, the one declared first does.
            links: The links between them.
            output: Name of the component whose output is the step's.
            done: Function of the output and the state that returns whether the task is over.
            initial_state: State that each task begins with; tasks get copies.

        Raises:
            InvalidArgumentError: The pipeline could not run; the text names the component or link.
        """
        _check_kinds(components)
        self._graph = Graph([(each.name, each.slots) for each in components], links, output)
        _check_done(done)
        self._components = {each.name: each for each in components}
        self._done = done
        self._initial = as_json(dict(initial_state or {}), "The initial state is")

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Run the graph once, on the step's input and the state."""
        step = add_question(ctx, step)
        state = merge_patch.plain(step.step_state.get("state", self._initial))
        flagged = self._graph.output if self._done is None else ""
        run = Run(self._graph, self._components, ctx, state, flagged=flagged)
        made = await run.output(await self._given(step, ctx))
        is_last = made.is_last if self._done is None else self._is_done(made.value, state)
        if is_last:
            add_answer(ctx, made.value)
            return TaskStepOutput(output=made.value, task_step=step, is_last=True)
        after: dict[str, Json] = {"state": merge_patch.plain(state, "the pipeline's state")}
        if self._graph.uses("previous"):
            after["previous"] = made.value
        request = await self._request(step, ctx)
        if request is not None:
            after["request"] = request
        following = (step.get_next_step(step_state=after),)
        return TaskStepOutput(output=made.value, task_step=step, next_steps=following)

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep each turn's question and answer."""
        return one_turn(task, transcript)

    async def _given(self, step: TaskStep, ctx: StepContext) -> dict[str, Json]:
        asked = step.input
        if asked is None and self._graph.uses("input"):
            asked = step.step_state.get("request")
            asked = (await ctx.task()).input if asked is None else asked
        return {"input": asked, "previous": step.step_state.get("previous")}

    async def _request(self, step: TaskStep, ctx: StepContext) -> str | None:
        """Return the turn's input for the next steps, if it differs from the task's input."""
        if not self._graph.uses("input"):
            return None
        if "state" in step.step_state:
            request: str | None = step.step_state.get("request")
            return request
        return None if step.input == (await ctx.task()).input else step.input

    def _is_done(self, output: Json, state: dict[str, Json]) -> bool:
        if self._done is None:
            return True
        verdict: Any = self._done(merge_patch.plain(output), state)
        if not isinstance(verdict, bool):
            msg = f"`done` of the pipeline gave {shown(verdict)}; it must give True or False."
            raise InvalidArgumentError(msg)
        return verdict


def _check_done(done: Any) -> None:
    if done is not None and not callable(done):
        msg = (
            f"`done` of the pipeline must be a function (output, state) that gives True or False;"
            f" it was {shown(done)}. Leave it out for a pipeline that runs once."
        )
        raise InvalidArgumentError(msg)


def _check_kinds(given: object) -> None:
    if not isinstance(given, Sequence) or isinstance(given, str):
        msg = f"`components` must be a list of components; it was {shown(given)}."
        raise InvalidArgumentError(msg)
    for each in cast("Sequence[object]", given):
        if not isinstance(each, Component):
            msg = (
                f"{shown(each)} is not a component. Wrap a function as FunctionComponent(name,"
                " function), a tool of the agent as ToolComponent(name)."
            )
            raise InvalidArgumentError(msg)
