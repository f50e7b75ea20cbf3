"""Tools of MCP servers in tasks: calls like any other, of servers that are kept alive."""

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
    ApprovalRule,
    Effect,
    KeywordToolRetriever,
    RunContextWrapper,
    Runner,
    ToolCall,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputGuardrailData,
    tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from holdfast.agents_sdk import Tool, ToolCallItem, ToolCallOutputItem, ToolOrigin, ToolOriginType
from holdfast.errors import StepFailedError, UserError
from holdfast.mcp import MCPServerStdio, ToolFilterContext, create_static_tool_filter
from holdfast.testing import FakeOpenAI, ScriptedModel, call
from tests.support import forked
from tests.support.rig import Rig, activities_of, run_a_task, step_a_task
from tests.support.tool_servers import Place

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
async def serve(rig: Rig) -> AsyncGenerator[Serve]:
    """Serve an agent with servers, and end these after the test."""
    used: list[Any] = []

    async def made(*servers: Any, tools: tuple[Any, ...] = (), **options: Any) -> AgentRunner:
        used.extend(servers)
        await rig.serve(rig.agent(*tools, mcp_servers=servers, **options))
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
    seen: list[Any] = []

    def resolve(ctx: Any) -> dict[str, Any]:
        seen.append((ctx.server_name, ctx.tool_name, ctx.arguments))
        return {"tenant": "acme"}

    server = place.stdio(tool_meta_resolver=resolve, tool_options={"slow": {"timeout": 0.2}})
    runner = await serve(server)
    read = ("look", "picture", "fails", "meta_of", "weather", "slow")
    task = await run(runner, model, *read, "book")
    told = ("saw x", "data:image/png;base64,", "no x today", "tenant=acme", "degrees")
    for n, text in enumerate((*told, "timed out after 0.2 seconds", "booked x"), 1):
        assert model.requests[n].holds(text)
    structured = '{"city": "x", "degrees": 21}'
    assert not model.requests[5].holds(structured)
    assert place.calls == dict.fromkeys((f"{name}:x" for name in (*read, "book")), 1)
    assert ("test", "meta_of", THING) in seen
    # What only reads takes no activity of its own.
    assert (await activities_of(runner.client, task)).count("tool") == 1
    calls = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert [e.effect for e in calls] == [*["read"] * 6, "irreversible"]
    assert (calls[2].status, calls[2].result) == ("done", "no x today")
    runner = await serve(place.stdio(use_structured_content=True))
    await run(runner, model, "weather")
    assert model.requests[-1].holds(structured)


async def test_items_of_a_run_name_the_server_and_the_title_of_a_tool(
    serve: Serve, rig: Rig, place: Place
) -> None:
    runner = await serve(place.stdio(name="Shelf"), tools=(count,))
    elsewhere = rig.agent(count, mcp_servers=[place.stdio(name="Shelf")])  # never connected
    rig.model.calls([("look", THING), ("count", {})])
    rig.model.reply("done")
    result = await Runner.run(elsewhere, "q", runner=runner)
    forms = result.to_state().to_json()["generated_items"]
    assert forms[0]["tool_origin"] == {"type": "mcp", "mcp_server_name": "Shelf"}
    of_tools = [e for e in result.new_items if isinstance(e, ToolCallItem | ToolCallOutputItem)]
    origins = [
        ToolOrigin(ToolOriginType.MCP, mcp_server_name="Shelf"),
        ToolOrigin(ToolOriginType.FUNCTION),
    ]
    assert [e.tool_origin for e in of_tools] == origins * 2
    titles = [e.title for e in of_tools if isinstance(e, ToolCallItem)]
    assert titles == ["Look at a thing", None]


async def test_effects_and_hints_are_those_of_the_annotations_unless_overridden(
    place: Place,
) -> None:
    async def found(**options: Any) -> dict[str, Tool]:
        async with place.stdio(**options) as server:
            config: Any = {"convert_schemas_to_strict": True}
            agent = Agent(name="a", mcp_servers=[server], mcp_config=config)
            return {each.name: each for each in await agent.get_mcp_tools()}

    def keep(_effect: Effect) -> None:
        """Undo nothing."""

    options: Any = {"book": {"undo": keep}, "look": {"effect": "irreversible"}}
    tools = await found(tool_options=options, approves_destructive=True)
    names = ("look", "put", "book", "weather")
    effects = ["irreversible", "irreversible", "reversible", "read"]
    assert [tools[name].policy().effect for name in names] == effects
    assert [name for name, each in tools.items() if each.policy().idempotent] == ["put"]
    asks = [name for name, each in tools.items() if each.policy().needs_approval == "yes"]
    assert asks == ["erase"]
    hints = {name: each.mcp_annotations for name, each in tools.items()}
    assert (hints["look"].read_only_hint, hints["book"]) == (True, None)
    distrusted = (await found(trusts_annotations=False)).values()
    assert all(tool.policy().may_have_happened for tool in distrusted)
    for setting in (True, {"book": "always"}, {"always": {"tool_names": ["book"]}}):
        tools = await found(require_approval=setting)
        assert tools["book"].policy().needs_approval == "yes"
        assert (tools["look"].policy().needs_approval == "yes") is (setting is True)
        assert tools["look"].spec().strict
        assert tools["look"].spec().parameters["additionalProperties"] is False


async def test_an_approval_that_the_server_object_asks_for(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    asked: list[str] = []

    def decide(_ctx: RunContextWrapper[Any], agent: Any, of: Any) -> ApprovalRule:
        asked.append(f"{agent.name} {of.name} {of.annotations}")
        return ApprovalRule(by="ann")

    runner = await serve(place.stdio(require_approval=decide))
    model.add(call("book", THING), "done")
    task = await run_a_task(runner)
    assert place.calls == {}
    [approval] = await runner.pending_approvals(task)
    assert (approval.tool, approval.effect, approval.who) == ("book", "irreversible", ("ann",))
    await runner.approve(approval, by="ann", arguments={"thing": "y"})
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"book:y": 1}
    assert set(asked) == {"agent book None"}


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

    given: list[Any] = [allows]
    server = place.stdio(
        tool_input_guardrails=given,
        tool_output_guardrails=[hides],
        tool_options={"look": {"tool_input_guardrails": [after]}},
    )
    given.append(len)
    with pytest.raises(UserError, match=r"MCP server has .*len.*no ToolInputGuardrail"):
        place.stdio(tool_input_guardrails=given)
    await run(await serve(server), model, "look", "book")
    assert model.requests[1].holds("hidden")
    assert model.requests[2].holds("not here")
    assert seen == ["call of look", "own", "result saw x", "call of book"]
    assert place.calls == {"look:x": 1}


async def test_filters_by_name_and_by_function_and_tools_that_a_retriever_never_hides(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    contexts: list[ToolFilterContext] = []

    async def reads(context: ToolFilterContext, of: Any) -> bool:
        contexts.append(context)
        if of.name == "slow":
            raise ValueError(of.name)
        return of.annotations is not None and bool(of.annotations.read_only_hint)

    @tool
    def query(a: int) -> int:
        """Ask a question, q."""
        return a

    static = create_static_tool_filter(["look", "book"], ["book"])
    retriever = KeywordToolRetriever([count, query], top_k=1)
    runner = await serve(place.stdio(tool_filter=static), tool_retriever=retriever)
    await run(runner, model, "look")
    assert {*model.requests[0].tool_names} == {"look", "query"}
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


async def test_a_server_that_died_is_started_again_and_what_may_be_repeated_is(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    server = place.stdio(retry_backoff_seconds_base=0.01, tool_options={"look": {"inline": False}})
    runner = await serve(server)
    await run(runner, model, "look")
    os.kill(place.pids[-1], signal.SIGKILL)
    await run(runner, model, "book")  # found out before the call, which is made once
    assert place.calls == {"look:x": 1, "book:x": 1}
    for name, count in (("put", 2), ("look", 3)):
        place.set("die")
        await run(runner, model, name)
        assert place.calls[f"{name}:x"] == count
    assert len(set(place.pids)) == 4
    place.set("dies")
    await run(runner, model, "look")
    assert place.calls["look:x"] == 6
    assert model.requests[-1].holds("The connection was lost 3 times while tool 'look'")


@pytest.mark.parametrize("is_own", [False, True], ids=["of tasks", "of the program"])
async def test_a_server_ends_with_the_runner_unless_the_program_has_connected_it(
    place: Place, *, is_own: bool
) -> None:
    script: list[Any] = [ToolCall(id="", name="look", arguments='{"thing": "x"}'), "seen"]
    server = place.stdio()
    agent = Agent(name="agent", model=ScriptedModel(script), mcp_servers=[server])
    if is_own:
        await server.connect()
    async with AgentRunner.local(agent, data_dir=None) as runner:
        assert str(await runner.run_task(await runner.create_task("q"))) == "seen"
        [pid] = place.pids
        os.kill(pid, 0)
    if is_own:
        os.kill(pid, 0)
        await server.cleanup()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_server_ends_when_a_newer_agent_takes_the_place_of_its_own(place: Place) -> None:
    call = ToolCall(id="", name="look", arguments='{"thing": "x"}')
    async with AgentRunner.local(Agent(name="first"), data_dir=None) as runner:
        for _ in range(2):
            model = ScriptedModel([call, "seen"])
            await runner.ensure_agent(Agent(name="own", model=model, mcp_servers=[place.stdio()]))
            await runner.run_task(await runner.create_task("q", agent="own"))
        gone, pid = place.pids
        os.kill(pid, 0)
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


async def test_a_tool_that_is_gone_or_changed_is_told_to_the_model(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(place.stdio())
    model.call("book", THING)
    task = await step_a_task(runner)
    place.set("gone", "book")
    place.set("changed", "put")
    for name in ("book", "put", "look"):
        model.call(name, THING)
    model.reply("done")
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"book:x": 1, "look:x": 1}
    assert model.requests[2].holds("Tool 'book' of MCP server 'test' is gone since this task began")
    assert model.requests[3].holds("has changed since this task began: its parameters")
    assert "book" in model.requests[4].tool_names  # the task keeps its list
    failed = [e.status for e in await runner.audit(task) if e.kind == "tool_call"]
    assert failed == ["done", "failed", "failed", "done"]
    await run(runner, model)  # another one begins with the tools as they are
    assert "book" not in model.requests[5].tool_names


async def test_a_server_that_cannot_be_started_is_named(serve: Serve) -> None:
    runner = await serve(MCPServerStdio({"command": "no-such-program"}))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="'stdio: no-such-program' cannot be started"):
        await runner.run_task(task)


def reference(name: str, **options: Any) -> MCPServerStdio:
    """Describe a server of the protocol's own project."""
    command, *arguments = forked.command("-m", f"mcp_server_{name}")
    params: Any = {"command": command, "args": arguments}
    return MCPServerStdio(params, name=name, client_session_timeout_seconds=60, **options)


def git(directory: Path, *arguments: str) -> str:
    """Run git, whatever its settings are on this machine."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", *arguments]
    return subprocess.check_output(command, cwd=directory, env=env, text=True)


async def test_the_reference_servers_of_the_protocol_serve_one_task(
    serve: Serve, model: FakeOpenAI, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--initial-branch=main")
    for setting in ("user.name=Ann", "user.email=ann@example.com"):
        git(repository, "config", *setting.split("="))
    (repository / "notes.txt").write_text("bread\n")
    where = {"repo_path": str(repository)}
    gits = reference("git", require_approval={"git_commit": "always"})
    runner = await serve(gits, reference("time"))
    model.call("get_current_time", {"timezone": "Europe/Oslo"})
    model.call("git_add", {**where, "files": ["notes.txt"]})
    model.add(call("git_commit", {**where, "message": "Buy bread"}), "done")
    task = await runner.create_task("Commit my notes.")
    assert (await runner.run_task(task)).status == "waiting"
    [approval] = await runner.pending_approvals(task)
    assert approval.tool == "git_commit"
    await runner.approve(approval, by="ann")
    assert (await runner.run_task(task)).output == "done"
    assert git(repository, "log", "--format=%an: %s") == "Ann: Buy bread\n"
    assert model.requests[1].holds("Europe/Oslo")
    effects = [e.effect for e in await runner.audit(task) if e.kind == "tool_call"]
    assert effects == ["read", "irreversible", "irreversible"]
