"""Annotations of a model's words: kept wherever the words are."""

from typing import Any

import pytest

from holdfast import Agent, Runner
from holdfast.models import ChatCompletionsModel, ResponsesModel
from tests.support.hostile import chat, hostile_server, in_turn, message, responses, sent
from tests.support.rig import Rig

FIELDS = {"url": "https://a.b", "title": "A", "start_index": 0, "end_index": 4}
CITATION = {"type": "url_citation", **FIELDS}
OF_CHAT = {"type": "url_citation", "url_citation": FIELDS}


def cited() -> dict[str, Any]:
    said = message("done")
    said["content"][0]["annotations"] = [CITATION]
    return said


ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "responses": (ResponsesModel, responses(cited())),
    "chat": (ChatCompletionsModel, chat({"content": "done", "annotations": [OF_CHAT]})),
}


@pytest.mark.parametrize(("api", "streamed"), [("responses", False), ("chat", True)])
async def test_citations_are_in_items_inputs_and_sessions(
    rig: Rig, api: str, streamed: bool
) -> None:
    kind, body = ANSWERS[api]
    async with hostile_server(in_turn(sent(body, streamed=streamed))) as server:
        model = kind("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
        agent = Agent(name="agent", model=model)
        await rig.serve(agent)
        runner = rig.runner()
        if streamed:
            result: Any = Runner.run_streamed(agent, "q", runner=runner, session="s")
            _ = [event async for event in result.stream_events()]
        else:
            result = await Runner.run(agent, "q", runner=runner, session="s")
        kept = await runner.session("s").get_items()
        await rig.stop()
        await model.close()
    [item] = result.new_items
    held = [item.raw_item.to_dict(), result.to_input_list()[-1], kept[-1]]
    assert [each["content"][0]["annotations"] for each in held] == [[CITATION]] * 3
    assert result.final_output == "done"
