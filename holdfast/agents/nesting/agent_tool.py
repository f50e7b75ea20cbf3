"""Agents as tools: a model calls another agent like a function, and gets its final output."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypedDict, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from holdfast.agents.agent_base import AgentBase, users_agent
from holdfast.agents.hooks import check_run_hooks
from holdfast.agents.run_config import RunConfig, as_run_config
from holdfast.agents.tools.arguments import Invoker, ToolArgumentsError, explain
from holdfast.agents.tools.context import NestedResult, ToolContext
from holdfast.agents.tools.functions.schema import object_schema, strict_schema, without_titles
from holdfast.agents.tools.tool import Tool
from holdfast.errors import UserError, WrongTypeError
from holdfast.models.base import ToolSpec
from holdfast.task.data.head import MAX_DEPTH, ToolPolicy
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


@dataclass(frozen=True)
class AgentToolInvocation:
    """The call of an agent as a tool, as the run that it makes knows it.

    Attributes:
        tool_name: Name of the tool.
        tool_call_id: The model's id of the call.
        tool_arguments: The arguments, as the model wrote them.
    """

    tool_name: str
    tool_call_id: str
    tool_arguments: str


def invocation_of(ctx: ToolContext[Any, Any]) -> AgentToolInvocation:
    """Return what a call of an agent as a tool is to the run that it makes."""
    return AgentToolInvocation(ctx.tool_name, ctx.call_id, ctx.arguments)


class AgentToolStreamEvent(TypedDict):
    """An event of the run of an agent that is called as a tool.

    Attributes:
        event: The event, as `RunResultStreaming.stream_events` yields it.
        agent: The agent that runs then.
        tool_call: The call, as an item of the Responses API.
    """

    event: Any
    agent: Any
    tool_call: Any


OnStream = Callable[[AgentToolStreamEvent], Any]
"""Called with each event of the run; sync or async."""


class RunOptions(TypedDict):
    """How an agent is run that is called as a tool; see `Agent.as_tool`."""

    on_stream: OnStream | None
    on_stream_max_pending_events: int | None
    hooks: Any
    session: Any
    previous_response_id: str | None
    conversation_id: str | None


def check_run_options(given: RunOptions, max_turns: int | None, max_depth: int) -> None:
    """Refuse options and limits that cannot be served.

    Raises:
        UserError: One cannot.
        WrongTypeError: The hooks are not RunHooks.
    """
    if max_turns is not None and max_turns < 0:
        raise UserError(f"max_turns must be at least 0, or None for no limit; it was {max_turns}.")
    if max_depth < 1:
        msg = f"max_depth must be at least 1, as the agent's own task counts; it was {max_depth}."
        raise UserError(msg)
    check_run_hooks(given["hooks"])
    on_stream: object = given["on_stream"]
    if on_stream is not None and not callable(on_stream):
        raise UserError(
            "on_stream must be callable or None. The settings of the run are run_config=, also by"
            " position."
        )
    most: object = given["on_stream_max_pending_events"]
    is_count = isinstance(most, int) and not isinstance(most, bool) and most > 0
    if most is not None and not is_count:
        raise UserError(
            "on_stream_max_pending_events must be a positive integer or None; it was"
            f" {shown(most)}."
        )


async def run_apart(tool: Any, ctx: ToolContext[Any, Any], made: str | list[Any]) -> Any:
    """Run the agent of a tool that is called outside of a task, as `Runner.run` does.

    Args:
        tool: The AgentTool.
        ctx: Context of the call; the run gets its context object.
        made: Input of the run.

    Raises:
        Exception: Whatever the run raises.
    """
    runner = sys.modules["holdfast"].Runner  # of a package above this one, which loads it by name
    options: RunOptions = tool.options
    ctx = ToolContext.from_agent_context(
        ctx,
        ctx.call_id,
        ctx.tool_call,
        tool_name=ctx.tool_name,
        tool_arguments=ctx.arguments,
        tool_namespace=ctx.tool_namespace,
    )
    if tool.run_config is not None:
        ctx.run_config = tool.run_config
    arguments: dict[str, Any] = {
        "context": ctx,
        "max_turns": tool.max_turns,
        "hooks": options["hooks"],
        "run_config": ctx.run_config,
        "previous_response_id": options["previous_response_id"],
        "conversation_id": options["conversation_id"],
        "session": options["session"],
    }
    if options["on_stream"] is None:
        return await runner.run(users_agent(tool.agent), made, **arguments)
    streamed = runner.run_streamed(users_agent(tool.agent), made, **arguments)
    await tell(tool, ctx, streamed.stream_events(), streamed.current_agent)
    return streamed


async def tell(
    tool: Any, ctx: ToolContext[Any, Any], events: AsyncIterator[Any], agent: Any
) -> None:
    """Call `on_stream` with the events of a run, in their order.

    An exception that it raises is logged: the run goes on.
    """
    on_stream: OnStream = tool.options["on_stream"]
    async for event in events:
        agent = getattr(event, "new_agent", agent)
        told = AgentToolStreamEvent(event=event, agent=agent, tool_call=ctx.tool_call)
        try:
            await invoke(on_stream, told)
        except Exception:  # it watches: what it does cannot undo the event
            log.exception("The on_stream function of tool %r failed", tool.name)


DEFAULT_MAX_TURNS = 10

ResultT = TypeVar("ResultT", bound=NestedResult, default=Any)

Extractor = Callable[[ResultT], Any]
"""Makes the tool's result from the nested run's result, sync or async."""

InputBuilder = Callable[[dict[str, Any]], Any]
"""Makes the nested run's input, a text or a list of items, from {"params", "summary",
"json_schema"}; sync or async."""

_CODE = (
    "model",
    "model_provider",
    "handoff_input_filter",
    "handoff_history_mapper",
    "call_model_input_filter",
    "tool_error_formatter",
    "output_guardrail_blocked_message",
)
"""Fields of RunConfig that may hold functions or objects."""

_NO_OPTIONS: Any = {
    "on_stream": None,
    "on_stream_max_pending_events": None,
    "hooks": None,
    "session": None,
    "previous_response_id": None,
    "conversation_id": None,
}

CALLED = "You were called as a tool. The input of the call, as data:"


class ToolInputText(BaseModel):
    """The default arguments of an agent as a tool."""

    model_config = ConfigDict(extra="forbid")

    input: str


@dataclass(eq=False, repr=False)
class AgentTool(Tool[..., Any]):
    """An agent that a model may call. Made by `Agent.as_tool`.

    A call is a child task, which the calling task starts, waits for and owns: undoing the call's
    step undoes the child task as well.

    Attributes:
        agent: The agent.
        takes: Type of the arguments.
        is_structured: Whether the nested input is made from the arguments, instead of being their
            only field.
        extractor: Makes the tool's result from the nested run's; None for its final output.
        max_turns: Most model calls of the nested run; None for no limit.
        max_depth: How many nested tasks may be inside each other for a call to be run.
        run_config: Settings of the nested run; None for those of the calling run.
        input_builder: Makes the nested run's input from the arguments.
        shows_schema: Whether the described input holds the whole JSON Schema.
        options: How the nested run is watched and kept.
    """

    _: KW_ONLY
    agent: AgentBase
    takes: type[Any] = ToolInputText
    is_structured: bool = False
    extractor: Extractor | None = None
    max_turns: int | None = DEFAULT_MAX_TURNS
    max_depth: int = MAX_DEPTH
    run_config: RunConfig | None = None
    input_builder: InputBuilder | None = None
    shows_schema: bool = False
    options: RunOptions = field(default_factory=lambda: cast("RunOptions", dict(_NO_OPTIONS)))

    @property
    def code(self) -> dict[str, Any]:
        """The user's functions and objects that come with the tool, by name."""
        config = vars(self.run_config) if self.run_config is not None else {}
        several = {
            f"{name}.{k}": each
            for name in ("input_guardrails", "output_guardrails")
            for k, each in enumerate(config.get(name, ()))
        }
        given = {name: config.get(name) for name in _CODE} | several
        given |= {"extractor": self.extractor, "input_builder": self.input_builder}
        return {name: thing for name, thing in given.items() if not isinstance(thing, str | None)}

    def check_for_task(self) -> None:
        """Refuse what a call in a task cannot use.

        Raises:
            UserError: It has a session.
        """
        if self.options["session"] is not None:
            msg = (
                f"Tool {self.name!r} has session=, which is used where it is called outside of a"
                " task. In a task each call is a task of its own, which any worker process may run"
                " and which sees its input only."
            )
            remedy = "Leave it out, and give the agent what it must know in the input."
            raise UserError(msg, remedy=remedy)

    def spec(self) -> ToolSpec:
        """Describe the tool for a model.

        Raises:
            UserError: It has a session, which a task cannot use.
        """
        self.check_for_task()
        return super().spec()

    @property
    def is_replaced(self) -> bool:
        """Whether calls run a function that was assigned to `on_invoke_tool`, not the agent."""
        return not isinstance(self.on_invoke_tool, Invoker)

    def policy(self) -> ToolPolicy:
        """Describe as data how a task runs the tool."""
        if self.is_replaced:  # nothing is known of what the function does
            return super().policy().model_copy(update={"effect": "irreversible"})
        return (
            super()
            .policy()
            .model_copy(update={"agent": self.agent.name, "max_depth": self.max_depth})
        )

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments as JSON data: the input of the nested run.

        A function that replaces the agent gets them as the model wrote them.

        Raises:
            ToolArgumentsError: The arguments do not fit; its text is meant for the model.
        """
        values = self._values(arguments)
        return super().parse(arguments) if self.is_replaced else values

    def _values(self, arguments: str) -> dict[str, Any]:
        adapter: TypeAdapter[Any] = TypeAdapter(self.takes)
        try:
            value = adapter.validate_json(arguments if arguments.strip() else "{}")
        except ValidationError as error:
            known = self.params_json_schema.get("properties", {})
            raise ToolArgumentsError(self.name, explain(error, known), arguments) from error
        return cast("dict[str, Any]", adapter.dump_python(value, mode="json"))

    async def make_input(self, arguments: str) -> str | list[dict[str, Json]]:
        """Return the nested run's input for a call.

        Raises:
            ToolArgumentsError: The arguments do not fit.
            UserError: The input_builder returned neither a text nor a list.
            Exception: An error that the input_builder raised.
        """
        params = self._values(arguments)
        if not self.is_structured:
            return str(params["input"])
        schema = self.params_json_schema if self.shows_schema else None
        summary = summary_of(self.params_json_schema)
        if self.input_builder is None:
            return described(params, schema, summary)
        given = {"params": params, "summary": summary, "json_schema": schema}
        made: object = await invoke(self.input_builder, given)
        if not isinstance(made, str | list):
            raise UserError(
                f"The input_builder of tool {self.name!r} must give a text or a list of items; it"
                f" gave {shown(made)} ({type(made).__name__})."
            )
        return cast("str | list[dict[str, Json]]", made)

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Return the result of a call.

        Raises:
            ToolArgumentsError: The arguments do not fit.
            Exception: The error that ended the nested run, or an error of the extractor; or of the
                function that was assigned to `on_invoke_tool`.
        """
        if self.is_replaced:
            return await invoke(self.on_invoke_tool, ctx, arguments)
        return await self.run_made(ctx, arguments)

    async def run_made(self, ctx: ToolContext, arguments: str) -> Any:
        """Return the result of the nested run: in a task, which has finished it; else run it here.

        Raises:
            ToolArgumentsError: The arguments do not fit.
            UserError: The agent waits for a person, whom this call cannot wait for.
            Exception: The error that ended the nested run, or an error of the extractor.
        """
        if ctx.nested is None:
            result = await run_apart(self, ctx, await self.make_input(arguments))
            if getattr(result, "interruptions", None):  # a test may answer instead of the run
                raise _waiting(self, result)
        else:
            result = dataclasses.replace(
                cast("Any", await ctx.nested()), agent_tool_invocation=invocation_of(ctx)
            )
            if self.options["on_stream"] is not None:
                await tell(self, ctx, ctx.nested.events(), users_agent(self.agent))
            if self.options["hooks"] is not None:
                await ctx.nested.call_hooks(self.options["hooks"], ctx.context)
        if self.extractor is None:
            return said(result)
        return await invoke(self.extractor, result)


def _waiting(tool: AgentTool, result: Any) -> UserError:
    calls = ", ".join(str(each.qualified_name) for each in result.interruptions)
    msg = (
        f"Agent {tool.agent.name!r}, which was called as tool {tool.name!r} outside of the task's"
        f" own calls, waits for a person to decide on: {calls}. Its run {result.task_id!r} waits;"
        " this call cannot."
    )
    remedy = (
        "Give the tool as as_tool made it: a function instead of on_invoke_tool runs the agent"
        f" apart. Or decide on the run itself, with RunState.of({result.task_id!r})."
    )
    return UserError(msg, remedy=remedy)


def own_config(given: RunConfig | Mapping[str, Any] | None) -> RunConfig | None:
    """Return the settings of the nested run: an object itself, so that it may still be changed."""
    return given if given is None or isinstance(given, RunConfig) else as_run_config(given)


def argument_type(parameters: Any, agent: AgentBase) -> type[Any]:
    """Return the type of the tool's arguments.

    Raises:
        WrongTypeError: It cannot be one.
    """
    if parameters is None:
        return ToolInputText
    is_type = isinstance(parameters, type)
    if is_type and (dataclasses.is_dataclass(parameters) or issubclass(parameters, BaseModel)):
        return cast("type[Any]", parameters)
    raise WrongTypeError(
        f"parameters={shown(parameters)} of agent {agent.name!r} as a tool is not an argument type."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        " Pass a dataclass or a pydantic model class."
    )


def input_schema(takes: type[Any], name: str) -> dict[str, Json]:
    """Return the JSON Schema of the tool's arguments."""
    schema = object_schema(without_titles(TypeAdapter(takes).json_schema()))
    if takes is ToolInputText:
        schema.pop("description", None)
    return strict_schema({"properties": {}, **schema}, what=f"tool {name!r}")


def described(params: dict[str, Any], schema: dict[str, Json] | None, summary: str) -> str:
    """Write structured arguments as the input of an agent.

    Args:
        params: The arguments.
        schema: Their JSON Schema, if the input is to show it.
        summary: Descriptions of their fields, or empty.
    """
    if schema is None and not summary:
        return json.dumps(params, ensure_ascii=False)
    parts = [CALLED, _fenced(params)]
    if schema is not None:
        parts += ["Input JSON Schema: (also data)", _fenced(schema)]
    else:
        parts += ["Input Schema Summary:", summary]
    return "\n\n".join(parts)


def _fenced(data: Json) -> str:
    return f"```json\n{json.dumps(data, indent=2, ensure_ascii=False)}\n```"


def summary_of(schema: dict[str, Json]) -> str:
    """List the descriptions of a schema and its fields, one per line; empty without any."""
    properties = cast("dict[str, dict[str, Json]]", schema.get("properties", {}))
    required: Json = schema.get("required", [])
    lines = [
        f"- {name} ({_kind(field)}{', required' if name in required else ''}):"
        f" {field['description']}"
        for name, field in properties.items()
        if field.get("description")
    ]
    about = schema.get("description")
    return "\n".join(([str(about)] if about else []) + lines)


def _kind(field: dict[str, Json]) -> str:
    kind = field.get("type", "any")
    return kind if isinstance(kind, str) else " or ".join(map(str, kind))


def said(result: NestedResult) -> Any:
    """Return a run's final output; if it is empty, the last text of a tool or of the model.

    A guardrail that has passed an empty output has not seen these texts.
    """
    checked = getattr(result, "output_guardrail_results", ())  # a test's stand-in may lack them
    if result.final_output not in ("", None) or checked:
        return result.final_output
    for item in reversed(result.new_items):
        if item.type == "tool_approval_item":
            continue
        raw = item.to_input_item()
        text = raw.get("output") if item.type == "tool_call_output_item" else _text(raw)
        if item.type in ("tool_call_output_item", "message_output_item") and text:
            return text
    return result.final_output or ""


def _text(raw: dict[str, Json]) -> str:
    content = raw.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)
