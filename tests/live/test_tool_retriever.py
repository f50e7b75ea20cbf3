"""An agent whose tools are chosen for each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import (
    Budget,
    KeywordToolRetriever,
    ModelBehaviorError,
    Runner,
    TaskStep,
    TaskStepOutput,
    tool,
)
from holdfast.cli.following.history import TaskHistory
from holdfast.errors import StepFailedError
from holdfast.testing import FakeOpenAI
from holdfast.testing.fake_api.requests import FakeRequest
from holdfast.workers import StepContext
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_status
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


async def test_each_step_offers_what_fits_the_tasks_input(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=KeywordToolRetriever(CATALOGUE, top_k=1)))
    model.call("weather", {"city": "Rome"})
    model.reply("It rains.")
    response = await rig.runner().chat("Will there be rain in Rome?")
    assert str(response) == "It rains."
    assert [offered(request) for request in model.requests] == [["weather"], ["weather"]]
    assert [str(source) for source in response.sources] == ["rain in Rome"]


async def test_the_retriever_is_asked_once_per_step_with_the_tasks_own_input(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    retriever = Chosen("weather")
    await rig.serve(make_agent(tool_retriever=retriever))
    runner = rig.runner()
    task = await runner.create_task("the first request")
    model.call("weather", {"city": "Rome"})
    model.reply("done")
    await runner.run_step(task)
    await runner.run_step(task, input="something else")
    assert retriever.queries == ["the first request"] * 2


async def test_a_call_of_a_tool_not_on_offer_is_told_beside_the_others_results(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=Chosen("weather", "pay")))
    model.calls([("trains", {"city": "Rome"}), ("weather", {"city": "Rome"})])
    model.reply("sorry")
    runner = rig.runner()
    response = await runner.chat("q")
    refused, done = response.sources
    assert (refused.is_error, refused.status, refused.attempts) == (True, "failed", 0)
    assert "'trains' is not on offer in this step. On offer: pay, weather." in refused.content
    assert done.content == "rain in Rome"
    assert model.requests[1].results == {"call_1": refused.content, "call_2": done.content}
    assert await runner.verify(response.task_id) == []
    events = [event.kind async for event in runner.step_events(response.task_id)]
    assert events.count("tool_called") == events.count("tool_done") == 2


async def test_the_agents_sdks_dialect_ends_the_run(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    agent = make_agent(tool_retriever=Chosen("weather"))
    await rig.serve(agent)
    model.call("trains", {"city": "Rome"})
    with pytest.raises(ModelBehaviorError, match="Tool trains not found in agent agent"):
        await Runner.run(agent, "q", runner=rig.runner())


async def test_a_run_with_a_conversation_asks_with_its_last_request(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    retriever = Chosen("weather")
    agent = make_agent(tool_retriever=retriever)
    await rig.serve(agent)
    model.reply("hello")
    given = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "second"},
    ]
    await Runner.run(agent, given, runner=rig.runner())
    assert retriever.queries == ["second"]


async def test_what_the_catalogue_says_of_a_tool_holds_when_it_is_chosen(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=Chosen("pay")))
    model.call("pay", {"euros": 5})
    model.reply("paid")
    runner = rig.runner()
    task = await runner.create_task("q")
    waiting = await runner.run_step(task)
    assert waiting.status == "waiting"
    [approval] = await runner.pending_approvals(task)
    await runner.approve(approval.id, by="ann")
    assert str(await runner.run_task(task)) == "paid"


async def test_a_step_that_goes_on_after_a_restart_keeps_its_tools(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        answer = await ctx.call_model()
        results = await ctx.call_tools(answer.message.calls)
        names = [spec.name for spec in await ctx.offered_tools()]
        return ends(step, [*names, *map(str, results)])

    retriever = Chosen("pay")
    await rig.serve(make_agent(worker=Doing(body), tool_retriever=retriever))
    model.call("pay", {"euros": 5})
    runner = rig.runner()
    task = await runner.create_task("q")
    assert (await runner.run_step(task)).status == "waiting"
    retriever.names = ["weather"]
    await rig.serve(make_agent(worker=Doing(body), tool_retriever=retriever))
    [approval] = await runner.pending_approvals(task)
    await runner.approve(approval.id, by="ann")
    assert (await runner.run_task(task)).output == ["pay", "paid 5"]
    assert len(retriever.queries) == 1


async def test_a_wrong_name_parks_the_task_and_it_goes_on_once_that_is_healed(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    retriever = Chosen("swim")
    await rig.serve(make_agent(tool_retriever=retriever))
    runner = rig.runner()
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=r"Chosen.retrieve named 'swim'"):
        await runner.run_step(task)
    assert (await runner.get_task(task)).status == "needs_attention"
    retriever.names = ["weather"]
    model.reply("done")
    assert str(await runner.run_step(task)) == "done"


async def test_an_agent_that_loses_its_retriever_offers_a_running_task_all_its_tools(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=Chosen("weather")))
    runner = rig.runner()
    task = await runner.create_task("q")
    model.call("weather", {"city": "Rome"})
    await runner.run_step(task)
    await rig.serve(make_agent(*CATALOGUE))
    model.reply("done")
    await runner.run_step(task)
    names = [offered(request) for request in model.requests]
    assert names == [["weather"], ["weather", "trains", "pay"]]


async def test_the_budgets_last_call_is_made_without_tools(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=Chosen("weather")))
    model.call("weather", {"city": "Rome"})
    model.reply("enough")
    budget = Budget(max_turns=1, on_exceeded="finish")
    response = await rig.runner().chat("q", budget=budget)
    assert str(response) == "enough"
    assert model.requests[1].body.get("tool_choice") == "none"


async def test_the_live_view_names_the_calls_of_a_step_that_chose_its_tools(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=Chosen("weather")))
    model.call("weather", {"city": "Rome"})
    model.reply("done")
    runner = rig.runner()
    response = await runner.chat("q")
    history = TaskHistory(runner.client, response.task_id)
    happened = [each async for each in history.read(wait=False)]
    assert [h.name for h in happened if h.kind == "calling"] == ["weather"]


# ---- tool_choice


async def test_a_worker_of_ones_own_sees_the_tool_choice_in_the_first_step_only(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        is_last = ctx.n == 2
        following = () if is_last else (step.get_next_step(),)
        return TaskStepOutput(
            output=ctx.tool_choice, task_step=step, next_steps=following, is_last=is_last
        )

    runner = await make_runner(weather, worker=Doing(body), default_tool_choice="required")
    for given, first in ((None, "required"), ("weather", "weather")):
        task = await runner.create_task("q", tool_choice=given)
        await runner.run_task(task)
        seen = [output.output for output in await runner.get_completed_steps(task)]
        assert seen == [first, "auto"]


async def test_a_failed_first_step_that_is_run_again_keeps_its_tool_choice(
    make_runner: MakeRunner,
) -> None:
    failures = [ValueError("once")]

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if failures:
            raise failures.pop()
        return ends(step, ctx.tool_choice)

    runner = await make_runner(weather, worker=Doing(body))
    task = await runner.create_task("q", tool_choice="weather")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    await until_status(runner, task, "needs_attention")
    assert (await runner.run_step(task)).output == "weather"


async def test_a_tool_choice_is_on_offer_whatever_the_retriever_says(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(tool_retriever=Chosen("weather")))
    model.call("trains", {"city": "Rome"})
    model.reply("done")
    response = await rig.runner().chat("q", tool_choice="trains")
    assert [str(source) for source in response.sources] == ["a train to Rome"]
    assert offered(model.requests[0]) == ["weather", "trains"]
