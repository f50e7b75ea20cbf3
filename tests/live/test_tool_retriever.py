"""An agent whose tools are chosen for each step."""

from holdfast import KeywordToolRetriever, tool
from holdfast.testing.fake_api.requests import FakeRequest
from tests.support.rig import Rig


@tool(effect="read")
def weather(city: str) -> str:
    """Forecast rain and sun."""
    return f"rain in {city}"


@tool(effect="read")
def trains(city: str) -> str:
    """Find a train."""
    return f"a train to {city}"


def offered(request: FakeRequest) -> list[str]:
    return [spec["name"] for spec in request.body.get("tools", [])]


async def test_each_step_offers_what_fits_the_tasks_input(rig: Rig) -> None:
    await rig.serve(rig.agent(tool_retriever=KeywordToolRetriever((weather, trains), top_k=1)))
    rig.model.call("weather", {"city": "Rome"})
    rig.model.reply("It rains.")
    response = await rig.runner().chat("Will there be rain in Rome?")
    assert str(response) == "It rains."
    assert [offered(request) for request in rig.model.requests] == [["weather"], ["weather"]]
    assert [str(source) for source in response.sources] == ["rain in Rome"]
