"""Namespaces and deferred tools: how they are declared, told to models, and read in answers."""

from typing import Any

import pytest

from holdfast import Agent, UserError, tool
from holdfast.agents_sdk import CustomTool, Tool, function_tool, tool_namespace
from holdfast.models.agents_sdk import Model as AskedBase
from holdfast.models.agents_sdk import OfferedTool
from holdfast.models.base import ModelRequest
from holdfast.models.openai.hosted_items import without_lost_searches
from holdfast.models.openai.items import from_response_items, shown_items
from holdfast.models.resolve import resolve_model


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


def inside(namespace: str, *tools: Tool[..., Any], about: str = "About it.") -> list[Any]:
    return tool_namespace(name=namespace, description=about, tools=list(tools))


def test_a_namespace_holds_copies_with_a_name_of_their_own() -> None:
    [made] = inside(" crm ", look, about=" Customers. ")
    assert (made.name, made.namespace, made.qualified_name) == ("look", "crm", "crm.look")
    assert made.namespace_description == "Customers."
    assert (look.namespace, look.qualified_name) == ("", "look")
    assert made("here") == "seen here"
    assert made.spec() == look.spec().model_copy(
        update={"name": "crm.look", "namespace": "crm", "namespace_description": "Customers."}
    )
    assert made.spec().bare_name == "look"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"name": " "}, "non-empty namespace name"),
        ({"name": 1}, "non-empty namespace name"),
        ({"description": None}, "non-empty description"),
        ({"description": " "}, "non-empty description"),
        ({"tools": [print]}, "only supports FunctionTool instances"),
        ({"tools": [CustomTool("c", "", print)]}, "only supports FunctionTool instances"),
        ({"name": "look"}, "synthetic namespace `look.look`"),
        ({"name": "a b"}, "cannot be the namespace of tool 'look'"),
    ],
)
def test_a_namespace_that_says_nothing_or_cannot_hold_a_tool_is_refused(
    options: dict[str, Any], wrong: str
) -> None:
    given: dict[str, Any] = {"name": "crm", "description": "About it.", "tools": [look]}
    with pytest.raises(UserError, match=wrong):
        tool_namespace(**{**given, **options})


def test_tools_of_one_name_in_two_namespaces_are_two() -> None:
    agent = Agent(name="a", tools=[*inside("crm", look), *inside("shop", look), look])
    assert list(agent.snapshot("m").policies) == ["crm.look", "shop.look", "look"]
    found = agent.tool("shop.look")
    assert found is not None
    assert found.namespace == "shop"
    assert agent.tool("look") is look
    assert agent.name_clashes == []


@pytest.mark.parametrize(
    "tools",
    [
        [*inside("crm", look), *inside("crm", look)],
        [function_tool(look.function, defer_loading=True), look],
    ],
)
def test_tools_that_a_call_cannot_tell_apart_are_refused(tools: list[Any]) -> None:
    with pytest.raises(UserError, match=r"the qualified name `(crm\.)?look` is used by multiple"):
        Agent(name="a", tools=tools)


CALL: dict[str, Any] = {
    "type": "function_call",
    "call_id": "c1",
    "name": "look",
    "arguments": "{}",
    "namespace": "crm",
}


@pytest.mark.parametrize(
    ("namespace", "name"), [("crm", "crm.look"), ("look", "look"), ("", "look"), (None, "look")]
)
@pytest.mark.parametrize("more", [{}, {"id": "fc_1", "status": "completed"}])
def test_the_item_of_a_call_comes_back_as_it_was(
    namespace: str | None, name: str, more: dict[str, Any]
) -> None:
    item = {**CALL, "namespace": namespace, **more}
    [message] = from_response_items([item])
    [call] = message.calls
    assert (call.name, call.bare_name, call.namespace) == (name, "look", namespace or "")
    assert shown_items([message]) == [item]


REASONING: Any = {"type": "reasoning", "id": "rs_1", "summary": []}


def searched(kind: str, call_id: Any, **members: Any) -> dict[str, Any]:
    return {"type": f"tool_search_{kind}", "call_id": call_id, **members}


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ([searched("call", None), searched("output", None), CALL], [0, 1, 2]),
        ([searched("call", "a"), searched("call", "b"), searched("output", "b")], [1, 2]),
        ([searched("call", None), searched("output", None), searched("call", None)], [0, 1]),
        ([searched("call", None, n=1), searched("call", None), searched("output", None)], [1, 2]),
        ([searched("call", [1]), searched("output", {})], [0, 1]),
        ([searched("call", "a"), searched("output", None)], [1]),
        ([REASONING, searched("call", None)], []),
        ([REASONING, searched("call", None), searched("output", None)], [0, 1, 2]),
        ([CALL, REASONING, searched("call", "a"), REASONING, CALL], [0, 3, 4]),
        ([REASONING, CALL], [0, 1]),
    ],
)
def test_a_search_without_its_result_is_left_out_with_its_reasoning(
    items: list[dict[str, Any]], left: list[int]
) -> None:
    assert without_lost_searches(items) == [items[k] for k in left]


class Asked(AskedBase):
    """A model with the methods of the Agents SDK, which keeps the tools that it is offered."""

    def __init__(self) -> None:
        self.offered: list[Any] = []

    async def get_response(self, *args: Any, **given: Any) -> Any:
        self.offered = given["tools"]
        raise ValueError("enough")

    def stream_response(self, *args: Any, **given: Any) -> Any:
        raise NotImplementedError


async def test_a_model_of_ones_own_is_offered_the_namespace() -> None:
    asked = Asked()
    [made] = inside("crm", function_tool(look.function, defer_loading=True))
    with pytest.raises(Exception, match="enough"):
        await resolve_model(asked).respond(ModelRequest(model="m", tools=(made.spec(),)))
    [offered] = asked.offered
    assert isinstance(offered, OfferedTool)
    assert (offered.name, offered.qualified_name) == ("look", "crm.look")
    assert (offered.defer_loading, offered.namespace_description) == (True, "About it.")
