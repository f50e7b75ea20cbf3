"""Raw items of runs: objects of the `openai` package with the provider's ids."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

from holdfast import ItemHelpers, MaxTurnsExceeded, Runner, RunState
from holdfast.models import ChatCompletionsModel
from holdfast.models.openai.item_checks import FAKE_ID
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Runs, look, tools


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


def ids(items: Any) -> list[str]:
    """List the ids of what a model has said."""
    kinds = (ResponseOutputMessage, ResponseFunctionToolCall)
    return [str(each.id) for each in items if isinstance(each, kinds)]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_items_have_the_providers_ids_and_models_are_not_sent_them(
    run: Runs, model: FakeOpenAI, streamed: bool
) -> None:
    agent = await run.serve(look)
    model.call("look", {"where": "there"})
    model.reply("done")
    events: list[Any] = []
    if streamed:
        result: Any = Runner.run_streamed(agent, "q", runner=run.runner, session="s")
        events = [event async for event in result.stream_events()]
    else:
        result = await run("q", session="s")
    called, told, said = (each.raw_item for each in result.new_items)
    assert isinstance(called, ResponseFunctionToolCall)
    assert (called.name, called.arguments) == ("look", '{"where": "there"}')
    assert isinstance(said, ResponseOutputMessage)
    assert (said.status, ItemHelpers.extract_text(said)) == ("completed", "done")
    assert isinstance(told, dict)
    made = ids([called, said])
    assert [each[:3] for each in made] == ["fc_", "msg"]
    assert [each.id for answer in result.raw_responses for each in answer.output] == made
    told_of = [each.item.raw_item for each in events if each.type == "run_item_stream_event"]
    assert ids(told_of) == (made if streamed else [])
    again = await Runner.run(agent, RunState.of(result.task_id), runner=run.runner)
    assert ids(each.raw_item for each in again.new_items) == made

    model.reply("more")
    await run("and?", session="s")
    sent = [item for request in model.requests for item in request.body["input"]]
    assert [item for item in sent if "id" in item] == []
    assert [item for item in result.to_input_list() if "id" in item] == []


async def test_ids_are_in_an_errors_data_and_in_states(run: Runs, model: FakeOpenAI) -> None:
    _, pay = tools()
    model.calls([("pay", {"to": "ann"}), ("look", {})])
    result = await run("q", pay, look)
    [asked] = result.interruptions
    assert isinstance(asked.raw_item, ResponseFunctionToolCall)
    first, second = ids(each.raw_item for each in result.new_items[:2])
    assert asked.raw_item.id == first != second
    data = result.to_state().to_json()
    kept = [each["raw_item"].get("id") for each in data["generated_items"]]
    assert kept == [first, second, None, first]
    assert run.agent is not None
    state = await RunState.from_json(run.agent, data)
    assert state.get_interruptions()[0].raw_item == asked.raw_item

    model.call("look", {})
    with pytest.raises(MaxTurnsExceeded) as raised:
        await run("q", max_turns=1)
    assert raised.value.run_data is not None
    [call, _] = raised.value.run_data.new_items
    assert ids([call.raw_item]) == ids(raised.value.run_data.raw_responses[0].output)
    assert call.raw_item.id.startswith("fc_")


async def test_a_message_of_chat_completions_has_the_id_of_the_sdk(
    run: Runs, model: FakeOpenAI, openai_client: AsyncOpenAI
) -> None:
    client = openai_client.with_options(base_url=model.base_url)
    await run.serve(look, model=ChatCompletionsModel("m", client=client))
    model.reply("done")
    result = await run("q")
    [item] = result.new_items
    assert isinstance(item.raw_item, ResponseOutputMessage)
    assert (item.raw_item.id, ItemHelpers.extract_text(item.raw_item)) == (FAKE_ID, "done")
    assert "id" not in result.to_input_list()[-1]
