"""Tools of MCP servers in tasks: calls like any other, of servers that are kept alive."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentRunner,
    Effect,
    KeywordToolRetriever,
    RunContextWrapper,
    RunItemStreamEvent,
    Runner,
    Tool,
    ToolCallItem,
    ToolCallOutputItem,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOrigin,
    ToolOriginType,
    ToolOutputGuardrailData,
    tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from holdfast.agents.tools.foreign.servers import ServerTool
from holdfast.engine.dev_server.process import free_port
from holdfast.errors import StepFailedError, UserError
from holdfast.mcp import (
    MCPServerSse,
    MCPServerStdio,
    MCPServerStreamableHttp,
    ToolFilterContext,
    create_static_tool_filter,
)
from holdfast.mcp.client_server import ClientServer
from holdfast.testing import FakeOpenAI
from tests.support import forked
from tests.support.rig import MakeAgent, Rig, activities_of
from tests.support.tool_servers import PROGRAM, Place

THING = {"thing": "x"}


@tool(effect="read")
def count() -> int:
    """Count."""
    return 7


Serve = Callable[..., Awaitable[AgentRunner]]
"""Serves an agent with servers; options are Agent's."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a server its directory."""
    return Place(tmp_path)


@pytest.fixture
async def serve(rig: Rig, make_agent: MakeAgent) -> AsyncGenerator[Serve]:
    """Serve an agent with servers, and end these after the test."""
    used: list[Any] = []

    async def made(*servers: Any, tools: tuple[Any, ...] = (), **options: Any) -> AgentRunner:
        used.extend(servers)
        await rig.serve(make_agent(*tools, mcp_servers=servers, **options))
        return rig.runner()

    yield made
    await rig.stop()
    for server in used:
        await server.cleanup()


async def run(runner: AgentRunner, model: FakeOpenAI, *calls: str) -> str:
    """Run a task whose model calls tools, one in each turn; return its id."""
    for name in calls:
        model.call(name, THING)
    model.reply("done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    await runner.finalize_response(task)
    assert await runner.verify(task) == []
    return task.task_id


async def test_a_call_is_a_call_like_any_other(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(place.stdio())
    task = await run(runner, model, "look", "book")
    assert model.requests[1].holds("saw x")
    assert model.requests[2].holds("booked x")
    assert place.calls == {"look:x": 1, "book:x": 1}
    # What only reads takes no activity of its own.
    ran = await activities_of(runner.client, task)
    assert ran.count("tool") == 1
    effects = [(e.tool, e.effect) for e in await runner.audit(task) if e.kind == "tool_call"]
    assert effects == [("look", "read"), ("book", "irreversible")]


async def test_items_of_a_run_name_the_server_and_the_title_of_a_tool(
    serve: Serve, model: FakeOpenAI, place: Place, make_agent: MakeAgent
) -> None:
    server = place.stdio(name="Shelf")
    runner = await serve(server, tools=(count,))
    elsewhere = make_agent(count, mcp_servers=[place.stdio(name="Shelf")])  # never connected
    origin = ToolOrigin(ToolOriginType.MCP, mcp_server_name="Shelf")
    for is_streamed in (False, True):
        model.calls([("look", THING), ("count", {})])
        model.reply("done")
        if is_streamed:
            stream = Runner.run_streamed(elsewhere, "q", runner=runner)
            events = [e async for e in stream.stream_events()]
            items = [e.item for e in events if isinstance(e, RunItemStreamEvent)]
        else:
            result = await Runner.run(elsewhere, "q", runner=runner)
            items = result.new_items
            forms = result.to_state().to_json()["generated_items"]
            assert forms[0]["tool_origin"] == {"type": "mcp", "mcp_server_name": "Shelf"}
        of_tools = [e for e in items if isinstance(e, ToolCallItem | ToolCallOutputItem)]
        told = [(e.type, e.tool_origin) for e in of_tools]
        function = ToolOrigin(ToolOriginType.FUNCTION)
        assert told == [
            ("tool_call_item", origin),
            ("tool_call_item", function),
            ("tool_call_output_item", origin),
            ("tool_call_output_item", function),
        ]
        titles = [e.title for e in items if isinstance(e, ToolCallItem)]
        assert titles == ["Look at a thing", None]


@pytest.mark.parametrize("kind", ["sse", "streamable-http"])
async def test_servers_over_http(serve: Serve, model: FakeOpenAI, place: Place, kind: str) -> None:
    port = free_port()
    made: ClientServer[Any]
    if kind == "sse":
        made = MCPServerSse({"url": f"http://127.0.0.1:{port}/sse"}, name="test")
    else:
        made = MCPServerStreamableHttp({"url": f"http://127.0.0.1:{port}/mcp"}, name="test")
    runner = await serve(made)
    with subprocess.Popen(
        forked.command(str(PROGRAM), str(place.path), kind, str(port))
    ) as process:
        try:
            await run(runner, model, "look", "book")
        finally:
            process.terminate()
    assert place.calls == {"look:x": 1, "book:x": 1}


async def test_results_have_images_errors_and_structured_content_and_a_call_carries_metadata(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    seen: list[Any] = []

    def resolve(ctx: Any) -> dict[str, Any]:
        seen.append((ctx.server_name, ctx.tool_name, ctx.arguments))
        return {"tenant": "acme"}

    runner = await serve(place.stdio(tool_meta_resolver=resolve))
    task = await run(runner, model, "picture", "fails", "meta_of", "weather")
    assert model.requests[1].holds("a x")
    assert model.requests[1].holds("data:image/png;base64,")
    assert model.requests[2].holds("no x today")
    assert model.requests[3].holds("tenant=acme")
    assert ("test", "meta_of", THING) in seen
    [failed] = [e for e in await runner.audit(task) if e.tool == "fails"]
    assert (failed.status, failed.result) == ("done", "no x today")
    structured = '{"city": "x", "degrees": 21}'
    assert model.requests[4].holds("degrees")
    assert not model.requests[4].holds(structured)
    runner = await serve(place.stdio(use_structured_content=True))
    await run(runner, model, "weather")
    assert model.requests[-1].holds(structured)


async def test_effects_are_those_of_the_annotations_unless_overridden(
    serve: Serve, place: Place
) -> None:
    def keep(_effect: Effect) -> None:
        """Undo nothing."""

    options: Any = {
        "book": {"undo": keep},
        "look": {"effect": "irreversible"},
    }
    server = place.stdio(tool_options=options, approves_destructive=True)
    agent = Agent(name="a", mcp_servers=[server])
    tools = {tool.name: tool.policy() for tool in await agent.get_mcp_tools()}
    await server.cleanup()
    effects = {name: policy.effect for name, policy in tools.items()}
    assert (effects["look"], effects["put"], effects["book"]) == (
        "irreversible",
        "irreversible",
        "reversible",
    )
    assert effects["weather"] == "read"
    assert [name for name, policy in tools.items() if policy.idempotent] == ["put"]
    assert [name for name, policy in tools.items() if policy.needs_approval == "yes"] == ["erase"]
    distrusted = place.stdio(trusts_annotations=False)
    known = await Agent(name="a", mcp_servers=[distrusted]).get_mcp_tools()
    await distrusted.cleanup()
    assert all(tool.policy().may_have_happened for tool in known)
    for setting in (True, {"book": "always"}, {"always": {"tool_names": ["book"]}}):
        cautious = place.stdio(require_approval=setting)
        agent = Agent(
            name="a", mcp_servers=[cautious], mcp_config={"convert_schemas_to_strict": True}
        )
        found = {each.name: each for each in await agent.get_mcp_tools()}
        await cautious.cleanup()
        assert found["book"].policy().needs_approval == "yes"
        assert (found["look"].policy().needs_approval == "yes") is (setting is True)
        assert found["look"].spec().strict
        assert found["look"].spec().parameters["additionalProperties"] is False


async def test_a_call_is_undone_by_the_undo_that_the_user_gives(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    undone: list[Any] = []

    def keep(effect: Effect) -> None:
        undone.append(effect.result)

    options: Any = {"book": {"undo": keep}}
    runner = await serve(place.stdio(tool_options=options))
    model.call("book", THING)
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.undo_step(task, by="ann")
    await runner.undo_step(task, by="ann")
    assert undone == ["booked x"]


async def test_an_approval_that_the_server_object_asks_for(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    asked: list[str] = []

    def decide(_ctx: RunContextWrapper[Any], agent: Any, of: Any) -> bool:
        asked.append(f"{agent.name} {of.name} {of.annotations}")
        return True

    runner = await serve(place.stdio(require_approval=decide))
    model.call("book", THING)
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert place.calls == {}
    [approval] = await runner.pending_approvals(task)
    assert (approval.tool, approval.effect) == ("book", "irreversible")
    await runner.approve(approval, by="ann", arguments={"thing": "y"})
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"book:y": 1}
    assert asked == ["agent book None"]


async def test_guardrails_of_a_server_check_the_calls_of_all_its_tools(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    seen: list[str] = []

    @tool_input_guardrail
    def allows(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(f"call of {data.context.tool_name}")
        if data.context.tool_name == "book":
            return ToolGuardrailFunctionOutput.reject_content("not here")
        return ToolGuardrailFunctionOutput.allow()

    @tool_input_guardrail
    def after(_data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append("own")
        return ToolGuardrailFunctionOutput.allow()

    @tool_output_guardrail
    def hides(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(f"result {data.output}")
        return ToolGuardrailFunctionOutput.reject_content("hidden")

    server = place.stdio(
        tool_input_guardrails=[allows],
        tool_output_guardrails=[hides],
        tool_options={"look": {"tool_input_guardrails": [after]}},
    )
    runner = await serve(server)
    await run(runner, model, "look", "book")
    assert model.requests[1].holds("hidden")
    assert model.requests[2].holds("not here")
    assert seen == ["call of look", "own", "result saw x", "call of book"]
    assert place.calls == {"look:x": 1}


def test_guardrails_of_a_server_are_a_list_of_guardrails_that_is_kept(place: Place) -> None:
    @tool_input_guardrail
    def allows(_data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    given: list[Any] = [allows]
    server = place.stdio(tool_input_guardrails=given)
    given.append(len)
    assert server.tool_input_guardrails == (allows,)
    with pytest.raises(UserError, match=r"MCP server: tool_input_guardrails=.*no list"):
        place.stdio(tool_input_guardrails=given)


async def test_a_tool_shows_the_hints_of_its_server_unless_they_cannot_be_read(
    place: Place, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.stdio() as server:
        found = await make_agent(count, mcp_servers=[server]).get_all_tools(RunContextWrapper(None))
    hints = {each.name: each.mcp_annotations for each in found if isinstance(each, Tool)}
    assert hints["look"].read_only_hint
    assert hints["look"].destructive_hint is None
    assert (hints["book"], hints["count"]) == (None, None)
    [look] = [each for each in found if isinstance(each, ServerTool) and each.name == "look"]
    odd = {**look.served.definition, "annotations": {"readOnlyHint": "who knows"}}
    look.served = look.served.model_copy(update={"definition": odd})
    assert look.mcp_annotations is None
    assert "hints of tool 'look' are left out" in caplog.text


async def test_filters_by_name_and_by_function(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    contexts: list[ToolFilterContext] = []

    async def reads(context: ToolFilterContext, of: Any) -> bool:
        contexts.append(context)
        if of.name == "slow":
            raise ValueError(of.name)
        return of.annotations is not None and bool(of.annotations.read_only_hint)

    static = create_static_tool_filter(["look", "book"], ["book"])
    runner = await serve(place.stdio(tool_filter=static))
    await run(runner, model, "look")
    assert model.requests[0].tool_names == ("look",)
    runner = await serve(place.stdio(tool_filter=reads))
    await run(runner, model, "look")
    assert set(model.requests[-1].tool_names) == {"look", "fails", "picture", "weather", "meta_of"}
    assert {(c.server_name, c.agent.name) for c in contexts} == {("test", "agent")}


async def test_two_servers_with_tools_of_one_name(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    servers = [place.stdio(name="one"), place.stdio(name="two")]
    runner = await serve(*servers)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="more than one tool or handoff named 'book'"):
        await runner.run_task(task)
    runner = await serve(*servers, mcp_config={"include_server_in_tool_names": True})
    await run(runner, model, "mcp_one__look", "mcp_two__book")
    assert place.calls == {"look:x": 1, "book:x": 1}


async def test_tools_of_servers_are_always_on_offer_beside_a_retriever(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    @tool
    def query(a: int) -> int:
        """Ask a question, q."""
        return a

    server = place.stdio(tool_filter=create_static_tool_filter(["look"]))
    runner = await serve(server, tool_retriever=KeywordToolRetriever([add, query], top_k=1))
    await run(runner, model, "look")
    assert len(model.requests[0].tool_names) == 2
    assert "look" in model.requests[0].tool_names


async def test_an_agent_may_list_the_tools_of_its_servers_itself(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, place: Place
) -> None:
    class Choosy(Agent):
        async def get_mcp_tools(self, run_context: Any) -> list[Tool]:  # type: ignore[override]
            found = await super().get_mcp_tools(run_context)
            return [tool for tool in found if tool.name == "look"]

    made, server = make_agent(), place.stdio()
    await rig.serve(Choosy(name=made.name, model=made.model, mcp_servers=[server]))
    model.reply("done")
    await rig.runner().chat("hi")
    await rig.stop()
    await server.cleanup()
    assert model.requests[0].tool_names == ("look",)


async def test_a_server_that_died_is_started_again(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(place.stdio())
    await run(runner, model, "look")
    os.kill(place.pids[-1], signal.SIGKILL)
    await run(runner, model, "book")  # found out before the call, which is made once
    assert place.calls == {"look:x": 1, "book:x": 1}
    assert len(set(place.pids)) == 2


@pytest.mark.parametrize("name", ["look", "put"])
async def test_a_call_that_may_be_repeated_is_when_its_server_dies(
    serve: Serve, model: FakeOpenAI, place: Place, name: str
) -> None:
    runner = await serve(place.stdio())
    place.set("die")
    await run(runner, model, name)
    assert place.calls == {f"{name}:x": 2}
    assert len(set(place.pids)) == 2


async def test_a_call_that_may_have_happened_asks_a_person_when_its_server_dies(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(place.stdio())
    place.set("die")
    model.call("book", THING)
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    [approval] = await runner.pending_approvals(task)
    assert approval.kind == "unknown"
    assert "The connection was lost while tool 'book' of MCP server 'test' ran" in approval.text
    assert place.calls == {"book:x": 1}
    await runner.approve(approval, by="ann")  # it did not happen, says ann
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"book:x": 2}


async def test_a_server_that_dies_in_each_call_is_told_to_the_model(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    server = place.stdio(retry_backoff_seconds_base=0.01, tool_options={"look": {"inline": False}})
    runner = await serve(server)
    place.set("dies")
    await run(runner, model, "look")
    assert place.calls == {"look:x": 3}
    assert model.requests[1].holds("The connection was lost 3 times while tool 'look'")


async def test_a_tool_that_is_gone_or_changed_is_told_to_the_model(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(place.stdio())
    model.call("book", THING)
    task = await runner.create_task("q")
    await runner.run_step(task)
    place.set("gone", "book")
    place.set("changed", "put")
    model.call("book", THING)
    model.call("put", THING)
    model.call("look", THING)
    model.reply("done")
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"book:x": 1, "look:x": 1}
    assert model.requests[2].holds("Tool 'book' of MCP server 'test' is gone since this task began")
    assert model.requests[3].holds("has changed since this task began: its parameters")
    assert "book" in model.requests[4].tool_names  # the task keeps its list
    failed = [e.status for e in await runner.audit(task) if e.kind == "tool_call"]
    assert failed == ["done", "failed", "failed", "done"]
    await runner.finalize_response(task)
    model.reply("done")
    other = await runner.create_task("q")  # another one begins with the tools as they are
    await runner.run_task(other)
    assert "book" not in model.requests[5].tool_names


async def test_a_call_that_takes_too_long(serve: Serve, model: FakeOpenAI, place: Place) -> None:
    runner = await serve(place.stdio(tool_options={"slow": {"timeout": 0.2}}))
    await run(runner, model, "slow", "look")
    assert model.requests[1].holds("timed out after 0.2 seconds")
    assert place.calls == {"slow:x": 1, "look:x": 1}
    assert len(place.pids) == 1


async def test_a_server_that_cannot_be_started_and_arguments_that_do_not_reach_one(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(MCPServerStdio({"command": "no-such-program"}))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="'stdio: no-such-program' cannot be started"):
        await runner.run_task(task)
    runner = await serve(place.stdio())
    model.call("book", {})
    model.reply("done")
    await runner.run_task(await runner.create_task("q"))
    assert model.requests[1].holds("thing: required, but missing")
    assert place.calls == {}
