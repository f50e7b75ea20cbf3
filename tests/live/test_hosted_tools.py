"""Tools that the provider runs: passed on, recorded, streamed, given back, approved by people."""

from __future__ import annotations

from typing import Any, cast, get_type_hints

import pytest

from holdfast import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    GenerateDynamicPromptData,
    HostedMCPTool,
    HostedToolRan,
    ImageGenerationTool,
    ImageGenerationToolConfig,
    Prompt,
    RunConfig,
    Runner,
    StepFailedError,
    UserError,
    WebSearchTool,
    WebSearchToolImageSettings,
    tool,
)
from holdfast.errors import CommandRefusedError, UndoRefusedError
from holdfast.testing import FakeOpenAI, ask_approval, hosted, reply
from holdfast.workers import ReActAgentWorker
from tests.support.rig import MakeAgent, MakeRunner, Rig, histories

SEARCH = hosted("web_search_call", id="ws_1", action={"type": "search", "query": "rome"})
ASK = ask_approval("crm", "pay", {"to": "Kim"}, id="mcpr_1")
CALL = hosted(
    "mcp_call",
    id="mcp_1",
    server_label="crm",
    name="pay",
    arguments='{"to": "Kim"}',
    output="paid",
    error=None,
)
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


@tool(effect="read")
def look(k: int) -> int:
    """Look."""
    return k


def inputs(model: FakeOpenAI, n: int) -> list[dict[str, Any]]:
    """Return the input items of a request."""
    found: list[dict[str, Any]] = model.requests[n].body["input"]
    return found


async def test_hosted_tools_are_passed_on_in_their_order_and_their_items_given_back(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    search = FileSearchTool(["vs_1"], max_num_results=3, include_search_results=True)
    code = CodeInterpreterTool({"type": "code_interpreter", "container": {"type": "auto"}})
    runner = await make_runner(WebSearchTool(), look, search, code, ImageGenerationTool())
    model.add(reply("", items=[SEARCH]), reply("Rome."))
    task = await runner.create_task("Capital of Italy?")
    assert (await runner.run_task(task)).output == "Rome."
    body = model.requests[0].body
    kinds = ["web_search", "function", "file_search", "code_interpreter", "image_generation"]
    assert [each["type"] for each in body["tools"]] == kinds
    assert body["tools"][2] == {
        "type": "file_search",
        "vector_store_ids": ["vs_1"],
        "max_num_results": 3,
    }
    assert body["include"] == ["file_search_call.results"]
    assert inputs(model, 1)[1] == SEARCH
    events = [each async for each in runner.step_events(task, until="answered")]
    [ran] = [each for each in events if isinstance(each, HostedToolRan)]
    assert (ran.step_id, ran.call.tool, ran.call.arguments) == ("s1", "web_search", "rome")
    audit = [each for each in await runner.audit(task) if each.kind == "hosted_call"]
    assert [(e.step, e.tool, e.status, e.answered_by) for e in audit] == [
        ("s1", "web_search", "done", "provider")
    ]
    assert await runner.verify(task) == []


async def test_a_search_for_images_is_asked_for_with_what_it_finds(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    images: WebSearchToolImageSettings = {"max_results": 3, "caption": True}
    search = WebSearchTool(search_content_types=["text", "image"], image_settings=images)
    config: ImageGenerationToolConfig = {
        "type": "image_generation",
        "model": "gpt-image-2.5-flare",
        "quality": "max",
    }
    runner = await make_runner(search, ImageGenerationTool(config))
    model.reply("none")
    await runner.run_task(await runner.create_task("A picture of Rome?"))
    body = model.requests[0].body
    assert body["include"] == ["web_search_call.results"]
    assert body["tools"][0]["search_content_types"] == ["text", "image"]
    assert body["tools"][0]["image_settings"] == images
    assert body["tools"][1] == config
    assert WebSearchTool(search_content_types=["text"]).include == ""


async def test_large_items_go_to_the_archive_and_readers_are_told_of_them(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    picture = "A" * 100_000
    made = hosted("image_generation_call", id="ig_1", result=picture, revised_prompt="a cat")
    runner = await make_runner(ImageGenerationTool())
    model.add(reply("", items=[made]), reply("Here it is."))
    task = await runner.create_task("A cat, please.")
    await runner.run_task(task)
    assert inputs(model, 1)[1] == made
    [run] = await histories(runner.client, task.task_id)
    assert max(event.ByteSize() for event in run.events) < 20_000
    [event] = [each for each in await runner.audit(task) if each.kind == "hosted_call"]
    assert (event.tool, event.arguments) == ("image_generation", "a cat")
    assert event.result == "[image of 100000 characters in Base64]"
    assert any(picture in str(message.items) for message in await runner.transcript(task))


async def test_a_request_of_the_provider_waits_for_a_person_and_gets_the_decision(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(crm(), look)
    model.add(reply("", items=[ASK]), reply("Paid.", items=[CALL]))
    task = await runner.create_task("Pay Kim.")
    waiting = await runner.run_task(task)
    assert waiting.status == "waiting"
    [approval] = await runner.pending_approvals(task)
    assert (approval.kind, approval.tool, approval.server) == ("tool", "crm.pay", "crm")
    assert approval.arguments == '{"to": "Kim"}'
    with pytest.raises(CommandRefusedError, match="cannot be edited"):
        await runner.approve(approval, "ann", arguments={"to": "Bob"})
    with pytest.raises(CommandRefusedError, match="no result can be given"):
        await runner.respond(approval, "paid", "ann")
    await runner.approve(approval, "ann")
    assert (await runner.run_task(task)).output == "Paid."
    request, answer = inputs(model, 1)[1:]
    assert request == ASK
    assert answer == {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": True,
    }
    [asked] = [each for each in await runner.audit(task) if each.kind == "tool_call"]
    assert (asked.tool, asked.approver, asked.decision) == ("crm.pay", "ann", "approved")
    assert len(model.requests) == 2


async def test_a_standing_decision_is_for_the_tool_of_its_server_alone(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        return f"paid {to}"

    runner = await make_runner(crm(), pay)
    again = ask_approval("crm", "pay", {"to": "Bob"}, id="mcpr_2")
    model.add(reply("", items=[ASK]), reply("", items=[again]))
    model.call("pay", {"to": "Kim"})
    task = await runner.create_task("Pay.")
    await runner.run_task(task)
    [approval] = await runner.pending_approvals(task)
    await runner.approve(approval, "ann", always=True)
    await runner.run_task(task)
    [approval] = await runner.pending_approvals(task)
    assert approval.tool == "pay"


async def test_a_function_may_leave_the_decision_to_a_person(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    asked: list[tuple[str, str]] = []

    def decide(request: Any) -> None:
        asked.append((request.data.name, request.data.arguments))

    runner = await make_runner(crm(on_approval_request=decide))
    model.add(reply("", items=[ASK]))
    task = await runner.create_task("Pay Kim.")
    assert (await runner.run_task(task)).status == "waiting"
    assert asked == [("pay", '{"to": "Kim"}')]


async def test_secrets_of_a_server_are_sent_and_never_recorded(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(crm())
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert model.requests[0].body["tools"][0]["authorization"] == TOKEN
    [run] = await histories(runner.client, task.task_id)
    assert not any(TOKEN.encode() in event.SerializeToString() for event in run.events)
    head = await runner.reader.head(task.task_id)
    recorded = (await runner.reader.archive.aget(head.snapshot)).decode()
    assert "crm.example" in recorded
    assert TOKEN not in recorded


async def test_an_undo_names_what_the_provider_has_run(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(crm())
    model.add(reply("", items=[ASK]), reply("Paid.", items=[CALL]), reply("", items=[ASK]))
    task = await runner.create_task("Pay Kim.")
    await runner.run_task(task)
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


async def test_an_undo_takes_back_calls_of_a_server_that_only_reads(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(crm(effect="read"))
    model.add(reply("Paid.", items=[CALL]), reply("Now this."))
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.undo_step(task, by="ann", reason="again")
    assert (await runner.run_task(task)).output == "Now this."


async def test_a_request_of_an_unknown_server_is_refused(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(crm())
    other = ask_approval("shop", "pay", id="mcpr_9")
    model.add(reply("", items=[other]), reply("I see."))
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "I see."
    assert inputs(model, 1)[2]["approve"] is False


async def test_a_model_without_the_responses_api_is_refused_before_the_call(
    make_agent: MakeAgent, make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(WebSearchTool())
    config = RunConfig(model="chat:gpt-5-mini")
    with pytest.raises(StepFailedError, match="cannot be asked with hosted tools"):
        await Runner.run(make_agent(WebSearchTool()), "q", runner=runner, run_config=config)
    assert model.requests == []


def test_an_agent_whose_model_has_no_hosted_tools_is_refused_when_it_is_made(
    make_agent: MakeAgent,
) -> None:
    with pytest.raises(UserError, match="only the Responses API"):
        make_agent(WebSearchTool(), model="chat:gpt-5-mini")
    with pytest.raises(UserError, match="only the Responses API"):
        make_agent(look, model="offline", prompt={"id": "p"})


async def test_a_function_chooses_the_prompt_of_each_turn_once(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    chosen: list[str] = []

    async def choose(data: GenerateDynamicPromptData) -> Prompt:
        chosen.append(data.agent.name)
        return {"id": f"pmpt_{len(chosen)}"}

    agent = make_agent(look, prompt=choose)
    await rig.serve(agent)
    model.call("look", {"k": 1})
    model.reply("done")
    result = await Runner.run(agent, "q", runner=rig.runner())
    assert result.final_output == "done"
    assert [each.body["prompt"] for each in model.requests] == [{"id": "pmpt_1"}, {"id": "pmpt_2"}]
    assert chosen == ["agent", "agent"]
    assert all(each.model == "gpt-5-mini" for each in model.requests)  # the agent names it


def test_a_prompt_without_an_id_and_a_list_of_ids_that_is_none_are_refused() -> None:
    odd: Any = {"version": "1"}
    with pytest.raises(UserError, match="'id'"):
        Agent(name="a", prompt=odd)
    with pytest.raises(UserError, match="list of ids"):
        FileSearchTool(cast("Any", "vs_1"))
    with pytest.raises(UserError, match="from 0 to 50"):
        FileSearchTool(["vs_1"], max_num_results=51)
    with pytest.raises(UserError, match='list of "text" and "image", or None; it was \'image\''):
        WebSearchTool(search_content_types=cast("Any", "image"))
    with pytest.raises(UserError, match=r"it was \['video'\]"):
        WebSearchTool(search_content_types=cast("Any", ["video"]))
    with pytest.raises(UserError, match=r"image_settings=\.\.\.\) is a dict .* it was 3"):
        WebSearchTool(image_settings=cast("Any", 3))
    with pytest.raises(UserError, match="it must be 'code_interpreter'"):
        CodeInterpreterTool(cast("Any", {"type": "mcp"}))
    with pytest.raises(UserError, match="More than one HostedMCPTool"):
        Agent(name="a", tools=[crm(), crm()])
    with pytest.raises(UserError, match="ReActAgentWorker has the model call tools by text"):
        Agent(name="a", tools=[WebSearchTool()], worker=ReActAgentWorker())


def test_the_types_of_settings_can_be_read() -> None:
    hints = get_type_hints(ImageGenerationToolConfig)
    assert get_type_hints(hints["input_image_mask"]) == {"file_id": str, "image_url": str}
    assert get_type_hints(WebSearchToolImageSettings) == {"max_results": int, "caption": bool}
