"""Items of the provider's own tools: what they did, in short, and requests for an approval.

The provider runs these tools inside a model call, so there is nothing to run here. A request for
an approval of its MCP servers is read as a call of its server, `crm.pay` for tool `pay` of server
`crm`: no tool of an agent has such a name. The decision on it goes back as the answer to that call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from holdfast.values.base import Json, Value, canonical
from holdfast.values.checks.gate import as_text, is_array, is_object
from holdfast.values.messages import Message, ToolCall

Item = dict[str, Json]

APPROVAL_REQUEST = "mcp_approval_request"
APPROVAL_RESPONSE = "mcp_approval_response"
SEARCH_CALL = "tool_search_call"
SEARCH_OUTPUT = "tool_search_output"

RUN_BY_PROVIDER = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        SEARCH_CALL,
        "web_search_call",
    }
)
"""Items of an answer that come from tools which the provider runs itself."""

REPORTED = RUN_BY_PROVIDER | {"mcp_list_tools", SEARCH_OUTPUT}
"""Items that readers of a task see."""

APPROVED = "Approved."
"""Text of an answer to a request that was approved, for readers."""

BARE_REJECTION = "Tool execution was not approved."
"""Text of a rejection without a reason."""

LONGEST = 500
"""Characters of a text that stay in the outline of an item."""

LONGEST_IN_STREAM = 2000
"""Characters of an item that a stream tells of whole."""

MOST_OUTLINES = 50
"""Items of an answer that have an outline."""

_BIG = ("result", "results", "outputs", "tools", "output", "code", "encrypted_content")
"""Members of items that may be large, and that an outline has cut or left out."""


class HostedCall(Value):
    """What a tool of the provider did inside a model call, in short.

    Attributes:
        kind: Type of its item: "web_search_call", "mcp_call" ...
        id: The provider's id of it.
        tool: Name of the tool: "web_search", or for a tool of an MCP server "crm.pay".
        arguments: What it was asked for, if the item says so: a query, code, JSON text.
        result: Its result, if the item has it; a long text is cut.
        status: As the provider says: "completed", "failed" ...
        is_error: Whether it failed.
    """

    kind: str
    id: str = ""
    tool: str
    arguments: str = ""
    result: str = ""
    status: str = ""
    is_error: bool = False


def hosted_calls(items: Iterable[Item]) -> tuple[HostedCall, ...]:
    """Say what tools of the provider did, by the items of an answer or by their outlines."""
    return tuple(_hosted(item) for item in items if as_text(item.get("type")) in REPORTED)


def _hosted(item: Item) -> HostedCall:
    kind, server = as_text(item.get("type")), as_text(item.get("server_label"))
    tool = kind.removesuffix("_call").removesuffix("_output")
    if kind == "mcp_list_tools":
        tool = f"{server}.list_tools"
    elif kind == "mcp_call":
        tool = f"{server}.{as_text(item.get('name'))}"
    error: Json = item.get("error")
    status = as_text(item.get("status"))
    failed = bool(error) or status in ("failed", "incomplete")
    return HostedCall(
        kind=kind,
        id=as_text(item.get("id")),
        tool=tool,
        arguments=_asked(item),
        result=_short(error) if error else _result(item),
        status=status,
        is_error=failed,
    )


def _asked(item: Item) -> str:
    for name in ("arguments", "queries", "code", "revised_prompt", "prompt"):
        if item.get(name):
            return _short(item[name])
    action: Json = item.get("action")
    if not is_object(action):
        return ""
    asked = (action.get(name) for name in ("query", "queries", "url", "pattern"))
    return _short(next((each for each in asked if each), ""))


def _result(item: Item) -> str:
    if item.get("type") == "image_generation_call":
        size = len(as_text(item.get("result"))) or item.get("result_size") or 0
        return f"[image of {size} characters in Base64]" if size else ""
    for name in ("output", "results", "outputs"):
        if item.get(name):
            return _short(item[name])
    tools: Json = item.get("tools")
    if is_array(tools):
        return ", ".join(as_text(each.get("name")) for each in tools if is_object(each))[:LONGEST]
    return ""


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def is_passed_on(kind: str) -> bool:
    """Whether streams report an item of this type whole: the provider's tools have made it."""
    return kind not in _IN_PIECES and not kind.startswith("chat.")


_IN_PIECES = frozenset({"message", "reasoning", "function_call", "function_call_output"})
"""Types of items that streams tell piece by piece."""


def told_in_stream(item: Item) -> str:
    """Return an item as JSON text, or its outline when it is large: the record has it whole."""
    text = canonical(item).decode("utf-8", "surrogatepass")
    if len(text) <= LONGEST_IN_STREAM:
        return text
    return canonical(_outline(item)).decode("utf-8", "surrogatepass")


def outlines(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return what stays in the history of items that go to the archive: enough to tell of them.

    Only items of the provider's own tools have one.
    """
    told = [item for item in items if as_text(item.get("type")) in REPORTED][:MOST_OUTLINES]
    return tuple(_outline(item) for item in told)


def _outline(item: Item) -> Item:
    kept: Item = {}
    for key, value in item.items():
        if key == "tools" and is_array(value):
            names = [as_text(each.get("name")) for each in value if is_object(each)]
            kept[key] = [{"name": name[:100]} for name in names[:MOST_OUTLINES]]
        elif item.get("type") == "image_generation_call" and key == "result":
            kept["result_size"] = len(as_text(value))
        elif key in _BIG:
            kept[key] = _short(value) if value else value
        elif not isinstance(value, str | int | float | bool | None):
            kept[key] = value if len(json.dumps(value)) <= LONGEST else _short(value)
        else:
            kept[key] = _short(value) if isinstance(value, str) else value
    return kept


def without_lost_searches(items: Iterable[Item]) -> list[Item]:
    """Leave out searches that have no result: a provider does not take them back alone.

    Reasoning right before such a search goes with it: it is not taken without what it led to.
    """
    given = list(items)
    if not any(item.get("type") == SEARCH_CALL for item in given):
        return given
    results = [item for item in given if item.get("type") == SEARCH_OUTPUT]
    found = {_call_id(item) for item in results} - {""}
    unnamed, kept, is_led_to = 0, list[Item](), True
    for item in reversed(given):  # a result without an id of the call is of a search before it
        kind, is_unnamed = item.get("type"), not _call_id(item)
        if kind == SEARCH_CALL:
            is_led_to = unnamed > 0 if is_unnamed else _call_id(item) in found
            unnamed -= is_led_to and is_unnamed
        elif kind != "reasoning":
            is_led_to = True
            unnamed += kind == SEARCH_OUTPUT and is_unnamed
        if is_led_to:
            kept.append(item)
    return kept[::-1]


def _call_id(item: Item) -> str:
    return as_text(item.get("call_id"))


def calls_of_servers(message: Message) -> Iterator[tuple[ToolCall, bool]]:
    """Yield the calls that MCP servers of the provider have run, and whether each has failed."""
    for item in message.items:
        if item.get("type") == "mcp_call":
            server = as_text(item.get("server_label"))
            name = f"{server}.{as_text(item.get('name'))}"
            arguments = as_text(item.get("arguments"))
            call = ToolCall(
                id=as_text(item.get("id")), name=name, arguments=arguments, server=server
            )
            yield call, bool(item.get("error")) or item.get("status") == "failed"


def approval_call(item: Item) -> ToolCall:
    """Read a request for an approval as a call of its server."""
    server = as_text(item["server_label"])
    name = f"{server}.{item['name']}"
    return ToolCall(id=item["id"], name=name, arguments=item["arguments"], server=server)


def approval_request(call: ToolCall) -> Item:
    """Write a call of a server as the request that it was."""
    return {
        "type": APPROVAL_REQUEST,
        "id": call.id,
        "server_label": call.server,
        "name": call.bare_name,
        "arguments": call.arguments,
    }


def approval_answer(call: ToolCall, text: str, *, approve: bool) -> Message:
    """Make the message that answers a request; a rejection without a reason gives none."""
    item: Item = {"type": APPROVAL_RESPONSE, "approval_request_id": call.id, "approve": approve}
    if not approve and text not in ("", BARE_REJECTION):
        item["reason"] = text
    return answered_request(item)


def answered_request(item: Item) -> Message:
    """Read the answer to a request as the result of the call that the request is."""
    approve = bool(item["approve"])
    text = APPROVED if approve else as_text(item.get("reason")) or BARE_REJECTION
    return Message(
        role="tool",
        call_id=as_text(item["approval_request_id"]),
        content=text,
        is_error=not approve,
        items=(item,),
    )
