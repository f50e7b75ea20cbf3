"""One run of a pipeline: runs the components that its Traversal makes ready."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.errors import (
    ComponentError,
    HoldfastError,
    InvalidArgumentError,
    message_of,
    remedy_of,
)
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, canonical
from holdfast.values.checks.gate import clean
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.messages import Message, ToolCall, user
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import render_result
from holdfast.workers.base import AgentWorker, add_answer, add_question, as_json, one_turn
from holdfast.workers.pipeline.components import (
    Component,
    FunctionComponent,
    Graph,
    Link,
    ModelComponent,
    PromptComponent,
    ToolComponent,
    Traversal,
)

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext


class Made(NamedTuple):
    """Output of a component.

    Attributes:
        value: JSON data.
        is_last: Whether the task is over; False only from a function that returned
            `(value, False)`.
    """

    value: Json
    is_last: bool = True


@dataclass(eq=False)
class Run:
    """One run of a pipeline in one activity.

    Attributes:
        graph: The graph.
        components: Name to component.
        ctx: The step's context.
        state: The step's own copy of the state, changed in place.
    """

    graph: Graph
    components: Mapping[str, Component]
    ctx: StepContext
    state: dict[str, Json]

    async def output(self, given: Mapping[str, Json]) -> Made:
        """Run every component that can run, and return the output component's output.

        Args:
            given: Values of "input" and "previous".

        Raises:
            ComponentError: The output component did not run.
        """
        going, last = Traversal(self.graph, given), True
        while ready := going.ready():
            others = (n for n in ready if not isinstance(self.components[n], ToolComponent))
            name = next(others, None)
            if name is None:
                await self._call_tools(ready, going)
                continue
            made = await self._one(name, merge_patch.plain(going.inputs(name)))
            going.put(name, made.value)
            last = last and made.is_last
        if self.graph.output not in going.values:
            why = going.why_skipped(self.graph.output)
            raise ComponentError(
                self.graph.output, f"is the output of the pipeline and did not run: {why}"
            )
        return Made(going.values[self.graph.output], last)

    async def _one(self, name: str, inputs: dict[str, Json]) -> Made:
        component = self.components[name]
        with _named(name):
            match component:
                case FunctionComponent():
                    return await self._call(component, inputs)
                case PromptComponent():
                    return Made(component.fill(inputs))
                case ModelComponent():
                    return Made(await self._ask(component, inputs))
                case ToolComponent():
                    raise TypeError("Tools are called together.")

    async def _ask(self, component: ModelComponent, inputs: dict[str, Json]) -> str:
        prompt = render_result(inputs["prompt"])
        before = self.ctx.messages if component.conversation else self.ctx.notes
        answer = await self.ctx.call_model(
            [*before, user(prompt)], tools=(), instructions=component.instructions
        )
        return answer.text

    # ---- functions

    async def _call(self, component: FunctionComponent, inputs: dict[str, Json]) -> Made:
        special: dict[str, Any] = {"state": self.state, "ctx": self.ctx}
        more = {name: special[name] for name in component.special}
        made = await invoke_here(component.function, **inputs, **more)
        is_last = True
        if component.name == self.graph.output and isinstance(made, tuple):
            made, is_last = self._pair(made)
        return Made(as_json(made, "its function returned"), is_last)

    def _pair(self, made: Any) -> tuple[Any, bool]:
        match made:
            case (answer, bool() as is_last):
                return answer, is_last
            case _:
                raise InvalidArgumentError(
                    f"its function returned {shown(made)}. The output of a pipeline is a value, or"
                    " the pair (answer, is_last) with a bool."
                )

    # ---- tools

    async def _call_tools(self, names: Sequence[str], going: Traversal) -> None:
        """Call all tools that are ready at the same time.

        Raises:
            ComponentError: A call failed, and its component has `on_error="fail"`.
        """
        tools = [cast("ToolComponent", self.components[name]) for name in names]
        calls = [self._tool_call(tool, going.inputs(tool.name)) for tool in tools]
        for tool, result in zip(tools, await self.ctx.call_tools(calls), strict=True):
            if result.is_error and tool.on_error == "fail":
                raise ComponentError(
                    tool.name,
                    f"called tool {tool.tool_name!r}, which failed: {result.content} The result"
                    ' is recorded; run_step(task, restart="step") calls it again.',
                )
            going.put(tool.name, result.content)

    def _tool_call(self, tool: ToolComponent, arguments: dict[str, Json]) -> ToolCall:
        known = [spec.name for spec in self.ctx.agent.tools]
        if tool.tool_name not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise InvalidArgumentError(
                f"Component {tool.name!r} calls tool {tool.tool_name!r}, which agent"
                f" {self.ctx.agent.name!r} does not have. Its tools: {there}."
            )
        text = clean(canonical(arguments).decode("utf-8", "surrogatepass"))
        return ToolCall(id=f"{tool.name}-{self.ctx.n}", name=tool.tool_name, arguments=text)


@contextmanager
def _named(name: str) -> Generator[None]:
    """Name the component in the errors that it raises.

    Other errors of Holdfast keep their type, because the task decides by it how to go on (as after
    a model error that a retry may cure).

    Raises:
        InvalidArgumentError: The component was used wrongly.
        ComponentError: The component's own code failed.
    """
    try:
        yield
    except InvalidArgumentError as error:
        msg = f"Component {name!r}: {message_of(error)}"
        raise InvalidArgumentError(msg, remedy=remedy_of(error)) from error
    except HoldfastError:
        raise
    except Exception as error:
        raise ComponentError(name, f"failed: {type(error).__name__}: {error}") from error


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
    `(answer, is_last)`: then further steps follow until that is True. The state lasts from step to
    step; functions with a parameter `state` can read and change it. It is recorded whole with each
    step, so keep it small.
    """

    def __init__(
        self,
        components: Sequence[Component],
        links: Sequence[Link] = (),
        *,
        output: str,
        initial_state: Mapping[str, Json] | None = None,
    ) -> None:
        """Check the pipeline. Only whether the agent has its tools is checked when it runs.

        Args:
            components: The components. Of several that could run next, the one declared first does.
            links: The links between them.
            output: Name of the component whose output is the step's.
            initial_state: State that each task begins with; tasks get copies.

        Raises:
            InvalidArgumentError: The pipeline could not run; the text names the component or link.
        """
        _check_kinds(components)
        self._graph = Graph([(each.name, each.slots) for each in components], links, output)
        self._components = {each.name: each for each in components}
        self._initial = as_json(dict(initial_state or {}), "The initial state is")

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Run the graph once, on the step's input and the state."""
        step = add_question(ctx, step)
        state = merge_patch.plain(step.step_state.get("state", self._initial))
        run = Run(self._graph, self._components, ctx, state)
        made = await run.output(await self._given(step, ctx))
        if made.is_last:
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


def _check_kinds(given: object) -> None:
    if not isinstance(given, Sequence) or isinstance(given, str):
        msg = f"`components` must be a list of components; it was {shown(given)}."
        raise InvalidArgumentError(msg)
    for each in cast("Sequence[object]", given):
        if not isinstance(each, Component):
            raise InvalidArgumentError(
                f"{shown(each)} is not a component. Wrap a function as FunctionComponent(name,"
                " function), a tool of the agent as ToolComponent(name)."
            )
