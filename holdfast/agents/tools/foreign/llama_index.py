"""Tools of LlamaIndex, and whatever works like them: `metadata`, and a way to call it."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.agents.tools.arguments import object_of
from holdfast.agents.tools.tool import Tool
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke
from holdfast.values.parts.sources import Retrieved, nodes_of

ONE_TEXT: dict[str, Json] = {
    "type": "object",
    "properties": {"input": {"title": "input query string", "type": "string"}},
    "required": ["input"],
}
"""Arguments of a tool that says nothing of them, as query engine tools."""

OPTIONS = "holdfast_options"
"""Attribute in which a tool may bring along what `@tool(...)` accepts, such as its effect."""

_READS = ("query_engine", "retriever")
"""Attributes of tools that only look things up."""

_ODD = re.compile(r"[^a-zA-Z0-9_-]")


class ForeignToolError(Exception):
    """A tool of another framework returned an error; its text is what the model reads."""


def is_foreign_tool(given: object) -> bool:
    """Whether an object is a tool in LlamaIndex's sense."""
    if isinstance(given, type | Tool) or inspect.isroutine(given):
        return False
    calls = any(callable(getattr(given, name, None)) for name in ("call", "acall", "__call__"))
    return calls and hasattr(getattr(given, "metadata", None), "description")


def foreign_tool(given: Any) -> Tool:
    """Make a tool of one in LlamaIndex's sense.

    What its author says in `holdfast_options` holds; of the rest, a query engine or a retriever is
    known to read only, and anything else counts as irreversible.

    Raises:
        InvalidArgumentError: It has no name, or its options contradict each other.
    """
    about = given.metadata
    named = getattr(about, "name", None)
    if not named:
        msg = f"A tool of type {type(given).__name__} has no name: give its metadata one."
        raise InvalidArgumentError(msg)
    options: dict[str, Any] = dict(getattr(given, OPTIONS, None) or {})
    if "effect" not in options and any(hasattr(given, name) for name in _READS):
        options["effect"] = "read"
    options.setdefault("return_direct", bool(getattr(about, "return_direct", False)))
    options.setdefault("name", tool_name(str(named)))
    options.setdefault("description", str(about.description or ""))

    async def run(_: Any, arguments: str) -> Any:
        values = object_of(options["name"], arguments)
        return read_output(await _call(given, values))

    return Tool(
        params_json_schema=parameters_of(about),
        on_invoke_tool=run,
        strict_json_schema=False,
        **options,
    )


def tool_name(given: str) -> str:
    """Return a name that models accept, for one that another framework accepts."""
    return _ODD.sub("_", given)[:64]


def parameters_of(about: Any) -> dict[str, Json]:
    """Return the JSON Schema of a tool's arguments, from its metadata."""
    make: Any = getattr(about, "get_parameters_dict", None)
    return {**ONE_TEXT} if make is None else {**make()}


async def _call(given: Any, arguments: Mapping[str, Any]) -> Any:
    """Call the tool: on the loop if its function is async, else in a thread."""
    function, call = getattr(given, "real_fn", None), getattr(given, "call", None)
    if inspect.iscoroutinefunction(function) or (call is None and hasattr(given, "acall")):
        return await given.acall(**arguments)
    return await invoke(call or given, **arguments)


def read_output(output: Any) -> Any:
    """Return what a tool gave as our tools return it: a text, with the nodes that it rests on.

    Raises:
        ForeignToolError: It says that it is an error.
    """
    if not hasattr(output, "content") or not hasattr(output, "raw_output"):
        return output
    text = str(output.content)
    if getattr(output, "is_error", False):
        raise ForeignToolError(text)
    nodes = nodes_of(output.raw_output)
    return Retrieved(text, nodes=nodes) if nodes else text


def raw_output_of(content: str) -> Any:
    """Return the value whose text a tool's content is: a number, a list, a dict; else the text."""
    try:
        return ast.literal_eval(content)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return content


class ForeignToolRetriever:
    """An ObjectRetriever of LlamaIndex as a tool retriever.

    Attributes:
        retriever: The retriever.
    """

    def __init__(self, retriever: Any) -> None:
        """Take a retriever.

        Raises:
            InvalidArgumentError: What it may retrieve cannot be listed.
        """
        self.retriever = retriever
        self._catalogue = _catalogue(retriever)

    @property
    def tools(self) -> Sequence[Tool]:
        """The whole catalogue."""
        return self._catalogue

    async def retrieve(self, query: str) -> list[str]:
        """Ask the retriever; its blocking method is used, in a thread."""
        found = await asyncio.to_thread(self.retriever.retrieve, query)
        return [tool_name(str(tool.metadata.name)) for tool in found]


def is_foreign_retriever(given: object) -> bool:
    """Whether an object retrieves tools, and does not say which ones there are."""
    return (
        not isinstance(given, type)
        and callable(getattr(given, "retrieve", None))
        and not hasattr(given, "tools")
        and _mapping(given) is not None
    )


def _mapping(retriever: Any) -> Any:
    """Return the retriever's table of objects."""
    found = getattr(retriever, "object_node_mapping", None)
    return found or getattr(retriever, "_object_node_mapping", None)


def _catalogue(retriever: Any) -> tuple[Tool, ...]:
    mapping = _mapping(retriever)
    for name in ("_tools", "_objs"):
        known = getattr(mapping, name, None)
        if isinstance(known, Mapping):
            objects = list(cast("Mapping[str, Any]", known).values())
            return tuple(foreign_tool(each) for each in objects)
    raise InvalidArgumentError(
        f"The tools that {type(retriever).__name__} may retrieve cannot be listed: its object"
        " mapping keeps neither `_tools` nor `_objs`. Use a SimpleToolNodeMapping."
    )
