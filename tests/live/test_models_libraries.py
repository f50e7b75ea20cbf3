"""Durable tasks whose models are reached by LiteLLM and any-llm: Anthropic's and Gemini's."""

import pytest
from pydantic import BaseModel

from holdfast import Image, Runner, tool
from holdfast.models import AnyLLMModel
from holdfast.testing import fail, paced
from tests.support.pictures import png
from tests.support.rig import Rig

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("connections_of_libraries"),
]


class City(BaseModel):
    """A city.

    Attributes:
        name: Its name.
        people: How many live there.
    """

    name: str
    people: int


async def test_a_task_with_tools_a_wait_a_stream_an_image_and_a_structure(rig: Rig) -> None:
    looked: list[str] = []

    @tool
    def look_up(city: str) -> str:
        """Look up a city."""
        looked.append(city)
        return f"{city} has 700000 people"

    agent = rig.agent(
        look_up,
        model=AnyLLMModel("gemini/gemini-3-pro-preview", base_url=rig.model.origin, api_key="any"),
        output_type=City,
        instructions="Be exact.",
    )
    await rig.serve(agent)
    rig.model.fail(429, retry_after=0)
    rig.model.calls(
        [("look_up", {"city": "Oslo"}), ("look_up", {"city": "Rome"})], reasoning="Both."
    )
    rig.model.add(fail(503), paced('{"name": "Oslo", "people": 700000}', piece=6))
    image = Image.from_bytes(png(1))
    parts = [
        {"type": "input_text", "text": "Which?"},
        {"type": "input_image", "image_url": image.part().url},
    ]
    asked = [{"role": "user", "content": parts}]
    stream = Runner.run_streamed(agent, asked, runner=rig.runner())
    told = [
        event.data.delta
        async for event in stream.stream_events()
        if event.type == "raw_response_event" and event.data.type.endswith("output_text.delta")
    ]
    assert stream.final_output == City(name="Oslo", people=700000)
    assert "".join(told) == '{"name": "Oslo", "people": 700000}'
    assert sorted(looked) == ["Oslo", "Rome"]
    assert {request.endpoint for request in rig.model.requests} == {"gemini"}
    assert len(rig.model.requests) == 4
    last = rig.model.requests[-1]
    assert last.images == (image,)
    assert last.instructions.startswith("Be exact.")
    assert all("700000 people" in text for text in last.results.values())
    usage = stream.context_wrapper.usage
    assert usage.requests == 2
    assert usage.input_tokens > 0


async def test_a_name_is_enough_where_the_environment_has_key_and_address(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    monkeypatch.setenv("ANTHROPIC_API_BASE", rig.model.origin)
    agent = rig.agent(model="litellm/anthropic/claude-sonnet-4-5")
    await rig.serve(agent)
    rig.model.reply("here")
    assert (await Runner.run(agent, "Where?", runner=rig.runner())).final_output == "here"
    assert rig.model.requests[0].model == "claude-sonnet-4-5"
