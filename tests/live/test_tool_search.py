"""Tool search of the provider: namespaces and deferred tools, searched for, called and recorded."""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import (
    Agent,
    FunctionToolResult,
    HostedMCPTool,
    HostedToolRan,
    ModelBehaviorError,
    ModelSettings,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    ToolContext,
    ToolSearchTool,
    ToolsToFinalOutputResult,
    UserError,
    function_tool,
    tool,
    tool_namespace,
)
from holdfast.agents.tools.context import Effect
from holdfast.testing import FakeOpenAI, call, calls, hosted, reply
from holdfast.workers import ReActAgentWorker
from tests.support.cli import Cli, make_cli
from tests.support.rig import MakeAgent, MakeRunner, Rig
from tests.support.runs import Runs, outputs, sent_items

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


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


async def test_namespaces_and_deferred_tools_are_offered_and_called_by_their_namespaces(
    run: Runs, model: FakeOpenAI
) -> None:
    books = Books()
    search = ToolSearchTool(description="Find tools.")
    await run.serve(*books.tools, look, HostedMCPTool(SERVER), search)
    model.add(
        call("put", {"text": "x"}, namespace="crm", items=[SEARCH, FOUND]),
        call("look", {"where": "up"}, namespace="look"),
        reply("done"),
    )
    result = await run("q")
    assert result.final_output == "done"
    offered = model.requests[0].body["tools"]
    [put] = offered[0]["tools"]
    assert (put["type"], put["name"], put["defer_loading"]) == ("function", "put", True)
    assert offered[0] == {
        "type": "namespace",
        "name": "crm",
        "description": "The book crm.",
        "tools": [put],
    }
    assert (offered[1]["name"], offered[1]["tools"]) == ("billing", [put])
    assert model.requests[0].tool_names[:3] == ("crm.put", "billing.put", "look")
    assert (offered[2]["name"], offered[2]["defer_loading"]) == ("look", True)
    assert offered[3] == SERVER
    assert offered[4] == {"type": "tool_search", "description": "Find tools."}
    assert books.done == ["crm.put x"]
    assert outputs(result) == ["crm has x", "seen up"]
    items = sent_items(model)
    assert items[:2] == [SEARCH, FOUND]
    named = [(e["name"], e["namespace"]) for e in items if e["type"] == "function_call"]
    assert named == [("put", "crm"), ("look", "look")]


async def test_items_of_a_search_are_items_and_events_of_the_run(
    run: Runs, model: FakeOpenAI
) -> None:
    books = Books()
    agent = await run.serve(*books.tools, ToolSearchTool())
    model.add(
        reply("", items=[SEARCH, FOUND]),
        call("put", {"text": "x"}, namespace="billing"),
        reply("done"),
    )
    streamed = Runner.run_streamed(agent, "q", runner=run.runner)
    events = [event async for event in streamed.stream_events()]
    assert [each.name for each in events if each.type == "run_item_stream_event"] == [
        "tool_search_called",
        "tool_search_output_created",
        "tool_called",
        "tool_output",
        "message_output_created",
    ]
    raws = [each.data for each in events if each.type == "raw_response_event"]
    added = [each.item for each in raws if each.type == "response.output_item.added"]
    [begun] = [each for each in added if each.type == "function_call"]
    assert (begun.name, begun.namespace) == ("put", "billing")
    called, found, made = cast("list[Any]", streamed.new_items[:3])
    assert (called.type, called.raw_item.arguments) == (
        "tool_search_call_item",
        {"paths": ["crm"]},
    )
    assert (found.type, found.raw_item.tools[0].name) == ("tool_search_output_item", "crm")
    assert (made.raw_item.name, made.raw_item.namespace) == ("put", "billing")
    assert made.description == "Put a text into the book."
    given = streamed.to_input_list()
    assert given[1:3] == [SEARCH, FOUND]
    model.reply("again")
    await run([*given, {"role": "user", "content": "more"}])
    assert sent_items(model)[:2] == [SEARCH, FOUND]
    assert [each for each in sent_items(model) if each.get("namespace") == "billing"]


async def test_the_record_knows_namespaced_calls_by_their_whole_names(
    make_runner: MakeRunner, model: FakeOpenAI, rig: Rig
) -> None:
    books = Books()
    runner = await make_runner(*books.tools, ToolSearchTool())
    model.add(
        reply("", items=[SEARCH, FOUND]),
        calls([("put", {"text": "x"}, "crm"), ("put", {"text": "x"}, "billing")]),
        reply("done"),
    )
    task = await runner.create_task("q")
    await runner.run_task(task)
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


async def test_an_approval_names_the_namespace_and_a_standing_one_is_for_it_alone(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    books = Books(needs_approval=True)
    runner = await make_runner(*books.tools, ToolSearchTool())
    model.add(
        call("put", {"text": "a"}, namespace="crm"),
        calls([("put", {"text": "b"}, "crm"), ("put", {"text": "b"}, "billing")]),
        reply("done"),
    )
    task = await runner.create_task("q")
    await runner.run_task(task)
    [approval] = await runner.pending_approvals(task)
    assert (approval.tool, approval.namespace) == ("crm.put", "crm")
    await runner.approve(approval, "ann", always=True)
    await runner.run_task(task)
    [approval] = await runner.pending_approvals(task)
    assert approval.tool == "billing.put"
    await runner.approve(approval, "ann", arguments={"text": "c"})
    await runner.run_task(task)
    assert sorted(books.done) == ["billing.put c", "crm.put a", "crm.put b"]


async def test_the_state_of_a_run_decides_on_namespaced_and_deferred_calls(
    run: Runs, model: FakeOpenAI
) -> None:
    books = Books(needs_approval=True)
    done: list[str] = []

    @function_tool(needs_approval=True, defer_loading=True)
    def wipe(ctx: ToolContext) -> str:
        """Wipe."""
        done.append(f"{ctx.tool_namespace} {ctx.tool_name} {ctx.qualified_tool_name}")
        return "wiped"

    agent = await run.serve(*books.tools, wipe, ToolSearchTool())
    model.add(
        calls(
            [("put", {"text": "a"}, "crm"), ("put", {"text": "a"}, "billing"), ("wipe", {}, "wipe")]
        ),
        reply("done"),
    )
    result = await run("q")
    waiting = [(e.name, e.tool_namespace, e.qualified_name) for e in result.interruptions]
    assert sorted(waiting) == [
        ("put", "billing", "billing.put"),
        ("put", "crm", "crm.put"),
        ("wipe", "wipe", "wipe"),
    ]
    state = await RunState.from_string(agent, result.to_state().to_string())
    for item in state.get_interruptions():
        if item.qualified_name == "billing.put":
            state.reject(item)
        else:
            state.approve(item, always_approve=True)
    result = await run(state)
    assert result.final_output == "done"
    assert books.done == ["crm.put a"]
    assert done == ["wipe wipe wipe"]
    assert [each["namespace"] for each in sent_items(model) if each["type"] == "function_call"] == [
        "crm",
        "billing",
        "wipe",
    ]


async def test_the_inner_name_alone_calls_no_tool_of_a_namespace(
    run: Runs, model: FakeOpenAI
) -> None:
    books = Books()
    agent = await run.serve(*books.tools, ToolSearchTool())
    model.call("put", {"text": "x"})
    with pytest.raises(ModelBehaviorError, match="Tool put not found in agent"):
        await run("q")
    assert books.done == []
    assert agent.tool("put") is None


@pytest.mark.parametrize("name", ["put", "crm.put"])
async def test_a_run_stops_at_a_namespaced_tool_by_either_name(
    run: Runs, model: FakeOpenAI, name: str
) -> None:
    await run.serve(
        *Books().tools, ToolSearchTool(), tool_use_behavior={"stop_at_tool_names": [name]}
    )
    model.call("put", {"text": "x"}, namespace="crm")
    assert (await run("q")).final_output == "crm has x"


async def test_a_function_that_follows_tools_gets_the_tool_of_the_namespace(
    run: Runs, model: FakeOpenAI
) -> None:
    books = Books()

    def decide(context: Any, results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
        return ToolsToFinalOutputResult(True, [each.tool.qualified_name for each in results])

    await run.serve(*books.tools, ToolSearchTool(), tool_use_behavior=decide)
    model.call("put", {"text": "x"}, namespace="billing")
    assert (await run("q")).final_output == "['billing.put']"


@pytest.mark.parametrize("behavior", ["stop_on_first_tool", {"stop_at_tool_names": ["put"]}])
async def test_an_approval_for_a_server_is_no_result_of_a_namespace_of_its_name(
    run: Runs, model: FakeOpenAI, behavior: Any
) -> None:
    books = Books()
    config: Any = {**SERVER, "server_label": "crm", "require_approval": "always"}
    server = HostedMCPTool(config, on_approval_request=lambda request: {"approve": True})
    await run.serve(*books.tools, server, ToolSearchTool(), tool_use_behavior=behavior)
    asked = {"type": "mcp_approval_request", "server_label": "crm", "name": "put"}
    first, second = ({**asked, "id": id, "arguments": "{}"} for id in ("mcpr_1", "mcpr_2"))
    model.add(
        reply("", items=[first]),
        call("put", {"text": "x"}, namespace="billing", items=[second]),
    )
    assert (await run("q")).final_output == "billing has x"
    assert books.done == ["billing.put x"]


async def test_a_worker_that_describes_tools_in_a_text_calls_them_in_their_namespaces(
    run: Runs, model: FakeOpenAI
) -> None:
    names: list[tuple[str, str | None]] = []

    class Hooks(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            names.append((context.tool_name, context.tool_namespace))

    books = Books()
    await run.serve(*books.tools, worker=ReActAgentWorker())
    model.add(
        reply('Thought: put\nAction: crm.put\nAction Input: {"text": "x"}'),
        reply("Thought: I can answer without using any more tools.\nAnswer: done"),
    )
    assert (await run("q", hooks=Hooks())).final_output == "done"
    assert books.done == ["crm.put x"]
    assert names == [("put", "crm")]


async def test_a_search_with_an_id_that_is_no_text_holds_nothing_up(
    run: Runs, model: FakeOpenAI
) -> None:
    await run.serve(look, ToolSearchTool())
    items: list[Any] = [{**SEARCH, "call_id": [1]}, {**FOUND, "call_id": {}}]
    model.add(call("look", {}, namespace="look", items=items), reply("done"))
    assert (await run("q")).final_output == "done"


async def test_an_agent_as_a_tool_may_be_in_a_namespace(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    asked = make_agent(name="helper")
    team = [
        tool
        for where in ("sales", "support")
        for tool in tool_namespace(
            name=where, description=where, tools=[asked.as_tool("ask", "Ask the helper.")]
        )
    ]
    agent = make_agent(*team, ToolSearchTool(), name="agent")
    await rig.serve(agent)
    model.add(call("ask", {"input": "why?"}, namespace="support"), reply("so"), reply("done"))
    result = await Runner.run(agent, "q", runner=rig.runner())
    assert (result.final_output, outputs(result)) == ("done", ["so"])


async def test_a_search_that_is_left_to_the_caller_ends_the_run(
    run: Runs, model: FakeOpenAI
) -> None:
    schema: Any = {"type": "object", "properties": {"q": {"type": "string"}}}
    search = ToolSearchTool(description="Find.", execution="client", parameters=schema)
    await run.serve(look, search)
    model.add(reply("", items=[{**SEARCH, "execution": "client", "call_id": "c1"}]))
    with pytest.raises(ModelBehaviorError, match="Client-executed tool_search calls"):
        await run("q")
    assert model.requests[0].body["tools"][1] == {
        "type": "tool_search",
        "description": "Find.",
        "execution": "client",
        "parameters": schema,
    }


AGENTS = '''
"""An agent with a tool in a namespace that needs an approval."""
from pathlib import Path

from holdfast import Agent, ToolContext, ToolSearchTool, tool, tool_namespace


@tool(needs_approval=True, defer_loading=True)
def pay(ctx: ToolContext, to: str) -> str:
    """Pay somebody."""
    with Path("paid").open("a") as file:
        print(ctx.qualified_tool_name, to, ctx.attempt, file=file)
    return f"paid {to}"


clerk = Agent(
    name="clerk",
    tools=[*tool_namespace(name="bank", description="Money.", tools=[pay]), ToolSearchTool()],
)
'''


@pytest.fixture
def cli(tmp_path: Path) -> Generator[Cli]:
    cli = make_cli(tmp_path)
    yield cli
    cli("stop")


def test_a_worker_that_is_killed_between_the_answer_and_the_call_is_replaced(
    cli: Cli, model: FakeOpenAI
) -> None:
    (cli.home / "bank.py").write_text(AGENTS, encoding="utf-8")
    own = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-of-the-tests-1"}
    search = hosted("tool_search_call", id="tsc_1", arguments={"paths": ["bank"]})
    model.add(call("pay", {"to": "Kim"}, namespace="bank", items=[search]), reply("Kim is paid."))
    with cli.running("worker", "bank:clerk", "--json", environment=own) as worker:
        worker.first_json()
        cli("run", "clerk", "Pay Kim.", "--manual", "--task-id", "t")
        cli("step", "t", expect=3)
        [approval] = cli("approvals", "--json").lines
        worker.end(signal.SIGKILL)
    assert approval["tool"] == "bank.pay"
    cli("approve", approval["id"], "--by", "ann")
    with cli.running("worker", "bank:clerk", "--json", environment=own) as worker:
        worker.first_json()
        assert cli("attach", "t").out == "Kim is paid.\n"
        shown = cli("show", "t").out
    assert (cli.home / "paid").read_text("utf-8") == "bank.pay Kim 1\n"
    assert "bank.pay" in shown
    assert "tool_search" in shown
    assert [each["namespace"] for each in sent_items(model) if each["type"] == "function_call"] == [
        "bank"
    ]


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
        ([look], None, r"Deferred-loading tools require ToolSearchTool\(\).*'look'"),
        ([HostedMCPTool(SERVER)], None, "never sees MCP server 'docs'"),
        ([plain, ToolSearchTool()], None, "has nothing to search"),
        ([look, ToolSearchTool(), ToolSearchTool()], None, "Only one ToolSearchTool"),
        ([*CRM, *OTHER], None, "namespace 'crm' must share the same description"),
        ([*CRM], "crm", "must target a callable tool"),
        ([*CRM], "say", "must target a callable tool"),
        ([look, ToolSearchTool()], "look", "must search for first"),
        ([look, ToolSearchTool()], "tool_search", "the model alone decides when it searches"),
    ],
)
async def test_what_the_search_cannot_serve_is_refused_before_the_call(
    run: Runs, model: FakeOpenAI, tools: list[Any], choice: str | None, wrong: str
) -> None:
    await run.serve(*tools, model_settings=ModelSettings(tool_choice=choice))
    with pytest.raises(UserError, match=wrong):
        await run("q")
    assert model.requests == []


async def test_a_choice_may_name_a_tool_with_its_namespace_or_beside_it(
    run: Runs, model: FakeOpenAI
) -> None:
    for choice in ("crm.say", "plain"):
        await run.serve(*CRM, plain, model_settings=ModelSettings(tool_choice=choice))
        model.reply("done")
        await run("q")
        assert model.requests[-1].body["tool_choice"] == {"type": "function", "name": choice}


async def test_a_stored_prompt_may_hold_what_is_searched(run: Runs, model: FakeOpenAI) -> None:
    await run.serve(ToolSearchTool(), prompt={"id": "pmpt_1"})
    model.reply("done")
    assert (await run("q")).final_output == "done"


async def test_another_model_is_refused_before_the_call(run: Runs, model: FakeOpenAI) -> None:
    await run.serve(*CRM)
    with pytest.raises(UserError, match=r"tools of namespaces.*\(crm.say\)"):
        await run("q", run_config=RunConfig(model="chat:gpt-5-mini"))
    assert model.requests == []


@pytest.mark.parametrize("tools", [CRM, [look], [ToolSearchTool()]])
def test_an_agent_of_another_api_is_refused_when_it_is_made(tools: list[Any]) -> None:
    with pytest.raises(UserError, match="only the Responses API"):
        Agent(name="a", model="chat:gpt-5-mini", tools=tools)
