"""Agents as tools of MCP clients: each call is a task, which outlives the call."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitResult, Implementation

from holdfast import ApprovalRule, tool
from holdfast.cli.mcp_serving.agent_tools import KEY, AgentTools
from holdfast.desk import Tokens
from holdfast.testing import FakeOpenAI, fail, hang
from tests.support import forked
from tests.support.cli import Cli
from tests.support.rig import Rig, until

Connect = Callable[..., Any]


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@pytest.fixture
async def connect(rig: Rig) -> Connect:
    """Serve an agent, and return what connects a client with it; `by` is whose decisions it has."""
    agent = rig.agent(pay, handoff_description="Pays bills.")
    await rig.serve(agent)

    def connected(by: str = "", **options: Any) -> Client:
        tools = AgentTools([agent], rig.runner, by=by, where=" --data-dir here")
        return Client(tools.server, cache=None, **options)

    return connected


def answering(**content: Any) -> Callable[..., Awaitable[ElicitResult]]:
    """Answer each question of the server."""

    async def answer(_context: Any, params: Any) -> ElicitResult:
        seen.append(params.message)
        return ElicitResult(action="accept", content=content)

    seen: list[str] = []
    answer.seen = seen  # type: ignore[attr-defined]
    return answer


async def test_an_agent_is_a_tool_that_reports_its_progress(
    connect: Connect, model: FakeOpenAI
) -> None:
    model.add(fail(429, message="slow down", retry_after=1), hang("42"))
    seen, told = list[str](), asyncio.Event()

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        seen.append(message or "")
        if "slow down" in seen[-1] and "attempt 2" in seen[-1]:  # why it waits
            told.set()

    async with connect() as client:
        [listed] = (await client.list_tools()).tools
        assert (listed.name, listed.description) == ("agent", "Pays bills.")
        given = {"message": "What is 6 * 7?", "task_id": "progress"}
        call = client.call_tool("agent", given, progress_callback=note)
        called = asyncio.create_task(call)
        await told.wait()
        await until(lambda: len(model.requests) == 2)
        model.release()
        result = await called
    assert (result.content[0].text, result.structured_content["status"]) == ("42", "done")
    assert seen[0] == "task mcp-progress"


@pytest.mark.parametrize(("mode", "decision"), [("auto", "approve"), ("legacy", "reject")])
async def test_a_client_that_can_ask_its_user_is_asked(
    connect: Connect, rig: Rig, mode: str, decision: str
) -> None:
    rig.model.call("pay", {"amount": 7})
    rig.model.reply("done")
    ask: Any = answering(decision=decision, reason="as agreed")
    async with connect(by="zoe", mode=mode, elicitation_callback=ask) as client:
        result = await client.call_tool("agent", {"message": "Pay 7"})
    assert result.structured_content["status"] == "done"
    [asked] = ask.seen
    assert 'pay {"amount": 7}' in asked
    assert rig.model.requests[1].holds("paid 7" if decision == "approve" else "as agreed")
    entries = await rig.runner().audit(result.structured_content["task_id"])
    assert [e.approver for e in entries if e.kind == "tool_call"] == ["zoe"]


@pytest.mark.parametrize("can_ask", [True, False])
async def test_a_client_without_a_named_user_or_a_question_reads_where_to_decide_and_calls_again(
    connect: Connect, rig: Rig, can_ask: bool
) -> None:
    rig.model.call("pay", {"amount": 7})
    rig.model.reply("done")
    given = {"elicitation_callback": answering(decision="approve")} if can_ask else {"by": "zoe"}
    async with connect(**given) as client:
        result = await client.call_tool("agent", {"message": "Pay 7"})
        data = result.structured_content
        assert data["status"] == "waiting"
        [approval] = data["approvals"]
        assert f"holdfast approve {approval['id']} --data-dir here" in result.content[0].text
        await rig.runner().approve(approval["id"], by="ann")
        for _ in range(2):
            again = await client.call_tool("agent", {"task_id": data["task_id"]})
            assert again.content[0].text == "done"
    assert len(rig.model.requests) == 2


@pytest.mark.parametrize(("by", "asker"), [("", "mcp:ann"), ("zoe", "zoe")])
async def test_where_the_asker_may_not_decide_somebody_else_can(
    rig: Rig, by: str, asker: str
) -> None:
    @tool(needs_approval=ApprovalRule(not_asker=True))
    def wire(amount: int) -> str:
        """Wire an amount."""
        return f"wired {amount}"

    agent = rig.agent(wire)
    await rig.serve(agent)
    rig.model.call("wire", {"amount": 7})
    rig.model.reply("done")
    yes: Any = answering(decision="approve")
    tools = AgentTools([agent], rig.runner, by=by).server
    own: Any = {"client_info": Implementation(name="ann", version="1"), "mode": "legacy"}
    async with Client(tools, cache=None, elicitation_callback=yes, **own) as client:
        result = await client.call_tool("agent", {"message": "Wire 7"})
        assert ("zoe created the task and may not decide" in str(result.content[0])) == bool(by)
        data: Any = result.structured_content
        [approval] = await rig.runner().pending_approvals(data["task_id"])
        assert approval.asker == asker
        await rig.runner().approve(data["approvals"][0]["id"], by="ann")
        again = await client.call_tool("agent", {"task_id": data["task_id"]})
    assert again.content[0].text == "done"  # type: ignore[union-attr]


async def test_a_call_with_the_same_key_is_the_same_task(
    connect: Connect, model: FakeOpenAI
) -> None:
    model.reply("42")
    meta: Any = {KEY: "order 7"}
    async with connect() as client:
        first = await client.call_tool("agent", {"message": "q"}, meta=meta)
        second = await client.call_tool("agent", {"message": "q"}, meta=meta)
    assert (first.structured_content, len(model.requests)) == (second.structured_content, 1)


async def test_errors_are_results_and_wrong_arguments_and_tasks_of_others_are_refused(
    connect: Connect, rig: Rig
) -> None:
    await rig.runner().create_task("q", task_id="begun-elsewhere")
    async with connect() as client:
        result = await client.call_tool("agent", {"task_id": "begun-elsewhere"})
        assert result.is_error
        assert "No task 'mcp-begun-elsewhere'" in result.content[0].text
        rig.model.reply("42")
        await client.call_tool("agent", {"message": "q", "task_id": "taken"})
        result = await client.call_tool("agent", {"message": "other", "task_id": "taken"})
        assert result.content[0].text == (
            "Task 'mcp-taken' exists already and was left untouched: its input is 'q', and this"
            " one's 'other'. Leave `message` out to go on with it, or choose another `task_id`."
        )
        rig.model.fail(400)
        result = await client.call_tool("agent", {"message": "q", "task_id": "fails"})
        said = "Call again with task_id 'mcp-fails' and without `message` to try again."
        assert result.content[0].text.endswith(said)
        odd: Any = (
            ("other", {"message": "q"}, "There is no agent 'other'"),
            ("agent", {"message": ""}, "Give `message` to begin a task"),
            ("agent", {"message": 5}, "`message` must be a text; it was 5"),
            ("agent", {"message": "q", "task_id": {"a": 1}}, "`task_id` must be a text"),
        )
        for agent, given, said in odd:
            with pytest.raises(MCPError, match=said):
                await client.call_tool(agent, given)
    assert len(rig.model.requests) == 2


PROGRAM = '''
from holdfast import Agent, ApprovalRule, tool

@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    print("this does not disturb the protocol")
    return f"paid {amount}"

@tool(needs_approval=ApprovalRule(not_asker=True))
def wire(amount: int) -> str:
    """Wire an amount."""
    return f"wired {amount}"

agents = [Agent(name="payer", model="gpt-5-mini", tools=[pay, wire])]
'''


def program(directory: Path, model: FakeOpenAI) -> dict[str, str]:
    """Write the module whose agents are served; return the environment of its models."""
    (directory / "my_module.py").write_text(PROGRAM)
    return {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-1"}


@asynccontextmanager
async def served(tmp_path: Path, model: FakeOpenAI, **options: Any) -> AsyncGenerator[Client]:
    """Run `holdfast mcp` and connect with it."""
    env = {**os.environ, **program(tmp_path, model)}
    env.pop("TEMPORAL_ADDRESS", None)
    command, *arguments = forked.command("-m", "holdfast", "mcp", "my_module:agents", "--by", "zoe")
    server = StdioServerParameters(command=command, args=arguments, env=env, cwd=tmp_path)
    async with Client(server, cache=None, **options) as client:
        yield client


async def test_a_client_approves_loses_its_connection_and_gets_the_same_result(
    tmp_path: Path, model: FakeOpenAI
) -> None:
    model.call("pay", {"amount": 7})
    model.reply("all paid")
    given = {"message": "Pay 7", "task_id": "bill-7"}
    held = asyncio.Event()

    async def ask(_context: Any, _params: Any) -> ElicitResult:
        held.set()
        await asyncio.sleep(600)  # the user thinks, and the connection is lost
        raise AssertionError

    async with served(tmp_path, model, elicitation_callback=ask) as client:
        call = asyncio.create_task(client.call_tool("payer", given))
        await held.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    yes: Any = answering(decision="approve")
    async with served(tmp_path, model, elicitation_callback=yes) as client:
        first = await client.call_tool("payer", given)
    async with served(tmp_path, model) as client:
        second = await client.call_tool("payer", given)
    assert first.content[0].text == second.content[0].text == "all paid"  # type: ignore[union-attr]
    assert json.dumps(first.structured_content) == json.dumps(second.structured_content)
    assert len(model.requests) == 2


TOKEN = "let-me-in"


@asynccontextmanager
async def over_http(url: str, token: str = TOKEN, **options: Any) -> AsyncGenerator[Client]:
    """Connect with a server over HTTP."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=100) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, cache=None, **options) as client:
            yield client


COMMAND = ("mcp", "my_module:agents", "--http", "--port", "0", "--json", "--by", "zoe")


async def test_over_http_nobody_is_served_without_the_token_and_it_ends_without_a_traceback(
    tmp_path: Path, model: FakeOpenAI
) -> None:
    environment, cli = {"HOLDFAST_MCP_TOKEN": TOKEN, **program(tmp_path, model)}, Cli(tmp_path)
    unguarded = cli(*COMMAND, environment={"HOLDFAST_MCP_TOKEN": ""}, expect=2)
    assert "Every program and user of this machine could decide as 'zoe'" in unguarded.err
    with cli.running(*COMMAND, environment=environment) as running:
        url = (await asyncio.to_thread(running.first_json))["mcp"]
        async with httpx2.AsyncClient() as http:
            for headers in ({}, {"Authorization": TOKEN}, {"Authorization": "Bearer other"}):
                answer = await http.post(url, json={}, headers=headers)
                assert (answer.status_code, answer.text) == (401, "A bearer token is needed.")
        async with over_http(url) as client:  # it is connected at the end
            assert [each.name for each in (await client.list_tools()).tools] == ["payer"]
            ended = await asyncio.to_thread(running.end)
    cli("stop")
    assert ended.code == 0
    assert "Traceback" not in ended.err


async def test_over_http_a_token_of_the_desk_says_who_asks_and_decides_and_nothing_else_does(
    tmp_path: Path, model: FakeOpenAI
) -> None:
    file, cli = tmp_path / "tokens.json", Cli(tmp_path)
    roles = {"ann": ["operator", "approver"], "bo": ["operator"], "vic": ["viewer"]}
    tokens = {name: Tokens(file).make(name, its) for name, its in roles.items()} | {"": TOKEN}
    environment = {"HOLDFAST_MCP_TOKEN": TOKEN, "HOLDFAST_DESK_TOKENS": str(file)}
    own: Any = {"client_info": Implementation(name="ann", version="1")}
    command = [each for each in COMMAND if each not in ("--by", "zoe")]
    with cli.running(*command, environment=environment | program(tmp_path, model)) as running:
        url = (await asyncio.to_thread(running.first_json))["mcp"]
        for name, mode in (("ann", "auto"), ("ann", "legacy"), ("bo", "auto"), ("", "legacy")):
            model.call("pay" if name == "ann" else "wire", {"amount": 7})
            if name == "ann":
                model.reply("all paid")
            own["elicitation_callback"] = answering(decision="approve")
            async with over_http(url, tokens[name], mode=mode, **own) as client:
                given = {"message": "Pay 7", "task_id": f"{name}-{mode}"}
                result: Any = await client.call_tool("payer", given)
            assert result.structured_content["status"] == ("done" if name == "ann" else "waiting")
        async with over_http(url, tokens["vic"]) as client:
            with pytest.raises(MCPError, match="vic may not run tasks"):
                await client.call_tool("payer", {"message": "Pay 7"})
        theirs = Tokens(file).make("kim", ["operator"], tenant="acme")
        async with over_http(url, theirs) as client:  # what is another's is not there
            refused: Any = await client.call_tool("payer", {"task_id": "ann-auto"})
        assert "No task 'mcp-ann-auto' is known here" in refused.content[0].text
        listed = cli("approvals", "--json").out.splitlines()
        assert sorted(json.loads(each)["asker"] for each in listed) == ["bo", "mcp:ann"]
        keyed = set[str]()
        for name in ("ann", "bo"):
            model.reply("Hello.")
            async with over_http(url, tokens[name]) as client:
                key: Any = {KEY: "order 7"}
                said: Any = await client.call_tool("payer", {"message": "Hi"}, meta=key)
            keyed.add(said.structured_content["task_id"])
        assert len(keyed) == 2  # the keys of two people name two tasks
        assert await of_another_session(url, tokens["ann"], tokens["bo"]) == 404
        assert await of_another_session(url, tokens["ann"], tokens["ann"]) != 404
        audit = cli("audit", "mcp-ann-auto", "--json").out
        assert '"approver": "ann"' in audit
        assert (await asyncio.to_thread(running.end)).code == 0
    cli("stop")


async def of_another_session(url: str, owner: str, other: str) -> int:
    """Begin a session with a token, send a request to it with another, and return the status."""
    about = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    begin = {"method": "initialize", "params": {"protocolVersion": "2025-06-18", **about}}
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {owner}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        begun = await http.post(url, json={"jsonrpc": "2.0", "id": 1, **begin})
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        theirs = {**session, "authorization": f"Bearer {other}"}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        return (await http.post(url, json=asked, headers=theirs)).status_code
