"""Tool search of the provider: namespaces and deferred tools, searched for, called and recorded."""

from typing import Any

import pytest

from holdfast import HostedToolRan, ModelSettings, ToolContext, UserError, tool
from holdfast.agents.tools.context import Effect
from holdfast.agents_sdk import HostedMCPTool, ToolSearchTool, tool_namespace
from holdfast.testing import calls, hosted, reply
from tests.support.rig import Rig, run_a_task
from tests.support.runs import Runs

SEARCH = hosted("tool_search_call", id="tsc_1", call_id=None, arguments={"paths": ["crm"]})
FOUND = hosted(
    "tool_search_output",
    id="tso_1",
    call_id=None,
    tools=[
        {
            "type": "namespace",
            "name": "crm",
            "description": "Customers.",
            "tools": [{"type": "function", "name": "look", "defer_loading": True}],
        }
    ],
)
SERVER: Any = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://docs.example/mcp",
    "defer_loading": True,
}


class Books:
    """Two namespaces with tools of one name, and what they have done."""

    def __init__(self, **options: Any) -> None:
        self.done: list[str] = []

        def undo(effect: Effect) -> None:
            self.done.append(f"undo {effect.tool}")

        def book(where: str) -> Any:
            @tool(undo=undo, defer_loading=True, **options)
            async def put(ctx: ToolContext, text: str) -> str:
                """Put a text into the book."""
                assert ctx.qualified_tool_name == f"{where}.put"
                self.done.append(f"{ctx.tool_namespace}.{ctx.tool_name} {text}")
                return f"{where} has {text}"

            return put

        self.tools = [
            tool
            for where in ("crm", "billing")
            for tool in tool_namespace(
                name=where, description=f"The book {where}.", tools=[book(where)]
            )
        ]


@tool(effect="read", defer_loading=True)
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


async def test_the_record_knows_namespaced_calls_by_their_whole_names(rig: Rig) -> None:
    books = Books()
    runner = await rig.make(*books.tools, ToolSearchTool())
    rig.model.add(
        reply("", items=[SEARCH, FOUND]),
        calls([("put", {"text": "x"}, "crm"), ("put", {"text": "x"}, "billing")]),
        reply("done"),
    )
    task = await run_a_task(runner)
    assert sorted(books.done) == ["billing.put x", "crm.put x"]
    audit = await runner.audit(task)
    hosted_calls = [each for each in audit if each.kind == "hosted_call"]
    assert [(each.tool, each.arguments, each.result) for each in hosted_calls] == [
        ("tool_search", '{"paths": ["crm"]}', ""),
        ("tool_search", "", "crm"),
    ]
    made = [each.tool for each in audit if each.kind == "tool_call"]
    assert sorted(made) == ["billing.put", "crm.put"]
    events = [each async for each in runner.step_events(task, until="answered")]
    assert [each.call.kind for each in events if isinstance(each, HostedToolRan)] == [
        "tool_search_call",
        "tool_search_output",
    ]
    await runner.undo_step(task, by="ann", reason="last")
    await runner.undo_step(task, by="ann", reason="both")
    assert sorted(books.done[2:]) == ["undo billing.put", "undo crm.put"]
    assert await runner.verify(task) == []
    await rig.assert_replays()


def plain(text: str) -> str:
    """Say a text."""
    return text


CRM, OTHER = (
    tool_namespace(name="crm", description=about, tools=[tool(plain, name=name)])
    for about, name in (("Customers.", "say"), ("Other.", "tell"))
)


@pytest.mark.parametrize(
    ("tools", "choice", "wrong"),
    [
        ([HostedMCPTool(SERVER)], None, "never sees MCP server 'docs'"),
        ([plain, ToolSearchTool()], None, "has nothing to search"),
        ([look, ToolSearchTool(), ToolSearchTool()], None, "Only one ToolSearchTool"),
        ([*CRM, *OTHER], None, "namespace 'crm' must share the same description"),
        ([*CRM], "say", "must target a callable tool"),
        ([look, ToolSearchTool()], "look", "must search for first"),
        ([look, ToolSearchTool()], "tool_search", "the model alone decides when it searches"),
    ],
)
async def test_what_the_search_cannot_serve_is_refused_before_the_call(
    run: Runs, tools: list[Any], choice: str | None, wrong: str
) -> None:
    await run.serve(*tools, model_settings=ModelSettings(tool_choice=choice))
    with pytest.raises(UserError, match=wrong):
        await run("q")
    assert run.model.requests == []
