"""Tool search of the provider: namespaces, deferred tools, and the items of searches."""

from typing import Any

from holdfast.testing import reply
from tests.differential.lib import Lib
from tests.differential.script import Group, answer, called, hosted, said

SEARCH = Group("tool_search")

SEARCHED = hosted(
    "tool_search_call", execution="server", arguments={"paths": ["crm"]}, created_by="server"
)
FOUND: dict[str, Any] = {
    **hosted("tool_search_output", execution="server", created_by="server"),
    "id": "it_b",
    "tools": [
        {
            "type": "namespace",
            "name": "crm",
            "description": "Customers.",
            "tools": [{"type": "function", "name": "look", "defer_loading": True}],
        }
    ],
}


def inside(namespace: str, id: str = "call_a", name: str = "look") -> dict[str, Any]:
    """Make an item of a call in a namespace."""
    return {**called(name, "{}", id), "namespace": namespace}


def group(lib: Lib, name: str = "crm", about: str = "Customers.", **options: Any) -> list[Any]:
    """Make a namespace of one tool."""
    made = lib.tool(f"{name} has seen", defer_loading=True, **options)
    return list(lib.tool_namespace(name=name, description=about, tools=[made]))


@SEARCH.script(answer(SEARCHED, FOUND), answer(inside("shop")), reply("done"))
async def tools_of_one_name_in_two_namespaces(lib: Lib) -> Any:
    tools = [*group(lib), *group(lib, "shop", "Things."), lib.ToolSearchTool()]
    return await lib.run(lib.agent(tools=tools), "q")


@SEARCH.script(answer(SEARCHED, inside("look")), reply("done"))
async def a_deferred_tool(lib: Lib) -> Any:
    async def where(ctx: Any) -> str:
        """Say how it was called."""
        lib.note(ctx.tool_name, ctx.tool_namespace, ctx.qualified_tool_name)
        return "here"

    where.__annotations__["ctx"] = lib.ToolContext
    made = lib.function_tool(where, name_override="look", defer_loading=True)
    return await lib.run(lib.agent(tools=[made, lib.ToolSearchTool()]), "q")


@SEARCH.script(answer(SEARCHED, said("done")))
async def a_deferred_server(lib: Lib) -> Any:
    config = {
        "type": "mcp",
        "server_label": "crm",
        "server_url": "https://crm.example/mcp",
        "defer_loading": True,
    }
    server = lib.HostedMCPTool(tool_config=config)
    return await lib.run(lib.agent(tools=[server, lib.ToolSearchTool()]), "q")


@SEARCH.script(answer(called("look", "{}", "call_a")), raises="ModelBehaviorError")
async def the_inner_name_alone(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[*group(lib), lib.ToolSearchTool()]), "q")


@SEARCH.script(answer(inside("shop")), reply("done"))
async def an_unknown_namespace_is_told(lib: Lib) -> Any:
    config = lib.RunConfig(tool_not_found_behavior="return_error_to_model")
    agent = lib.agent(tools=[*group(lib), lib.ToolSearchTool()])
    return await lib.run(agent, "q", run_config=config)


async def decide(lib: Lib, tools: list[Any], *, approve: bool, **options: Any) -> Any:
    """Decide on the first call that waits, and go on."""
    agent = lib.agent(tools=[*tools, lib.ToolSearchTool()])
    result = await lib.run(agent, "q")
    for item in result.interruptions:
        lib.note(item.name, item.tool_namespace, item.qualified_name)
    state = result.to_state()
    decision = state.approve if approve else state.reject
    decision(result.interruptions[0], **options)
    return await lib.run(agent, state)


@SEARCH.script(answer(inside("look")), answer(inside("look", "call_b")), reply("done"))
async def a_deferred_tool_that_is_always_approved(lib: Lib) -> Any:
    made = lib.tool(defer_loading=True, needs_approval=True)
    return await decide(lib, [made], approve=True, always_approve=True)


@SEARCH.script(answer(inside("crm")), answer(inside("shop", "call_b")))
async def always_is_for_one_namespace(lib: Lib) -> Any:
    tools = [*group(lib, needs_approval=True), *group(lib, "shop", "Things.", needs_approval=True)]
    return await decide(lib, tools, approve=True, always_approve=True)


@SEARCH.script(answer(inside("crm")))
async def a_namespaced_tool_that_ends_the_run(lib: Lib) -> Any:
    behavior = {"stop_at_tool_names": ["crm.look"]}
    tools = [*group(lib), lib.ToolSearchTool()]
    return await lib.run(lib.agent(tools=tools, tool_use_behavior=behavior), "q")


@SEARCH.script(answer({**SEARCHED, "execution": "client"}), raises="ModelBehaviorError")
async def a_search_that_is_left_to_the_caller(lib: Lib) -> Any:
    search = lib.ToolSearchTool(execution="client", parameters={"type": "object"})
    return await lib.run(lib.agent(tools=[*group(lib), search]), "q")


@SEARCH.script(answer(SEARCHED, FOUND, inside("crm")), reply("done"), reply("again"))
async def items_that_are_given_back(lib: Lib) -> Any:
    search = lib.ToolSearchTool(description="Find tools.")
    agent = lib.agent(tools=[*group(lib), lib.tool(name="see"), search])
    result = await lib.run(agent, "q")
    return await lib.run(agent, [*result.to_input_list(), {"role": "user", "content": "more"}])


@SEARCH.script(reply("done"))
async def a_choice_of_a_namespaced_tool(lib: Lib) -> Any:
    settings = lib.ModelSettings(tool_choice="crm.look")
    tools = [*group(lib), lib.ToolSearchTool()]
    return await lib.run(lib.agent(tools=tools, model_settings=settings), "q")
