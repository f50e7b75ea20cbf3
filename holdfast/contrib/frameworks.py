"""Agents of LangGraph and Strands as tools, by their public protocols; neither is imported.

A run of such an agent is one call. What it does inside is not recorded, and is done again as a
whole when the call is made again, unless a graph has a checkpointer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from typing_extensions import Unpack

from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import QuestionAskedError
from holdfast.agents.tools.options import ToolOptions
from holdfast.agents.tools.tool import Tool
from holdfast.errors import InvalidArgumentError
from holdfast.task.data.calls import Asks, Question
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.text.shown import shown

ONE_TEXT: dict[str, Json] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
"""The form of a question that is answered by a text."""

LONGEST = 4_000
"""Characters of a question."""


def langgraph_tool(
    graph: Any,
    /,
    *,
    to_input: Callable[[str], Any] | None = None,
    to_output: Callable[[Any], Any] | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[..., Any]:
    """Make a tool of a compiled graph of LangGraph.

    With a checkpointer, each call is a thread: a call that is made again goes on after the graph's
    last checkpoint, and an interrupt is a question for a person. All workers must reach it.

    Args:
        graph: The graph: what `compile()` or `create_agent` returns.
        to_input: Makes its input of the model's text; by default a list of one user message.
        to_output: Makes the result of its last state; by default the text of the last message, or
            the state where there are no messages.
        options: As for `@tool`; `name` and `description` say what the graph is good for.

    Raises:
        InvalidArgumentError: It was given something else.
    """
    if not hasattr(graph, "ainvoke"):
        msg = f"langgraph_tool takes a compiled graph; it was given {shown(graph)}."
        raise InvalidArgumentError(msg, remedy="Call compile() on a StateGraph first.")
    make, read = to_input or _message, to_output or _last_text

    async def ask_graph(ctx: ToolContext[Any, Any], request: str) -> Any:
        """Ask another agent.

        Args:
            request: What it is to do, with all that it must know.
        """
        config = {"configurable": {"thread_id": ctx.idempotency_key}}
        given = make(request)
        if getattr(graph, "checkpointer", None):
            state = await graph.aget_state(config)
            if state.created_at is not None:
                given = _resumed(state.interrupts, ctx.answers)
        said = await graph.ainvoke(given, config)
        if waits := as_object(said).get("__interrupt__"):
            raise QuestionAskedError(_asks(waits, ctx.answers))
        return read(said)

    return Tool.from_function(ask_graph, **options)


def _message(request: str) -> Any:
    return {"messages": [{"role": "user", "content": request}]}


def _last_text(state: Any) -> Any:
    messages = as_object(state).get("messages")
    if not messages:
        return state
    content = messages[-1].content
    if isinstance(content, str):
        return content
    return "".join(each if isinstance(each, str) else each.get("text", "") for each in content)


def _asks(waits: Sequence[Any], answered: Mapping[str, Json]) -> Asks:
    """Return the interrupts of a graph as questions for a person.

    Raises:
        RuntimeError: Two have one id, as those of one node before LangGraph 1.2.
    """
    if len({*answered, *(each.id for each in waits)}) < len(answered) + len(waits):
        raise RuntimeError("Two interrupts of one node share an id. Install langgraph>=1.2.")
    questions = (
        Question(key=each.id, message=str(each.value)[:LONGEST], fields=ONE_TEXT) for each in waits
    )
    return Asks(questions=tuple(questions))


def _resumed(waits: Sequence[Any], answers: Mapping[str, Json]) -> Any:
    """Return what a graph that has begun goes on with: answers, or nothing.

    Raises:
        RuntimeError: A person has not answered.
    """
    said = {each.id: as_object(answers[each.id]) for each in waits if each.id in answers}
    if any(each.get("action") != "accept" for each in said.values()):
        raise RuntimeError("The graph has asked a person, who did not answer.")
    if not said:
        return None
    from langgraph.types import Command

    return Command(resume={id: as_object(each["content"])["answer"] for id, each in said.items()})


def strands_tool(make: Callable[[], Any], /, **options: Unpack[ToolOptions]) -> Tool[..., Any]:
    """Make a tool of an agent of Strands.

    Args:
        make: Makes an agent for each call: one agent would mix the conversations of all tasks.
        options: As for `@tool`; `name` and `description` say what the agent is good for.

    Raises:
        InvalidArgumentError: It was given something else.
    """
    if not callable(cast("object", make)) or hasattr(make, "invoke_async"):
        msg = f"strands_tool takes a function that makes an agent; it was given {shown(make)}."
        raise InvalidArgumentError(msg, remedy="Write strands_tool(lambda: Agent(...), name=...).")

    async def ask_strands(request: str) -> Any:
        """Ask another agent.

        Args:
            request: What it is to do, with all that it must know.
        """
        found = await make().invoke_async(request)
        if found.stop_reason == "interrupt":
            raise RuntimeError("The agent has asked a person, and a call of it cannot wait.")
        if found.structured_output is not None:
            return found.structured_output.model_dump(mode="json")
        return str(found).strip()

    return Tool.from_function(ask_strands, **options)
