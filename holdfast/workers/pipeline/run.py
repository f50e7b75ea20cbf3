"""One run of a pipeline: runs the components that its Traversal makes ready."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never, cast

from holdfast.errors import (
    ComponentError,
    HoldfastError,
    InvalidArgumentError,
    message_of,
    remedy_of,
)
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, canonical, digest
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.messages import ToolCall, clean, user
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import render_result
from holdfast.workers.pipeline.components import (
    Component,
    ConstantComponent,
    FunctionComponent,
    ModelComponent,
    OnError,
    PromptComponent,
    ToolComponent,
)
from holdfast.workers.pipeline.graph import Graph, Traversal
from holdfast.workers.turns import as_json

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


class Run:
    """One run of a pipeline in one activity."""

    def __init__(
        self,
        graph: Graph,
        components: Mapping[str, Component],
        ctx: StepContext,
        state: dict[str, Json],
        *,
        flagged: str,
    ) -> None:
        """Set up a run.

        Args:
            graph: The graph.
            components: Name to component.
            ctx: The step's context.
            state: The step's own copy of the state, changed in place.
            flagged: The component whose function may return the pair `(value, is_last)`; empty for
                none.
        """
        self._graph = graph
        self._components = components
        self._ctx = ctx
        self._state = state
        self._flagged = flagged

    async def output(self, given: Mapping[str, Json]) -> Made:
        """Run every component that can run, and return the output component's output.

        Args:
            given: Values of "input" and "previous".

        Raises:
            ComponentError: The output component did not run.
        """
        going, last = Traversal(self._graph, given), True
        while ready := going.ready():
            name = next((n for n in ready if not self._is_tool(n)), None)
            if name is None:
                await self._call_tools(ready, going)
                continue
            made = await self._one(name, merge_patch.plain(going.inputs(name)))
            going.put(name, made.value)
            last = last and made.is_last
        if self._graph.output not in going.values:
            why = going.why_skipped(self._graph.output)
            raise ComponentError(
                self._graph.output, f"is the output of the pipeline and did not run: {why}"
            )
        return Made(going.values[self._graph.output], last)

    def _is_tool(self, name: str) -> bool:
        return isinstance(self._components[name], ToolComponent)

    async def _one(self, name: str, inputs: dict[str, Json]) -> Made:
        component = self._components[name]
        with _named(name):
            match component:
                case FunctionComponent():
                    return await self._call(component, inputs)
                case PromptComponent():
                    return Made(component.fill(inputs))
                case ModelComponent():
                    return Made(await self._ask(component, inputs))
                case ConstantComponent():
                    return Made(merge_patch.plain(component.value))
                case ToolComponent():
                    msg = "Tools are called together."
                    raise TypeError(msg)

    async def _ask(self, component: ModelComponent, inputs: dict[str, Json]) -> str:
        prompt = render_result(inputs["prompt"])
        before = self._ctx.messages if component.conversation else self._ctx.notes
        answer = await self._ctx.call_model(
            [*before, user(prompt)], tools=(), instructions=component.instructions
        )
        return answer.text

    # ---- functions

    async def _call(self, component: FunctionComponent, inputs: dict[str, Json]) -> Made:
        if not component.memo:
            return await self._invoke(component, inputs, self._state)
        seen = {"inputs": inputs}
        if "state" in component.special:
            seen["state"] = self._state

        async def make() -> dict[str, Json]:
            state = merge_patch.plain(self._state)
            made = await self._invoke(component, inputs, state)
            patch = merge_patch.change(self._state, state)
            return {"value": made.value, "last": made.is_last, "patch": patch}

        key = digest(canonical(seen))[:16]
        kept = cast("dict[str, Json]", await self._ctx.memo(f"{component.name} {key}", make))
        after = merge_patch.apply(self._state, kept["patch"])
        self._state.clear()
        self._state.update(after)
        return Made(kept["value"], kept["last"])

    async def _invoke(
        self, component: FunctionComponent, inputs: dict[str, Json], state: dict[str, Json]
    ) -> Made:
        special: dict[str, Any] = {"state": state, "ctx": self._ctx}
        more = {name: special[name] for name in component.special}
        made = await invoke_here(component.function, **inputs, **more)
        is_last, is_pair = True, component.name == self._flagged and isinstance(made, tuple)
        if is_pair:
            made, is_last = self._pair(made)
        return Made(as_json(made, "its function returned"), is_last)

    def _pair(self, made: Any) -> tuple[Any, bool]:
        match made:
            case (answer, bool() as is_last):
                return answer, is_last
            case _:
                msg = (
                    f"its function returned {shown(made)}. The output of a pipeline is a value, or"
                    " the pair (answer, is_last) with a bool."
                )
                raise InvalidArgumentError(msg)

    # ---- tools

    async def _call_tools(self, names: Sequence[str], going: Traversal) -> None:
        """Call all tools that are ready at the same time.

        Raises:
            ComponentError: A call failed, and its component has `on_error="fail"`.
        """
        tools = [cast("ToolComponent", self._components[name]) for name in names]
        calls = [self._tool_call(tool, going.inputs(tool.name)) for tool in tools]
        for tool, result in zip(tools, await self._ctx.call_tools(calls), strict=True):
            then: OnError = tool.on_error if result.is_error else "text"
            match then:
                case "text":
                    going.put(tool.name, result.content)
                case "skip":
                    going.skip(tool.name)
                case "fail":
                    raise ComponentError(
                        tool.name,
                        f"called tool {tool.tool_name!r}, which failed: {result.content} The result"
                        ' is recorded; run_step(task, restart="step") calls it again.',
                    )
                case _:
                    assert_never(then)

    def _tool_call(self, tool: ToolComponent, arguments: dict[str, Json]) -> ToolCall:
        known = [spec.name for spec in self._ctx.agent.tools]
        if tool.tool_name not in known:
            there = ", ".join(map(repr, known)) or "none"
            msg = (
                f"Component {tool.name!r} calls tool {tool.tool_name!r}, which agent"
                f" {self._ctx.agent.name!r} does not have. Its tools: {there}."
            )
            raise InvalidArgumentError(msg)
        text = clean(canonical(arguments).decode("utf-8", "surrogatepass"))
        return ToolCall(id=f"{tool.name}-{self._ctx.n}", name=tool.tool_name, arguments=text)


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
