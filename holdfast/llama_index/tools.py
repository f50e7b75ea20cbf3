"""Tools by LlamaIndex's names, for programs without llama-index-core.

With that package installed its own tools are taken as they are, here and by `holdfast.Agent`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import TypeAdapter
from typing_extensions import Unpack

from holdfast.agents.tools.foreign.llama_index import ONE_TEXT, raw_output_of
from holdfast.agents.tools.options import ToolOptions
from holdfast.agents.tools.tool import Tool
from holdfast.engine.loop import shared_loop
from holdfast.errors import InvalidArgumentError
from holdfast.values import steps
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_object
from holdfast.values.code.user_calls import invoke
from holdfast.values.text.shown import shown


@dataclass
class ToolMetadata:
    """What a model reads about a tool.

    Attributes:
        description: What it does.
        name: Its name.
        fn_schema: A pydantic class of its arguments; None for one text called `input`.
        return_direct: Whether its result is the answer.
        parameters: JSON Schema of its arguments, where there is no class.
    """

    description: str
    name: str | None = None
    fn_schema: Any = None
    return_direct: bool = False
    parameters: dict[str, Json] | None = None

    def get_parameters_dict(self) -> dict[str, Json]:
        """Return the JSON Schema of the arguments."""
        if self.fn_schema is not None:
            return dict(self.fn_schema.model_json_schema())
        return dict(self.parameters or ONE_TEXT)

    @property
    def fn_schema_str(self) -> str:
        """The JSON Schema as text."""
        return json.dumps(self.get_parameters_dict(), ensure_ascii=False)

    def get_name(self) -> str:
        """Return the name.

        Raises:
            ValueError: It has no name.
        """
        if self.name is None:
            raise ValueError("name is None.")
        return self.name

    def to_openai_tool(self, **_: Any) -> dict[str, Any]:
        """Return the tool as OpenAI's API takes it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.get_parameters_dict(),
        }
        return {"type": "function", "function": function}


class Dumped:
    """The methods by which a pydantic model becomes plain data, for a dataclass that was one."""

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the fields, and theirs, as dicts and lists; pydantic's options are taken."""
        made: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, **options)
        return made

    def model_dump_json(self, **options: Any) -> str:
        """Return the fields as JSON; what JSON cannot say is written as its text."""
        return TypeAdapter(type(self)).dump_json(self, fallback=str, **options).decode()

    dict = model_dump
    json = model_dump_json


@dataclass
class ToolOutput(Dumped):
    """What a call of a tool gave.

    Attributes:
        content: The result as the model reads it.
        tool_name: The tool.
        raw_input: The arguments: {"args": (), "kwargs": {...}}.
        raw_output: The result as it was. Of one that was read back from a task's record: the
            number, list or dict whose text the content is; else the text.
        is_error: Whether it is a failure's text.
    """

    content: str
    tool_name: str = ""
    raw_input: dict[str, Any] = field(default_factory=dict[str, Any])
    raw_output: Any = None
    is_error: bool = False

    def __str__(self) -> str:
        """Return the content."""
        return self.content


def tool_output(recorded: steps.ToolOutput) -> ToolOutput:
    """Show a recorded result of a tool."""
    try:
        arguments: Any = json.loads(recorded.raw_input)
    except ValueError:
        arguments = recorded.raw_input
    raw: dict[str, Any] = {"args": (), "kwargs": arguments}
    if is_object(arguments) and [*arguments] == ["input"]:
        raw["input"] = arguments["input"]  # as of LlamaIndex's query engine tools
    return ToolOutput(
        content=recorded.content,
        tool_name=recorded.tool_name,
        raw_input=raw,
        raw_output=raw_output_of(recorded.content),
        is_error=recorded.is_error,
    )


class BaseTool:
    """Something that a model may call.

    Attributes:
        metadata: What the model reads of it.
        holdfast_options: What `@tool(...)` accepts: effect, undo, needs_approval and so on.
    """

    def __init__(self, metadata: ToolMetadata, **options: Unpack[ToolOptions]) -> None:
        """Take the description for the model, and the options."""
        self.metadata = metadata
        self.holdfast_options = options

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call it."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call it."""
        return shared_loop().run(self.acall(*args, **kwargs))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call it."""
        raise NotImplementedError

    def _output(self, raw: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ToolOutput:
        return ToolOutput(
            content=str(raw),
            tool_name=self.metadata.name or "",
            raw_input={"args": args, "kwargs": dict(kwargs)},
            raw_output=raw,
        )


class FunctionTool(BaseTool):
    """A function as a tool.

    A call that may have happened when its process was killed is not made again blindly: the task
    then asks a person. Say `effect="read"` or `idempotent=True` of a function that may be called
    twice, as for Holdfast's `@tool`.
    """

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        metadata: ToolMetadata | None = None,
        async_fn: Callable[..., Any] | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """Take a function and its description for the model.

        Raises:
            InvalidArgumentError: There is no function.
        """
        given = async_fn or fn
        if given is None:
            raise InvalidArgumentError("fn or async_fn must be provided.")
        self.fn: Callable[..., Any] = given.function if isinstance(given, Tool) else given
        super().__init__(metadata or _described(self.fn, None, None), **options)

    @classmethod
    def from_defaults(
        cls,
        fn: Callable[..., Any] | None = None,
        name: str | None = None,
        description: str | None = None,
        return_direct: bool = False,
        fn_schema: Any = None,
        async_fn: Callable[..., Any] | None = None,
        tool_metadata: ToolMetadata | None = None,
        **options: Any,
    ) -> Self:
        """Make a tool of a function, described by its signature and docstring.

        Args:
            fn: The function.
            name: Its name for the model; the function's by default.
            description: What it does; the signature and the docstring by default.
            return_direct: Whether its result is the answer.
            fn_schema: A pydantic class of its arguments.
            async_fn: The function as a coroutine function, used instead of `fn`.
            tool_metadata: All that the model reads, in one.
            options: What `@tool(...)` accepts.

        Raises:
            InvalidArgumentError: There is no function, or a model cannot be told how to call it.
        """
        given = async_fn or fn
        if given is not None and tool_metadata is None:
            plain = given.function if isinstance(given, Tool) else given
            tool_metadata = _described(plain, name, description)
            tool_metadata.fn_schema = fn_schema
            tool_metadata.return_direct = return_direct
        return cls(fn=fn, metadata=tool_metadata, async_fn=async_fn, **options)

    @property
    def real_fn(self) -> Callable[..., Any]:
        """The function."""
        return self.fn

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the function; a blocking one in a thread."""
        return self._output(await invoke(self.fn, *args, **kwargs), args, kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the function."""
        if inspect.iscoroutinefunction(self.fn):
            return super().call(*args, **kwargs)
        return self._output(self.fn(*args, **kwargs), args, kwargs)


def _described(function: Callable[..., Any], name: str | None, about: str | None) -> ToolMetadata:
    """Describe a function by its signature and docstring."""
    made = Tool.from_function(function, name=name)
    if about is None:
        about = (
            f"{made.name}{inspect.signature(function)}\n{inspect.getdoc(function) or ''}".strip()
        )
    return ToolMetadata(name=made.name, description=about, parameters=made.spec().parameters)


class QueryEngineTool(BaseTool):
    """A query engine as a tool: anything with `query` or `aquery`. It only reads.

    Attributes:
        query_engine: The engine.
    """

    def __init__(
        self, query_engine: Any, metadata: ToolMetadata, **options: Unpack[ToolOptions]
    ) -> None:
        """Take an engine and its description for the model."""
        super().__init__(metadata, **options)
        self.query_engine = query_engine

    @classmethod
    def from_defaults(
        cls,
        query_engine: Any,
        name: str | None = None,
        description: str | None = None,
        return_direct: bool = False,
        resolve_input_errors: bool = True,
    ) -> Self:
        """Make a tool of a query engine.

        Args:
            query_engine: The engine.
            name: Its name for the model.
            description: What it knows.
            return_direct: Whether its result is the answer.
            resolve_input_errors: Taken and not needed: any text argument is the query.
        """
        del resolve_input_errors
        about = description or "Useful for running a natural language query and getting an answer."
        metadata = ToolMetadata(
            name=name or "query_engine_tool", description=about, return_direct=return_direct
        )
        return cls(query_engine, metadata)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask the engine; a blocking one in a thread."""
        engine, query = self.query_engine, query_of(args, kwargs)
        ask = getattr(engine, "query", None) or engine.aquery
        return self._output(await invoke(ask, query), args, kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Ask the engine."""
        if not hasattr(self.query_engine, "query"):
            return super().call(*args, **kwargs)
        raw = self.query_engine.query(query_of(args, kwargs))
        return self._output(raw, args, kwargs)


def query_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the query among the arguments of a call.

    Raises:
        InvalidArgumentError: There is no query.
    """
    found = [*args[:1], *([kwargs["input"]] if "input" in kwargs else kwargs.values())]
    if not found:
        msg = f"Call the query engine with one text: input='...'. It got {shown(dict(kwargs))}."
        raise InvalidArgumentError(msg)
    return str(found[0])
