"""Raw items of runs: objects of the `openai` package with the provider's ids."""

from typing import Any

from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

from holdfast import Runner, RunState
from holdfast.agents_sdk import ItemHelpers
from holdfast.testing import FakeOpenAI, call
from tests.support.runs import Runs, look


def ids(items: Any) -> list[str]:
    """List the ids of what a model has said."""
    kinds = (ResponseOutputMessage, ResponseFunctionToolCall)
    return [str(each.id) for each in items if isinstance(each, kinds)]


async def test_items_and_sessions_have_the_providers_ids_and_models_are_not_sent_them(
    run: Runs,
) -> None:
    agent = await run.serve(look)
    run.model.add(call("look", {"where": "there"}), "done")
    result: Any = Runner.run_streamed(agent, "q", runner=run.runner, session="s")
    events: list[Any] = [event async for event in result.stream_events()]
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
    assert ids(told_of) == made
    again = await Runner.run(agent, RunState.of(result.task_id), runner=run.runner)
    assert ids(each.raw_item for each in again.new_items) == made

    assert [each.get("id") for each in result.to_input_list()[1:]] == [made[0], None, made[1]]

    run.model.reply("more")
    more = await run("and?", session="s")
    assert more.to_input_list()[:4] == result.to_input_list()
    assert sent_ids(run.model) == []
    assert await run.runner.session("s").get_items() == more.to_input_list()


def sent_ids(model: FakeOpenAI) -> list[str]:
    """List the ids of all items that a model was sent."""
    sent = [item for request in model.requests for item in request.body.get("input", ())]
    return [item["id"] for item in sent if "id" in item]
