"""An agent whose tools are chosen for each step."""

from collections.abc import Sequence
from typing import Any

from holdfast import KeywordToolRetriever, TaskStep, TaskStepOutput, tool
from holdfast.testing.fake_api.requests import FakeRequest
from holdfast.workers import StepContext
from tests.support.rig import Rig
from tests.support.workers import Doing, ends


@tool(effect="read")
def weather(city: str) -> str:
    """Forecast rain and sun."""
    return f"rain in {city}"


@tool(effect="read")
def trains(city: str) -> str:
    """Find a train."""
    return f"a train to {city}"


@tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay money."""
    return f"paid {euros}"


CATALOGUE = (weather, trains, pay)


class Chosen:
    """Offers tools as a test says, which may change its mind."""

    def __init__(self, *names: str, tools: Sequence[Any] = CATALOGUE) -> None:
        self.tools = tools
        self.names = list(names)
        self.queries: list[str] = []

    async def retrieve(self, query: str) -> list[str]:
        self.queries.append(query)
        return self.names


def offered(request: FakeRequest) -> list[str]:
    return [spec["name"] for spec in request.body.get("tools", [])]


async def test_each_step_offers_what_fits_the_tasks_input(rig: Rig) -> None:
    await rig.serve(rig.agent(tool_retriever=KeywordToolRetriever(CATALOGUE, top_k=1)))
    rig.model.call("weather", {"city": "Rome"})
    rig.model.reply("It rains.")
    response = await rig.runner().chat("Will there be rain in Rome?")
    assert str(response) == "It rains."
    assert [offered(request) for request in rig.model.requests] == [["weather"], ["weather"]]
    assert [str(source) for source in response.sources] == ["rain in Rome"]


async def test_a_step_that_goes_on_after_a_restart_keeps_its_tools(rig: Rig) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        answer = await ctx.call_model()
        results = await ctx.call_tools(answer.message.calls)
        names = [spec.name for spec in await ctx.offered_tools()]
        return ends(step, [*names, *map(str, results)])

    retriever = Chosen("pay")
    await rig.serve(rig.agent(worker=Doing(body), tool_retriever=retriever))
    rig.model.call("pay", {"euros": 5})
    runner = rig.runner()
    task = await runner.create_task("q")
    assert (await runner.run_step(task)).status == "waiting"
    retriever.names = ["weather"]
    await rig.serve(rig.agent(worker=Doing(body), tool_retriever=retriever))
    [approval] = await runner.pending_approvals(task)
    await runner.approve(approval.id, by="ann")
    assert (await runner.run_task(task)).output == ["pay", "paid 5"]
    assert len(retriever.queries) == 1
