"""MCP servers that others have written, and servers beside the tools of the model's provider."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from holdfast import HostedMCPTool, WebSearchTool
from holdfast.mcp import MCPServerStdio
from holdfast.testing import FakeOpenAI, ask_approval, call, hosted, reply
from tests.live.test_mcp import Serve, place, serve
from tests.support import forked
from tests.support.tool_servers import Place

__all__ = ["place", "serve"]


def reference(name: str, **options: Any) -> MCPServerStdio:
    """Describe a server of the protocol's own project."""
    command, *arguments = forked.command("-m", f"mcp_server_{name}")
    params: Any = {"command": command, "args": arguments}
    return MCPServerStdio(params, name=name, client_session_timeout_seconds=60, **options)


def git(directory: Path, *arguments: str) -> str:
    """Run git, whatever its settings are on this machine."""
    command = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", *arguments]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


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
    runner = await serve(
        gits, reference("time", tool_filter={"blocked_tool_names": ["convert_time"]})
    )
    model.call("get_current_time", {"timezone": "Europe/Oslo"})
    model.call("git_add", {**where, "files": ["notes.txt"]})
    model.call("git_commit", {**where, "message": "Buy bread"})
    model.reply("done")
    task = await runner.create_task("Commit my notes.")
    assert (await runner.run_task(task)).status == "waiting"
    [approval] = await runner.pending_approvals(task)
    assert approval.tool == "git_commit"
    await runner.approve(approval, by="ann")
    assert (await runner.run_task(task)).output == "done"
    assert git(repository, "log", "--format=%an: %s") == "Ann: Buy bread\n"
    assert model.requests[1].holds("Europe/Oslo")
    assert "convert_time" not in model.requests[0].tool_names
    effects = [(e.tool, e.effect) for e in await runner.audit(task) if e.kind == "tool_call"]
    assert effects == [
        ("get_current_time", "read"),
        ("git_add", "irreversible"),
        ("git_commit", "irreversible"),
    ]
    await runner.finalize_response(task)
    assert await runner.verify(task) == []


async def test_two_tools_of_the_provider_beside_a_server_of_our_own(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    config: Any = {
        "type": "mcp",
        "server_label": "crm",
        "server_url": "https://crm.example/mcp",
        "require_approval": "always",
    }
    runner = await serve(place.stdio(), tools=(WebSearchTool(), HostedMCPTool(config)))
    search = hosted("web_search_call", id="ws_1", action={"type": "search", "query": "rome"})
    asked = ask_approval("crm", "pay", {"to": "Kim"}, id="mcpr_1")
    model.add(call("book", {"thing": "x"}, items=[search, asked]))
    paid = hosted(
        "mcp_call", id="mcp_1", server_label="crm", name="pay", arguments="{}", output="ok"
    )
    model.add(reply("done", items=[paid]))
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).status == "waiting"
    assert place.calls == {"book:x": 1}  # what needs no approval does not wait
    [approval] = await runner.pending_approvals(task)
    assert approval.tool == "crm.pay"
    await runner.approve(approval, by="ann")
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"book:x": 1}
    [kinds, *_] = [[each["type"] for each in request.body["tools"]] for request in model.requests]
    assert kinds[:2] == ["web_search", "mcp"]
    assert "book" in model.requests[0].tool_names
    given = [each["type"] for each in model.requests[1].body["input"] if "type" in each]
    wanted = ["web_search_call", "mcp_approval_request", "function_call"]
    assert [each for each in given if each in wanted] == wanted
    assert {"mcp_approval_response", "function_call_output"} <= {*given}
    await runner.finalize_response(task)
    assert await runner.verify(task) == []
