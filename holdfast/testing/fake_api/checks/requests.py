"""Refuse what the real API refuses: a fake that takes anything hides defects.

Pure. Each check returns the first problem, with the API's message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.testing.fake_api.checks.chat import Problem, check_chat_messages, missing
from holdfast.testing.fake_api.checks.responses import check_response_items
from holdfast.testing.fake_api.requests import FakeRequest
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array, is_object

# The rules that a schema must follow when a provider is to enforce it.


def strict_problem(schema: dict[str, Json], context: tuple[str, ...] = ()) -> str:
    """Return the first breach of the strict rules in `schema`, or an empty text.

    Every object must forbid additional properties and require all of its own; the outermost schema
    must be an object.
    """
    if not context and schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got {schema.get('type')!r}."
    if schema.get("type") == "object" or "properties" in schema:
        properties = as_object(schema.get("properties"))
        if schema.get("additionalProperties") is not False:
            return (
                f"In context={context}, 'additionalProperties' is required to be supplied and to be"
                " false."
            )
        for name in properties:
            if name not in as_array(schema.get("required")):
                return (
                    f"In context={context}, 'required' is required to be supplied and to be an"
                    f" array including every key in properties. Missing {name!r}."
                )
    for place, inner in _inner(schema):
        problem = strict_problem(inner, (*context, *place))
        if problem:
            return problem
    return ""


def _inner(schema: dict[str, Json]) -> list[tuple[tuple[str, ...], dict[str, Json]]]:
    found: list[tuple[tuple[str, ...], dict[str, Json]]] = []
    for key in ("properties", "$defs", "definitions"):
        for name, inner in as_object(schema.get(key)).items():
            found.append(((key, name), as_object(inner)))
    for key in ("anyOf", "allOf"):
        for index, inner in enumerate(as_array(schema.get(key))):
            found.append(((key, str(index)), as_object(inner)))
    items: Json = schema.get("items")
    if is_object(items):
        found.append((("items",), items))
    return found


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ONLY_RESPONSES = frozenset(
    {"input", "instructions", "max_output_tokens", "prompt", "text", "reasoning"}
)
_ONLY_CHAT = frozenset(
    {
        "messages",
        "frequency_penalty",
        "presence_penalty",
        "max_tokens",
        "max_completion_tokens",
        "response_format",
        "reasoning_effort",
    }
)


def find_problem(request: FakeRequest) -> Problem | None:
    """Return the first reason why the real API would refuse `request`, or None."""
    return next(_problems(request), None)


def _problems(request: FakeRequest) -> Iterator[Problem]:
    body = request.body
    if not request.model and not body.get("prompt"):
        yield missing("model")
    if request.dialect is not None:
        for param, message in request.dialect.problems(body, request.model):
            yield Problem(message, param)
        return
    foreign = _ONLY_CHAT if request.endpoint == "responses" else _ONLY_RESPONSES
    for key in body:
        if key in foreign:
            yield Problem(f"Unknown parameter: {key!r}.", key, "unknown_parameter")
    yield from _tool_problems(request)
    yield from _format_problems(request)
    given: Json = body.get("input")
    if request.endpoint == "chat":
        yield from check_chat_messages(body.get("messages"))
    elif "input" not in body:
        yield missing("input")
    elif is_array(given):
        is_stored = body.get("store") is not False
        is_continued = bool(body.get("previous_response_id") or body.get("conversation"))
        yield from check_response_items(given, is_stored=is_stored, is_continued=is_continued)
    elif not isinstance(given, str):
        yield Problem("Invalid type.", "input")


def _tool_problems(request: FakeRequest) -> Iterator[Problem]:
    tools: Json = request.body.get("tools")
    names: list[str] = []
    for index, tool in enumerate(as_array(tools)):
        where = f"tools[{index}]"
        function = as_object(tool)
        if function.get("type") == "function" and request.endpoint == "chat":
            where, function = f"{where}.function", as_object(function.get("function"))
        elif function.get("type") == "namespace" and request.endpoint == "responses":
            names += [tool.name for tool in request.tools if tool.namespace]
            yield from _namespace_problems(function, where)
            continue
        elif function.get("type") != "function":
            yield from _hosted_problems(function, where)
            if request.endpoint == "chat" or not function.get("type"):
                yield missing(f"{where}.type")
            continue
        names.append(as_text(function.get("name")))
        yield from _function_problems(function, where)
    yield from _search_problems(request)
    choice: Json = request.body.get("tool_choice")
    for key in ("tool_choice", "parallel_tool_calls"):
        if not names and not tools and key in request.body and not request.body.get("prompt"):
            yield Problem(f"'{key}' is only allowed when 'tools' are specified.", key)
    if is_object(choice) and choice.get("type") == "function":
        wanted = as_text((as_object(choice.get("function")) or choice).get("name"))
        if wanted not in names:
            message = f"Tool choice {wanted!r} not found in 'tools' parameter."
            yield Problem(message, "tool_choice")
    elif isinstance(choice, str) and choice not in ("auto", "none", "required"):
        yield Problem(f"Invalid value: {choice!r}.", "tool_choice", "invalid_value")


_REQUIRED = {
    "code_interpreter": "container",
    "file_search": "vector_store_ids",
    "mcp": "server_label",
}
"""Members that definitions of hosted tools must have."""


def _hosted_problems(tool: dict[str, Json], where: str) -> Iterator[Problem]:
    member = _REQUIRED.get(as_text(tool.get("type")))
    if member is not None and not tool.get(member):
        yield missing(f"{where}.{member}")
    if tool.get("type") == "mcp" and not (tool.get("server_url") or tool.get("connector_id")):
        yield Problem("One of 'server_url' and 'connector_id' is required.", where)


def _namespace_problems(group: dict[str, Json], where: str) -> Iterator[Problem]:
    for member in ("name", "description", "tools"):
        if not group.get(member):
            yield missing(f"{where}.{member}")
    for index, tool in enumerate(as_array(group.get("tools"))):
        yield from _function_problems(as_object(tool), f"{where}.tools[{index}]")


def _search_problems(request: FakeRequest) -> Iterator[Problem]:
    """Yield what is wrong with deferred tools, and with the search for them."""
    hosted = [tool.hosted or {} for tool in request.tools]
    searches = sum(each.get("type") == "tool_search" for each in hosted)
    is_deferred = any(tool.deferred for tool in request.tools)
    if searches > 1:
        yield Problem("Only one tool of type 'tool_search' is allowed.", "tools")
    if (is_deferred or any(each.get("defer_loading") for each in hosted)) and not searches:
        yield Problem("Tools with 'defer_loading' require a tool of type 'tool_search'.", "tools")
    if is_deferred and request.endpoint == "chat":
        yield Problem("Unknown parameter: 'defer_loading'.", "tools", "unknown_parameter")


def _function_problems(function: dict[str, Json], where: str) -> Iterator[Problem]:
    name = as_text(function.get("name"))
    if not _NAME.fullmatch(name):
        yield Problem(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches"
            " the pattern '^[a-zA-Z0-9_-]+$' of at most 64 characters.",
            f"{where}.name",
            "invalid_value",
        )
    parameters: Json = function.get("parameters")
    if parameters is not None and as_object(parameters).get("type") != "object":
        kind = as_object(parameters).get("type")
        yield Problem(
            f"Invalid schema for function {name!r}: schema must be a JSON Schema of"
            f" 'type: \"object\"', got 'type: {kind!r}'.",
            f"{where}.parameters",
            "invalid_function_parameters",
        )
    if function.get("strict") is True:
        problem = strict_problem(as_object(parameters))
        if problem:
            yield Problem(
                f"Invalid schema for function {name!r}: {problem}",
                f"{where}.parameters",
                "invalid_function_parameters",
            )


def _format_problems(request: FakeRequest) -> Iterator[Problem]:
    text = as_object(request.body.get("text"))
    response_format = as_object(request.body.get("response_format"))
    where = "text.format" if text else "response_format"
    given = as_object(text.get("format")) or response_format
    if given.get("type") != "json_schema":
        return
    given = as_object(given.get("json_schema")) or given
    name = as_text(given.get("name"))
    if not _NAME.fullmatch(name):
        yield Problem(f"Invalid '{where}.name': {name!r}.", f"{where}.name", "invalid_value")
    if given.get("strict") is True:
        problem = strict_problem(as_object(given.get("schema")))
        if problem:
            yield Problem(f"Invalid schema for response_format {name!r}: {problem}", where)
