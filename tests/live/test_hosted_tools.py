"""Tools that the provider runs: passed on, recorded, streamed, given back, approved by people."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Agent, RunConfig, Runner, StepFailedError, UserError
from holdfast.agents_sdk import (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    WebSearchTool,
)
from holdfast.errors import CommandRefusedError, UndoRefusedError
from holdfast.testing import FakeOpenAI, ask_approval, call, hosted, reply
from holdfast.workers import ReActAgentWorker
from tests.support.rig import Rig, histories, run_a_task
from tests.support.runs import look

ASK = ask_approval("crm", "pay", {"to": "Kim"}, id="mcpr_1")
MADE: dict[str, Any] = {"name": "pay", "arguments": '{"to": "Kim"}', "output": "paid"}
CALL = hosted("mcp_call", id="mcp_1", server_label="crm", error=None, **MADE)
TOKEN = "tok-very-secret"


def crm(**options: Any) -> HostedMCPTool:
    """Make the tool of an MCP server whose calls need an approval."""
    config: Any = {
        "type": "mcp",
        "server_label": "crm",
        "server_url": "https://crm.example/mcp",
        "require_approval": "always",
        "authorization": TOKEN,
    }
    return HostedMCPTool(config, **options)


PICTURE, THOUGHT = "A" * 100_000, "because " * 10_000
MADE_PICTURE = hosted("image_generation_call", id="ig_1", result=PICTURE, revised_prompt="a cat")


async def test_large_items_go_to_the_archive_and_back_to_the_model_and_the_session_and_are_told_of(
    rig: Rig,
) -> None:
    runner = await rig.make(look, ImageGenerationTool())
    rig.model.add(
        call("look", reasoning=THOUGHT, items=[MADE_PICTURE]),
        reply("done", reasoning=THOUGHT),
        "two",
    )
    response = await runner.chat("q", session="s")
    await runner.chat("r", session="s")
    for request, count in zip(rig.model.requests[1:], (1, 2), strict=True):
        items = [item for item in request.body["input"] if item.get("type") == "reasoning"]
        assert [item["summary"][0]["text"] for item in items] == [THOUGHT] * count
        assert MADE_PICTURE in request.body["input"]
    history = await runner.session("s").chat_history()
    for messages in (await runner.transcript(response.task_id), history):
        for large, count in ((THOUGHT, 2), (PICTURE, 1)):
            assert sum(large in str(message.items) for message in messages) == count
    [run] = await histories(runner.client, response.task_id)
    assert max(event.ByteSize() for event in run.events) < 20_000
    audit = await runner.audit(response.task_id)
    [event] = [each for each in audit if each.kind == "hosted_call"]
    assert (event.tool, event.arguments) == ("image_generation", "a cat")
    assert event.result == "[image of 100000 characters in Base64]"


def inputs(model: FakeOpenAI, n: int) -> list[dict[str, Any]]:
    """Return the input items of a request."""
    found: list[dict[str, Any]] = model.requests[n].body["input"]
    return found


async def test_a_request_of_the_provider_waits_for_a_person_and_gets_the_decision_without_secrets(
    rig: Rig,
) -> None:
    left: list[str] = []

    def leave(request: Any) -> None:
        left.append(request.data.name)

    runner = await rig.make(crm(on_approval_request=leave), look)
    rig.model.add(reply("", items=[ASK]), reply("Paid.", items=[CALL]))
    task = await runner.create_task("Pay Kim.")
    assert ((await runner.run_task(task)).status, left) == ("waiting", ["pay"])
    [approval] = await runner.pending_approvals(task)
    assert (approval.kind, approval.tool, approval.server) == ("tool", "crm.pay", "crm")
    assert approval.arguments == '{"to": "Kim"}'
    with pytest.raises(CommandRefusedError, match="cannot be edited"):
        await runner.approve(approval, "ann", arguments={"to": "Bob"})
    with pytest.raises(CommandRefusedError, match="no result can be given"):
        await runner.respond(approval, "paid", "ann")
    await runner.approve(approval, "ann")
    assert (await runner.run_task(task)).output == "Paid."
    request, answer = inputs(rig.model, 1)[1:]
    assert request == ASK
    assert answer == {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": True,
    }
    [asked] = [each for each in await runner.audit(task) if each.kind == "tool_call"]
    assert (asked.tool, asked.approver, asked.decision) == ("crm.pay", "ann", "approved")
    assert len(rig.model.requests) == 2

    assert rig.model.requests[0].body["tools"][0]["authorization"] == TOKEN
    [run] = await histories(runner.client, task.task_id)
    assert not any(TOKEN.encode() in event.SerializeToString() for event in run.events)
    head = await runner.reader.head(task.task_id)
    recorded = (await runner.reader.archive.aget(head.snapshot)).decode()
    assert "crm.example" in recorded
    assert TOKEN not in recorded


async def test_an_undo_names_what_the_provider_has_run(rig: Rig) -> None:
    runner = await rig.make(crm())
    rig.model.add(reply("", items=[ASK]), reply("Paid.", items=[CALL]), reply("", items=[ASK]))
    task = await run_a_task(runner, "Pay Kim.")
    [approval] = await runner.pending_approvals(task)
    await runner.approve(approval, "ann")
    await runner.run_task(task)
    with pytest.raises(UndoRefusedError, match="run by the provider"):
        await runner.undo_step(task, by="ann", reason="wrong Kim")
    await runner.undo_step(task, by="ann", reason="wrong Kim", residue="keep")
    await runner.undo_step(task, by="ann", reason="wrong Kim")
    await runner.run_task(task)
    [again] = await runner.pending_approvals(task)
    assert again.id != approval.id
    assert await runner.verify(task) == []


async def test_a_model_without_the_responses_api_is_refused_before_the_call(rig: Rig) -> None:
    runner = await rig.make(WebSearchTool())
    config = RunConfig(model="chat:gpt-5-mini")
    with pytest.raises(StepFailedError, match="cannot be asked with hosted tools"):
        await Runner.run(rig.agent(WebSearchTool()), "q", runner=runner, run_config=config)
    assert rig.model.requests == []


def test_a_prompt_without_an_id_and_tools_that_are_none_are_refused() -> None:
    values: tuple[Any, ...] = ({"version": "1"}, "vs_1", {"type": "mcp"}, ["video"], 3)
    odd, ids, crm_config, kinds, images = values
    web = [WebSearchTool()]
    cases: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: Agent(name="a", prompt=odd), "'id'"),
        (lambda: FileSearchTool(ids), "FileSearchTool cannot use vector_store_ids='vs_1'"),
        (lambda: FileSearchTool(["v"], max_num_results=51), "=51: .* less than or equal to 50"),
        (lambda: WebSearchTool(search_content_types=kinds), "should be 'text' or 'image'"),
        (lambda: WebSearchTool(image_settings=images), "WebSearchTool cannot use image_settings=3"),
        (lambda: Agent(name="a", tools=web, model="chat:gpt-5-mini"), "only the Responses API"),
        (lambda: CodeInterpreterTool(crm_config), "it must be 'code_interpreter'"),
        (lambda: Agent(name="a", tools=[crm(), crm()]), "More than one HostedMCPTool"),
        (lambda: Agent(name="a", tools=web, worker=ReActAgentWorker()), "call tools by text"),
    )
    for make, said in cases:
        with pytest.raises(UserError, match=said):
            make()
